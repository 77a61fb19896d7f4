//! From addresses to names.
//!
//! - `kernel.rs`: the kernel's functions, its modules' and those of BPF programs, from /proc/kallsyms.
//! - `user.rs`: programs: the function, where the file mapped at an address has symbols. `code.rs`: which file that is.
//!   `file.rs`: those files. `threads.rs`: what threads are called.

mod code;
mod file;
pub mod kernel;
pub mod threads;
pub mod user;

/// A function that a chain goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame<'a> {
    /// Its name.
    pub function: &'a str,
    /// The kernel module it is in; `bpf` of BPF programs; none of the kernel itself.
    pub module: Option<&'a str>,
}
