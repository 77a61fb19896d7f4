//! Descriptor rings: how many packets a queue of a card holds (`ethtool -g`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{get, single};
use crate::error::Error;
use crate::generic::Generic;
use crate::numbers::*;

/// Descriptor rings, entries per queue: `ethtool -g`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// Receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<u32>,
    /// Maximum for receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_max: Option<u32>,
    /// Transmit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<u32>,
    /// Maximum for transmit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_max: Option<u32>,
    /// Receive buffer size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_buf_len: Option<u32>,
    /// Completion entry size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cqe_size: Option<u32>,
    /// Whether transmit descriptors are pushed to the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_push: Option<bool>,
    /// Whether receive descriptors are pushed to the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_push: Option<bool>,
    /// Whether TCP headers and payload go to separate buffers. 1: no, 2: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_data_split: Option<u32>,
}

/// Reads the rings of an interface.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read(generic: &mut Generic, interface: &str) -> Result<Rings, Error> {
    let answers = get(generic, ETHTOOL_MSG_RINGS_GET, interface)?;
    let is = single(&answers)?;
    Ok(Rings {
        rx: is.u32(ETHTOOL_A_RINGS_RX),
        rx_max: is.u32(ETHTOOL_A_RINGS_RX_MAX),
        tx: is.u32(ETHTOOL_A_RINGS_TX),
        tx_max: is.u32(ETHTOOL_A_RINGS_TX_MAX),
        rx_buf_len: is.u32(ETHTOOL_A_RINGS_RX_BUF_LEN),
        cqe_size: is.u32(ETHTOOL_A_RINGS_CQE_SIZE),
        tx_push: is.u32(ETHTOOL_A_RINGS_TX_PUSH).map(|on| on != 0),
        rx_push: is.u32(ETHTOOL_A_RINGS_RX_PUSH).map(|on| on != 0),
        tcp_data_split: is.u32(ETHTOOL_A_RINGS_TCP_DATA_SPLIT),
    })
}
