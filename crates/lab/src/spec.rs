//! What a description of a lab may contain: a link's properties, the limits, and why a description is invalid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Offloads;

/// Maximum length of a lab's name, in bytes. It is part of a file name and of a line on the terminal.
pub const MAX_LAB_NAME: usize = 32;
/// Maximum length of a machine's name, in bytes: `IFNAMSIZ` without the terminating zero, so that an interface can have
/// it.
pub const MAX_MACHINE_NAME: usize = 15;
/// Most receive or transmit queues of a link's end: the kernel's own limit (`rtnl_create_link`).
pub const MAX_QUEUES: u32 = 4096;
/// Smallest MTU in bytes: the minimum of IPv6 (RFC 8200, section 5).
pub const MIN_MTU: u32 = 1280;
/// Largest MTU in bytes: the maximum of veth (`ETH_MAX_MTU`).
pub const MAX_MTU: u32 = 65_535;
/// Most addresses of each family on a link's end: both ends share a /24, and .0 and .255 are not usable.
pub const MAX_ADDRESSES: u32 = 127;
/// Longest interrupt moderation, in microseconds. NICs go up to 1 to 4 ms; above this a veth's ring of 256 frames
/// overflows at a few ten thousand frames per second.
pub const MAX_MODERATION: u32 = 10_000;
/// Most links of a lab: each uses one /24 of 10.0.0.0/8.
pub const MAX_LINKS: usize = 65_536;

/// One link between two machines: a veth pair with identical ends.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Receive and transmit queues of each end, set at creation (1 to [`MAX_QUEUES`]). Changing the number of a veth's
    /// queues later can leave its NAPI in a state in which an XDP program receives nothing.
    pub queues: u32,
    /// MTU in bytes ([`MIN_MTU`] to [`MAX_MTU`]). Native XDP needs it to fit a page: about 3,500.
    pub mtu: u32,
    /// Addresses of each family on each end (1 to [`MAX_ADDRESSES`]), for loads with several sources.
    pub addresses: u32,
    /// How long both ends wait for more frames after receiving some, in microseconds (0, not at all, to
    /// [`MAX_MODERATION`]), as a NIC with interrupt moderation does. Only while NAPI is on: with an XDP program or GRO.
    /// A veth without NAPI processes every frame individually, on the sending CPU.
    #[serde(default)]
    pub moderation: u32,
    /// Offloads of both ends.
    pub offloads: Offloads,
}

/// One queue, one address, Ethernet's MTU, no moderation, the driver's default offloads.
impl Default for LinkSpec {
    fn default() -> Self {
        Self { queues: 1, mtu: 1500, addresses: 1, moderation: 0, offloads: Offloads::default() }
    }
}

impl LinkSpec {
    /// The default with this many queues.
    #[must_use]
    pub fn with_queues(queues: u32) -> Self {
        Self { queues, ..Self::default() }
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(SpecError::Queues(self.queues));
        }
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(SpecError::Mtu(self.mtu));
        }
        if !(1..=MAX_ADDRESSES).contains(&self.addresses) {
            return Err(SpecError::Addresses(self.addresses));
        }
        if self.moderation > MAX_MODERATION {
            return Err(SpecError::Moderation(self.moderation));
        }
        match self.offloads.unmet() {
            Some((offload, needs)) => Err(SpecError::Offload { offload, needs }),
            None => Ok(()),
        }
    }
}

/// Why a description is invalid. Each error names the value and the valid ones.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// An invalid name.
    #[error(
        "invalid {what} name \"{name}\": expected 1 to {max} of a-z, 0-9 and -, starting with a letter or digit"
    )]
    Name {
        /// `lab` or `machine`.
        what: &'static str,
        /// The requested name.
        name: String,
        /// Maximum length of such a name, in bytes.
        max: usize,
    },
    /// No machines.
    #[error("a lab needs at least one machine")]
    NoMachines,
    /// Two machines with the same name.
    #[error("two machines are named \"{0}\"; give each its own name")]
    DuplicateMachine(String),
    /// A link to a machine that does not exist.
    #[error("link {from} - {to} names machine \"{unknown}\", which the lab does not have; it has {known}")]
    UnknownMachine {
        /// One end.
        from: String,
        /// The other end.
        to: String,
        /// The missing one.
        unknown: String,
        /// The existing machines.
        known: String,
    },
    /// Both ends on one machine.
    #[error("link {0} - {0} starts and ends on one machine; use its loopback, or a second machine")]
    SelfLink(String),
    /// A pattern over groups of different size.
    #[error("cannot pair {from} ({have}) with {to} ({need}) one to one: the groups differ in size")]
    Pairs {
        /// Name of the first group.
        from: String,
        /// Its size.
        have: usize,
        /// Name of the second group.
        to: String,
        /// Its size.
        need: usize,
    },
    /// A pattern over a group that does not exist.
    #[error("there is no group of machines \"{0}\"; add it with machines(name, count) first")]
    UnknownGroup(String),
    /// More links than addresses.
    #[error("{0} links are too many: a lab has at most {MAX_LINKS}")]
    Links(usize),
    /// A queue count out of range.
    #[error("invalid number of queues {0}: expected 1 to {MAX_QUEUES}")]
    Queues(u32),
    /// An MTU out of range.
    #[error("invalid MTU {0}: expected {MIN_MTU} to {MAX_MTU} bytes")]
    Mtu(u32),
    /// An address count out of range.
    #[error("invalid number of addresses {0} on a link's end: expected 1 to {MAX_ADDRESSES}")]
    Addresses(u32),
    /// An interrupt moderation out of range.
    #[error("invalid interrupt moderation {0} us: expected 0 (none) to {MAX_MODERATION}")]
    Moderation(u32),
    /// An offload without one it depends on.
    #[error("{offload} needs {needs}: turn both on, or both off")]
    Offload {
        /// The requested offload.
        offload: &'static str,
        /// The missing offload.
        needs: &'static str,
    },
}

/// Names become part of file names and command lines: no character may have a special meaning there.
pub(crate) fn check_name(what: &'static str, name: &str, max: usize) -> Result<(), SpecError> {
    let fits = (1..=max).contains(&name.len());
    let plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if fits && plain && !name.starts_with('-') {
        return Ok(());
    }
    Err(SpecError::Name { what, name: name.to_owned(), max })
}
