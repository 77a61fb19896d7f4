//! What becomes of a request: [`Outcome`], and why one gets no answer: [`DropReason`].

use std::fmt;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Send what was written to the [`Reply`].
    Reply,
    /// Send nothing, and count it under this reason.
    Drop(DropReason),
    /// Nothing now: the service took a [`Deferred`] from the request and will answer, or drop it, later.
    /// Taking the handle is what counts: with a handle taken any outcome means this one, and without
    /// one this means `Drop(DropReason::Abandoned)`.
    Defer,
}

/// Why a request got no answer. Each has its own counter; `received = answered + the sum of these + deferred`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The service takes datagrams and never answers (a sink).
    Consumed,
    /// The request is not of the service's protocol.
    Malformed,
    /// The service chose not to answer (access rules, rate limits).
    Refused,
    /// The reply does not fit the reply buffer.
    ReplyTooLarge,
    /// The request was longer than the receive buffer and was cut by the kernel.
    Truncated,
    /// The kernel did not take the reply; [`crate::SendError`] has the causes.
    SendFailed,
    /// The service panicked on it; the worker goes on with a new instance.
    Panicked,
    /// A deferred request whose handle was dropped without an answer.
    Abandoned,
    /// The request was sent to a broadcast or multicast address. None is answered unless
    /// [`Config::answer_broadcast`](crate::Config::answer_broadcast) is set; with it, one worker answers and the others
    /// count their copies here.
    Broadcast,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 9] = [
        Self::Consumed,
        Self::Malformed,
        Self::Refused,
        Self::ReplyTooLarge,
        Self::Truncated,
        Self::SendFailed,
        Self::Panicked,
        Self::Abandoned,
        Self::Broadcast,
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
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
}
