//! The metadata that a device's driver can report to XDP programs (generic netlink family `netdev`).
//!
//! The kernel reports `XDP_RX_METADATA_FEATURES` since Linux 6.7. The loaded program cannot find out: with a driver
//! that reports nothing, the kfunc exists and fails for every frame.

use std::io;

use udpath_netlink::{Generic, netdev};

/// Whether the driver of the interface with this index, in the calling thread's network namespace, reports a frame's
/// hash.
///
/// # Errors
/// The kernel lacks the family, or this attribute.
pub(crate) fn reports_rx_hash(index: u32) -> io::Result<bool> {
    let device = netdev::device(&mut Generic::open()?, index)?;
    let features = device.rx_metadata.ok_or(io::ErrorKind::Unsupported)?;
    Ok(features & netdev::RX_METADATA_HASH != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_reports_no_hash_and_a_missing_device_is_an_error() {
        let index = crate::sys::interface_index(c"lo").expect("there is a loopback");
        assert!(!reports_rx_hash(index).expect("the kernel has the family (Linux 6.7)"));
        let error = reports_rx_hash(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
