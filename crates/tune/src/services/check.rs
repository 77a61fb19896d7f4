//! A server's own checker, run on a configuration that is not written yet.
//!
//! In a mount namespace of its own, the new files stand where the server will find them, so that includes and paths are
//! those of the real configuration. Everybody else sees the old files. It has the server's rights
//! ([`super::confined`]).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use udpath_files::replace;

use super::confined::{Confined, program};
use super::{FileChange, Service, ServiceError};

/// How long a checker may take. Those that also load zones need seconds.
const LIMIT: Duration = Duration::from_secs(60);

impl Service {
    /// Runs the server's own checker on the configuration as these files would make it. Needs root. Does nothing for a
    /// server without a checker.
    pub(super) fn check(&self, files: &[FileChange]) -> Result<(), ServiceError> {
        let failed = |operation: String| move |cause: io::Error| ServiceError::System { operation, cause };
        let mut arguments = self.checker().into_iter();
        let Some(name) = arguments.next() else { return Ok(()) };
        let checker =
            program(&name, Path::new(&self.program)).map_err(failed(format!("run the checker {name}")))?;
        let folder = tempfile::tempdir().map_err(failed("make a folder for the checker".into()))?;
        let here =
            std::fs::canonicalize(folder.path()).map_err(failed("find the checker's folder".into()))?;
        let copies = here.join("copies");
        std::fs::create_dir(&copies).map_err(failed(format!("make {}", copies.display())))?;
        let mut seen: Vec<(PathBuf, String)> = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let new = here.join(format!("new-{number}"));
            // The script gives it the owner and mode of the old file.
            let written = replace::whole(&new, file.new.as_bytes(), 0o600);
            written.map_err(failed(format!("write {}", new.display())))?;
            seen.push((new, self.here(&file.path)));
        }
        // Relative paths are the same to it as to the server.
        let start = self.start.as_ref().filter(|_| self.config.relative);
        let within = start
            .map_or_else(Vec::new, |folder| vec!["/usr/bin/env".to_owned(), "-C".to_owned(), folder.clone()]);
        let own = std::iter::once(checker.display().to_string()).chain(arguments);
        let command: Vec<String> = within.into_iter().chain(own).collect();
        let confined = Confined {
            rights: &self.rights,
            copies: &copies,
            files: &seen,
            command: &command,
            sees_network: self.profile.check_sees_network,
            changes_root: (!self.view.is_empty() && !self.profile.check_root.is_empty())
                || (self.profile.check_changes_root && self.rights.user == 0),
        };
        let (status, said) = confined.run(LIMIT).map_err(failed(format!("run the checker {name}")))?;
        let said = match status {
            Some(status) if status.success() => return Ok(()),
            None => format!("it did not end within {} s: {said}", LIMIT.as_secs()),
            Some(_) => said,
        };
        Err(ServiceError::Refused { checker: name, user: self.rights.user, said })
    }
}
