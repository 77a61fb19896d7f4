//! Resolves addresses in programs: the file mapped there, and the function if the file has symbols.
//!
//! ```text
//! /proc/PID/maps when a process is first seen ┐
//! mmap, exec and fork records while it runs   ┴─▸ code.rs: file, offset ──▸ at the end: the file's symbol tables
//! ```
//! Files are found as the process sees them, including those in containers: `file.rs`. DWARF is not read: a symbol
//! table resolves a function in microseconds, debug information in seconds.

use std::cmp::Reverse;
use std::collections::HashMap;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

use super::code::{Change, Code, Mapping, find};
use super::file::{Files, MAX_COPIES, Place};
use crate::perf::Mapped;
use udpath_files::kernel;

pub use super::file::MOST_HELD;

/// Most bytes of a process's mappings that are read: those of a large Java server take 1 MiB. Lower: the code at the
/// end has no names. Higher: a process with 65,530 mappings of long paths, the most that the kernel allows, costs 256
/// MiB.
const MAX_MAPS: usize = 8 << 20;

/// The code of every process seen.
#[derive(Debug, Default)]
pub struct Programs {
    /// Are they programs of this machine, so that /proc and files can be read?
    live: bool,
    code: Code,
    files: Files,
}

/// A frame of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserFrame {
    /// The file's name without its folder; `None` if no known file is mapped there.
    pub binary: Option<String>,
    /// The function; `None` if the file has no symbol for it.
    pub function: Option<String>,
}

/// The place of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct At {
    file: usize,
    offset: u64,
}

impl Programs {
    /// Programs of this machine. The default uses records only, and reads no files.
    #[must_use]
    pub fn live() -> Self {
        Self { live: true, ..Self::default() }
    }

    /// A sample is of this process: reads its mappings, unless they are known.
    pub fn meet(&mut self, pid: u32) {
        if pid != 0 {
            self.code.meet(pid);
            self.ask(pid);
        }
    }

    fn ask(&mut self, pid: u32) {
        if !self.live || !self.code.asks(pid) {
            return;
        }
        // A process that has ended or may not be inspected has none: its addresses stay unresolved.
        let bytes = kernel::start(format!("/proc/{pid}/maps"), MAX_MAPS).unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.saw(pid, &String::from_utf8_lossy(&bytes[..whole]));
    }

    fn saw(&mut self, pid: u32, maps: &str) {
        let lines = maps.lines().filter_map(executable);
        let mappings = lines.map(|(offset, place)| self.mapping(pid, offset, place)).collect();
        self.code.saw(pid, mappings);
    }

    fn mapping(&mut self, pid: u32, offset: u64, place: Place<'_>) -> Mapping {
        Mapping { start: place.start, end: place.end, offset, file: self.files.number(pid, place) }
    }

    /// A process maps a file.
    pub fn mapped(&mut self, mapped: &Mapped<'_>) {
        let Mapped { pid, start, len, offset, inode, path, time } = *mapped;
        let place = Place { start, end: start.saturating_add(len), inode, path };
        let mapping = self.mapping(pid, offset, place);
        self.code.change(pid, time, Change::Mapped(mapping));
    }

    /// A process executes another program from `time` on: its old mappings are gone.
    pub fn replaced(&mut self, pid: u32, time: u64) {
        self.code.change(pid, time, Change::Replaced);
    }

    /// A process was created at `time` as a copy of another.
    pub fn forked(&mut self, pid: u32, parent: u32, time: u64) {
        if pid != parent {
            self.ask(parent);
            self.code.change(pid, time, Change::Copied(parent));
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, pid: u32) {
        self.code.ended(pid);
    }

    /// Resolves addresses of processes, each once.
    #[must_use]
    pub fn name(&self, addresses: impl IntoIterator<Item = (u32, u64)>) -> HashMap<(u32, u64), UserFrame> {
        let mut places: HashMap<At, Option<String>> = HashMap::new();
        let mut eras: HashMap<u32, Vec<Vec<Mapping>>> = HashMap::new();
        let found: Vec<((u32, u64), Option<At>)> = addresses
            .into_iter()
            .map(|(pid, address)| {
                let eras = eras.entry(pid).or_insert_with(|| self.code.eras(pid));
                ((pid, address), eras.iter().find_map(|era| at(era, address)))
            })
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
        if !self.live {
            return;
        }
        let mut by_file: HashMap<usize, Vec<u64>> = HashMap::new();
        for at in places.keys() {
            by_file.entry(at.file).or_default().push(at.offset);
        }
        // The code with the most addresses first: what there is no room for has no names.
        let mut by_file: Vec<_> = by_file.into_iter().collect();
        by_file.sort_unstable_by_key(|(file, offsets)| (Reverse(offsets.len()), *file));
        let mut room = MAX_COPIES;
        for (file, offsets) in by_file {
            // Kept open until its symbols are read.
            let Some(content) = self.files.content(file, &mut room) else { continue };
            // One per file: its cache of a large file is not needed for the next.
            let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
            let mut elf = Elf::new(content.path());
            elf.debug_syms = false;
            // A file without symbols or in an unknown format: its functions stay unresolved.
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

fn at(era: &[Mapping], address: u64) -> Option<At> {
    let found = find(era, address)?;
    Some(At { file: found.file, offset: (address - found.start).wrapping_add(found.offset) })
}

/// Parses a line of /proc/PID/maps that holds code: the offset in the file, and the file.
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
        programs.saw(8, MAPS);
        let named =
            programs.name([(8, 0x55d0_c001_0010), (8, 0x55d0_c000_0010), (8, 0x7ffc_0000_0001), (9, 1)]);
        let binary = |address| named[&(8, address)].binary.as_deref();
        assert_eq!(binary(0x55d0_c001_0010), Some("knotd"));
        assert_eq!(binary(0x55d0_c000_0010), None);
        assert_eq!(binary(0x7ffc_0000_0001), Some("[vdso]"));
        assert_eq!(named[&(9, 1)], UserFrame { binary: None, function: None });
        // Another library at the same address.
        programs.mapped(&Mapped {
            pid: 8,
            start: 0x55d0_c001_0000,
            len: 0x1000,
            offset: 0,
            inode: 43,
            path: "/lib/libx.so",
            time: 1,
        });
        let named = programs.name([(8, 0x55d0_c001_0010)]);
        assert_eq!(named[&(8, 0x55d0_c001_0010)].binary.as_deref(), Some("libx.so"));
    }

    #[test]
    fn own_functions_have_names() {
        let mut programs = Programs::live();
        let pid = std::process::id();
        programs.meet(pid);
        let address = own_functions_have_names as fn() as usize as u64;
        let named = programs.name([(pid, address)]);
        let function = named[&(pid, address)].function.clone().unwrap_or_default();
        assert!(function.contains("own_functions_have_names"), "{function}");
    }
}
