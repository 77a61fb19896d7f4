//! A sysctl that a test changes.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Writes the value back once its input ends: with the test, however that ends.
const RESTORE: &str = r#"cat > /dev/null; echo "$1" > "$0""#;

/// Writes back what a sysctl was, when dropped and also if the process is killed.
#[derive(Debug)]
pub struct SysctlGuard {
    path: PathBuf,
    was: String,
    restorer: Child,
}

impl SysctlGuard {
    /// For a sysctl by its path below /proc/sys: `net/core/rmem_max`.
    ///
    /// # Panics
    /// It cannot be read.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from("/proc/sys").join(name);
        let was = fs::read_to_string(&path).unwrap().trim().to_owned();
        let mut restorer = Command::new("sh");
        restorer.args(["-c", RESTORE]).arg(&path).arg(&was).stdin(Stdio::piped());
        Self { path, was, restorer: restorer.spawn().unwrap() }
    }

    /// What it was.
    #[must_use]
    pub fn was(&self) -> &str {
        &self.was
    }

    /// What it is.
    ///
    /// # Panics
    /// It cannot be read.
    #[must_use]
    pub fn now(&self) -> String {
        fs::read_to_string(&self.path).unwrap().trim().to_owned()
    }

    /// Writes back what it was.
    ///
    /// # Panics
    /// The kernel refuses.
    pub fn restore(&self) {
        fs::write(&self.path, &self.was).unwrap();
    }
}

impl Drop for SysctlGuard {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        let _ = self.restorer.wait();
    }
}
