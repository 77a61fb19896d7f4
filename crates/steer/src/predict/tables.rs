//! What is known of a machine: the input of a prediction, as JSON `udpath.tables/1`.
//!
//! Everything but `schema` is optional. A complete example:
//!
//! ```json
//! {
//!   "schema": "udpath.tables/1",
//!   "driver": "ixgbe",
//!   "function": "toeplitz", "key": "6d:5a:56:...", "transform": "none", "udp4": "sdfn", "udp6": "sd",
//!   "passed_on": true,
//!   "queues": 2, "table": [0, 1, 0, 1],
//!   "contexts": {"1": {"table": [1, 1], "key": "6d:5a:..."}},
//!   "rules": [{"location": 3, "flow": "udp4", "destination_port": {"value": 53, "mask": 65535},
//!              "action": {"context": {"context": 1, "queue": 0}}}],
//!   "receive": [{"queue": 0, "irq": 45, "irq_cpus": "0", "rps_cpus": "0,2", "rfs_entries": 2048}],
//!   "sock_flow_entries": 32768,
//!   "threaded": false, "senders_queue": false, "online": "0-3",
//!   "sockets": {"by": "cpu", "cpus": [0, 1, 2, null]}
//! }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::CpuSet;
use crate::drivers;
use crate::reuseport::By;
use crate::rss::{IndirectionTable, TableError};
use crate::rules::FlowRule;
use crate::toeplitz::{Fields, Key, Transform};

/// The version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub enum Schema {
    /// The first one.
    #[default]
    #[serde(rename = "udpath.tables/1")]
    V1,
}

/// The hash functions that ethtool knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashFunction {
    /// The only one whose input is documented.
    Toeplitz,
    /// An XOR over fields, different on each card.
    Xor,
    /// A CRC over fields, different on each card.
    Crc32,
}

impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toeplitz => "toeplitz",
            Self::Xor => "xor",
            Self::Crc32 => "crc32",
        })
    }
}

/// What is known of a machine. An omitted field is unknown, and each step of a prediction reports what it lacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// The version of this form.
    pub schema: Schema,
    /// The driver, for its defaults ([`drivers::DRIVERS`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The hash function; Toeplitz if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<HashFunction>,
    /// The hash key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The transform of the fields; the driver's default if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
    /// Fields of UDP over IPv4 that are hashed; the driver's default if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp4: Option<Fields>,
    /// Fields of UDP over IPv6 that are hashed; the driver's default if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp6: Option<Fields>,
    /// Whether the driver passes the card's hash on to the stack (`ethtool -k`: receive-hashing), as one over ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_on: Option<bool>,
    /// Receive queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// The indirection table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<IndirectionTable>,
    /// Additional RSS contexts, which rules refer to by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contexts: BTreeMap<u32, Context>,
    /// Flow rules, which take precedence over the indirection table. Packets sent to a queue beyond `queues` do not
    /// reach the stack: some drivers number AF_XDP queues after the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FlowRule>,
    /// Receive queues, as far as they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receive: Vec<Queue>,
    /// `net.core.rps_sock_flow_entries`; RFS needs it and the queue's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sock_flow_entries: Option<u32>,
    /// Whether NAPI runs in threads. Then the scheduler decides on which CPU a queue's packets are processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded: Option<bool>,
    /// Whether the interface has no hash of its own, such as a veth, where a packet is received on the queue that its
    /// sender selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub senders_queue: Option<bool>,
    /// CPUs that are online; all if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<CpuSet>,
    /// The reuseport group, or the single socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Sockets>,
}

/// An additional RSS context. Omitted fields, except the table, are those of the main one.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// The hash function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<HashFunction>,
    /// The hash key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The transform of the fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
    /// Fields of UDP over IPv4 that are hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp4: Option<Fields>,
    /// Fields of UDP over IPv6 that are hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp6: Option<Fields>,
    /// The indirection table; unknown if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<IndirectionTable>,
}

