//! Which knobs let more threads or processes read datagrams, and let more of them wait.

use super::profile::{KnobProfile, Shows};
use super::{Proposal, Service};

/// The value of a proposal of one for each CPU.
const CPUS: &str = "cpus";

impl Service {
    /// The proposals with which more threads or processes read, each with a socket of its own: one for each CPU that
    /// the server may use. None if it is so already, or has no such knobs.
    #[must_use]
    pub fn more_readers(&self) -> Vec<Proposal> {
        self.settled_of(|knob| knob.many || knob.propose.as_deref() == Some(CPUS))
    }

    /// The proposals of larger receive buffers. None if they are as large already, or the server has no such knob.
    #[must_use]
    pub fn larger_buffers(&self) -> Vec<Proposal> {
        self.settled_of(|knob| knob.shows == Some(Shows::ReceiveBuffer))
    }

    fn settled_of(&self, wanted: impl Fn(&KnobProfile) -> bool) -> Vec<Proposal> {
        let mut found = self.settled();
        found.retain(|proposal| {
            self.profile.knobs.iter().any(|knob| knob.name == proposal.knob && wanted(knob))
        });
        found
    }
}
