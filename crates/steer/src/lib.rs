//! Which queue, CPU and socket a packet goes to. Pure decisions: no I/O, no clock, nothing of the machine is
//! read or written here, so every answer can be tested and printed before anything is changed.
//!
//! - [`CpuSet`]: a set of CPU numbers, in the kernel's list form (`0-3,8`) and mask form (`ff,00000001`).
//! - [`xps`]: which CPUs transmit on which queue.

pub mod cpu_set;
pub mod xps;

pub use cpu_set::{CpuSet, CpuSetError};
