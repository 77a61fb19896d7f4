//! The reasons behind predictions, as data and as sentences.

use std::fmt;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::HashFunction;
use crate::drivers;
use crate::toeplitz::{Fields, Transform};

/// Why a step has its value, or none. `Display` is the sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(into = "String")]
#[non_exhaustive]
pub enum Why {
    /// Computed.
    Toeplitz {
        /// The hashed fields.
        fields: Fields,
        /// The transform applied to them.
        transform: Transform,
    },
    /// The key is unknown.
    NoKey,
    /// The driver's key is random.
    RandomKey {
        /// Its name.
        driver: &'static str,
    },
    /// The card uses a hash that is not Toeplitz.
    OtherFunction {
        /// Which.
        function: HashFunction,
    },
    /// The driver's devices use a variant of the Toeplitz hash.
    OtherToeplitz {
        /// Its name.
        driver: &'static str,
    },
    /// The hashed fields are unknown.
    NoFields {
        /// `udp4` or `udp6`, as ethtool calls it.
        family: &'static str,
    },
    /// There is one queue.
    OnlyQueue,
    /// All entries of the table are this queue.
    EveryEntry,
    /// The entry selected by the hash's low bits.
    Entry {
        /// Its number.
        index: usize,
        /// Of how many.
        of: usize,
    },
    /// A flow rule selects the queue.
    Rule {
        /// Its location.
        location: u32,
    },
    /// A flow rule selects an RSS context, and this entry of the context's table selects the queue.
    RuleContext {
        /// Its location.
        location: u32,
        /// The context.
        context: u32,
        /// The entry's number, and the number of entries; `None`: every entry is this queue.
        entry: Option<(usize, usize)>,
    },
    /// A flow rule drops it.
    RuleDrops {
        /// Its location.
        location: u32,
    },
    /// A flow rule directs it to a virtual function.
    RuleElsewhere {
        /// Its location.
        location: u32,
        /// The virtual function's number, from 0.
        vf: u8,
    },
    /// A flow rule selects a queue that the stack does not have.
    RuleBeyond {
        /// Its location.
        location: u32,
        /// The queue.
        queue: u32,
    },
    /// A flow rule may or may not match.
    RuleMaybe {
        /// Its location.
        location: u32,
    },
    /// A flow rule selects an RSS context that is not known.
    RuleNoContext {
        /// Its location.
        location: u32,
        /// The context.
        context: u32,
    },
    /// A flow rule bypassed RSS, so the packet may have no hash.
    RuleHash {
        /// Its location.
        location: u32,
    },
    /// No indirection table was given.
    NoTable,
    /// The interface has no table: the sender selects the queue.
    SendersQueue,
    /// The driver does not record the queue.
    NotRecorded,
    /// It depends on the hash.
    HashUnknown,
    /// It depends on the queue.
    QueueUnknown,
    /// It depends on the CPU.
    CpuUnknown,
    /// As given.
    IrqGiven,
    /// Not given.
    NoIrq,
    /// The interface has none.
    NoInterrupt,
    /// The one CPU of the interrupt.
    IrqCpu,
    /// The interrupt has several CPUs, or none.
    SeveralIrqCpus,
    /// Not given.
    NoIrqCpus,
    /// NAPI runs in threads.
    Threaded,
    /// An empty map was given.
    RpsOff,
    /// No map was given.
    RpsDefault,
    /// The map has one CPU.
    OnlyRpsCpu {
        /// Whether RFS is on.
        rfs: bool,
    },
    /// The map's entry for the hash.
    RpsPlace {
        /// Its number.
        place: u32,
        /// Of how many.
        of: usize,
        /// Is RFS on?
        rfs: bool,
        /// Whether it assumes that the driver passes its hash on.
        assumed: bool,
    },
    /// The hash is 0.
    NoHash,
    /// The card hashes addresses only.
    HashOfAddresses,
    /// The driver does not pass its hash on.
    HashNotPassedOn,
    /// The driver may or may not pass its hash on.
    IfPassedOn,
    /// No group was given.
    NoSockets,
    /// No socket matches.
    NoListener,
    /// There is one socket.
    OnlySocket,
    /// The group selects by the kernel's hash.
    SocketHash,
    /// How the group selects is unknown.
    SelectionUnknown,
    /// The CPU number modulo the number of sockets.
    CpuModulo {
        /// Number of sockets.
        of: usize,
    },
    /// The CPU number.
    CpuIndex,
    /// The group has no socket at the CPU number.
    CpuBeyond {
        /// Number of sockets.
        of: usize,
    },
    /// The last bound.
    BoundLast,
    /// The last bound of those with this SO_INCOMING_CPU.
    BoundLastOfCpu,
    /// The socket selected by the hash.
    RxhashSocket,
    /// The only socket with this SO_INCOMING_CPU.
    IncomingCpu,
    /// Several sockets have this SO_INCOMING_CPU.
    SeveralIncomingCpu,
    /// No socket has this SO_INCOMING_CPU.
    NoIncomingCpu,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rfs_too = |rfs| if rfs { "; RFS moves flows of connected sockets" } else { "" };
        let text = match *self {
            Self::Toeplitz { fields, transform } => return toeplitz(f, fields, transform),
            Self::RandomKey { driver } => {
                return write!(f, "{driver} generates a random key; supply the one that ethtool -x shows");
            }
            Self::OtherFunction { function } => {
                return write!(f, "the hash function is {function}, whose input is not documented");
            }
            Self::OtherToeplitz { driver } => {
                let note = drivers::find(driver).and_then(|driver| driver.note).unwrap_or("not documented");
                return write!(f, "{driver} uses a variant of the Toeplitz hash: {note}");
            }
            Self::NoFields { family } => {
                return write!(
                    f,
                    "unknown whether ports are hashed; see ethtool -n DEV rx-flow-hash {family}"
                );
            }
            Self::Entry { index, of } => {
                return write!(f, "entry {index} of {of} in the indirection table");
            }
            Self::Rule { location } => return write!(f, "ntuple rule {location}"),
            Self::RuleContext { location, context, entry: Some((index, of)) } => {
                return write!(f, "ntuple rule {location}: entry {index} of {of} in RSS context {context}");
            }
            Self::RuleContext { location, context, entry: None } => {
                return write!(f, "ntuple rule {location}: every entry of RSS context {context}");
            }
            Self::RuleDrops { location } => return write!(f, "ntuple rule {location} drops it"),
            Self::RuleElsewhere { location, vf } => {
                return write!(f, "ntuple rule {location} directs it to virtual function {vf}");
            }
            Self::RuleBeyond { location, queue } => {
                return write!(
                    f,
                    "ntuple rule {location} directs it to queue {queue}, which the stack does not have"
                );
            }
            Self::RuleMaybe { location } => {
                return write!(
                    f,
                    "ntuple rule {location} may match: it tests more than addresses, ports and protocol"
                );
            }
            Self::RuleNoContext { location, context } => {
                return write!(
                    f,
                    "ntuple rule {location} directs it to RSS context {context}, whose table is unknown"
                );
            }
            Self::RuleHash { location } => {
                return write!(
                    f,
                    "directed by ntuple rule {location}: whether it carries the card's hash depends on the driver"
                );
            }
            Self::CpuModulo { of } => {
                return write!(f, "the CPU number modulo {of}, by the program attached to the group");
            }
            Self::CpuBeyond { of } => {
                return write!(
                    f,
                    "the program returns the CPU number, but there are {of} sockets: selected by the kernel's own hash"
                );
            }
            Self::OnlyRpsCpu { rfs } => return write!(f, "the only CPU of the RPS map{}", rfs_too(rfs)),
            Self::RpsPlace { place, of, rfs, assumed } => {
                let condition = if assumed { ", if the driver passes the card's hash on" } else { "" };
                return write!(f, "entry {place} of {of} in the RPS map{condition}{}", rfs_too(rfs));
            }
            Self::NoKey => "no key given; see ethtool -x",
            Self::OnlyQueue => "the only queue",
            Self::EveryEntry => "every entry of the indirection table",
            Self::NoTable => "no indirection table given; see ethtool -x",
            Self::SendersQueue => "a virtual link without RSS: the sender's transmit queue (its XPS) decides",
            Self::NotRecorded => "the driver does not record the queue",
            Self::HashUnknown => "depends on the hash",
            Self::QueueUnknown => "depends on the queue",
            Self::CpuUnknown => "depends on the CPU",
            Self::IrqGiven => "the queue's interrupt, as given",
            Self::NoIrq => "no IRQ given for the queue",
            Self::NoInterrupt => "a virtual link without interrupts: received on the sender's CPU",
            Self::IrqCpu => "the CPU of the queue's IRQ",
            Self::SeveralIrqCpus => "the IRQ has several CPUs or none; supply its effective affinity",
            Self::NoIrqCpus => "no CPU given for the queue's IRQ",
            Self::Threaded => "NAPI runs in threads (napi/threaded): the scheduler decides",
            Self::RpsOff => "RPS is off: the CPU of the IRQ",
            Self::RpsDefault => "no RPS map given; off is the kernel's default: the CPU of the IRQ",
            Self::NoHash => "a hash of 0 counts as none: the CPU of the IRQ",
            Self::HashOfAddresses => {
                "the card does not hash ports, so the kernel hashes again, with a secret drawn at boot"
            }
            Self::HashNotPassedOn => {
                "the driver does not pass on a hash over ports, so the kernel hashes, with a secret drawn at boot"
            }
            Self::IfPassedOn => "if the driver passes the card's hash on",
            Self::NoSockets => "no sockets given",
            Self::NoListener => "no socket in this network namespace receives it",
            Self::OnlySocket => "the only socket",
            Self::SocketHash => "selected by the kernel's own hash, with a secret drawn at boot",
            Self::SelectionUnknown => {
                "unknown how the sockets share the address: their options could not be read, or a program selects"
            }
            Self::CpuIndex => "the CPU number, by the program attached to the group",
            Self::BoundLast => "bound last: sockets with SO_REUSEADDR alone do not share",
            Self::BoundLastOfCpu => {
                "bound last of those with that SO_INCOMING_CPU; without SO_REUSEPORT they do not share"
            }
            Self::RxhashSocket => "selected by the hash",
            Self::IncomingCpu => "the only socket with that SO_INCOMING_CPU",
            Self::SeveralIncomingCpu => {
                "several sockets have that SO_INCOMING_CPU; the kernel's own hash selects, with a secret drawn at boot"
            }
            Self::NoIncomingCpu => {
                "no socket has that SO_INCOMING_CPU; the kernel's own hash selects, with a secret drawn at boot"
            }
        };
        f.write_str(text)
    }
}

fn toeplitz(f: &mut fmt::Formatter<'_>, fields: Fields, transform: Transform) -> fmt::Result {
    let over = match fields {
        Fields::Addresses => "addresses",
        Fields::AddressesPorts => "addresses and ports",
    };
    let after = match transform {
        Transform::None => "",
        Transform::SymmetricXor => ", symmetric-xor",
        Transform::SymmetricOrXor => ", symmetric-or-xor",
    };
    write!(f, "Toeplitz over {over}{after}")
}

impl Serialize for Why {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
