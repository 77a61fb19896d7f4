//! The XDP program already attached to an interface, for the error that names it.

use std::ffi::CString;
use std::fmt;

use aya::programs::loaded_programs;
use udpath_netlink::Rtnetlink;

use crate::sys;

/// An XDP program on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    id: u32,
    name: Option<String>,
    mode: &'static str,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        write!(f, " in {} mode", self.mode)
    }
}

/// The XDP program on `interface`; `None` if there is none, or if the kernel does not report it.
pub(crate) fn of(interface: &str) -> Option<Holder> {
    let index = sys::interface_index(&CString::new(interface).ok()?)?;
    let xdp = Rtnetlink::open().ok()?.link(index).ok()?.xdp?;
    let modes = [(xdp.generic, "generic"), (xdp.driver, "native"), (xdp.hardware, "offloaded")];
    let (id, mode) = modes.into_iter().find_map(|(id, mode)| Some((id?, mode)))?;
    let name = loaded_programs()
        .filter_map(Result::ok)
        .find(|program| program.id() == id)
        .and_then(|program| program.name_as_str().map(str::to_owned))
        .filter(|name| !name.is_empty());
    Some(Holder { id, name, mode })
}
