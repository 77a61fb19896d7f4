//! Who can change a file: for programs that root runs, and for text that it believes.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Mode bits that let group or others write.
const WRITABLE: u32 = 0o022;
/// Names in a folder with this bit can be replaced only by their owners.
const STICKY: u32 = 0o1000;
/// Bit of write access for users who are neither the owner nor of the group.
const OTHERS_WRITE: u32 = 0o002;

/// The part of a path that somebody other than root can change.
#[derive(Debug)]
pub struct Changeable {
    /// The file, or a folder above it.
    pub part: PathBuf,
    /// How: `belongs to user 1000`.
    pub why: String,
}

impl fmt::Display for Changeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part.display(), self.why)
    }
}

impl std::error::Error for Changeable {}

/// Links that a path may lead through, as many as the kernel follows (`MAXSYMLINKS` of linux/namei.h).
const LINKS: usize = 40;

/// The path with links resolved, if only root can change what it leads to: the file, every folder above it, and every
/// folder with a link on the way belong to root, and neither group nor others may write to them. A sticky folder does
/// not qualify: it may be emptied.
///
/// # Errors
/// The first part of the path for which that is not so, beginning at the root.
pub fn only_root(path: &Path) -> Result<PathBuf, Changeable> {
    let real = resolved(path)?;
    match about(&real)? {
        about if about.is_symlink() => Err(Changeable { part: real, why: "is a symbolic link".to_owned() }),
        about => whose(&real, &about).map(|()| real),
    }
}

/// The same for a file that is to be written: if there is none yet, its folder counts.
///
/// # Errors
/// As [`only_root`]; or its folder does not exist.
pub fn only_root_writes(path: &Path) -> Result<PathBuf, Changeable> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return only_root(path);
            };
            Ok(only_root(folder)?.join(name))
        }
        _ => only_root(path),
    }
}

/// Follows a path name by name, and looks at every folder that it is in on the way.
fn resolved(path: &Path) -> Result<PathBuf, Changeable> {
    let cannot = |why: String| Changeable { part: path.to_owned(), why };
    let absolute = std::path::absolute(path).map_err(|error| cannot(format!("cannot be found: {error}")))?;
    let mut left: Vec<OsString> = names(&absolute);
    let (mut here, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = left.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        whose(&here, &about(&here)?)?;
        let next = here.join(&name);
        if !about(&next)?.is_symlink() {
            here = next;
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(cannot(format!("leads through more than {LINKS} symbolic links")));
        }
        let target =
            std::fs::read_link(&next).map_err(|error| cannot(format!("cannot be found: {error}")))?;
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        left.extend(names(&target));
    }
    Ok(here)
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let kept = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = kept.collect();
    names.reverse();
    names
}

fn about(part: &Path) -> Result<std::fs::Metadata, Changeable> {
    std::fs::symlink_metadata(part)
        .map_err(|error| Changeable { part: part.to_owned(), why: format!("cannot be found: {error}") })
}

fn whose(part: &Path, about: &std::fs::Metadata) -> Result<(), Changeable> {
    changeable(about).map_or(Ok(()), |why| Err(Changeable { part: part.to_owned(), why }))
}

/// How somebody other than root can change a file or folder: `belongs to user 1000`; [`None`]: nobody else can. Access
/// control lists are covered: their mask shows as the group's bits.
#[must_use]
pub fn changeable(about: &std::fs::Metadata) -> Option<String> {
    if about.uid() != 0 {
        return Some(format!("belongs to user {}", about.uid()));
    }
    (about.mode() & WRITABLE != 0)
        .then(|| format!("is writable by users other than root (mode {:o})", about.mode() & 0o7777))
}

/// The path of a folder, if only root and this user can change what it leads to: each folder on the way belongs to one
/// of them, and neither group nor others may write to it. A sticky folder qualifies, such as `/tmp`: others cannot
/// replace what is not theirs in it. `path` has no links.
///
/// # Errors
/// The first part of the path for which that is not so, beginning with the folder.
pub fn only_mine(path: &Path) -> Result<(), Changeable> {
    mine(path, 0)
}

/// The same for a folder in which one of this user's own is about to be made: that it is sticky is enough, since nobody
/// else can then rename or remove what is made there.
///
/// # Errors
/// As [`only_mine`].
pub(crate) fn only_mine_within(path: &Path) -> Result<(), Changeable> {
    mine(path, 1)
}

