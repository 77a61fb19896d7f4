//! Whether system calls are audited.

use serde::{Deserialize, Serialize};

use udpath_netlink::{Audit, Error};

/// Status of the audit system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditStatus {
    /// 0: off, 1: on, 2: on and locked until the next boot.
    pub enabled: u32,
    /// The process that receives the records; 0: none.
    pub pid: u32,
    /// Records lost because the receiver was too slow.
    pub lost: u32,
}

/// Reads the status.
pub(super) fn status(audit: &mut Audit) -> Result<AuditStatus, Error> {
    let status = audit.status()?;
    Ok(AuditStatus { enabled: status.enabled, pid: status.pid, lost: status.lost })
}
