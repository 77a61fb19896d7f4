//! The programs that are loaded, whoever loaded them.

use std::collections::BTreeSet;

use aya::programs::loaded_programs;

/// IDs of all BPF programs that are loaded. An ID is not used again before 2^31 others. `None` without permission
/// (`CAP_SYS_ADMIN`).
#[must_use]
pub fn program_ids() -> Option<BTreeSet<u32>> {
    loaded_programs().map(|program| Some(program.ok()?.id())).collect()
}
