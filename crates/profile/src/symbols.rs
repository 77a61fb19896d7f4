//! From addresses to names.
//!
//! - `kernel.rs`: functions of the kernel, its modules and BPF programs, from /proc/kallsyms.
//! - `user.rs`: functions of programs, if the file mapped at an address has symbols. `code.rs`: finds the file of an
//!   address. `file.rs`: those files. `threads.rs`: names of threads.

mod code;
mod file;
pub mod kernel;
pub mod threads;
pub mod user;

/// A function in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame<'a> {
    /// Its name.
    pub function: &'a str,
    /// Its kernel module; `bpf` for BPF programs; `None` for the kernel itself.
    pub module: Option<&'a str>,
}
