//! Files below a folder: `/` for this machine, or a captured tree.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{fs, str};

use super::Source;
use crate::Absence;

/// Files below a root. Read anew at each question, so that a live one shows what is true now.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    /// What is not there was not captured, rather than not there.
    captured: bool,
}

impl Folder {
    /// This machine, as this process sees it.
    #[must_use]
    pub fn live() -> Self {
        Self { root: PathBuf::from("/"), captured: false }
    }

    /// A captured tree with `proc` and `sys` in it.
    #[must_use]
    pub fn captured(root: &Path) -> Self {
        Self { root: root.to_owned(), captured: true }
    }

    fn below(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn absence(&self, error: &io::Error) -> Absence {
        // Files of sysfs answer EINVAL, ENODEV, EOPNOTSUPP for what a driver does not do.
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::NotFound | ErrorKind::NotADirectory, _) if self.captured => Absence::NotCaptured,
            (ErrorKind::NotFound | ErrorKind::NotADirectory, _) | (_, Some(libc::ENODEV | libc::ESRCH)) => {
                Absence::NotThere
            }
            (ErrorKind::PermissionDenied, _) => Absence::NotPermitted { needs: "root".into() },
            (_, Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT)) => Absence::NotSupported,
            _ => Absence::Failed(error.to_string()),
        }
    }
}

impl Source for Folder {
    fn text(&self, path: &str) -> Result<String, Absence> {
        let bytes = fs::read(self.below(path)).map_err(|error| self.absence(&error))?;
        String::from_utf8(bytes).map_err(|_| Absence::NotUnderstood(format!("{path} is not UTF-8")))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        let entries = fs::read_dir(self.below(directory)).map_err(|error| self.absence(&error))?;
        // A name that is not UTF-8 is none of the kernel's.
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_by(|a, b| numbered(a).cmp(&numbered(b)));
        Ok(names)
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        let target = fs::read_link(self.below(link)).map_err(|error| self.absence(&error))?;
        let text = target.to_str().map(str::to_owned);
        text.ok_or_else(|| Absence::NotUnderstood(format!("the target of {link} is not UTF-8")))
    }
}

/// A name as its stem and the number it ends in, if it does.
fn numbered(name: &str) -> (&str, Option<u64>, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().ok(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_order_of_their_numbers() {
        let mut names = ["rx-10", "tx-0", "rx-2", "rx-0", "rx"];
        names.sort_by(|a, b| numbered(a).cmp(&numbered(b)));
        assert_eq!(names, ["rx", "rx-0", "rx-2", "rx-10", "tx-0"]);
    }

    #[test]
    fn what_is_not_there_says_so() {
        let live = Folder::live();
        assert_eq!(live.text("/proc/no-such-file"), Err(Absence::NotThere));
        let captured = Folder::captured(Path::new("/proc/self"));
        assert_eq!(captured.text("/proc/version"), Err(Absence::NotCaptured));
        assert!(live.text("/proc/version").is_ok_and(|text| text.starts_with("Linux version")));
    }
}
