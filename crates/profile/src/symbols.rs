//! From addresses to names.
//!
//! - `kernel.rs`: the kernel's functions, its modules' and those of BPF programs, from /proc/kallsyms.
//! - `user.rs`: programs: which file is mapped where, and the function, where the file has symbols. `file.rs`: those files.

mod file;
pub mod kernel;
pub mod user;

/// A function that a chain goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame<'a> {
    /// Its name.
    pub function: &'a str,
    /// The kernel module it is in; `bpf` of BPF programs; none of the kernel itself.
    pub module: Option<&'a str>,
}
