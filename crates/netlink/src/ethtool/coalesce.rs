//! Interrupt coalescing: how long, and for how many frames, a card delays an interrupt (`ethtool -c`).

use std::collections::BTreeMap;

use super::{get, single};
use crate::error::Error;
use crate::generic::Generic;
use crate::numbers::*;

/// Interrupt coalescing by ethtool's names: `rx-usecs` (microseconds), `rx-frames`, `adaptive-rx` (0 or 1), ...
/// Parameters the driver lacks are omitted. `ethtool -c`.
pub type Coalescing = BTreeMap<String, u32>;

/// How wide a coalescing value is in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// One byte: on or off.
    Byte,
    /// Four bytes.
    Word,
}

/// Coalescing values: ethtool's name, attribute, width.
pub const COALESCING: [(&str, u16, Width); 27] = [
    ("rx-usecs", ETHTOOL_A_COALESCE_RX_USECS, Width::Word),
    ("rx-frames", ETHTOOL_A_COALESCE_RX_MAX_FRAMES, Width::Word),
    ("rx-usecs-irq", ETHTOOL_A_COALESCE_RX_USECS_IRQ, Width::Word),
    ("rx-frames-irq", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ, Width::Word),
    ("tx-usecs", ETHTOOL_A_COALESCE_TX_USECS, Width::Word),
    ("tx-frames", ETHTOOL_A_COALESCE_TX_MAX_FRAMES, Width::Word),
    ("tx-usecs-irq", ETHTOOL_A_COALESCE_TX_USECS_IRQ, Width::Word),
    ("tx-frames-irq", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ, Width::Word),
    ("stats-block-usecs", ETHTOOL_A_COALESCE_STATS_BLOCK_USECS, Width::Word),
    ("adaptive-rx", ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, Width::Byte),
    ("adaptive-tx", ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, Width::Byte),
    ("pkt-rate-low", ETHTOOL_A_COALESCE_PKT_RATE_LOW, Width::Word),
    ("rx-usecs-low", ETHTOOL_A_COALESCE_RX_USECS_LOW, Width::Word),
    ("rx-frames-low", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW, Width::Word),
    ("tx-usecs-low", ETHTOOL_A_COALESCE_TX_USECS_LOW, Width::Word),
    ("tx-frames-low", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW, Width::Word),
    ("pkt-rate-high", ETHTOOL_A_COALESCE_PKT_RATE_HIGH, Width::Word),
    ("rx-usecs-high", ETHTOOL_A_COALESCE_RX_USECS_HIGH, Width::Word),
    ("rx-frames-high", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH, Width::Word),
    ("tx-usecs-high", ETHTOOL_A_COALESCE_TX_USECS_HIGH, Width::Word),
    ("tx-frames-high", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH, Width::Word),
    ("sample-interval", ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL, Width::Word),
    ("cqe-mode-tx", ETHTOOL_A_COALESCE_USE_CQE_MODE_TX, Width::Byte),
    ("cqe-mode-rx", ETHTOOL_A_COALESCE_USE_CQE_MODE_RX, Width::Byte),
    ("tx-aggr-max-bytes", ETHTOOL_A_COALESCE_TX_AGGR_MAX_BYTES, Width::Word),
    ("tx-aggr-max-frames", ETHTOOL_A_COALESCE_TX_AGGR_MAX_FRAMES, Width::Word),
    ("tx-aggr-time-usecs", ETHTOOL_A_COALESCE_TX_AGGR_TIME_USECS, Width::Word),
];

/// Reads the coalescing of an interface.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read(generic: &mut Generic, interface: &str) -> Result<Coalescing, Error> {
    let answers = get(generic, ETHTOOL_MSG_COALESCE_GET, interface)?;
    let is = single(&answers)?;
    Ok(COALESCING.iter().filter_map(|(name, kind, _)| Some(((*name).to_owned(), is.u32(*kind)?))).collect())
}