/// Why others can make files in a folder, whose path has no links. To a user its group is no other: with a umask of 002
/// it is the user's own. To root it is.
#[must_use]
pub fn shared(folder: &Path) -> Option<Changeable> {
    let why = only_mine(folder).err()?;
    let own = std::fs::symlink_metadata(folder)
        .is_ok_and(|about| is_trusted(about.uid()) && about.mode() & OTHERS_WRITE == 0);
    (rustix::process::geteuid().is_root() || !own).then_some(why)
}

/// `depth`: how many folders the path is above the one that is this user's own.
fn mine(path: &Path, depth: usize) -> Result<(), Changeable> {
    for (depth, part) in (depth..).zip(path.ancestors()) {
        let about = std::fs::symlink_metadata(part)
            .map_err(|error| Changeable { part: part.to_owned(), why: format!("cannot be read: {error}") })?;
        let (owner, mode) = (about.uid(), about.mode());
        // Root of a user namespace sees the owner of what is around it as unmapped.
        let owner = if depth > 0 && is_around(owner) { 0 } else { owner };
        let mode = if depth > 0 && mode & STICKY != 0 { mode & !WRITABLE } else { mode };
        if let Some(why) = open_to_others(owner, mode) {
            return Err(Changeable { part: part.to_owned(), why });
        }
    }
    Ok(())
}

/// How somebody other than root and this user can change a file or folder; [`None`]: nobody else can.
#[must_use]
pub fn open_to_others(owner: u32, mode: u32) -> Option<String> {
    if !is_trusted(owner) {
        return Some(format!("belongs to user {owner}"));
    }
    (mode & WRITABLE != 0).then(|| format!("can be changed by other users (mode {:o})", mode & 0o7777))
}

/// Is it root, or the user that this process acts as?
#[must_use]
pub fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Is it the number that stands for users whom this user namespace does not have? Those are root and others outside;
/// what they could make this process do, it does with the rights of the user outside.
pub(crate) fn is_around(user: u32) -> bool {
    let all = |map: &str| map.split_whitespace().eq(["0", "0", "4294967295"]);
    let unmapped = || {
        let text = crate::kernel::text("/proc/sys/kernel/overflowuid").ok()?;
        text.trim().parse::<u32>().ok()
    };
    user != 0
        && crate::kernel::text("/proc/self/uid_map").is_ok_and(|map| !all(&map))
        && unmapped() == Some(user)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_part_of_the_path_counts() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(only_root(Path::new("/bin/sh")).unwrap(), shell);
        // For any user, a temporary folder has a world-writable parent.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let program = folder.path().join("udpath");
        fs::copy(&shell, &program).unwrap();
        let said = |program: &Path| only_root(program).unwrap_err().to_string();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o775)).unwrap();
        let wrong = said(&program);
        assert!(wrong.contains("writable by users") || wrong.contains("belongs to"), "{wrong}");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(said(&program).contains("/tmp"), "{}", said(&program));
        assert!(said(Path::new("/no/such")).contains("cannot be found"));
    }

    #[test]
    fn folders_with_a_link_on_the_way_count_too() {
        // Only root has one that does not let others in.
        let Ok(folder) = tempfile::tempdir_in("/run") else { return };
        if changeable(&fs::metadata("/run").unwrap()).is_some() {
            return;
        }
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("real/etc")).unwrap();
        fs::write(at("real/etc/x"), "").unwrap();
        fs::set_permissions(at("real/etc/x"), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("real/etc", at("link")).unwrap();
        let real = fs::canonicalize(at("real/etc/x")).unwrap();
        assert_eq!(only_root(&at("link/x")).unwrap(), real);
        assert_eq!(only_root(&at("link/../etc/x")).unwrap(), real);
        assert_eq!(only_root_writes(&at("link/new")).unwrap(), real.with_file_name("new"));
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        assert!(only_root(&at("loop")).unwrap_err().to_string().contains("symbolic links"));
        // A link that somebody else can replace, to a file that only root can change.
        let open = tempfile::tempdir_in("/tmp").unwrap();
        std::os::unix::fs::symlink(&real, open.path().join("link")).unwrap();
        let said = only_root(&open.path().join("link")).unwrap_err().to_string();
        assert!(said.contains("/tmp is writable"), "{said}");
        let said = only_root_writes(&open.path().join("new")).unwrap_err().to_string();
        assert!(said.contains("/tmp is writable"), "{said}");
        assert!(only_root_writes(&at("no/new")).unwrap_err().to_string().contains("cannot be found"));
    }
}
