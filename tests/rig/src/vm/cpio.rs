//! A cpio archive in the format the kernel unpacks at boot: "newc".
//!
//! ```text
//! header 110 bytes: "070701" and 13 numbers of 8 hexadecimal digits | name, NUL | to 4 | data | to 4 | next header ...
//! ```
//! The kernel creates the entries in the order of the archive, so a directory precedes its contents
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive being written. Paths are relative to the root, without a leading slash; parent directories are added
/// automatically.
pub(crate) struct Archive<W> {
    into: W,
    /// Bytes written so far: every part starts at a multiple of four.
    at: u64,
    inode: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(into: W) -> Self {
        Self { into, at: 0, inode: 0, directories: BTreeSet::new() }
    }

    /// Adds a directory and its parents.
    pub(crate) fn directory(&mut self, path: &str) -> io::Result<()> {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let upper = &path[..end];
            if !upper.is_empty() && self.directories.insert(upper.to_owned()) {
                self.header(upper, DIRECTORY, 0, (0, 0))?;
            }
        }
        Ok(())
    }

    /// Adds a file of exactly `length` bytes with permissions `mode`.
    pub(crate) fn file(&mut self, path: &str, mode: u32, length: u64, from: impl Read) -> io::Result<()> {
        let too_long = |_| io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 GiB");
        let size = u32::try_from(length).map_err(too_long)?;
        self.above(path)?;
        self.header(path, FILE | mode & 0o7777, size, (0, 0))?;
        let copied = io::copy(&mut from.take(length), &mut self.into)?;
        if copied != length {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it grew shorter while it was read"));
        }
        self.at += length;
        self.pad()
    }

    pub(crate) fn character_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.above(path)?;
        self.header(path, CHARACTER_DEVICE, 0, (major, minor))
    }

    /// Ends the archive. Returns its length in bytes.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.header(TRAILER, 0, 0, (0, 0))?;
        self.into.flush()?;
        Ok(self.at)
    }

    fn above(&mut self, path: &str) -> io::Result<()> {
        path.rsplit_once('/').map_or(Ok(()), |(directory, _)| self.directory(directory))
    }

    fn header(&mut self, name: &str, mode: u32, size: u32, device: (u32, u32)) -> io::Result<()> {
        self.inode += 1;
        let (inode, name_size) = (self.inode, name.len() + 1);
        // inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), length of the name, check (unused)
        let (major, minor) = device;
        let fields = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{major:08x}{minor:08x}\
             {name_size:08x}{0:08x}",
            0, 1
        );
        self.put(fields.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.into.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = (self.at.next_multiple_of(4) - self.at) as usize;
        self.put(&[0; 3][..missing])
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Parses like the kernel: name, mode, data, in order.
    fn entries(mut rest: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let whole = rest.len();
        loop {
            let field = |at: usize| {
                let digits = std::str::from_utf8(&rest[6 + 8 * at..14 + 8 * at]).unwrap();
                u32::from_str_radix(digits, 16).unwrap()
            };
            assert_eq!(&rest[..6], b"070701", "at {}", whole - rest.len());
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = std::str::from_utf8(&rest[110..110 + name_size - 1]).unwrap().to_owned();
            assert_eq!(rest[110 + name_size - 1], 0);
            let data = (110 + name_size).next_multiple_of(4);
            if name == TRAILER {
                assert_eq!(rest.len(), data);
                return found;
            }
            found.push((name, mode, rest[data..data + size].to_vec()));
            rest = &rest[(data + size).next_multiple_of(4)..];
        }
    }

    fn example() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file("a/b/one", 0o755, 5, &b"12345 and more"[..]).unwrap();
        archive.file("a/two", 0o600, 0, &b""[..]).unwrap();
        archive.character_device("dev/console", 5, 1).unwrap();
        archive.directory("a/b").unwrap();
        let length = archive.finish().unwrap();
        assert_eq!(length, bytes.len() as u64);
        bytes
    }

    #[test]
    fn reads_back_in_order_with_directories_first_and_once() {
        let found = entries(&example());
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/two", "dev", "dev/console"]);
        assert_eq!(found[2].1, 0o100_755);
        assert_eq!(found[2].2, b"12345");
        assert_eq!((found[3].1, found[5].1), (0o100_600, 0o020_600));
    }

    #[test]
    fn another_reader_agrees() {
        let mut busybox =
            Command::new("busybox").args(["cpio", "-t"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let busybox = busybox.as_mut().expect("busybox runs; scripts/setup.sh installs it");
        busybox.stdin.take().unwrap().write_all(&example()).unwrap();
        let mut listed = String::new();
        busybox.stdout.take().unwrap().read_to_string(&mut listed).unwrap();
        assert!(busybox.wait().unwrap().success());
        assert_eq!(
            listed.split_whitespace().collect::<Vec<_>>().join(" "),
            "a a/b a/b/one a/two dev dev/console"
        );
    }

    #[test]
    fn a_file_that_grows_shorter_is_an_error() {
        let error = Archive::new(Vec::new()).file("x", 0o644, 5, &b"123"[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
