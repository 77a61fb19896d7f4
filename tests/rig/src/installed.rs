//! The program where a unit may run it: in a folder that only root can change. A clone need not be in one.

use std::path::PathBuf;

use tempfile::TempDir;

/// Below it only root makes folders; in a fresh root (`scripts/fresh-root.sh`) it is empty.
const PARENT: &str = "/var/lib";

/// A copy of the built program, as an administrator would install it. Removed when dropped.
#[derive(Debug)]
pub struct Installed {
    folder: TempDir,
}

impl Installed {
    /// Installs it.
    ///
    /// # Panics
    /// The program is not built, or this is not root.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it copies a large file, and may panic")]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("udpath-installed-").tempdir_in(PARENT);
        let installed = Self { folder: folder.expect("root makes a folder below /var/lib") };
        std::fs::copy(crate::program(), installed.program()).expect("the program is copied");
        installed
    }

    /// Its path.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.folder.path().join("udpath")
    }
}
