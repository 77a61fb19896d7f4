use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

const LABEL: &str = "security.selinux";

#[test]
fn a_file_is_replaced_whole_and_keeps_what_is_not_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.conf");
    whole(&path, b"first, and longer", 0o640).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    let file = File::open(&path).unwrap();
    fsetxattr(&file, "user.note", b"kept", XattrFlags::empty()).unwrap();
    // As a label of SELinux is kept, which only root sets where the kernel has no such module.
    let labelled = fsetxattr(&file, LABEL, b"system_u:object_r:etc_t:s0\0", XattrFlags::empty()).is_ok();
    assert!(labelled || !rustix::process::geteuid().is_root());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    whole(&path, b"second", 0o600).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o604);
    let mut value = [0; 16];
    let length = fgetxattr(File::open(&path).unwrap(), "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"kept");
    let mut label = [0; 64];
    if labelled {
        let length = fgetxattr(File::open(&path).unwrap(), LABEL, &mut label[..]).unwrap();
        assert_eq!(&label[..length], b"system_u:object_r:etc_t:s0\0");
    }
    assert_eq!(names(folder.path()), ["x.conf"]);
    assert!(remove(&path).unwrap() && !remove(&path).unwrap());
    assert!(!remove(&folder.path().join("no/x")).unwrap());
}

#[test]
fn nothing_is_followed_and_nothing_waits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("secret"), b"secret").unwrap();
    // Every name that the next writes will take, as a link and as a FIFO.
    for number in 0..4096 {
        symlink(at("secret"), at(&format!(".x.conf.udpath-{}-{number}", std::process::id()))).unwrap();
    }
    whole(&at("x.conf"), b"text", 0o644).unwrap();
    assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
    assert!(fs::symlink_metadata(at("x.conf")).unwrap().is_file());

    symlink(at("secret"), at("link")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    symlink(at("folder"), at("also")).unwrap();
    rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::hard_link(at("x.conf"), at("y.conf")).unwrap();
    for (name, why) in [
        ("link", "symbolic link"),
        ("also/x", "symbolic link"),
        ("fifo", "not a regular file"),
        ("folder", "not a regular file"),
        ("x.conf", "2 names (hard links)"),
    ] {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let owned = owned(&at(name), b"text", 0o644, own);
        for refused in [check(&at(name)), whole(&at(name), b"text", 0o644), owned] {
            let said = refused.unwrap_err().to_string();
            assert!(said.contains(why), "{name}: {said}");
        }
    }
    assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
}

#[test]
fn files_left_by_killed_runs_are_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    // No pid exceeds 2^22 (proc(5), pid_max).
    for name in [".x.udpath-99999999-0", ".x.udpath-1-0", ".x.udpath-", ".y.udpath-99999999-0"] {
        fs::write(folder.path().join(name), b"half").unwrap();
    }
    check(&folder.path().join("x")).unwrap();
    assert_eq!(names(folder.path()), [".x.udpath-", ".x.udpath-1-0", ".y.udpath-99999999-0"]);
}

#[test]
fn access_control_lists_are_those_of_the_old_file() {
    /// As setxattr(2) takes it: version 2; each entry a tag, its permissions, and whose.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
    const NOBODY: u32 = u32::MAX;
    let granted = list(&[(1, 6, NOBODY), (2, 4, 1234), (4, 4, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)]);
    let folder = tempfile::tempdir().unwrap();
    let (plain, listed) = (folder.path().join("plain"), folder.path().join("listed"));
    for path in [&plain, &listed] {
        whole(path, b"old", 0o640).unwrap();
    }
    let set =
        |path: &Path, name: &str| fsetxattr(File::open(path).unwrap(), name, &granted, XattrFlags::empty());
    match set(&listed, "system.posix_acl_access") {
        // A file system without them has nothing to lose.
        Err(Errno::NOTSUP) => return,
        set => set.unwrap(),
    }
    set(folder.path(), "system.posix_acl_default").unwrap();
    for (path, has) in [(&plain, false), (&listed, true)] {
        whole(path, b"new", 0o600).unwrap();
        let now = attributes(&File::open(path).unwrap()).unwrap();
        assert_eq!(now.iter().any(|name| name == "system.posix_acl_access"), has, "{path:?} {now:?}");
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o640);
    }
}
