//! The ways to move datagrams: [`Io`], the user's choice among them, and the call that receives.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// How a service moves datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(into = "String")]
pub enum Io {
    /// One socket per address, read by all workers, which contend for its lock and queue.
    Shared,
    /// A socket per worker and address; the kernel chooses by flow hash. A flow stays with one worker.
    Reuseport,
    /// A socket per worker and address; the kernel chooses by the CPU that received the datagram, so that it never
    /// leaves that CPU. Datagrams must arrive on all the workers' CPUs.
    Percpu,
    /// Frames from the device's queues, past the kernel's stack (AF_XDP), with a worker per queue. What the fast path
    /// declines arrives on kernel sockets as with `reuseport`.
    Xdp,
}

impl Io {
    /// All, simplest first. `auto` tries them in reverse.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Reuseport, Self::Percpu, Self::Xdp];

    /// Those that use kernel sockets only, simplest first: they work on every host and device.
    pub const KERNEL: [Self; 3] = [Self::Shared, Self::Reuseport, Self::Percpu];

    /// The name on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Reuseport => "reuseport",
            Self::Percpu => "percpu",
            Self::Xdp => "xdp",
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Io {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One Io, or the best that works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoChoice {
    /// The last of [`Io::ALL`] whose probe passes.
    Auto,
    /// This one only.
    Only(Io),
}

impl FromStr for IoChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        Io::ALL
            .into_iter()
            .find(|io| io.name() == text)
            .map(Self::Only)
            .ok_or_else(|| format!("unknown Io {text:?}: use shared, reuseport, percpu, xdp or auto"))
    }
}

impl fmt::Display for IoChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(io) => io.fmt(f),
        }
    }
}

/// The call with which kernel sockets receive. To compare what each costs; without a choice, each socket has the
/// cheapest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveCall {
    /// `recvfrom`: one datagram per call, with its sender. Not with a wildcard address or time stamps.
    Recvfrom,
    /// `recvmsg`: one datagram per call, with its sender and control messages.
    Recvmsg,
    /// `recvmmsg`: up to a batch of datagrams per call.
    Recvmmsg,
}

impl ReceiveCall {
    /// All, those with the least to describe a datagram first.
    pub const ALL: [Self; 3] = [Self::Recvfrom, Self::Recvmsg, Self::Recvmmsg];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recvfrom => "recvfrom",
            Self::Recvmsg => "recvmsg",
            Self::Recvmmsg => "recvmmsg",
        }
    }
}

impl fmt::Display for ReceiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReceiveCall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|call| call.name() == text);
        found.ok_or_else(|| format!("unknown receive call {text:?}: use recvfrom, recvmsg or recvmmsg"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_user_types() {
        for io in Io::ALL {
            assert_eq!(io.name().parse(), Ok(IoChoice::Only(io)));
        }
        for call in ReceiveCall::ALL {
            assert_eq!(call.name().parse(), Ok(call));
        }
        assert!("read".parse::<ReceiveCall>().unwrap_err().contains("recvmmsg"));
        assert_eq!("auto".parse(), Ok(IoChoice::Auto));
        assert!("Shared".parse::<IoChoice>().unwrap_err().contains("reuseport"));
    }
}
