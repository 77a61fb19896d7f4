//! The netdev family: what a device offers to XDP, its queues and NAPI instances. Documentation/netlink/specs/netdev.yaml.

use crate::attribute::Attributes;
use crate::error::Error;
use crate::generic::{Generic, attributes};
use crate::numbers::*;

/// The family's name; since Linux 6.3.
pub const FAMILY: &str = "netdev";
/// `NETDEV_XDP_RX_METADATA_HASH`: a bit of [`Device::rx_metadata`].
pub const RX_METADATA_HASH: u64 = 2;

/// A device, as `dev-get` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The interface's index.
    pub index: u32,
    /// Bits of `enum netdev_xdp_act`.
    pub xdp_features: u64,
    /// Most fragments of a frame that zero-copy AF_XDP takes.
    pub zero_copy_segments: Option<u32>,
    /// Bits of `enum netdev_xdp_rx_metadata`: what the driver can report to an XDP program about a frame. Since Linux
    /// 6.7; `None` before.
    pub rx_metadata: Option<u64>,
}

/// All devices of the network namespace.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 6.3.
pub fn devices(generic: &mut Generic) -> Result<Vec<Device>, Error> {
    let answers = generic.dump(FAMILY, NETDEV_CMD_DEV_GET, |_| {})?;
    Ok(attributes(&answers).filter_map(device_of).collect())
}

/// The device with this interface index.
///
/// # Errors
/// `ENODEV` if there is none, `EOPNOTSUPP` before Linux 6.3.
pub fn device(generic: &mut Generic, index: u32) -> Result<Device, Error> {
    let answers = generic.request(FAMILY, NETDEV_CMD_DEV_GET, |body| {
        body.u32(NETDEV_A_DEV_IFINDEX, index);
    })?;
    let found = attributes(&answers).find_map(device_of);
    found.ok_or_else(|| Error::other("the kernel did not describe the device"))
}

fn device_of(is: Attributes<'_>) -> Option<Device> {
    Some(Device {
        index: is.u32(NETDEV_A_DEV_IFINDEX)?,
        xdp_features: is.number(NETDEV_A_DEV_XDP_FEATURES)?,
        zero_copy_segments: is.u32(NETDEV_A_DEV_XDP_ZC_MAX_SEGS),
        rx_metadata: is.number(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_loopback_has_no_metadata() {
        let mut generic = Generic::open().unwrap();
        let loopback = device(&mut generic, 1).expect("the kernel has the family (Linux 6.3)");
        assert_eq!((loopback.index, loopback.rx_metadata), (1, Some(0)));
        assert!(devices(&mut generic).unwrap().contains(&loopback));
        assert_eq!(device(&mut generic, u32::MAX >> 1).unwrap_err().errno, Some(libc::ENODEV));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = device_of(Attributes::new(&bytes));
        }
    }
}
