//! Files below a folder, with answers beside them: `/` and the kernel for this machine, or a captured tree, which no
//! path can escape ([`Beneath`]).

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::str;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat, readlinkat_raw};
use serde::{Deserialize, Serialize};

use udpath_files::{Beneath, MAX_NAMES, kernel};

use super::{Answer, Question, Source, cut};
use crate::client::Client;
use crate::{Absence, Fact};

/// Files below a root, and answers: from the kernel for this machine, from files for a captured one. Each question is
/// read anew, so a live source returns current values.
#[derive(Debug, Clone)]
pub struct Folder(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// This machine. The kernel sockets belong to the namespace in which the folder was created.
    Live(Arc<Mutex<Client>>),
    /// A captured tree; [`None`]: the folder does not exist, so it is empty. Its index, or the error in it.
    Captured(Option<Beneath>, Result<Index, String>),
}

/// What a capture records of files beyond their text: `udpath/files.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// Targets of links, by path.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Why a file or directory was not there.
    #[serde(default)]
    pub absent: BTreeMap<String, Absence>,
}

/// Bytes of a directory that are read at once, some 1,000 descriptors. Lower: more system calls. Higher: more of the
/// stack.
const DIRECTORY_BUFFER: usize = 24 << 10;
/// Longest target of a link in `/proc` and `/sys`: the kernel forms it in one page. A longer one is cut.
const MAX_TARGET: usize = 4096;

/// Maximum size of one file of a capture, and of a file outside `/proc` and `/sys`, in bytes. The largest is the list
/// of 10,000 sockets, some 5 MiB. Lower: a larger machine is refused. Higher: a hostile capture uses more memory before
/// it is refused.
pub const MAX_FILE: u64 = 32 << 20;
/// The directory in a capture that holds the answers and the file index.
pub const ANSWERS: &str = "udpath";
/// The index of links and absent files.
pub const INDEX: &str = "files.json";

impl Folder {
    /// This machine, as the calling thread sees it: its network namespace, its mounts.
    #[must_use]
    pub fn live() -> Self {
        Self(Kind::Live(Arc::new(Mutex::new(Client::open()))))
    }

    /// A captured tree with `proc`, `sys` and `udpath` in it; each may be missing. No link in it can lead outside.
    #[must_use]
    pub fn captured(root: &Path) -> Self {
        Self::of(Beneath::open(root).ok())
    }

    fn of(folder: Option<Beneath>) -> Self {
        let file = format!("{ANSWERS}/{INDEX}");
        let index = match folder.as_ref().map(|folder| folder.bytes(&file, MAX_FILE)) {
            Some(Ok(bytes)) => serde_json::from_slice(&bytes).map_err(|error| format!("{file}: {error}")),
            None => Ok(Index::default()),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(Index::default()),
            Some(Err(error)) => Err(format!("{file}: {error}")),
        };
        Self(Kind::Captured(folder, index))
    }

    /// The captured tree in a subfolder of a captured one, such as `now`; `None` if there is no such folder.
    #[must_use]
    pub fn within(&self, name: &str) -> Option<Self> {
        match &self.0 {
            Kind::Live(_) => None,
            Kind::Captured(folder, _) => {
                folder.as_ref()?.folder(name).ok().map(|folder| Self::of(Some(folder)))
            }
        }
    }

    /// The capture's index; `None` for a live folder.
    fn index(&self) -> Result<Option<&Index>, Absence> {
        match &self.0 {
            Kind::Live(_) => Ok(None),
            Kind::Captured(_, index) => {
                index.as_ref().map(Some).map_err(|wrong| Absence::NotUnderstood(wrong.clone()))
            }
        }
    }

    const fn is_live(&self) -> bool {
        matches!(self.0, Kind::Live(_))
    }

    /// Why a file or directory could not be read.
    fn why(&self, path: &str, error: &io::Error) -> Absence {
        match self.index() {
            Err(wrong) => wrong,
            Ok(index) => match index.and_then(|index| index.absent.get(path)) {
                Some(absence) => absence.clone(),
                None => self.absence(path, error),
            },
        }
    }

    fn absence(&self, path: &str, error: &io::Error) -> Absence {
        // sysfs files return EINVAL, ENODEV or EOPNOTSUPP for what a driver does not support.
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
            // Errors from this crate name the path, and have no errno.
            (_, None) => Absence::NotUnderstood(format!("{path} {error}")),
            _ => Absence::Failed(error.to_string()),
        }
    }
}

/// Path of a file on this machine.
fn live(path: &str) -> PathBuf {
    // The kernel resolves /proc/net for the process's main thread, which may be in another namespace.
    match path.strip_prefix("/proc/net/") {
        Some(name) => Path::new("/proc/thread-self/net").join(name),
        None => Path::new("/").join(path.trim_start_matches('/')),
    }
}

/// The links in a directory. Resolving each from the open directory, and without allocation, takes half the time: a
/// server may have tens of thousands of descriptors.
fn targets(directory: &Path, each: &mut dyn FnMut(&str, &str)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, directory, flags, Mode::empty())?;
    let mut entries = [MaybeUninit::uninit(); DIRECTORY_BUFFER];
    let mut entries = RawDir::new(&folder, &mut entries);
    let mut buffer = [0; MAX_TARGET];
    // A directory that disappears while it is read ends there.
    while let Some(Ok(entry)) = entries.next() {
        let Ok(length) = readlinkat_raw(&folder, entry.file_name(), &mut buffer) else { continue };
        let target = buffer.get(..length).map(str::from_utf8);
        if let (Ok(name), Some(Ok(target))) = (entry.file_name().to_str(), target) {
            each(name, target);
        }
    }
    Ok(())
}

