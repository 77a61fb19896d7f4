//! The kernel's sampling: `perf_event_open`(2), one event and one ring for each CPU.
//!
//! ```text
//! Event::open ──▸ one descriptor per CPU ──▸ one ring each, written by the kernel, drained here every 100 ms
//!                                                  │ record.rs: bytes to records; what is damaged is counted, not trusted
//!                                                  ▼
//!                                            Record::{Sample, Mapped, Comm, Lost, ...}
//! ```
//! - `event.rs`: which event there is on this machine, and who may use it. `ring.rs`: records in their order.
//!   `record.rs`: their layout. `sys.rs`: the system call and the memory shared with the kernel.
//! - Nothing stays attached: an event is its descriptor, and the kernel closes that when the process ends, however it ends.

mod event;
pub mod record;
mod ring;
mod sys;

pub use event::{Clock, Event, OpenError, Sight};
pub use record::{Chain, Mapped, Mode, Record, Sample, WrongRecord};
pub use ring::records;
