//! Files below a folder, and answers beside them: `/` and the kernel for this machine, or a captured tree.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, str};

use serde::{Deserialize, Serialize};

use super::{Answer, Question, Source};
use crate::kernel::Kernel;
use crate::{Absence, Fact};

/// Files below a root, and answers: of the kernel for this machine, of files for a captured one. Read anew at each
/// question, so that a live one shows what is true now.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    answers: Answers,
}

#[derive(Debug, Clone)]
enum Answers {
    /// The kernel's; its sockets are of the namespace in which the folder was made.
    Kernel(Arc<Mutex<Kernel>>),
    /// Files below `udpath`; or what is wrong with their index.
    Captured(Result<Index, String>),
}

/// What a capture knows of files beyond their text: `udpath/files.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Index {
    /// Targets of links by their paths.
    #[serde(default)]
    pub(crate) links: BTreeMap<String, String>,
    /// Why a file or directory was not there.
    #[serde(default)]
    pub(crate) absent: BTreeMap<String, Absence>,
}

/// Where a capture's answers are, and the index of its files.
pub(super) const ANSWERS: &str = "udpath";
pub(super) const INDEX: &str = "files.json";

impl Folder {
    /// This machine, as the calling thread sees it: its network namespace, its mounts.
    #[must_use]
    pub fn live() -> Self {
        Self { root: PathBuf::from("/"), answers: Answers::Kernel(Arc::new(Mutex::new(Kernel::open()))) }
    }

    /// A captured tree with `proc`, `sys` and `udpath` in it; each may be missing.
    #[must_use]
    pub fn captured(root: &Path) -> Self {
        let path = root.join(ANSWERS).join(INDEX);
        let index = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{ANSWERS}/{INDEX}: {error}")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Index::default()),
            Err(error) => Err(format!("{ANSWERS}/{INDEX}: {error}")),
        };
        Self { root: root.to_owned(), answers: Answers::Captured(index) }
    }

    /// What the capture's index says; none for a live folder.
    fn index(&self) -> Result<Option<&Index>, Absence> {
        match &self.answers {
            Answers::Kernel(_) => Ok(None),
            Answers::Captured(index) => {
                index.as_ref().map(Some).map_err(|wrong| Absence::NotUnderstood(wrong.clone()))
            }
        }
    }

    fn below(&self, path: &str) -> PathBuf {
        // The kernel resolves /proc/net for the process's first thread, which may be in another namespace.
        let own = if self.is_live() { path.strip_prefix("/proc/net/") } else { None };
        match own {
            Some(name) => Path::new("/proc/thread-self/net").join(name),
            None => self.root.join(path.trim_start_matches('/')),
        }
    }

    const fn is_live(&self) -> bool {
        matches!(self.answers, Answers::Kernel(_))
    }

    /// Why a file or directory could not be read.
    fn why(&self, path: &str, error: &io::Error) -> Absence {
        match self.index() {
            Err(wrong) => wrong,
            Ok(index) => match index.and_then(|index| index.absent.get(path)) {
                Some(absence) => absence.clone(),
                None => self.absence(error),
            },
        }
    }

    fn absence(&self, error: &io::Error) -> Absence {
        // Files of sysfs answer EINVAL, ENODEV, EOPNOTSUPP for what a driver does not do.
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory, _)
                if !self.is_live() =>
            {
                Absence::NotCaptured
            }
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
        let bytes = fs::read(self.below(path)).map_err(|error| self.why(path, &error))?;
        String::from_utf8(bytes).map_err(|_| Absence::NotUnderstood(format!("{path} is not UTF-8")))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        let entries = fs::read_dir(self.below(directory)).map_err(|error| self.why(directory, &error))?;
        // A name that is not UTF-8 is none of the kernel's.
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        sort(&mut names);
        Ok(names)
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        if let Some(target) = self.index()?.and_then(|index| index.links.get(link)) {
            return Ok(target.clone());
        }
        let target = fs::read_link(self.below(link)).map_err(|error| self.why(link, &error))?;
        let text = target.to_str().map(str::to_owned);
        text.ok_or_else(|| Absence::NotUnderstood(format!("the target of {link} is not UTF-8")))
    }

    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence> {
        match &self.answers {
            // A panic between question and answer leaves an old answer behind, and those are told by their number.
            Answers::Kernel(kernel) => kernel.lock().unwrap_or_else(PoisonError::into_inner).ask(question),
            Answers::Captured(_) => {
                let file = format!("{ANSWERS}/{}", question.file());
                // No interface has such a name; a capture that says so is not followed out of its folder.
                if file.contains("..") {
                    return Err(Absence::NotUnderstood(format!("{file} is no interface's file")));
                }
                let text = fs::read_to_string(self.root.join(&file)).map_err(|error| self.absence(&error))?;
                question.decode(&text, &file)
            }
        }
    }
}

/// Names in the order of their numbers.
pub(super) fn sort(names: &mut [String]) {
    names.sort_by(|a, b| numbered(a).cmp(&numbered(b)));
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

    #[test]
    fn a_capture_says_why_and_where_its_links_point() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/class/net/eth0/device/numa_node", "1\n");
        write(
            "udpath/channels/eth0.json",
            r#"{"value": {"now": {"combined": 4}, "max": {}}, "from": {"ethtool": "channels-get"}}"#,
        );
        write("udpath/rings/eth0.json", r#"{"absent": "not-supported"}"#);
        write(
            "udpath/files.json",
            r#"{"links": {"/sys/class/net/eth0/device": "../../../0000:01:00.0"}, "absent": {"/proc/net/packet": "not-there"}}"#,
        );
        let captured = Folder::captured(folder.path());
        let source: &dyn Source = &captured;
        assert_eq!(source.target("/sys/class/net/eth0/device"), Ok("../../../0000:01:00.0".into()));
        assert_eq!(source.text("/sys/class/net/eth0/device/numa_node"), Ok("1\n".into()));
        assert_eq!(source.text("/proc/net/packet"), Err(Absence::NotThere));
        assert_eq!(source.text("/sys/class/net/eth0"), Err(Absence::NotCaptured));
        assert_eq!(source.channels("eth0").unwrap().value.now.combined, Some(4));
        assert_eq!(source.rings("eth0"), Err(Absence::NotSupported));
        assert_eq!(source.rings("eth1"), Err(Absence::NotCaptured));
        assert!(matches!(source.rings("../../rings/eth0"), Err(Absence::NotUnderstood(_))));
        write("udpath/files.json", "{");
        assert!(matches!(
            Folder::captured(folder.path()).text("/proc/net/packet"),
            Err(Absence::NotUnderstood(why)) if why.starts_with("udpath/files.json: ")
        ));
    }

    #[test]
    fn a_live_folder_answers_for_this_machine() {
        let live = Folder::live();
        let source: &dyn Source = &live;
        let links = source.links().unwrap().value;
        assert!(links.iter().any(|link| link.loopback && link.name == "lo" && link.index == 1), "{links:?}");
    }
}
