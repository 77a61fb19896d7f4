//! Offloads of an interface, explicit rather than inherited.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which offloads are on, with the names of `ethtool -k`.
///
/// On veth no hardware computes anything: with an offload on, the work is never done, because the frame does not leave
/// the machine. Offloads affect measurements, so a lab sets them explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offloads {
    /// `rx-checksumming`: received checksums count as verified.
    pub rx_checksum: bool,
    /// `tx-checksumming`: frames leave the stack with a partial checksum. A frame bounced by XDP then carries it too.
    pub tx_checksum: bool,
    /// `scatter-gather`: a frame may consist of several pieces of memory. [`tso`](Self::tso) and [`gso`](Self::gso)
    /// need it.
    pub scatter_gather: bool,
    /// `tcp-segmentation-offload`: TCP passes down up to 64 KiB at once. Needs the two above.
    pub tso: bool,
    /// `generic-segmentation-offload`: the same in software, also for UDP with `UDP_SEGMENT`.
    pub gso: bool,
    /// `generic-receive-offload`: received segments are merged. On veth it also enables NAPI.
    pub gro: bool,
}

/// The veth driver's defaults.
impl Default for Offloads {
    fn default() -> Self {
        Self { rx_checksum: true, tx_checksum: true, scatter_gather: true, tso: true, gso: true, gro: false }
    }
}

/// `rx-checksumming on, tx-checksumming off, ...`
impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, on)) in self.named().into_iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", if on { "on" } else { "off" })?;
        }
        Ok(())
    }
}

impl Offloads {
    /// Everything off: every checksum computed, every segment a separate frame.
    pub const OFF: Self = Self {
        rx_checksum: false,
        tx_checksum: false,
        scatter_gather: false,
        tso: false,
        gso: false,
        gro: false,
    };

    /// Each with ethtool's name, in the order in which they can be enabled.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, bool); 6] {
        [
            ("rx-checksumming", self.rx_checksum),
            ("tx-checksumming", self.tx_checksum),
            ("scatter-gather", self.scatter_gather),
            ("tcp-segmentation-offload", self.tso),
            ("generic-segmentation-offload", self.gso),
            ("generic-receive-offload", self.gro),
        ]
    }

    /// What the kernel would silently drop: an offload without its dependencies (`netdev_fix_features`). Returns the
    /// offload and the missing one.
    #[must_use]
    pub const fn unmet(&self) -> Option<(&'static str, &'static str)> {
        if self.tso && !self.tx_checksum {
            return Some(("tcp-segmentation-offload", "tx-checksumming"));
        }
        if self.tso && !self.scatter_gather {
            return Some(("tcp-segmentation-offload", "scatter-gather"));
        }
        if self.gso && !self.scatter_gather {
            return Some(("generic-segmentation-offload", "scatter-gather"));
        }
        None
    }
}
