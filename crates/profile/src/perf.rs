//! The kernel's sampling: `perf_event_open`(2) with one ring for each CPU, and one event for each CPU or for each
//! thread.
//!
//! ```text
//! Event::cpus, threads ──▸ descriptors ──▸ a ring for each CPU, written by the kernel, drained here every 100 ms
//!                                                  │ record.rs: bytes to records; what is damaged is counted, not trusted
//!                                                  ▼
//!                                            Record::{Sample, Mapped, Comm, Lost, ...}
//! ```
//! - `event.rs`: samples by the event that this machine has. `how.rs`: events, and what they show. `open.rs`: opens
//!   them. `counters.rs`: hardware counters that run with them. `ring.rs`: records in order. `record.rs`, `reading.rs`,
//!   `fields.rs`: their layout. `sys.rs`: the system call and the memory shared with the kernel.
//! - Nothing stays attached: an event is a file descriptor, and the kernel closes it when the process ends for any
//!   reason.

pub mod counters;
mod error;
mod event;
mod fields;
mod how;
mod open;
mod reading;
pub mod record;
mod ring;
mod sys;

pub use counters::{Absent, Counter, Counts};
pub use error::OpenError;
pub use event::Event;
pub use how::{Clock, Sight};
pub(crate) use open::running_cpus;
pub use reading::Reading;
pub use record::{Chain, Layout, Mapped, Mode, Record, Sample, WrongRecord};
pub use ring::{records, records_as};
