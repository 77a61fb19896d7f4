//! Where the files of a server are: those of this machine, those below a folder of it, or others.
//!
//! ```text
//!  a unit, also in a mount namespace with the same files     its /etc/nsd/nsd.conf is ours        ""
//!  nsd, told to change to /srv/dns once it has read it       its /etc/nsd/nsd.conf is ours        ""
//!  named -t /srv/dns                                         its /etc/named.conf is ours below    "/srv/dns"
//!  a container, a file that is mounted over ours, or none    read by its own root, never changed  "/proc/812/root"
//! ```
//! A path means what it means to the server: absolute links begin at its own root, and `..` ends there. A file that
//! does not exist there is not read elsewhere, even if this machine has one of that name.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::fstat;
use udpath_files::Beneath;

use super::Service;
use super::arguments::Arguments;
use super::config::Config;
use super::profile::Profile;
use super::reader::Reader;

/// The file in which Debian lists its packages.
const PACKAGES: &str = "/var/lib/dpkg/status";
/// Longest list of packages that is read, bytes: 3,000 packages take 3 MiB. Lower: versions of large installations are
/// unknown. Higher: a container's file takes more memory.
const MAX_PACKAGES: u64 = 32 << 20;

/// What the paths of a process begin with here, for a server with this main configuration file.
pub(super) fn of(pid: u32, config: &str) -> String {
    let other = format!("/proc/{pid}/root");
    let (Ok(folder), Ok(root)) = (fs::read_link(&other), Beneath::root_of(pid)) else { return other };
    let is_ours = root.find("/").is_ok_and(|found| is_at(&found, &folder)) && real(pid, config).is_some();
    match folder.to_str().filter(|_| is_ours) {
        Some("/") => String::new(),
        Some(folder) => folder.to_owned(),
        None => other,
    }
}

/// Whether a server has changed its root since it read its main configuration file, which is one of this machine: it is
/// told to, there or by its arguments, and its root is the folder named there.
pub(super) fn changed_root(pid: u32, profile: &Profile, arguments: &Arguments, config: &str) -> bool {
    let is_its_root = |folder: &Path| {
        Beneath::root_of(pid).and_then(|root| root.find("/")).is_ok_and(|root| is_at(&root, folder))
    };
    let named = || {
        let chroot = profile.chroot.as_ref()?;
        if let Some(folder) = chroot.option.as_ref().and_then(|option| arguments.option(&[option])) {
            return Some(folder.to_owned());
        }
        let read = Config::read(&Reader::of(pid, "").ok()?, config, profile.format, None).ok()?;
        let line = read.in_effect(&read.find(&chroot.section, &chroot.key))?;
        Some(line.directive.value.clone())
    };
    !is_its_root(Path::new("/"))
        && named().is_some_and(|folder| folder.starts_with('/') && is_its_root(Path::new(&folder)))
}

/// The path on this machine, links resolved, of a file that a process names; `None` if that is not its file, or there
/// is none.
pub(super) fn real(pid: u32, path: &str) -> Option<String> {
    let found = Beneath::root_of(pid).ok()?.find(path).ok()?;
    let here = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
    if is_at(&found, &here) { here.to_str().map(str::to_owned) } else { None }
}

/// Whether a process sees a file there.
pub(super) fn is_file(pid: u32, path: &str) -> bool {
    let found = Beneath::root_of(pid).and_then(|root| root.find(path));
    found.is_ok_and(|found| fs::File::from(found).metadata().is_ok_and(|about| about.is_file()))
}

/// Is the open file what this path leads to?
fn is_at(found: &std::os::fd::OwnedFd, path: &Path) -> bool {
    let there = fs::metadata(path).map(|file| (file.dev(), file.ino()));
    fstat(found).is_ok_and(|file| there.is_ok_and(|there| there == (file.st_dev, file.st_ino)))
}

/// The folder that a process is in now, as it sees it.
pub(super) fn current(pid: u32) -> String {
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_else(|_| "/".into());
    let (here, root) = (link("cwd"), link("root"));
    let here = here.strip_prefix(&root).unwrap_or(&here);
    Path::new("/").join(here).display().to_string()
}

