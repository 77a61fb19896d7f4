//! What the machine looks like at one moment: plain, serialisable, and the same for a live machine and a captured one.
//!
//! Counters in it are the kernel's, since boot or since the driver was last set up; two snapshots give rates.

mod device;
mod link;

use serde::{Deserialize, Serialize};

pub use device::{
    ChannelCounts, Channels, Coalescing, Driver, Feature, Features, Fields, FlowAction, FlowRule, HashFields,
    Masked, Rings, Rss, RssContext,
};
pub use link::{Counters, Direction, Link, Napi, NetdevQueue, Qdisc, QueueCounters, Xdp, XdpFeatures};

use crate::Missing;

/// Version of the JSON form. Raised when a field changes its meaning or goes; new fields may come without.
pub const SCHEMA: &str = "udpath.snapshot/1";

/// The machine at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it was taken, milliseconds since 1970.
    pub taken: u64,
    /// What it does not show, and why.
    pub missing: Vec<Missing>,
}
