//! Files of `/proc`, `/sys` and other file systems of the kernel.
//!
//! They are small and are read in full, but for those whose length a process chooses: a command line may be 64 GiB of
//! mapped memory. Links of `/proc` that lead to the files of a process (`/proc/PID/root`, `cwd`, `exe`, `fd/N`) are not
//! followed in the middle of a path: [`crate::Beneath::root_of`] is for that.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2};
use rustix::io::Errno;

use crate::read::{Listing, cut, folder, utf8, whole};

/// Maximum length of a file of the kernel, in bytes: the longest are lists of sockets, some 5 MiB for 10,000, and the
/// symbols of the kernel, some 20 MiB. Lower: those of a larger machine are refused. Higher: more memory for a hostile
/// one.
pub const MAX_FILE: u64 = 64 << 20;

/// The file system of namespaces (linux/magic.h).
const NSFS: u32 = 0x6e73_6673;
/// File systems whose files nobody has written (linux/magic.h): reading one asks the kernel, or the program that
/// mounted it, and may wait or have an effect.
const MADE_UP: [u32; 20] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x1cd1,      // devpts
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x5a3c_69f0, // apparmorfs
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x6265_6570, // configfs
    0x4249_4e4d, // binfmt_misc
    0x1980_0202, // mqueue
    NSFS,
    0x0187,      // autofs
    0x6573_5546, // FUSE
];

/// Is it a file that a file system makes up, rather than one that somebody has written?
///
/// # Errors
/// Its file system cannot be asked.
pub fn makes_up(file: impl AsFd) -> io::Result<bool> {
    // The constants have 32 bits; the field is signed, and as long as the machine's word.
    let kind = fstatfs(file)?.f_type as u32;
    Ok(MADE_UP.contains(&kind))
}

/// The whole of a file, of at most [`MAX_FILE`] bytes.
///
/// # Errors
/// It cannot be opened or read, or is longer.
pub fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    whole(open(path.as_ref(), OFlags::RDONLY)?, MAX_FILE)
}

/// The same as text.
///
/// # Errors
/// As [`bytes`]; or it is not UTF-8.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    utf8(bytes(path)?)
}

/// The first bytes of a file whose length a process chooses, `length` at most.
///
/// # Errors
/// It cannot be opened or read.
pub fn start(path: impl AsRef<Path>, length: usize) -> io::Result<Vec<u8>> {
    cut(open(path.as_ref(), OFlags::RDONLY)?, length)
}

/// A file, open for reading by lines or repeatedly.
///
/// # Errors
/// It cannot be opened.
pub fn reading(path: impl AsRef<Path>) -> io::Result<File> {
    open(path.as_ref(), OFlags::RDONLY)
}

/// A file, open for writing.
///
/// # Errors
/// It cannot be opened.
pub fn writing(path: impl AsRef<Path>) -> io::Result<File> {
    open(path.as_ref(), OFlags::WRONLY)
}

/// Writes an existing file in one system call, as the kernel wants it. `text`: without the final newline, which is
/// added.
///
/// # Errors
/// It cannot be opened, the kernel refuses the text, or takes only a part of it.
pub fn write(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    let mut file = open(path.as_ref(), OFlags::WRONLY)?;
    let line = format!("{text}\n");
    let written = file.write(line.as_bytes())?;
    if written < line.len() {
        return Err(io::Error::other(format!("only {written} of {} bytes were written", line.len())));
    }
    Ok(())
}

/// The entries of a directory that are numbers, in its order: processes in `/proc`, threads in `task`, descriptors in
/// `fd`.
///
/// # Errors
/// It cannot be listed.
pub fn numbers(path: impl AsRef<Path>) -> io::Result<Vec<u32>> {
    let names = Listing::new(folder(path)?)?;
    // One that ends meanwhile ends the list there, as for any reader of /proc.
    Ok(names.map_while(Result::ok).filter_map(|name| name.to_str()?.parse().ok()).collect())
}

/// A namespace, by a path like `/proc/PID/ns/net` or `/run/netns/NAME`, whose last part is followed.
///
/// # Errors
/// It cannot be opened, or is something else than a namespace.
pub fn namespace(path: impl AsRef<Path>) -> io::Result<File> {
    let found = openat(CWD, path.as_ref(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if fstatfs(&found)?.f_type as u32 != NSFS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a namespace"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(File::from(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

fn open(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOSYS) => without_openat2(path, flags)?,
        file => File::from(file?),
    };
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::other("is not a file of the kernel")),
    }
}

/// Where openat2(2) is filtered, as by `RestrictSUIDSGID` of systemd: looked at before it is opened, and only a file of
/// the kernel's own file systems is.
fn without_openat2(path: &Path, flags: OFlags) -> io::Result<File> {
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !makes_up(&found)? || FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("is not a file of the kernel"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_and_nothing_behind_a_process() {
        assert!(text("/proc/self/status").unwrap().starts_with("Name:"));
        assert!(text("/proc/thread-self/comm").is_ok());
        assert_eq!(start("/proc/self/cmdline", 3).unwrap().len(), 3);
        for path in ["/proc/self/root/etc/passwd", "/proc/self/cwd/Cargo.toml", "/proc/self/exe"] {
            assert!(bytes(path).is_err(), "{path}");
        }
        assert!(bytes("/dev/zero").is_err() && bytes("/proc/self").is_err());
        let filtered = |path: &str| without_openat2(Path::new(path), OFlags::RDONLY | OFlags::CLOEXEC);
        assert!(filtered("/proc/self/status").is_ok() && filtered("/sys/class/net/lo/ifindex").is_ok());
        for path in ["/proc/self/root/etc/passwd", "/proc/self/exe", "/dev/zero", "/proc/self"] {
            assert!(filtered(path).is_err(), "{path}");
        }
        assert!(write("/proc/self/status", "x").is_err());
        assert!(numbers("/proc").unwrap().contains(&std::process::id()));
        assert!(namespace("/proc/thread-self/ns/net").is_ok());
        assert!(namespace("/dev/zero").is_err() && namespace("/proc/self/status").is_err());
    }

    #[test]
    fn files_that_are_made_up_are_told_from_files_on_disk() {
        for (path, made_up) in [("/proc/self/status", true), ("/sys/kernel/mm", true), ("/etc/passwd", false)]
        {
            assert_eq!(makes_up(File::open(path).unwrap()).unwrap(), made_up, "{path}");
        }
        let root = crate::Beneath::as_root(Path::new("/")).unwrap();
        assert!(root.text("proc/self/limits", 1 << 20).is_ok());
        let error = root.on_disk().text("proc/self/limits", 1 << 20).unwrap_err();
        assert!(error.to_string().contains("kernel makes up"), "{error}");
        assert!(root.on_disk().text("etc/passwd", 1 << 20).is_ok());
    }
}
