//! The machine's table of which CPU reads which flow (`net.core.rps_sock_flow_entries`), which RFS needs.
//!
//! The kernel has one table for all network namespaces, so it is the one thing outside of its namespaces that a lab may
//! change: only from off to on, recorded before, and off again at the lab's end. If the owner is killed, the sweep
//! that removes its lab switches the table off. A table that is already on is used as it is and left alone.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::Error;
use crate::record::{SharedRecord, with};
use udpath_files::kernel;

const FILE: &str = "/proc/sys/net/core/rps_sock_flow_entries";

/// Entries: the length that Documentation/networking/scaling.rst recommends for a moderately loaded server. Fewer:
/// flows share an entry and move between CPUs. More: memory, four bytes each.
pub(crate) const ENTRIES: u32 = 32_768;

/// Switches the table on and off; off when this is dropped.
pub(crate) struct FlowTable {
    record: SharedRecord,
    /// This lab has switched it on.
    on: Mutex<bool>,
}

impl FlowTable {
    pub(crate) fn new(record: SharedRecord) -> Self {
        Self { record, on: Mutex::new(false) }
    }

    /// Switches it on if it is off, or off if this lab has switched it on. Called in the machine's own namespace.
    pub(crate) fn set(&self, wanted: bool) -> Result<(), Error> {
        let mut on = self.on.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted && !*on && read()? == 0 {
            with(&self.record, |record| record.flow_table(ENTRIES))?;
            write(ENTRIES)?;
            *on = true;
        } else if !wanted && *on {
            write(0)?;
            *on = false;
        }
        Ok(())
    }
}

impl Drop for FlowTable {
    fn drop(&mut self) {
        // The error cannot be reported; the record has the change, and the next run undoes it.
        let _ = self.set(false);
    }
}

/// Switches the table off if it still has the length that a lab gave it.
pub(crate) fn take_back(entries: u32) -> Result<(), Error> {
    if read()? == entries { write(0) } else { Ok(()) }
}

fn read() -> Result<u32, Error> {
    let failed = |source: io::Error| Error::system(format!("read {FILE}"), source);
    let text = kernel::text(FILE).map_err(failed)?;
    text.trim().parse().map_err(|wrong| failed(io::Error::new(io::ErrorKind::InvalidData, wrong)))
}

fn write(entries: u32) -> Result<(), Error> {
    kernel::write(FILE, &entries.to_string())
        .map_err(|source| Error::system(format!("write {entries} to {FILE}"), source))
}
