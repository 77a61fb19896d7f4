//! Default settings of network drivers: data for predictions.
//!
//! Each row names the kernel source file it was taken from (Linux 6.x). A row describes what the driver configures at
//! start-up; the machine's actual settings (`ethtool -x`, `ethtool -n`) take precedence wherever they are known.

use schemars::JsonSchema;
use serde::Serialize;

use crate::toeplitz::Transform;

/// Defaults of one driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[non_exhaustive]
pub struct Driver {
    /// Its name, as `ethtool -i` reports it.
    pub name: &'static str,
    /// Whether the hash is the standard Toeplitz hash. Otherwise it cannot be predicted here.
    pub toeplitz: bool,
    /// How the fields are transformed before they are hashed.
    pub transform: Transform,
    /// Length of the key, bytes. All of these drivers draw it at random: one at boot for the whole machine
    /// (`netdev_rss_key_fill`), or their own. So a prediction needs the key that `ethtool -x` shows.
    pub key_bytes: usize,
    /// Entries of the indirection table; `None` where the device determines them, or where they depend on the number
    /// of queues.
    pub table: Option<usize>,
    /// Whether UDP ports are hashed. Otherwise all flows between two hosts share one queue.
    pub udp_ports: Option<bool>,
    /// Whether it passes a hash over ports on to the stack as such (`PKT_HASH_TYPE_L4`). If not, the kernel computes
    /// another one for RPS, with a secret of its own.
    pub l4_hash: Option<bool>,
    /// The source files.
    pub from: &'static str,
    /// Further details.
    pub note: Option<&'static str>,
}

const fn driver(
    name: &'static str,
    key_bytes: usize,
    table: Option<usize>,
    udp_ports: Option<bool>,
) -> Driver {
    let (toeplitz, transform) = (true, Transform::None);
    Driver { name, toeplitz, transform, key_bytes, table, udp_ports, l4_hash: None, from: "", note: None }
}

/// All rows, by name.
pub const DRIVERS: &[Driver] = &[
    Driver {
        from: "drivers/net/ethernet/broadcom/bnxt/bnxt.c, bnxt_ethtool.c",
        note: Some(
            "128 entries on older chips; from P5 on the queues rounded up to 64. UDP ports from P4 on",
        ),
        ..driver("bnxt_en", 40, None, Some(true))
    },
    Driver {
        from: "drivers/net/ethernet/intel/e1000e/netdev.c",
        note: Some("all entries are queue 0: the hash is computed, but not used to select a queue"),
        ..driver("e1000e", 40, Some(128), Some(false))
    },
    Driver {
        toeplitz: false,
        from: "drivers/net/ethernet/amazon/ena/ena_netdev.c, ena_com.c",
        note: Some("older devices start from 0xffffffff and use the key reversed, newer ones do not"),
        ..driver("ena", 40, Some(128), Some(true))
    },
    Driver {
        from: "drivers/net/ethernet/google/gve/gve_main.c, gve_adminq.c",
        note: None,
        ..driver("gve", 40, Some(128), Some(true))
    },
    Driver {
        from: "drivers/net/ethernet/intel/i40e/i40e.h, i40e_txrx.h, i40e_main.c",
        note: Some("512 entries of a physical function"),
        ..driver("i40e", 52, Some(512), Some(true))
    },
    Driver {
        from: "drivers/net/ethernet/intel/ice/ice_lib.c, ice_adminq_cmd.h",
        note: Some("the device determines the number of entries, up to 2048 for a physical function"),
        ..driver("ice", 52, None, Some(true))
    },
    Driver {
        l4_hash: Some(false),
        from: "drivers/net/ethernet/intel/igb/igb.h, igb_main.c",
        note: None,
        ..driver("igb", 40, Some(128), Some(false))
    },
    Driver {
        l4_hash: Some(true),
        from: "drivers/net/ethernet/intel/igc/igc.h, igc_main.c",
        note: None,
        ..driver("igc", 40, Some(128), Some(false))
    },
    Driver {
        l4_hash: Some(true),
        from: "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c",
        note: Some("82598, 82599, X540; from X550 on 512 entries, 64 with SR-IOV"),
        ..driver("ixgbe", 40, Some(128), Some(false))
    },
    Driver {
        transform: Transform::SymmetricOrXor,
        from: "drivers/net/ethernet/mellanox/mlx5/core/en/rss.c, en/rqt.c",
        note: Some("256 entries, or more with many channels; symmetric-or-xor unless turned off"),
        ..driver("mlx5_core", 40, None, Some(true))
    },
    Driver {
        from: "drivers/net/virtio_net.c",
        note: Some(
            "the device determines the number of entries and the fields it can hash; all of those are enabled",
        ),
        ..driver("virtio_net", 40, None, None)
    },
    Driver {
        from: "drivers/net/vmxnet3/vmxnet3_drv.c, vmxnet3_int.h",
        note: None,
        ..driver("vmxnet3", 40, Some(32), Some(false))
    },
];

/// The row of a driver.
#[must_use]
pub fn find(name: &str) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.name == name)
}

/// All names, for error messages.
#[must_use]
pub fn names() -> String {
    DRIVERS.iter().map(|driver| driver.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_each_has_its_source() {
        assert!(DRIVERS.is_sorted_by(|one, next| one.name < next.name));
        for driver in DRIVERS {
            assert!(driver.from.starts_with("drivers/net/"), "{}", driver.name);
            assert!(driver.table.is_none_or(usize::is_power_of_two), "{}", driver.name);
            assert!((40..=52).contains(&driver.key_bytes), "{}", driver.name);
            assert_eq!(find(driver.name), Some(driver));
        }
        assert_eq!(find("nosuch"), None);
        assert!(names().starts_with("bnxt_en, "));
    }
}
