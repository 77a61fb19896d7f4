//! Addresses in programs: which file is mapped there, and the function where the file has symbols.
//!
//! ```text
//! /proc/PID/maps when a process is first seen ┐
//! mmap records while it runs                  ├─▸ mapping: file, offset ──▸ at the end: the file's symbol tables
//! ```
//! Files are found as the process sees them, so a container's are, too: `file.rs`. DWARF is not read: a symbol table names a function in microseconds, debug information in seconds.

use std::collections::HashMap;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

use super::file::{Files, Place};
use crate::perf::Mapped;

pub use super::file::MOST_HELD;

/// A part of a process's memory that holds a file's code.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    /// A number of [`Files`].
    file: usize,
}

/// The code of every process seen.
#[derive(Debug, Default)]
pub struct Programs {
    mappings: HashMap<u32, Vec<Mapping>>,
    files: Files,
}

/// A frame of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserFrame {
    /// The file's name without its folder; none where nothing known is mapped.
    pub binary: Option<String>,
    /// The function; none where the file tells no names.
    pub function: Option<String>,
}

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct At {
    file: usize,
    offset: u64,
}

impl Programs {
    /// Reads what a process has mapped, unless it is known.
    pub fn meet(&mut self, pid: u32) {
        if pid == 0 || self.mappings.contains_key(&pid) {
            return;
        }
        // A process that ended, or is not ours to look at, has none: its addresses stay without names.
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        self.mappings.insert(pid, Vec::new());
        for (offset, place) in text.lines().filter_map(executable) {
            self.insert(pid, offset, place);
        }
    }

    /// A process maps a file.
    pub fn mapped(&mut self, mapped: &Mapped<'_>) {
        self.meet(mapped.pid);
        let end = mapped.start.saturating_add(mapped.len);
        let place = Place { start: mapped.start, end, inode: mapped.inode, path: mapped.path };
        self.insert(mapped.pid, mapped.offset, place);
    }

    /// A process runs another program: what it had mapped is gone.
    pub fn replaced(&mut self, pid: u32) {
        self.mappings.insert(pid, Vec::new());
    }

    /// A process has begun as a copy of another.
    pub fn forked(&mut self, pid: u32, parent: u32) {
        if pid == parent {
            return;
        }
        self.meet(parent);
        let copy = self.mappings.get(&parent).cloned().unwrap_or_default();
        self.mappings.insert(pid, copy);
    }

    fn insert(&mut self, pid: u32, offset: u64, place: Place<'_>) {
        let (start, end, file) = (place.start, place.end, self.files.number(pid, place));
        let list = self.mappings.entry(pid).or_default();
        // A new mapping takes the place of what was there.
        list.retain(|old| old.end <= start || old.start >= end);
        let place = list.partition_point(|old| old.start < start);
        list.insert(place, Mapping { start, end, offset, file });
    }

    fn at(&self, pid: u32, address: u64) -> Option<At> {
        let list = self.mappings.get(&pid)?;
        let behind = list.partition_point(|mapping| mapping.start <= address);
        let found = list[..behind].last().filter(|mapping| address < mapping.end)?;
        Some(At { file: found.file, offset: address - found.start + found.offset })
    }

    /// Names addresses of processes, each once.
    #[must_use]
    pub fn name(&self, addresses: impl IntoIterator<Item = (u32, u64)>) -> HashMap<(u32, u64), UserFrame> {
        let mut places: HashMap<At, Option<String>> = HashMap::new();
        let found: Vec<((u32, u64), Option<At>)> = addresses
            .into_iter()
            .map(|(pid, address)| ((pid, address), self.at(pid, address)))
            .inspect(|(_, at)| {
                at.map(|at| places.entry(at).or_default());
            })
            .collect();
        self.functions(&mut places);
        let frame = |at: Option<At>| UserFrame {
            binary: at.map(|at| self.files.name(at.file)),
            function: at.and_then(|at| places.get(&at).cloned().flatten()),
        };
        found.into_iter().map(|(key, at)| (key, frame(at))).collect()
    }

    fn functions(&self, places: &mut HashMap<At, Option<String>>) {
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
        let mut by_file: HashMap<usize, Vec<u64>> = HashMap::new();
        for at in places.keys() {
            by_file.entry(at.file).or_default().push(at.offset);
        }
        for (file, offsets) in by_file {
            let Some(path) = self.files.readable(file) else { continue };
            let mut elf = Elf::new(path);
            elf.debug_syms = false;
            // A file without symbols, or none that is understood: functions stay without names.
            let Ok(named) = symbolizer.symbolize(&Source::Elf(elf), Input::FileOffset(&offsets)) else {
                continue;
            };
            for (offset, symbol) in offsets.iter().zip(named) {
                let name = symbol.into_sym().map(|symbol| symbol.name.into_owned());
                places.insert(At { file, offset: *offset }, name);
            }
        }
    }
}

/// A line of /proc/PID/maps that holds code: where in the file that is, and the file.
fn executable(line: &str) -> Option<(u64, Place<'_>)> {
    // address-address perms offset device inode path
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let executable = words.next()?.as_bytes().get(2) == Some(&b'x');
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let offset = hex(words.next()?)?;
    let inode = words.nth(1)?.parse().ok()?;
    let path = words.next()?.trim_start();
    let place = Place { start: hex(start)?, end: hex(end)?, inode, path };
    (executable && !path.is_empty()).then_some((offset, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0000000-55d0c0010000 r--p 00000000 08:01 42                         /usr/sbin/knotd
55d0c0010000-55d0c0090000 r-xp 00010000 08:01 42                         /usr/sbin/knotd
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn code_is_found_by_its_address() {
        let mut programs = Programs::default();
        programs.mappings.insert(8, Vec::new());
        for (offset, place) in MAPS.lines().filter_map(executable) {
            programs.insert(8, offset, place);
        }
        let named =
            programs.name([(8, 0x55d0_c001_0010), (8, 0x55d0_c000_0010), (8, 0x7ffc_0000_0001), (9, 1)]);
        let binary = |address| named[&(8, address)].binary.as_deref();
        assert_eq!(binary(0x55d0_c001_0010), Some("knotd"));
        assert_eq!(binary(0x55d0_c000_0010), None);
        assert_eq!(binary(0x7ffc_0000_0001), Some("[vdso]"));
        assert_eq!(named[&(9, 1)], UserFrame { binary: None, function: None });
        // Another library in its place.
        programs.mapped(&Mapped {
            pid: 8,
            start: 0x55d0_c001_0000,
            len: 0x1000,
            offset: 0,
            inode: 43,
            path: "/lib/libx.so",
        });
        let named = programs.name([(8, 0x55d0_c001_0010)]);
        assert_eq!(named[&(8, 0x55d0_c001_0010)].binary.as_deref(), Some("libx.so"));
    }

    #[test]
    fn own_functions_have_names() {
        let mut programs = Programs::default();
        let pid = std::process::id();
        programs.meet(pid);
        let address = own_functions_have_names as fn() as usize as u64;
        let named = programs.name([(pid, address)]);
        let function = named[&(pid, address)].function.clone().unwrap_or_default();
        assert!(function.contains("own_functions_have_names"), "{function}");
    }
}
