//! The CPUs' backlogs, as RPS and RFS see them.

/// The state of the CPUs' backlogs that [`steer`](crate::rps::steer) needs. In the kernel that is `softnet_data`; in
/// a datapath it is the rings between workers, with worker `n` as CPU `n`.
pub trait Backlogs {
    /// Packets that the CPU has taken off its backlog so far, wrapping. Compared with the tail passed to
    /// [`FlowTable::queued`](crate::rfs::FlowTable::queued).
    fn head(&self, cpu: u16) -> u32;

    /// Whether packets can be queued for it.
    fn is_online(&self, cpu: u16) -> bool;
}
