//! Settings that are tried together.

/// Times between deferred polls, or between interrupts, that are tried, microseconds, the likelier first. 75: what 10
/// Gbit/s cards wait under load. 20: the kernel's documented example, two or three datagrams more per poll at
/// 100,000/s. Longer: the timer dominates latency.
pub(super) const TIMERS: [u32; 2] = [75, 20];

/// A group of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Short name, unique.
    pub(super) name: String,
    /// What it does: a clause.
    pub(super) what: String,
    /// `SETTING=VALUE` each.
    pub(super) requests: Vec<String>,
}

impl Group {
    pub(super) fn new(name: &str, what: impl Into<String>, requests: Vec<String>) -> Self {
        Self { name: name.to_owned(), what: what.into(), requests }
    }
}
