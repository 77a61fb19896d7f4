//! The netdev family: what a device offers to XDP, its queues and NAPI instances.
//! Documentation/netlink/specs/netdev.yaml.

use crate::attribute::Attributes;
use crate::error::Error;
use crate::generic::{Generic, attributes};
use crate::numbers::*;

/// The family's name; since Linux 6.3.
pub const FAMILY: &str = "netdev";
/// `NETDEV_XDP_RX_METADATA_HASH`: a bit of [`Device::rx_metadata`].
pub const RX_METADATA_HASH: u64 = 2;

/// `NETDEV_QSTATS_SCOPE_QUEUE`: counters of each queue rather than their sum.
const BY_QUEUE: u64 = 1;

/// Counters of receive and of transmit queues by their names in the specification, without the direction. Counters of
/// successful checksum and segmentation offloads are left out. A queue has one direction, so names are unique.
const COUNTERS: [(&str, u16); 13] = [
    ("packets", NETDEV_A_QSTATS_RX_PACKETS),
    ("bytes", NETDEV_A_QSTATS_RX_BYTES),
    ("packets", NETDEV_A_QSTATS_TX_PACKETS),
    ("bytes", NETDEV_A_QSTATS_TX_BYTES),
    ("alloc-fail", NETDEV_A_QSTATS_RX_ALLOC_FAIL),
    ("hw-drops", NETDEV_A_QSTATS_RX_HW_DROPS),
    ("hw-drop-overruns", NETDEV_A_QSTATS_RX_HW_DROP_OVERRUNS),
    ("hw-drop-ratelimits", NETDEV_A_QSTATS_RX_HW_DROP_RATELIMITS),
    ("hw-drops", NETDEV_A_QSTATS_TX_HW_DROPS),
    ("hw-drop-errors", NETDEV_A_QSTATS_TX_HW_DROP_ERRORS),
    ("hw-drop-ratelimits", NETDEV_A_QSTATS_TX_HW_DROP_RATELIMITS),
    ("stop", NETDEV_A_QSTATS_TX_STOP),
    ("wake", NETDEV_A_QSTATS_TX_WAKE),
];

/// Which way a queue's packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Rx,
    /// Transmitted.
    Tx,
}

/// A queue of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// The interface's index.
    pub interface: u32,
    /// Receive or transmit.
    pub direction: Direction,
    /// Its number, from 0 in each direction.
    pub id: u32,
    /// The NAPI instance that serves it.
    pub napi: Option<u32>,
    /// Whether an AF_XDP socket is bound to it.
    pub xsk: bool,
}

/// A NAPI instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Napi {
    /// The interface's index.
    pub interface: u32,
    /// Its number.
    pub id: u32,
    /// Its interrupt.
    pub irq: Option<u32>,
    /// The thread that polls it, if it is threaded.
    pub thread: Option<u32>,
    /// Empty polls before interrupts are re-enabled.
    pub defer_hard_irqs: Option<u32>,
    /// Nanoseconds.
    pub gro_flush_timeout: Option<u64>,
    /// Nanoseconds.
    pub irq_suspend_timeout: Option<u64>,
    /// 0: softirq, 1: thread, 2: thread that polls.
    pub threaded: Option<u32>,
}

/// A change of a NAPI instance. `None` leaves a setting as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NapiChange {
    /// Empty polls before interrupts are re-enabled; at most 2,147,483,647.
    pub defer_hard_irqs: Option<u32>,
    /// Nanoseconds.
    pub gro_flush_timeout: Option<u64>,
    /// Nanoseconds.
    pub irq_suspend_timeout: Option<u64>,
    /// 0: softirq, 1: thread, 2: thread that polls.
    pub threaded: Option<u32>,
}

/// Counters of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueCounters {
    /// The interface's index.
    pub interface: u32,
    /// Receive or transmit.
    pub direction: Direction,
    /// The queue's number.
    pub id: u32,
    /// Names of the specification, without the direction, and counts.
    pub counters: Vec<(&'static str, u64)>,
}

/// A device, as `dev-get` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The interface's index.
    pub index: u32,
    /// Bits of `enum netdev_xdp_act`.
    pub xdp_features: u64,
    /// Maximum number of fragments of a frame that zero-copy AF_XDP accepts.
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

/// All queues of the network namespace.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 6.8.
pub fn queues(generic: &mut Generic) -> Result<Vec<Queue>, Error> {
    let answers = generic.dump(FAMILY, NETDEV_CMD_QUEUE_GET, |_| {})?;
    Ok(attributes(&answers).filter_map(queue).collect())
}

/// All NAPI instances of the network namespace.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 6.8.
pub fn napis(generic: &mut Generic) -> Result<Vec<Napi>, Error> {
    let answers = generic.dump(FAMILY, NETDEV_CMD_NAPI_GET, |_| {})?;
    Ok(attributes(&answers).filter_map(napi).collect())
}

/// The counters of all queues whose drivers report them.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 6.9.
pub fn queue_counters(generic: &mut Generic) -> Result<Vec<QueueCounters>, Error> {
    let answers = generic.dump(FAMILY, NETDEV_CMD_QSTATS_GET, |body| {
        body.uint(NETDEV_A_QSTATS_SCOPE, BY_QUEUE);
    })?;
    Ok(attributes(&answers).filter_map(counters_of).collect())
}

