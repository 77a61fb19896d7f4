//! The netdev family: queues, NAPI instances, counters of queues, XDP features.

use udpath_netlink::{Error, netdev};

use super::Client;
use crate::snapshot::{Direction, Napi, NetdevQueue, QueueCounters, XdpFeatures};

impl Client {
    pub(super) fn queues(&mut self) -> Result<Vec<NetdevQueue>, Error> {
        Ok(netdev::queues(self.generic()?)?.into_iter().map(queue).collect())
    }

    pub(super) fn napis(&mut self) -> Result<Vec<Napi>, Error> {
        Ok(netdev::napis(self.generic()?)?.into_iter().map(napi).collect())
    }

    pub(super) fn queue_counters(&mut self) -> Result<Vec<QueueCounters>, Error> {
        Ok(netdev::queue_counters(self.generic()?)?.into_iter().map(queue_counters).collect())
    }

    pub(super) fn xdp_features(&mut self) -> Result<Vec<XdpFeatures>, Error> {
        Ok(netdev::devices(self.generic()?)?.into_iter().map(xdp_features).collect())
    }
}

const fn direction(is: netdev::Direction) -> Direction {
    match is {
        netdev::Direction::Rx => Direction::Rx,
        netdev::Direction::Tx => Direction::Tx,
    }
}

fn queue(is: netdev::Queue) -> NetdevQueue {
    NetdevQueue {
        interface: is.interface,
        direction: direction(is.direction),
        id: is.id,
        napi: is.napi,
        xsk: is.xsk,
    }
}

fn napi(is: netdev::Napi) -> Napi {
    Napi {
        interface: is.interface,
        id: is.id,
        irq: is.irq,
        thread: is.thread,
        defer_hard_irqs: is.defer_hard_irqs,
        gro_flush_timeout: is.gro_flush_timeout,
        irq_suspend_timeout: is.irq_suspend_timeout,
        threaded: is.threaded,
    }
}

fn queue_counters(is: netdev::QueueCounters) -> QueueCounters {
    QueueCounters {
        interface: is.interface,
        direction: direction(is.direction),
        id: is.id,
        counters: is.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    }
}

fn xdp_features(is: netdev::Device) -> XdpFeatures {
    XdpFeatures {
        interface: is.index,
        features: is.xdp_features,
        zero_copy_segments: is.zero_copy_segments,
        rx_metadata: is.rx_metadata.unwrap_or(0),
    }
}