/// A path of a command line that was given in a folder, without `..`.
pub(super) fn absolute(folder: &str, path: &str) -> String {
    // Joining an absolute path replaces what is before it.
    let joined = Path::new("/").join(folder).join(path);
    let plain = joined.components().fold(PathBuf::from("/"), |mut plain, part| {
        match part {
            Component::Normal(name) => plain.push(name),
            // That of the root is the root.
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
        plain
    });
    plain.display().to_string()
}

/// The version in a process's list of packages: `Package: nsd` and, in the same paragraph, `Version: 4.6.1-1`.
pub(super) fn version(pid: u32, package: &str) -> Option<String> {
    let list = Beneath::root_of(pid).ok()?.bytes(PACKAGES, MAX_PACKAGES).ok()?;
    let list = String::from_utf8_lossy(&list);
    let head = format!("Package: {package}");
    let mut lines = list.lines().skip_while(|line| *line != head).take_while(|line| !line.is_empty());
    lines.find_map(|line| line.strip_prefix("Version: ")).map(str::to_owned)
}

impl Service {
    /// Whether its files are others than this machine's.
    pub(super) fn has_other_files(&self) -> bool {
        self.view.starts_with("/proc/")
    }

    /// The file itself on this machine, which a path of the server leads to; of one that does not exist yet, where it
    /// would be. `None`: its file is not one of this machine.
    pub(super) fn real(&self, path: &str) -> Option<String> {
        if self.has_other_files() {
            return None;
        }
        // It read them with the root of this machine.
        let reader = if self.changed_root { std::process::id() } else { self.pid };
        real(reader, path).or_else(|| {
            let path = Path::new(path);
            let folder = real(reader, path.parent()?.to_str()?)?;
            let here = Path::new(&folder).join(path.file_name()?);
            // Something else may be there by a name that the server cannot see.
            let is_new = fs::symlink_metadata(&here).is_err();
            is_new.then(|| here.display().to_string())
        })
    }
}

impl Service {
    /// The command line of the server's own checker: of a server whose root is a folder here, with the option for that.
    pub(super) fn checker(&self) -> Vec<String> {
        let profile = self.profile;
        let parent = Path::new(&self.config_path).parent().unwrap_or(Path::new("/")).display().to_string();
        let name_of = Path::new(&self.config_path).file_stem().unwrap_or_default().display().to_string();
        let (name, rest) = profile.check.split_at(profile.check.len().min(1));
        let root = profile.check_root.iter().filter(|_| !self.view.is_empty());
        let words = name.iter().chain(root).chain(rest).map(|word| {
            let word = word.replace("{config}", &self.config_path).replace("{folder}", &parent);
            word.replace("{root}", &self.view).replace("{name}", &name_of).replace("{program}", &self.program)
        });
        words.collect()
    }

    /// Why its checker cannot check it; `None` if it can, or there is none.
    pub(super) fn unchecked(&self) -> Option<String> {
        let name = self.profile.check.first().filter(|_| self.profile.check_root.is_empty())?;
        let is_elsewhere = !self.view.is_empty() && !self.has_other_files();
        is_elsewhere.then(|| format!("its root is {}, and {name} cannot check files below it", self.view))
    }

    /// A path of it here.
    pub(super) fn here(&self, path: &str) -> String {
        match self.view.as_str() {
            "" => path.to_owned(),
            view => self.real(path).unwrap_or_else(|| format!("{view}{path}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command, Stdio};

    use udpath_lab::needs_root;

    use super::*;

    /// A process whose root is a folder of this machine. It ends with its input.
    struct Jail {
        folder: tempfile::TempDir,
        process: Child,
    }

    impl Jail {
        fn start(lines: &str, files: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().canonicalize().unwrap();
            for path in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, path.to_str().unwrap()).unwrap();
            }
            let mut process = Command::new("perl");
            process.arg("-e").arg(format!("{lines}; print 'x'; close STDOUT; <STDIN>")).arg(&root);
            let mut process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = String::new();
            process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(said, "x");
            Self { folder, process }
        }

        fn pid(&self) -> u32 {
            self.process.id()
        }

        fn root(&self) -> String {
            self.folder.path().canonicalize().unwrap().display().to_string()
        }
    }

    impl Drop for Jail {
        fn drop(&mut self) {
            drop(self.process.stdin.take());
            let _ = self.process.wait();
        }
    }

    const CHROOT: &str = "chroot $ARGV[0] and chdir '/etc' or die $!";

    #[test]
    fn a_root_that_is_a_folder_here_is_no_container() {
        needs_root!();
        let jail = Jail::start(CHROOT, &["etc/named.conf"]);
        let (pid, root) = (jail.pid(), jail.root());
        assert_eq!(of(pid, "/etc/named.conf"), root);
        assert_eq!(real(pid, "/etc/named.conf"), Some(format!("{root}/etc/named.conf")));
        // As the process sees it: a path of its command line, an absolute link, and no way out.
        symlink("/etc/named.conf", jail.folder.path().join("link")).unwrap();
        assert_eq!(real(pid, "/link"), Some(format!("{root}/etc/named.conf")));
        for (path, seen) in [
            ("named.conf", "/etc/named.conf"),
            ("./../etc//named.conf", "/etc/named.conf"),
            ("/../../../etc/shadow", "/etc/shadow"),
            ("../../../etc/passwd", "/etc/passwd"),
        ] {
            assert_eq!(absolute(&current(pid), path), seen);
        }
        assert_eq!(real(pid, "/etc/passwd"), None);
    }

    #[test]
    fn a_file_that_is_missing_there_is_not_ours() {
        needs_root!();
        let jail = Jail::start(CHROOT, &["etc/other.conf"]);
        let pid = jail.pid();
        // Everybody has these.
        for path in ["/etc/passwd", "/etc/hostname"] {
            assert_eq!(of(pid, path), format!("/proc/{pid}/root"));
        }
        symlink("/etc/passwd", jail.folder.path().join("etc/named.conf")).unwrap();
        assert_eq!(of(pid, "/etc/named.conf"), format!("/proc/{pid}/root"));
    }

    #[test]
    fn our_own_root_is_nothing_special_and_a_mount_over_a_file_is_another_file() {
        let own = std::process::id();
        assert_eq!(of(own, "/etc/passwd"), "");
        needs_root!();
        // What systemd does for most units.
        let lines = "syscall(272, 0x20000) and die $!; system('mount --make-rprivate /') and die";
        let unit = Jail::start(lines, &[]);
        assert_eq!(of(unit.pid(), "/etc/passwd"), "");
        let over = format!("{lines}; system('mount', '--bind', \"$ARGV[0]/x\", '/etc/passwd') and die");
        let over = Jail::start(&over, &["x"]);
        assert_eq!(of(over.pid(), "/etc/passwd"), format!("/proc/{}/root", over.pid()));
        assert_eq!(real(over.pid(), "/etc/passwd"), None);
    }

    #[test]
    fn a_list_of_packages_is_a_file_of_a_limited_size() {
        needs_root!();
        let of = |prepare: &dyn Fn(&Path)| {
            let jail = Jail::start(CHROOT, &["etc/x"]);
            fs::create_dir_all(jail.folder.path().join("var/lib/dpkg")).unwrap();
            prepare(&jail.folder.path().join("var/lib/dpkg/status"));
            version(jail.pid(), "nsd")
        };
        let text = "Package: a\nVersion: 1\n\nPackage: nsd\nStatus: ok\nVersion: 4.6.1-1\n";
        assert_eq!(of(&|path| fs::write(path, text).unwrap()).as_deref(), Some("4.6.1-1"));
        assert_eq!(of(&|path| drop(fs::File::create(path).unwrap().set_len(MAX_PACKAGES + 1))), None);
        assert_eq!(of(&|path| symlink("/dev/zero", path).unwrap()), None);
        assert_eq!(of(&|path| symlink("../../../../../../etc/passwd", path).unwrap()), None);
        let fifo = |path: &Path| {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        };
        assert_eq!(of(&fifo), None);
        let zero = |path: &Path| {
            let (mode, device) = (rustix::fs::Mode::RUSR, rustix::fs::makedev(1, 5));
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::CharacterDevice, mode, device)
                .unwrap();
        };
        assert_eq!(of(&zero), None);
    }

    proptest::proptest! {
        #[test]
        fn no_argument_leads_out_of_a_root(path in "[a-z./ ~*$;\n-]{0,40}") {
            let seen = absolute(&current(std::process::id()), &path);
            proptest::prop_assert!(seen.starts_with('/') && !seen.split('/').any(|part| part == ".."), "{}", seen);
        }
    }
}
