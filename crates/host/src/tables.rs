//! The tables of one interface in a snapshot, as input for predictions.

use udpath_steer::drivers;
use udpath_steer::predict::{Context, HashFunction, Queue, Tables};
use udpath_steer::rss::IndirectionTable;
use udpath_steer::toeplitz::{self, Key, Transform};

use crate::Snapshot;
use crate::interfaces::Interface;
use udpath_netlink::ethtool::rss::{Fields, HashFields, RssContext};

/// The feature that passes the card's hash to the stack (`ethtool -k`: receive-hashing).
const RECEIVE_HASHING: &str = "rx-hashing";

/// Virtual links do not compute a hash: a packet arrives on the queue that its sender selected, on its CPU (`veth_xmit`
/// of `drivers/net/veth.c`, `loopback_xmit` of `drivers/net/loopback.c`).
const SENDERS_QUEUE: [&str; 2] = ["veth", "loopback"];

/// The tables of `interface`, without sockets, which depend on the flow ([`crate::receivers`]). What the machine does
/// not report is left out, and each step of a prediction states what it lacks.
#[must_use]
pub fn tables(snapshot: &Snapshot, interface: &Interface) -> Tables {
    let rss = interface.rss.as_ref().map(|fact| &fact.value.main);
    let fields = interface.hash_fields.as_ref().map(|fact| fact.value).unwrap_or_default();
    let driver = interface.driver.as_ref().map(|fact| fact.value.name.clone());
    let features = interface.features.as_ref().map(|fact| &fact.value);
    let contexts = interface.rss.iter().flat_map(|fact| &fact.value.contexts);
    let queues = queues(interface);
    Tables {
        // For other drivers only what the machine reports is known.
        driver: driver.filter(|name| drivers::find(name).is_some()),
        function: rss.and_then(function),
        key: rss.and_then(|rss| Key::new(&rss.key).ok()),
        transform: rss.and_then(|rss| rss.transform).and_then(transform),
        udp4: fields.udp4.map(hashed),
        udp6: fields.udp6.map(hashed),
        passed_on: features.and_then(|features| features.get(RECEIVE_HASHING)).map(|feature| feature.active),
        queues: (queues > 0).then_some(queues),
        table: rss.and_then(|rss| IndirectionTable::new(rss.table.clone()).ok()),
        contexts: contexts.map(|(&number, rss)| (number, context(rss))).collect(),
        rules: interface.flow_rules.as_ref().map(|fact| fact.value.clone()).unwrap_or_default(),
        receive: interface.rx.iter().take(queues as usize).map(|queue| receive(snapshot, queue)).collect(),
        sock_flow_entries: snapshot.steering.rps_sock_flow_entries,
        online: Some(snapshot.cpus.online.clone()).filter(|online| !online.is_empty()),
        threaded: interface.napi_defaults.threaded.map(|threaded| threaded != 0),
        senders_queue: Some(SENDERS_QUEUE.contains(&interface.kind.as_str())),
        ..Tables::default()
    }
}

/// Receive queues that packets may arrive on. A second half that exists for AF_XDP alone does not count; a queue with
/// an AF_XDP socket does.
fn queues(interface: &Interface) -> u32 {
    let all = interface.rx.len();
    let channels = interface.channels.as_ref().map_or(0, |fact| fact.value.rx_queues() as usize);
    let doubled =
        channels > 0 && all == 2 * channels && interface.rx[channels..].iter().all(|queue| queue.xsk);
    (if doubled { channels } else { all }) as u32
}

fn context(rss: &RssContext) -> Context {
    let HashFields { udp4, udp6 } = rss.fields.unwrap_or_default();
    Context {
        function: function(rss),
        key: Key::new(&rss.key).ok(),
        transform: rss.transform.and_then(transform),
        udp4: udp4.map(hashed),
        udp6: udp6.map(hashed),
        table: IndirectionTable::new(rss.table.clone()).ok(),
    }
}

fn hashed(fields: Fields) -> toeplitz::Fields {
    if fields.ports() { toeplitz::Fields::AddressesPorts } else { toeplitz::Fields::Addresses }
}

fn function(rss: &RssContext) -> Option<HashFunction> {
    match rss.function.as_deref()? {
        "toeplitz" => Some(HashFunction::Toeplitz),
        "xor" => Some(HashFunction::Xor),
        "crc32" => Some(HashFunction::Crc32),
        _ => None,
    }
}

/// `RXH_XFRM_*` of linux/ethtool.h.
fn transform(bits: u32) -> Option<Transform> {
    match bits {
        0 => Some(Transform::None),
        1 => Some(Transform::SymmetricXor),
        2 => Some(Transform::SymmetricOrXor),
        _ => None,
    }
}

fn receive(snapshot: &Snapshot, queue: &crate::queues::RxQueue) -> Queue {
    let irq = queue.irq.as_ref().map(|fact| fact.value);
    let line = irq.and_then(|number| snapshot.irqs.iter().find(|irq| irq.number == number));
    let cpus = line.and_then(|irq| irq.effective.clone().or_else(|| irq.affinity.clone()));
    Queue {
        queue: queue.id,
        irq,
        irq_cpus: cpus.filter(|cpus| !cpus.is_empty()),
        rps_cpus: Some(queue.rps_cpus.clone().unwrap_or_default()),
        rfs_entries: queue.rps_flow_cnt,
    }
}
