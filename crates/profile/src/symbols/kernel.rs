//! The kernel's functions by address, from /proc/kallsyms.
//!
//! A line is `address type name [module]`. Functions have type t, T, w or W; BPF programs are in module `bpf`. If
//! addresses are hidden (kptr_restrict), all are zero: then nothing can be resolved, and the caller gets the reason.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader};

use thiserror::Error;

use super::Frame;
use udpath_files::kernel;

/// Path of the kernel's symbol table.
const PATH: &str = "/proc/kallsyms";
/// Path of the list of loaded modules.
const MODULES: &str = "/proc/modules";

/// What adds functions to the kernel: modules and BPF programs. While these stay the same, so do the functions, apart
/// from the trampolines of ftrace.
#[derive(Debug, PartialEq, Eq)]
pub struct Loaded {
    modules: String,
    programs: BTreeSet<u32>,
}

impl Loaded {
    /// What is loaded now. `None` if this user may not know.
    #[must_use]
    pub fn now() -> Option<Self> {
        let modules = match kernel::text(MODULES) {
            // The number of users and what uses a module may change; its name, size and address may not.
            Ok(text) => text.lines().map(unchanging).collect(),
            // A kernel without modules.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(_) => return None,
        };
        Some(Self { modules, programs: udpath_bpf::program_ids()? })
    }
}

/// Of `name size users used-by state address`: name, size, address.
fn unchanging(line: &str) -> String {
    let mut words = line.split_ascii_whitespace();
    [words.next(), words.next(), words.nth(3)]
        .into_iter()
        .flatten()
        .fold(String::new(), |all, word| all + word + " ")
}

/// Functions in ascending order of their addresses.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    functions: Vec<Function>,
    /// All names, concatenated.
    names: String,
    modules: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    name: (u32, u16),
    /// Index into `modules`; `u16::MAX` is the kernel itself.
    module: u16,
}

/// The module number of the kernel itself.
const NO_MODULE: u16 = u16::MAX;
/// Longest function, in bytes. An address further from the last function is between modules, not in it.
const MAX_FUNCTION_LEN: u64 = 1 << 20;

/// Why the kernel's functions cannot be resolved.
#[derive(Debug, Error)]
pub enum NoSymbols {
    /// It cannot be read.
    #[error("cannot read {PATH} (is the kernel built with CONFIG_KALLSYMS, and /proc mounted?)")]
    Unreadable(#[from] io::Error),
    /// All addresses are zero.
    #[error(
        "kernel functions have no names: {PATH} hides addresses; run as root, or with CAP_SYSLOG and kernel.kptr_restrict \
         at 1 or 0"
    )]
    Hidden,
}

impl Kernel {
    /// The running kernel's functions.
    ///
    /// # Errors
    /// They cannot be read, or are hidden from this user.
    pub fn running() -> Result<Self, NoSymbols> {
        // Line by line: the text is as large as everything kept from it.
        let (mut reader, mut line) = (BufReader::new(kernel::reading(PATH)?), String::new());
        let mut found = Self::default();
        while reader.read_line(&mut line)? > 0 {
            found.add(&line);
            line.clear();
        }
        let found = found.in_order();
        if found.functions.is_empty() { Err(NoSymbols::Hidden) } else { Ok(found) }
    }

    /// Parses text in the format of /proc/kallsyms. Invalid lines are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut kernel = Self::default();
        for line in text.lines() {
            kernel.add(line);
        }
        kernel.in_order()
    }

    fn in_order(mut self) -> Self {
        // A stable sort: if an address has two names, the first one is kept.
        self.functions.sort_by_key(|function| function.address);
        self.functions.dedup_by_key(|function| function.address);
        self.functions.shrink_to_fit();
        self.names.shrink_to_fit();
        self
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
        if !matches!(words.next()?, "t" | "T" | "w" | "W") {
            return None;
        }
        let name = words.next()?;
        let module = match words.next() {
            None => NO_MODULE,
            Some(module) => self.module(module.trim_start_matches('[').trim_end_matches(']'))?,
        };
        let place = (u32::try_from(self.names.len()).ok()?, u16::try_from(name.len()).ok()?);
        self.names.push_str(name);
        self.functions.push(Function { address, name: place, module });
        Some(())
    }

    fn module(&mut self, name: &str) -> Option<u16> {
        // Functions of one module are adjacent, so it is one of the last.
        let found = self.modules.iter().rposition(|known| known == name);
        let at = found.unwrap_or_else(|| {
            self.modules.push(name.to_owned());
            self.modules.len() - 1
        });
        u16::try_from(at).ok().filter(|at| *at != NO_MODULE)
    }

    /// The function at an address; `None` if there is none.
    #[must_use]
    pub fn frame(&self, address: u64) -> Option<Frame<'_>> {
        let behind = self.functions.partition_point(|function| function.address <= address);
        let found = self.functions[..behind].last()?;
        if address - found.address > MAX_FUNCTION_LEN {
            return None;
        }
        let (begin, len) = (found.name.0 as usize, usize::from(found.name.1));
        let module = self.modules.get(usize::from(found.module)).map(String::as_str);
        Some(Frame { function: &self.names[begin..begin + len], module })
    }

    /// Number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Is it empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_name_before_them() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T first\nffffffff81000100 t second\n\
                    ffffffff81000180 D data\nnonsense\nffffffffc0000010 t veth_poll\t[veth]\n\
                    ffffffffc0100000 t bpf_prog_1_take\t[bpf]\n";
        let kernel = Kernel::parse(text);
        let name = |address| kernel.frame(address).map(|frame| (frame.function, frame.module));
        assert_eq!(kernel.len(), 4);
        assert_eq!(name(0xffff_ffff_8100_00ff), Some(("_stext", None)));
        assert_eq!(name(0xffff_ffff_8100_0190), Some(("second", None)));
        assert_eq!(name(0xffff_ffff_c000_0020), Some(("veth_poll", Some("veth"))));
        assert_eq!(name(0xffff_ffff_c010_0001), Some(("bpf_prog_1_take", Some("bpf"))));
        assert_eq!(name(0xffff_ffff_8100_0190 + MAX_FUNCTION_LEN), None);
        assert_eq!(name(7), None);
    }

    #[test]
    fn users_of_a_module_are_no_change() {
        let line = "veth 45056 0 - Live 0xffffffffc0a00000";
        assert_eq!(unchanging(line), "veth 45056 0xffffffffc0a00000 ");
        assert_eq!(unchanging("veth 45056 3 bridge,vlan, Live 0xffffffffc0a00000"), unchanging(line));
        assert_ne!(unchanging("veth 45056 0 - Live 0xffffffffc0b00000"), unchanging(line));
        assert_eq!(unchanging("veth"), "veth ");
    }

    #[test]
    fn hidden_addresses_are_none() {
        assert!(Kernel::parse("0000000000000000 T _stext\n").is_empty());
        assert!(Kernel::parse("").is_empty());
    }
}
