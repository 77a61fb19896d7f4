//! What a server of udpath's own is started with in a lab, so that its replies to a load are valid.

use std::ffi::OsString;

use anyhow::Context;
use tempfile::TempDir;
use udpath_protocols::{Options, ProtocolEntry, ServerValue};

use crate::exit::Failure;

/// Options of `udpath serve`, and the files that they name for as long as this lives.
pub(super) struct ServerOptions {
    arguments: Vec<OsString>,
    _folder: TempDir,
}

impl ServerOptions {
    /// Those of a server of `protocol` for a load with these options.
    pub(super) fn new(protocol: &ProtocolEntry, load: &Options) -> Result<Self, Failure> {
        let folder =
            tempfile::tempdir().context("cannot make a folder for the files of the lab's servers")?;
        let mut arguments = Vec::new();
        for option in (protocol.server_for)(load)? {
            let value = match option.value {
                ServerValue::Text(text) => text.into(),
                ServerValue::FileAt(path) => path.into_os_string(),
                ServerValue::FileWith(text) => {
                    let path = folder.path().join(option.spec.name);
                    let written = udpath_files::replace::whole(&path, text.as_bytes(), 0o600);
                    written.with_context(|| format!("cannot write {}", path.display()))?;
                    path.into_os_string()
                }
            };
            arguments.extend([format!("--{}", option.spec.name).into(), value]);
        }
        Ok(Self { arguments, _folder: folder })
    }

    /// The options, as `udpath serve` takes them after the protocol's name.
    pub(super) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}
