//! The CPUs' backlogs, as far as RPS and RFS look at them.

/// What [`steer`](crate::rps::steer) has to know of the CPUs' backlogs. In the kernel that is `softnet_data`; in a datapath it is the
/// rings between workers, worker `n` standing for CPU `n`.
pub trait Backlogs {
    /// How many packets the CPU has taken off its backlog so far, wrapping. Compared with the tail that
    /// [`FlowTable::queued`](crate::rfs::FlowTable::queued) was given.
    fn head(&self, cpu: u16) -> u32;

    /// Can it be given packets?
    fn is_online(&self, cpu: u16) -> bool;
}
