//! A server's own checker, run on a configuration that is not written yet.
//!
//! ```text
//! unshare --mount ─▸ mount --bind NEW FILE ─▸ nsd-checkconf /etc/nsd/nsd.conf
//! ```
//! In a mount namespace of its own, the new files stand where the server will find them, so that includes and paths are
//! those of the real configuration. Everybody else sees the old files.

use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;

use super::restart::finished;
use super::{FileChange, Service, ServiceError};

/// How long a checker may take. Those that also load zones need seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Arguments: the number of files; for each its new copy, its path, and a folder; then the checker. A file that does
/// not exist cannot be mounted over, so a copy of its folder is.
const SCRIPT: &str = r#"set -e
count=$1; shift
while [ "$count" -gt 0 ]; do
    new=$1; path=$2; folder=$3; shift 3
    if [ -e "$path" ]; then
        chown --reference="$path" "$new"; chmod --reference="$path" "$new"
        mount --bind "$new" "$path"
    else
        cp -a "$(dirname "$path")/." "$folder"
        cp "$new" "$folder/$(basename "$path")"; chmod 644 "$folder/$(basename "$path")"
        mount --bind "$folder" "$(dirname "$path")"
    fi
    count=$((count - 1))
done
exec "$@"
"#;

impl Service {
    /// Runs the server's own checker on the configuration as these files would make it. Needs root. Does nothing for a
    /// server without a checker.
    pub(super) fn check(&self, files: &[FileChange]) -> Result<(), ServiceError> {
        let failed = |operation: String| move |cause: io::Error| ServiceError::System { operation, cause };
        let Some(checker) = self.profile.check.first() else { return Ok(()) };
        let folder = tempfile::tempdir().map_err(failed("make a folder for the checker".into()))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--", "/bin/sh", "-c", SCRIPT, "sh"]);
        command.arg(files.len().to_string());
        for (number, file) in files.iter().enumerate() {
            let new = folder.path().join(format!("new-{number}"));
            let beside = folder.path().join(format!("folder-{number}"));
            let written = fs::write(&new, &file.new).and_then(|()| fs::create_dir(&beside));
            written.map_err(failed(format!("write {}", new.display())))?;
            command.arg(&new).arg(self.here(&file.path)).arg(&beside);
        }
        command.args(self.checker());
        let (status, said) = finished(command, LIMIT).map_err(failed(format!("run {checker} in unshare")))?;
        match status {
            Some(status) if status.success() => Ok(()),
            _ => {
                let checker = checker.replace("{program}", &self.program);
                Err(ServiceError::Refused { checker, said })
            }
        }
    }
}
