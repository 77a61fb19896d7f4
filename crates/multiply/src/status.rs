//! What is reported of running instances.

use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Choose;

/// Version of the JSON form. Incremented when a field is removed or changes meaning, but not when a field is added.
pub const SCHEMA: &str = "udpath.multiply/1";

/// Instances at one moment.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: String,
    /// Their name.
    pub name: String,
    /// Their supervisor.
    pub pid: u32,
    /// What each runs, before placeholders are replaced.
    pub command: Vec<String>,
    /// Which instance gets a datagram.
    pub choose: Choose,
    /// The addresses that they share.
    pub addresses: Vec<SocketAddr>,
    /// How many there should be.
    pub count: usize,
    /// Each, by number.
    pub instances: Vec<InstanceStatus>,
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// From 1.
    pub number: usize,
    /// What it does.
    pub state: State,
    /// Its CPU.
    pub cpu: u32,
    /// Its process; `None` while there is none.
    pub pid: Option<u32>,
    /// Datagrams that were given to its sockets.
    pub datagrams: u64,
    /// How often it was started again.
    pub restarts: u32,
}

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It waits to be started again.
    Stopped,
    /// It has not bound its port, or not answered yet.
    Starting,
    /// It gets datagrams.
    Serving,
    /// It gets no further datagrams, and reads what is queued.
    Draining,
    /// It was asked to end.
    Ending,
}

/// What happened, for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What a killed supervisor had left was taken back.
    TookBack {
        /// Its name.
        name: String,
    },
    /// An instance gets datagrams.
    Serving {
        /// Its number.
        number: usize,
        /// Its process.
        pid: u32,
        /// Its CPU.
        cpu: u32,
    },
    /// All instances that were asked for serve.
    Ready(Box<Status>),
    /// An instance ended.
    Ended {
        /// Its number.
        number: usize,
        /// How: an exit status, a signal, or why it did not serve.
        how: String,
        /// When it is started again.
        again: Duration,
    },
    /// An instance runs and does not serve; it was killed.
    Hung {
        /// Its number.
        number: usize,
        /// How that shows.
        why: String,
        /// When it is started again.
        again: Duration,
    },
    /// An instance was ended before it had read all that was queued.
    NotDrained {
        /// Its number.
        number: usize,
        /// Bytes left, by the kernel's accounting.
        bytes: u32,
    },
    /// An instance that was to be added does not serve, and is not tried again.
    GivenUp {
        /// Its number.
        number: usize,
        /// Why.
        why: String,
    },
    /// An instance is gone for good.
    Gone {
        /// Its number.
        number: usize,
    },
}