/// Changes the NAPI instance with this number (since Linux 6.13).
///
/// # Errors
/// No such instance, or the kernel's refusal.
pub fn set_napi(generic: &mut Generic, id: u32, change: &NapiChange) -> Result<(), Error> {
    let done = generic.request(FAMILY, NETDEV_CMD_NAPI_SET, |body| {
        body.u32(NETDEV_A_NAPI_ID, id);
        if let Some(polls) = change.defer_hard_irqs {
            body.u32(NETDEV_A_NAPI_DEFER_HARD_IRQS, polls);
        }
        if let Some(nanoseconds) = change.gro_flush_timeout {
            body.uint(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, nanoseconds);
        }
        if let Some(nanoseconds) = change.irq_suspend_timeout {
            body.uint(NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT, nanoseconds);
        }
        if let Some(mode) = change.threaded {
            body.uint(NETDEV_A_NAPI_THREADED, u64::from(mode));
        }
    });
    done.map(|_| ()).map_err(|error| error.when(format!("set NAPI instance {id}")))
}

fn direction(number: u32) -> Option<Direction> {
    match number {
        0 => Some(Direction::Rx),
        1 => Some(Direction::Tx),
        _ => None,
    }
}

fn queue(is: Attributes<'_>) -> Option<Queue> {
    Some(Queue {
        interface: is.u32(NETDEV_A_QUEUE_IFINDEX)?,
        direction: direction(is.u32(NETDEV_A_QUEUE_TYPE)?)?,
        id: is.u32(NETDEV_A_QUEUE_ID)?,
        napi: is.u32(NETDEV_A_QUEUE_NAPI_ID),
        xsk: is.has(NETDEV_A_QUEUE_XSK),
    })
}

fn napi(is: Attributes<'_>) -> Option<Napi> {
    Some(Napi {
        interface: is.u32(NETDEV_A_NAPI_IFINDEX)?,
        id: is.u32(NETDEV_A_NAPI_ID)?,
        irq: is.u32(NETDEV_A_NAPI_IRQ),
        thread: is.u32(NETDEV_A_NAPI_PID),
        defer_hard_irqs: is.u32(NETDEV_A_NAPI_DEFER_HARD_IRQS),
        gro_flush_timeout: is.number(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT),
        irq_suspend_timeout: is.number(NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT),
        threaded: is.u32(NETDEV_A_NAPI_THREADED),
    })
}

fn counters_of(is: Attributes<'_>) -> Option<QueueCounters> {
    Some(QueueCounters {
        interface: is.u32(NETDEV_A_QSTATS_IFINDEX)?,
        direction: direction(is.u32(NETDEV_A_QSTATS_QUEUE_TYPE)?)?,
        id: is.u32(NETDEV_A_QSTATS_QUEUE_ID)?,
        counters: COUNTERS.iter().filter_map(|(name, kind)| Some((*name, is.number(*kind)?))).collect(),
    })
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
    use crate::Writer;

    #[test]
    fn the_loopback_has_no_metadata() {
        let mut generic = Generic::open().unwrap();
        let loopback = device(&mut generic, 1).expect("the kernel has the family (Linux 6.3)");
        assert_eq!((loopback.index, loopback.rx_metadata), (1, Some(0)));
        assert!(devices(&mut generic).unwrap().contains(&loopback));
        assert_eq!(device(&mut generic, u32::MAX >> 1).unwrap_err().errno, Some(libc::ENODEV));
    }

    #[test]
    fn counters_over_32_bits_are_whole() {
        let mut writer = Writer::default();
        writer
            .u32(NETDEV_A_QSTATS_IFINDEX, 2)
            .u32(NETDEV_A_QSTATS_QUEUE_TYPE, 0)
            .u32(NETDEV_A_QSTATS_QUEUE_ID, 5);
        writer.uint(NETDEV_A_QSTATS_RX_PACKETS, 7).uint(NETDEV_A_QSTATS_RX_BYTES, 5 << 32);
        let bytes = writer.finish();
        let wanted = QueueCounters {
            interface: 2,
            direction: Direction::Rx,
            id: 5,
            counters: vec![("packets", 7), ("bytes", 5 << 32)],
        };
        assert_eq!(counters_of(Attributes::new(&bytes)), Some(wanted));
        assert_eq!(counters_of(Attributes::new(&[])), None);
    }

    #[test]
    fn a_napi_without_a_thread_or_interrupt_is_one() {
        let mut writer = Writer::default();
        writer
            .u32(NETDEV_A_NAPI_IFINDEX, 3)
            .u32(NETDEV_A_NAPI_ID, 8193)
            .uint(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, 200_000);
        let bytes = writer.finish();
        let wanted = Napi { interface: 3, id: 8193, gro_flush_timeout: Some(200_000), ..Napi::default() };
        assert_eq!(napi(Attributes::new(&bytes)), Some(wanted));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let is = Attributes::new(&bytes);
            let _ = (device_of(is), queue(is), napi(is), counters_of(is));
        }
    }
}
