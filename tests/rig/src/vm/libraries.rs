//! Runtime dependencies of a program: its dynamic loader and its shared libraries.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;

/// `PT_INTERP` of elf.h: the program header that names the loader.
const INTERPRETER: u32 = 3;
/// How much of a program is read, bytes. Linkers put the headers and the loader's name into the first page; a file
/// that has them further in would be treated as static.
const HEAD: u64 = 64 * 1024;

/// The loader and the libraries of the program at `path`, each at the path where the program expects it. Empty for
/// static programs, and for files that are not ELF programs, such as scripts.
pub(crate) fn of(path: &Path) -> Result<Vec<PathBuf>, VmError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut bytes));
    read.map_err(|cause| VmError::File { what: "read", path: path.to_owned(), cause })?;
    let Some(loader) = interpreter(&bytes) else { return Ok(Vec::new()) };
    // The loader itself lists what it would map; it does not run the program.
    let failed = |reason: String| VmError::Libraries { program: path.to_owned(), reason };
    let listed = Command::new(&loader).arg("--list").arg(path).output();
    let listed = listed.map_err(|cause| failed(format!("{}: {cause}", loader.display())))?;
    if !listed.status.success() {
        return Err(failed(String::from_utf8_lossy(&listed.stderr).trim().to_owned()));
    }
    let mut found = parse(&String::from_utf8_lossy(&listed.stdout)).map_err(failed)?;
    found.push(loader);
    found.sort();
    found.dedup();
    Ok(found)
}

/// Parses `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f...)`; the vDSO has no path.
fn parse(listed: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in listed.lines().map(str::trim) {
        if line.ends_with("not found") {
            return Err(format!("a library is missing: {line}"));
        }
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = path.split_once(" (").map_or(path, |(path, _)| path);
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// The loader named by a 64-bit little-endian ELF program; none for a static program or any other file.
fn interpreter(bytes: &[u8]) -> Option<PathBuf> {
    // Class 2 is 64 bits, data 1 is little-endian.
    if bytes.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let (first, size) = (u64_at(bytes, 32)?, u16_at(bytes, 54)?);
    let headers = (0..u64::from(u16_at(bytes, 56)?)).map(|at| first.checked_add(at * u64::from(size)));
    let header = headers.flatten().find(|&at| u32_at(bytes, at) == Some(INTERPRETER))?;
    let (start, length) = (u64_at(bytes, header + 8)?, u64_at(bytes, header + 32)?);
    let name = part(bytes, start, length)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    std::str::from_utf8(name).ok().map(PathBuf::from)
}

fn part(bytes: &[u8], start: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

fn u16_at(bytes: &[u8], at: u64) -> Option<u16> {
    part(bytes, at, 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: u64) -> Option<u32> {
    part(bytes, at, 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: u64) -> Option<u64> {
    part(bytes, at, 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn libraries_of_this_very_program() {
        let own = std::env::current_exe().unwrap();
        let found = of(&own).unwrap();
        let named = |part: &str| found.iter().filter(|path| path.to_string_lossy().contains(part)).count();
        assert_eq!((named("/libc.so"), named("/ld-linux")), (1, 1), "{found:?}");
        assert!(found.iter().all(|path| path.is_file()), "{found:?}");
    }

    #[test]
    fn scripts_and_static_programs_need_none() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(of(&script).unwrap().is_empty());
        assert!(of(&super::super::initramfs::busybox().unwrap()).unwrap().is_empty());
        // Truncated anywhere, it is rejected or still names a loader; it never panics.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for cut in 0..4096 {
            let _ = interpreter(&own[..cut]);
        }
    }

    #[test]
    fn a_missing_library_is_reported() {
        let listed = "\tlinux-vdso.so.1 (0x1)\n\tlibx.so => not found\n";
        assert!(parse(listed).unwrap_err().contains("libx.so"));
        let listed = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n";
        assert_eq!(parse(listed).unwrap(), [PathBuf::from("/lib/libc.so.6"), "/lib64/ld.so".into()]);
    }
}
