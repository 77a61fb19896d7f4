//! The reasons, as data and as sentences.

use std::fmt;

use serde::{Serialize, Serializer};

use super::HashFunction;
use crate::drivers;
use crate::toeplitz::{Fields, Transform};

/// Why a step has its value, or none. `Display` is the sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Computed.
    Toeplitz {
        /// Of which fields.
        fields: Fields,
        /// After which transform.
        transform: Transform,
    },
    /// Nothing is known of the key.
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
    /// The driver's devices have a Toeplitz hash of their own kind.
    OtherToeplitz {
        /// Its name.
        driver: &'static str,
    },
    /// Which fields are hashed is not known.
    NoFields {
        /// `udp4` or `udp6`, as ethtool calls it.
        family: &'static str,
    },
    /// There is one queue.
    OnlyQueue,
    /// All entries of the table are this queue.
    EveryEntry,
    /// The entry that the hash's low bits name.
    Entry {
        /// Its number.
        index: usize,
        /// Of how many.
        of: usize,
    },
    /// A flow rule names the queue.
    Rule {
        /// Its location.
        location: u32,
    },
    /// A flow rule names an RSS context, and this entry of the context's table names the queue.
    RuleContext {
        /// Its location.
        location: u32,
        /// The context.
        context: u32,
        /// The entry's number, and how many there are; none: every entry is this queue.
        entry: Option<(usize, usize)>,
    },
    /// A flow rule discards it.
    RuleDrops {
        /// Its location.
        location: u32,
    },
    /// A flow rule gives it to a virtual function.
    RuleElsewhere {
        /// Its location.
        location: u32,
        /// The virtual function's number, from 0.
        vf: u8,
    },
    /// A flow rule names a queue that the stack does not have.
    RuleBeyond {
        /// Its location.
        location: u32,
        /// The queue.
        queue: u32,
    },
    /// A flow rule takes it or does not.
    RuleMaybe {
        /// Its location.
        location: u32,
    },
    /// A flow rule names an RSS context of which nothing is known.
    RuleNoContext {
        /// Its location.
        location: u32,
        /// The context.
        context: u32,
    },
    /// A flow rule took it past RSS, so that it may have no hash.
    RuleHash {
        /// Its location.
        location: u32,
    },
    /// No indirection table was given.
    NoTable,
    /// The interface has no table: the sender chooses the queue.
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
        /// Is RFS on?
        rfs: bool,
    },
    /// The map's place for the hash.
    RpsPlace {
        /// Its number.
        place: u32,
        /// Of how many.
        of: usize,
        /// Is RFS on?
        rfs: bool,
        /// Does it rest on the driver passing its hash on?
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
    /// There is none.
    NoListener,
    /// There is one socket.
    OnlySocket,
    /// The group chooses by the kernel's hash.
    SocketHash,
    /// How the group chooses is not to be told.
    SelectionUnknown,
    /// The CPU's number modulo that of the sockets.
    CpuModulo {
        /// How many sockets.
        of: usize,
    },
    /// The last bound.
    BoundLast,
    /// The last bound of those that name the CPU.
    BoundLastOfCpu,
    /// The hash's place in the group.
    RxhashSocket,
    /// The one socket that names the CPU.
    IncomingCpu,
    /// More than one does.
    SeveralIncomingCpu,
    /// None does.
    NoIncomingCpu,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rfs_too = |rfs| if rfs { "; RFS moves flows of connected sockets" } else { "" };
        let text = match *self {
            Self::Toeplitz { fields, transform } => return toeplitz(f, fields, transform),
            Self::RandomKey { driver } => {
                return write!(f, "{driver} draws its key at random; give the one that ethtool -x shows");
            }
            Self::OtherFunction { function } => {
                return write!(f, "the hash function is {function}, whose input is not documented");
            }
            Self::OtherToeplitz { driver } => {
                let note = drivers::find(driver).and_then(|driver| driver.note).unwrap_or("not documented");
                return write!(f, "{driver} has a Toeplitz hash of its own: {note}");
            }
            Self::NoFields { family } => {
                return write!(
                    f,
                    "not known whether ports are hashed; ethtool -n DEV rx-flow-hash {family} shows it"
                );
            }
            Self::Entry { index, of } => {
                return write!(f, "entry {index} of the {of} in the indirection table");
            }
            Self::Rule { location } => return write!(f, "ntuple rule {location}"),
            Self::RuleContext { location, context, entry: Some((index, of)) } => {
                return write!(
                    f,
                    "ntuple rule {location}: entry {index} of the {of} in RSS context {context}"
                );
            }
            Self::RuleContext { location, context, entry: None } => {
                return write!(f, "ntuple rule {location}: every entry of RSS context {context}");
            }
            Self::RuleDrops { location } => return write!(f, "ntuple rule {location} drops it"),
            Self::RuleElsewhere { location, vf } => {
                return write!(f, "ntuple rule {location} gives it to virtual function {vf}");
            }
            Self::RuleBeyond { location, queue } => {
                return write!(
                    f,
                    "ntuple rule {location} gives it to queue {queue}, which is none of the stack's"
                );
            }
            Self::RuleMaybe { location } => {
                return write!(
                    f,
                    "ntuple rule {location} may take it: it asks for more than addresses, ports and protocol"
                );
            }
            Self::RuleNoContext { location, context } => {
                return write!(
                    f,
                    "ntuple rule {location} gives it to RSS context {context}, whose table is not known"
                );
            }
            Self::RuleHash { location } => {
                return write!(
                    f,
                    "it came by ntuple rule {location}: whether the card's hash comes along differs between drivers"
                );
            }
            Self::CpuModulo { of } => {
                return write!(f, "the CPU's number modulo {of}, by the program attached to the group");
            }
            Self::OnlyRpsCpu { rfs } => return write!(f, "the only CPU of the RPS map{}", rfs_too(rfs)),
            Self::RpsPlace { place, of, rfs, assumed } => {
                let condition = if assumed { ", if the driver passes the card's hash on" } else { "" };
                return write!(f, "place {place} of {of} in the RPS map{condition}{}", rfs_too(rfs));
            }
            Self::NoKey => "no key given; ethtool -x shows it",
            Self::OnlyQueue => "the only queue",
            Self::EveryEntry => "every entry of the indirection table",
            Self::NoTable => "no indirection table given; ethtool -x shows it",
            Self::SendersQueue => "a virtual link without RSS: it is the sender's transmit queue (XPS there)",
            Self::NotRecorded => "the driver does not record the queue",
            Self::HashUnknown => "depends on the hash",
            Self::QueueUnknown => "depends on the queue",
            Self::CpuUnknown => "depends on the CPU",
            Self::IrqGiven => "the queue's interrupt, as given",
            Self::NoIrq => "no IRQ given for the queue",
            Self::NoInterrupt => "a virtual link without interrupts: received on the sender's CPU",
            Self::IrqCpu => "the CPU of the queue's IRQ",
            Self::SeveralIrqCpus => "the IRQ has not one CPU; its effective affinity has",
            Self::NoIrqCpus => "no CPU given for the queue's IRQ",
            Self::Threaded => "NAPI runs in threads (napi/threaded): the scheduler chooses",
            Self::RpsOff => "RPS is off: the CPU of the IRQ",
            Self::RpsDefault => "no RPS map given; off is the kernel's default: the CPU of the IRQ",
            Self::NoHash => "a hash of 0 counts as none: the CPU of the IRQ",
            Self::HashOfAddresses => {
                "the card hashes no ports, so the kernel hashes again, with a secret drawn at boot"
            }
            Self::HashNotPassedOn => {
                "the driver passes no hash over ports on, so the kernel hashes, with a secret drawn at boot"
            }
            Self::IfPassedOn => "if the driver passes the card's hash on",
            Self::NoSockets => "no sockets given",
            Self::NoListener => "no socket of this network namespace takes it",
            Self::OnlySocket => "the only socket",
            Self::SocketHash => "chosen by the kernel's own hash, with a secret drawn at boot",
            Self::SelectionUnknown => {
                "how the sockets share is not to be told: their options could not be read, or a program chooses"
            }
            Self::BoundLast => "bound last: sockets with SO_REUSEADDR alone do not share",
            Self::BoundLastOfCpu => {
                "bound last of those with that SO_INCOMING_CPU; without SO_REUSEPORT they do not share"
            }
            Self::RxhashSocket => "the hash's place in the group",
            Self::IncomingCpu => "the only socket with that SO_INCOMING_CPU",
            Self::SeveralIncomingCpu => {
                "several sockets have that SO_INCOMING_CPU; the kernel's own hash chooses, with a secret drawn at boot"
            }
            Self::NoIncomingCpu => {
                "no socket has that SO_INCOMING_CPU; the kernel's own hash chooses, with a secret drawn at boot"
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