/// Is the path one of the kernel's own file systems, and not of the files of a process (`/proc/PID/root/...`)?
fn of_kernel(path: &str) -> bool {
    path.starts_with("/proc/") || path.starts_with("/sys/")
}

fn missing() -> io::Error {
    ErrorKind::NotFound.into()
}

impl Source for Folder {
    fn text(&self, path: &str) -> Result<String, Absence> {
        let bytes = match &self.0 {
            Kind::Live(_) if of_kernel(path) => kernel::bytes(live(path)),
            Kind::Live(_) => udpath_files::bytes(live(path), MAX_FILE),
            Kind::Captured(folder, _) => {
                folder.as_ref().map_or_else(|| Err(missing()), |folder| folder.bytes(path, MAX_FILE))
            }
        };
        let bytes = bytes.map_err(|error| self.why(path, &error))?;
        String::from_utf8(bytes).map_err(|_| Absence::NotUnderstood(format!("{path} is not UTF-8")))
    }

    fn start(&self, path: &str, length: usize) -> Result<String, Absence> {
        if !self.is_live() {
            return self.text(path).map(|text| cut(text, length));
        }
        let bytes = kernel::start(live(path), length).map_err(|error| self.why(path, &error))?;
        Ok(cut(String::from_utf8_lossy(&bytes).into_owned(), length))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        let names = match &self.0 {
            Kind::Live(_) => udpath_files::names(live(directory), MAX_NAMES),
            Kind::Captured(folder, _) => {
                folder.as_ref().map_or_else(|| Err(missing()), |folder| folder.names(directory, MAX_NAMES))
            }
        };
        let names = names.map_err(|error| self.why(directory, &error))?;
        // The kernel has no names that are not UTF-8.
        let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
        sort(&mut names);
        Ok(names)
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        if let Some(target) = self.index()?.and_then(|index| index.links.get(link)) {
            return Ok(target.clone());
        }
        let target = match &self.0 {
            Kind::Live(_) => std::fs::read_link(live(link)),
            Kind::Captured(folder, _) => {
                folder.as_ref().map_or_else(|| Err(missing()), |folder| folder.target(link))
            }
        };
        let target = target.map_err(|error| self.why(link, &error))?;
        let text = target.to_str().map(str::to_owned);
        text.ok_or_else(|| Absence::NotUnderstood(format!("the target of {link} is not UTF-8")))
    }

    fn targets(&self, directory: &str, each: &mut dyn FnMut(&str, &str)) -> Result<(), Absence> {
        if self.is_live() {
            return targets(&live(directory), each).map_err(|error| self.why(directory, &error));
        }
        for name in self.names(directory)? {
            if let Ok(target) = self.target(&format!("{directory}/{name}")) {
                each(&name, &target);
            }
        }
        Ok(())
    }

    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence> {
        match &self.0 {
            // A panic between question and answer leaves a stale answer, which its sequence number identifies.
            Kind::Live(kernel) => kernel.lock().unwrap_or_else(PoisonError::into_inner).ask(question),
            Kind::Captured(..) => {
                let file = format!("{ANSWERS}/{}", question.file());
                // An interface name cannot contain this; a capture that uses it must not reach another of its files.
                if file.contains("..") {
                    return Err(Absence::NotUnderstood(format!("{file} does not belong to an interface")));
                }
                question.decode(&self.text(&file)?, &file)
            }
        }
    }
}

/// Sorts names by number.
pub fn sort(names: &mut [String]) {
    names.sort_by(|a, b| numbered(a).cmp(&numbered(b)));
}

/// A name as its stem, its final number if any, and the rest.
fn numbered(name: &str) -> (&str, Option<u64>, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().ok(), name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_come_in_the_order_of_their_numbers() {
        let mut names = ["rx-10", "tx-0", "rx-2", "rx-0", "rx"];
        names.sort_by(|a, b| numbered(a).cmp(&numbered(b)));
        assert_eq!(names, ["rx", "rx-0", "rx-2", "rx-10", "tx-0"]);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("é".repeat(400), 256).chars().count(), 128);
        assert_eq!(cut(format!("x{}", "é".repeat(400)), 256).len(), 255);
        assert_eq!(cut("short".into(), 256), "short");
    }

    #[test]
    fn targets_of_links_are_those_that_are_read_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        for name in 0..2000 {
            std::os::unix::fs::symlink(format!("to-{name}"), folder.path().join(name.to_string())).unwrap();
        }
        fs::write(folder.path().join("file"), "not a link").unwrap();
        let live = Folder::live();
        let mut found = Vec::new();
        live.targets(path, &mut |name, target| found.push((name.to_owned(), target.to_owned()))).unwrap();
        found.sort();
        let one_by_one = live.names(path).unwrap().into_iter();
        let mut expected: Vec<_> = one_by_one
            .filter_map(|name| live.target(&format!("{path}/{name}")).ok().map(|target| (name, target)))
            .collect();
        expected.sort();
        assert_eq!(found.len(), 2000);
        assert_eq!(found, expected);
        let none = live.targets("/proc/no-such-directory", &mut |_, _| panic!("no directory, no links"));
        assert_eq!(none, Err(Absence::NotThere));
    }

    #[test]
    fn missing_files_are_reported() {
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
