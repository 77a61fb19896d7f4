//! The machine that a verb reads: this one, one of its network namespaces, or a capture.

use std::path::Path;

use udpath_host::Source;
use udpath_host::namespace::{self, Place};
use udpath_host::source::Folder;
use udpath_support::Capture;

use crate::args::place::{NamespaceArgs, PlaceArgs};
use crate::exit::{Done, Failure};

/// Does `work` in a network namespace, with a /sys that belongs to it.
pub(crate) fn inside(place: &Place, work: impl FnOnce() -> Done + Send) -> Done {
    namespace::inside(place, work)?
}

/// Calls `look` with this machine, in the selected namespace.
pub(crate) fn look_live<T: Send>(
    args: &NamespaceArgs,
    look: impl FnOnce(&dyn Source) -> T + Send,
) -> Result<T, Failure> {
    Ok(namespace::inside(&args.place(), || look(&Folder::live()))?)
}

/// Calls `look` with the selected machine.
pub(crate) fn look<T: Send>(
    args: &PlaceArgs,
    look: impl FnOnce(&dyn Source) -> T + Send,
) -> Result<T, Failure> {
    match &args.sysroot {
        Some(path) => Ok(look(&*open_capture(path)?.now())),
        None => look_live(&args.namespace, look),
    }
}

/// Opens the capture given to `--sysroot`.
pub(crate) fn open_capture(path: &Path) -> Result<Capture, Failure> {
    Capture::open(path).map_err(|error| Failure::Usage(format!("--sysroot {}: {error}", path.display())))
}
