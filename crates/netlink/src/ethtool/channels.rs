//! Channels: interrupts and the queues they serve, by type (`ethtool -l`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{get, single};
use crate::error::Error;
use crate::generic::Generic;
use crate::numbers::*;

/// Number of channels by type: `ethtool -l`. A channel is an interrupt and the queues it serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelCounts {
    /// Receive only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Transmit only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Neither: link interrupts, SR-IOV coordination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<u32>,
    /// One receive and one transmit queue each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combined: Option<u32>,
}

/// Channels in use and maximum. `None` where the driver has no such type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    /// In use.
    pub now: ChannelCounts,
    /// The driver's maximum.
    pub max: ChannelCounts,
}

impl Channels {
    /// Number of receive queues in these channels.
    #[must_use]
    pub fn rx_queues(&self) -> u32 {
        self.now.rx.unwrap_or(0).saturating_add(self.now.combined.unwrap_or(0))
    }
}

/// Reads the channels of an interface.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read(generic: &mut Generic, interface: &str) -> Result<Channels, Error> {
    let answers = get(generic, ETHTOOL_MSG_CHANNELS_GET, interface)?;
    let is = single(&answers)?;
    Ok(Channels {
        now: ChannelCounts {
            rx: is.u32(ETHTOOL_A_CHANNELS_RX_COUNT),
            tx: is.u32(ETHTOOL_A_CHANNELS_TX_COUNT),
            other: is.u32(ETHTOOL_A_CHANNELS_OTHER_COUNT),
            combined: is.u32(ETHTOOL_A_CHANNELS_COMBINED_COUNT),
        },
        max: ChannelCounts {
            rx: is.u32(ETHTOOL_A_CHANNELS_RX_MAX),
            tx: is.u32(ETHTOOL_A_CHANNELS_TX_MAX),
            other: is.u32(ETHTOOL_A_CHANNELS_OTHER_MAX),
            combined: is.u32(ETHTOOL_A_CHANNELS_COMBINED_MAX),
        },
    })
}
