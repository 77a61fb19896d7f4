//! The kernel's sampling: `perf_event_open`(2) with one ring for each CPU, and one event for each CPU or for each
//! thread.
//!
//! ```text
//! Event::cpus, threads ──▸ descriptors ──▸ a ring for each CPU, written by the kernel, drained here every 100 ms
//!                                                  │ record.rs: bytes to records; what is damaged is counted, not trusted
//!                                                  ▼
//!                                            Record::{Sample, Mapped, Comm, Lost, ...}
//! ```
//! - `event.rs`: which event this machine has, and who may use it. `open.rs`: opens events. `counters.rs`: hardware
//!   counters that run with them. `ring.rs`: records in order. `record.rs`, `reading.rs`: their layout. `sys.rs`: the
//!   system call and the memory shared with the kernel.
//! - Nothing stays attached: an event is a file descriptor, and the kernel closes it when the process ends for any
//!   reason.

pub mod counters;
mod event;
mod open;
mod reading;
pub mod record;
mod ring;
mod sys;

pub use counters::{Absent, Counter, Counts};
pub use event::{Clock, Event, OpenError, Sight};
pub(crate) use open::running_cpus;
pub use reading::Reading;
pub use record::{Chain, Layout, Mapped, Mode, Record, Sample, WrongRecord};
pub use ring::{records, records_as};