/// A receive queue, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Its number.
    pub queue: u32,
    /// Its interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<u32>,
    /// The CPUs of the interrupt: its effective affinity, which is one CPU on x86.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq_cpus: Option<CpuSet>,
    /// Its RPS map; empty is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rps_cpus: Option<CpuSet>,
    /// Its `rps_flow_cnt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rfs_entries: Option<u32>,
}

/// The sockets bound to the flow's destination.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sockets {
    /// How the group selects a socket.
    pub by: By,
    /// The SO_INCOMING_CPU of each socket, if set, in bind order.
    pub cpus: Vec<Option<u32>>,
}

/// Why tables are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TablesError {
    /// An unknown driver.
    #[error("unknown driver {driver:?}; known drivers: {}", drivers::names())]
    NoSuchDriver {
        /// Its name.
        driver: String,
    },
    /// No queue, or more than any card has.
    #[error("invalid number of queues {queues}: expected 1 to {max}", max = Tables::MAX_QUEUES)]
    Queues {
        /// The given number.
        queues: u32,
    },
    /// A queue described twice.
    #[error("receive queue {queue} is described twice")]
    Twice {
        /// Its number.
        queue: u32,
    },
    /// A description of a queue that does not exist.
    #[error("receive queue {queue} is described, but there are only {queues}, 0 to {}", queues.saturating_sub(1))]
    NoSuchQueue {
        /// Its number.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// The indirection table does not fit the queues.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The indirection table of an additional RSS context does not fit the queues.
    #[error("invalid RSS context {context}")]
    Context {
        /// Its number.
        context: u32,
        /// The error.
        #[source]
        error: TableError,
    },
    /// Two rules at one location.
    #[error("two flow rules at location {location}; a location holds one")]
    Location {
        /// The location.
        location: u32,
    },
    /// No socket, or more than a group takes.
    #[error("invalid number of sockets {sockets} in a reuseport group: expected 1 to {max}", max = Tables::MAX_SOCKETS)]
    Sockets {
        /// How many were given.
        sockets: usize,
    },
}

impl Tables {
    /// The maximum number of queues. Cards of today have up to some thousands.
    pub const MAX_QUEUES: u32 = 65_536;
    /// The maximum number of sockets in a group (`reuseport_grow` of `net/core/sock_reuseport.c`).
    pub const MAX_SOCKETS: usize = 32_768;

    /// Checks that the tables are consistent.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), TablesError> {
        if let Some(driver) = self.driver.as_ref().filter(|driver| drivers::find(driver).is_none()) {
            return Err(TablesError::NoSuchDriver { driver: driver.clone() });
        }
        if let Some(queues) = self.queues {
            if queues == 0 || queues > Self::MAX_QUEUES {
                return Err(TablesError::Queues { queues });
            }
            self.table.as_ref().map_or(Ok(()), |table| table.check(queues))?;
            for (&context, Context { table, .. }) in &self.contexts {
                let fits = table.as_ref().map_or(Ok(()), |table| table.check(queues));
                fits.map_err(|error| TablesError::Context { context, error })?;
            }
            if let Some(&Queue { queue, .. }) = self.receive.iter().find(|known| known.queue >= queues) {
                return Err(TablesError::NoSuchQueue { queue, queues });
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(&Queue { queue, .. }) = self.receive.iter().find(|known| !seen.insert(known.queue)) {
            return Err(TablesError::Twice { queue });
        }
        let mut places = BTreeSet::new();
        if let Some(&FlowRule { location, .. }) = self.rules.iter().find(|rule| !places.insert(rule.location))
        {
            return Err(TablesError::Location { location });
        }
        match self.sockets.as_ref().map(|sockets| sockets.cpus.len()) {
            Some(sockets) if sockets == 0 || sockets > Self::MAX_SOCKETS => {
                Err(TablesError::Sockets { sockets })
            }
            _ => Ok(()),
        }
    }
}
