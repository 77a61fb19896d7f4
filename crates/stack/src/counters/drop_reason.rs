//! Why a worker drops a frame: one name per reason.

use crate::wire::Refusal;

/// Why a frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// Not a UDP datagram that may be answered.
    Refused(Refusal),
    /// The destination address is not one of this host's.
    NotLocal,
    /// No binding for the address and port.
    Unbound,
    /// The backlog of the worker that it was steered to was full.
    BacklogFull,
    /// The flow exceeded its share of a backlog that is filling up.
    FlowLimit,
    /// The reply does not fit a frame, and could not be sent any other way.
    ReplyTooLong,
    /// The device did not send the reply: its queue was full, or the link was down.
    TransmitFull,
    /// The socket's memory limit was reached.
    SocketFull,
    /// The memory limit of all sockets together was reached.
    PoolFull,
    /// The socket is closed.
    SocketClosed,
    /// The kernel would not send the reply to the sender of its request, and the reply could not be sent any other way.
    Neighbour,
}

impl DropReason {
    const OWN: [Self; 10] = [
        Self::NotLocal,
        Self::Unbound,
        Self::BacklogFull,
        Self::FlowLimit,
        Self::ReplyTooLong,
        Self::TransmitFull,
        Self::SocketFull,
        Self::PoolFull,
        Self::SocketClosed,
        Self::Neighbour,
    ];

    /// The number of reasons.
    pub const COUNT: usize = Self::OWN.len() + Refusal::COUNT;

    /// Every reason, in index order.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OWN.into_iter().chain(Refusal::ALL.iter().map(|refusal| Self::Refused(*refusal)))
    }

    /// Its position in [`DropReason::all`].
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::NotLocal => 0,
            Self::Unbound => 1,
            Self::BacklogFull => 2,
            Self::FlowLimit => 3,
            Self::ReplyTooLong => 4,
            Self::TransmitFull => 5,
            Self::SocketFull => 6,
            Self::PoolFull => 7,
            Self::SocketClosed => 8,
            Self::Neighbour => 9,
            Self::Refused(refusal) => Self::OWN.len() + refusal.index(),
        }
    }

    /// Its name in counters: lower case, words separated by underscores.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotLocal => "not_local",
            Self::Unbound => "unbound",
            Self::BacklogFull => "backlog_full",
            Self::FlowLimit => "flow_limit",
            Self::ReplyTooLong => "reply_too_long",
            Self::TransmitFull => "transmit_full",
            Self::SocketFull => "socket_full",
            Self::PoolFull => "pool_full",
            Self::SocketClosed => "socket_closed",
            Self::Neighbour => "neighbour",
            Self::Refused(refusal) => refusal.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_name() {
        let all: Vec<_> = DropReason::all().collect();
        assert_eq!(all.len(), DropReason::COUNT);
        for (place, reason) in all.iter().enumerate() {
            assert_eq!(reason.index(), place);
        }
        let names: std::collections::HashSet<_> = all.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), all.len());
    }
}
