//! Results kept over time, and the dates at which a figure changed.
//!
//! ```text
//!  a result ─▸ run.rs ────▸ store.rs: one SQLite file, written only on request
//!  this machine ─▸ origin.rs │
//!                            ▼
//!              listing.rs: runs by series (machine, service, load), the oldest first
//!                            │ one metric of one series
//!                            ▼
//!              changes.rs: where its level changed, and how likely chance is the reason
//! ```
//! Kernel, settings and version are not part of a series: they are what may change within it, and the listing names
//! those that did where a figure changed.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod changes;
mod listing;
mod origin;
mod run;
mod store;

pub use listing::{Listing, MAX_ANALYSED, Metric, SCHEMA, Series, Shift};
pub use origin::origin;
pub use run::{NewRun, Run, RunError, check_name, fingerprint};
pub use store::{Exported, Store, StoreError};
