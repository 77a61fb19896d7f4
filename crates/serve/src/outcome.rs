//! The outcome of a request ([`Outcome`]), and why one gets no answer ([`DropReason`], [`SendError`]).

use std::fmt;
use std::io;

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Send what was written to the [`Reply`](crate::Reply).
    Reply,
    /// Send nothing, and count the request under this reason.
    Drop(DropReason),
    /// Nothing yet: the service took a [`Deferred`](crate::Deferred) from the request and will answer or drop it later.
    /// Once a handle is taken, every outcome means `Defer`; without a handle, `Defer` means
    /// `Drop(DropReason::Abandoned)`.
    Defer,
}

/// Why a request got no answer. Each reason has a counter: `received = answered + the sum of these + deferred`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The service never answers (a sink).
    Consumed,
    /// The request does not follow the service's protocol.
    Malformed,
    /// The service chose not to answer (access rules, rate limits).
    Refused,
    /// The reply does not fit the reply buffer.
    ReplyTooLarge,
    /// The request was longer than the receive buffer, and the kernel cut it.
    Truncated,
    /// The kernel rejected the reply; [`SendError`] has the causes.
    SendFailed,
    /// The service panicked; the worker continues with a new instance.
    Panicked,
    /// The handle of a deferred request was dropped without an answer.
    Abandoned,
    /// The request was sent to a broadcast or multicast address. Such requests are answered only with
    /// [`Config::answer_broadcast`](crate::Config::answer_broadcast); then one worker answers, and the others count
    /// their copies here.
    Broadcast,
    /// The request arrived before the start-up probe had ended: nothing is served yet.
    Starting,
    /// A reply would start a loop: the request came from a port whose owner would answer it in turn.
    Loop,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 11] = [
        Self::Consumed,
        Self::Malformed,
        Self::Refused,
        Self::ReplyTooLarge,
        Self::Truncated,
        Self::SendFailed,
        Self::Panicked,
        Self::Abandoned,
        Self::Broadcast,
        Self::Starting,
        Self::Loop,
    ];

    /// The name used in counters and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Consumed => "consumed",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::ReplyTooLarge => "reply_too_large",
            Self::Truncated => "truncated",
            Self::SendFailed => "send_failed",
            Self::Panicked => "panicked",
            Self::Abandoned => "abandoned",
            Self::Broadcast => "broadcast",
            Self::Starting => "starting",
            Self::Loop => "loop",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a reply was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The send buffer is full: the device is slower than the service, or the cause is not known.
    BufferFull,
    /// The send buffer is full, and the next hop to the peer (the peer itself or a router) has not answered ARP or
    /// neighbour discovery. Replies to it would wait in the buffer for up to 3 s and keep out those to others.
    Neighbour,
    /// Out of buffers below the socket (`ENOBUFS`, `ENOMEM`): the device's queue is full.
    NoBuffers,
    /// A firewall or another rule rejects it (`EPERM`, `EACCES`).
    NotPermitted,
    /// The peer's host rejected an earlier reply (`ECONNREFUSED`).
    Refused,
    /// No route to the peer (`ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`, ...).
    Unreachable,
    /// Longer than the path to the peer or the protocol allows (`EMSGSIZE`).
    TooLong,
    /// Anything else, such as a peer with port 0 (`EINVAL`).
    Other,
}

impl SendError {
    /// All causes, in the order of their counters.
    pub const ALL: [Self; 8] = [
        Self::BufferFull,
        Self::Neighbour,
        Self::NoBuffers,
        Self::NotPermitted,
        Self::Refused,
        Self::Unreachable,
        Self::TooLong,
        Self::Other,
    ];

    /// The name used in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BufferFull => "buffer_full",
            Self::Neighbour => "neighbour",
            Self::NoBuffers => "no_buffers",
            Self::NotPermitted => "not_permitted",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TooLong => "too_long",
            Self::Other => "other",
        }
    }

    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::BufferFull,
            Some(libc::ENOBUFS | libc::ENOMEM) => Self::NoBuffers,
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(
                libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EHOSTDOWN
                | libc::EADDRNOTAVAIL
                | libc::ENODEV,
            ) => Self::Unreachable,
            Some(libc::EMSGSIZE) => Self::TooLong,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_reasons_are_listed_in_the_order_of_their_counters() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason}");
        }
    }

    #[test]
    fn causes_are_listed_in_the_order_of_their_counters() {
        for (index, cause) in SendError::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index, "{}", cause.name());
        }
    }

    #[test]
    fn every_error_has_a_cause() {
        for (errno, cause) in [
            (libc::EAGAIN, SendError::BufferFull),
            (libc::ENOBUFS, SendError::NoBuffers),
            (libc::ECONNREFUSED, SendError::Refused),
            (libc::EPERM, SendError::NotPermitted),
            (libc::ENETUNREACH, SendError::Unreachable),
            (libc::EMSGSIZE, SendError::TooLong),
            (libc::EINVAL, SendError::Other),
        ] {
            assert_eq!(SendError::of(&io::Error::from_raw_os_error(errno)), cause);
        }
    }
}
