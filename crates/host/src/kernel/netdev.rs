//! The netdev family: queues, NAPI instances, counters of queues. Documentation/netlink/specs/netdev.yaml.

use udpath_netlink::netdev::{self, FAMILY};
use udpath_netlink::numbers::*;
use udpath_netlink::{Attributes, Error, attributes};

use super::Kernel;
use crate::snapshot::{Counters, Direction, Napi, NetdevQueue, QueueCounters, XdpFeatures};

/// `NETDEV_QSTATS_SCOPE_QUEUE`: counters of each queue rather than their sum.
const BY_QUEUE: u64 = 1;

/// Counters of receive and of transmit queues by their names in the specification, without the direction. Those of
/// checksums and segmentation are left out: they count what worked. A queue has one direction, so no name is met twice.
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

impl Kernel {
    pub(super) fn queues(&mut self) -> Result<Vec<NetdevQueue>, Error> {
        let answers = self.generic()?.dump(FAMILY, NETDEV_CMD_QUEUE_GET, |_| {})?;
        Ok(attributes(&answers).filter_map(queue).collect())
    }

    pub(super) fn napis(&mut self) -> Result<Vec<Napi>, Error> {
        let answers = self.generic()?.dump(FAMILY, NETDEV_CMD_NAPI_GET, |_| {})?;
        Ok(attributes(&answers).filter_map(napi).collect())
    }

    pub(super) fn queue_counters(&mut self) -> Result<Vec<QueueCounters>, Error> {
        let answers = self.generic()?.dump(FAMILY, NETDEV_CMD_QSTATS_GET, |body| {
            body.uint(NETDEV_A_QSTATS_SCOPE, BY_QUEUE);
        })?;
        Ok(attributes(&answers).filter_map(queue_counters).collect())
    }

    pub(super) fn xdp_features(&mut self) -> Result<Vec<XdpFeatures>, Error> {
        Ok(netdev::devices(self.generic()?)?.into_iter().map(xdp_features).collect())
    }
}

fn direction(number: u32) -> Option<Direction> {
    match number {
        0 => Some(Direction::Rx),
        1 => Some(Direction::Tx),
        _ => None,
    }
}

fn queue(is: Attributes<'_>) -> Option<NetdevQueue> {
    Some(NetdevQueue {
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

fn queue_counters(is: Attributes<'_>) -> Option<QueueCounters> {
    let counters: Counters =
        COUNTERS.iter().filter_map(|(name, kind)| Some(((*name).to_owned(), is.number(*kind)?))).collect();
    Some(QueueCounters {
        interface: is.u32(NETDEV_A_QSTATS_IFINDEX)?,
        direction: direction(is.u32(NETDEV_A_QSTATS_QUEUE_TYPE)?)?,
        id: is.u32(NETDEV_A_QSTATS_QUEUE_ID)?,
        counters,
    })
}

fn xdp_features(device: netdev::Device) -> XdpFeatures {
    XdpFeatures {
        interface: device.index,
        features: device.xdp_features,
        zero_copy_segments: device.zero_copy_segments,
        rx_metadata: device.rx_metadata.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use udpath_netlink::Writer;

    use super::*;

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
            counters: Counters::from([("packets".into(), 7), ("bytes".into(), 5 << 32)]),
        };
        assert_eq!(queue_counters(Attributes::new(&bytes)), Some(wanted));
        assert_eq!(queue_counters(Attributes::new(&[])), None);
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
            let _ = (queue(is), napi(is), queue_counters(is));
        }
    }
}
