//! What netlink knows of an interface: channels, rings, moderation, offloads, RSS, and which IRQ serves a queue.

use std::collections::BTreeMap;

use super::Refusal;
use crate::setting::{COALESCE_SWITCHES, Item, Setting, Table, Value};
use udpath_host::kernel::{Kernel, Refused, RssChange};
use udpath_host::snapshot::{ChannelCounts, Direction, Fields, HashFields, Rings};
use udpath_host::{Absence, Source, read};

/// IRQs of an interface's receive queues, by queue; empty when it has none.
pub(super) fn queue_irqs(
    source: &dyn Source,
    interface: &str,
    index: u32,
) -> Result<BTreeMap<u32, u32>, String> {
    let by_napi = by_napi(source, index);
    if !by_napi.is_empty() {
        return Ok(by_napi);
    }
    // Drivers that do not tell the kernel: by their interrupts' names. The reader knows the rules, and says why not.
    let mut missing = Vec::new();
    let irqs = read::irqs::read(source, &mut missing).irqs;
    let all = read::interfaces::read(source, &irqs, &mut missing);
    let found = all.into_iter().find(|one| one.name == interface).ok_or("there is no such interface")?;
    let irqs: BTreeMap<u32, u32> =
        found.rx.iter().filter_map(|queue| Some((queue.id, queue.irq.as_ref()?.value))).collect();
    let why =
        missing.iter().find(|missing| missing.what.contains(interface) && missing.what.contains("interrupt"));
    match why {
        Some(why) if irqs.is_empty() => Err(why.to_string()),
        _ => Ok(irqs),
    }
}

/// As the kernel's netdev family tells it: queue, NAPI, IRQ.
fn by_napi(source: &dyn Source, index: u32) -> BTreeMap<u32, u32> {
    let (Ok(queues), Ok(napis)) = (source.queues(), source.napis()) else { return BTreeMap::new() };
    let irqs: BTreeMap<u32, u32> = napis.value.iter().filter_map(|napi| Some((napi.id, napi.irq?))).collect();
    let own =
        queues.value.iter().filter(|queue| queue.interface == index && queue.direction == Direction::Rx);
    own.filter_map(|queue| Some((queue.id, *irqs.get(&queue.napi?)?))).collect()
}

/// The value now.
pub(super) fn read(
    source: &dyn Source,
    setting: &Setting,
    interface: &str,
    item: &Item,
) -> Result<Value, Refusal> {
    let absent = |absence: Absence| refused(setting, &absence);
    let none = || absent(Absence::NotSupported);
    let number = |value: Option<u32>| value.map(|value| Value::Number(value.into())).ok_or_else(none);
    match item {
        Item::Channels(kind) => {
            let now = source.channels(interface).map_err(absent)?.value.now;
            number(match *kind {
                "rx" => now.rx,
                "tx" => now.tx,
                "other" => now.other,
                _ => now.combined,
            })
        }
        Item::Ring(ring) => {
            let rings = source.rings(interface).map_err(absent)?.value;
            number(if *ring == "rx" { rings.rx } else { rings.tx })
        }
        Item::Coalesce(name) => {
            let now = source.coalescing(interface).map_err(absent)?.value;
            let value = now.get(*name).copied();
            match COALESCE_SWITCHES.contains(name) {
                true => value.map(|value| Value::Switch(value != 0)).ok_or_else(none),
                false => number(value),
            }
        }
        Item::Feature(name) => {
            let features = source.features(interface).map_err(absent)?.value;
            let found = features.get(name).map(|feature| Value::Switch(feature.active));
            found.ok_or_else(|| {
                let near: Vec<&str> = features
                    .keys()
                    .filter(|known| known.contains(name.as_str()))
                    .map(String::as_str)
                    .collect();
                let near =
                    if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
                Refusal::because("read", setting, format!("this kernel has no feature of that name{near}"))
            })
        }
        Item::RssTable => {
            let table = source.rss(interface).map_err(absent)?.value.main.table;
            if table.is_empty() { Err(none()) } else { Ok(Value::Table(Table::Entries(table))) }
        }
        Item::RssKey => {
            let key = source.rss(interface).map_err(absent)?.value.main.key;
            if key.is_empty() { Err(none()) } else { Ok(Value::Key(key)) }
        }
        Item::RssFunction => {
            source.rss(interface).map_err(absent)?.value.main.function.map(Value::Words).ok_or_else(none)
        }
        Item::Hash(flow) => {
            let fields = source.hash_fields(interface).map_err(absent)?.value;
            let fields = if *flow == "udp4" { fields.udp4 } else { fields.udp6 };
            fields.map(|fields| Value::Words(fields.to_string())).ok_or_else(none)
        }
        Item::Qdisc => {
            let index = super::live::ifindex(source, interface).ok_or_else(|| absent(Absence::NotThere))?;
            let all = source.qdiscs().map_err(absent)?.value;
            // What hangs at the ingress is another place.
            let own = all.iter().filter(|qdisc| qdisc.interface == index && qdisc.parent != "ingress");
            // Handle 0 is what the kernel puts there by itself.
            let set: Vec<&str> =
                own.filter(|qdisc| qdisc.handle != "0:").map(|qdisc| qdisc.kind.as_str()).collect();
            Ok(Value::Words(if set.is_empty() { "default".to_owned() } else { set.join(",") }))
        }
        Item::QueueIrq(_)
        | Item::Rps(_)
        | Item::Rfs(_)
        | Item::Xps(_)
        | Item::XpsRxqs(_)
        | Item::Threaded
        | Item::DeferHardIrqs
        | Item::GroFlushTimeout => Err(none()),
    }
}

/// Sets it.
pub(super) fn write(
    kernel: &mut Kernel,
    setting: &Setting,
    interface: &str,
    index: Option<u32>,
    item: &Item,
    value: &Value,
) -> Result<(), Refusal> {
    let other = || Refusal::because("set", setting, format!("'{value}' is no value of it"));
    let word = |number: &u64| {
        u32::try_from(*number)
            .map_err(|_| Refusal::because("set", setting, format!("{number} is over {}", u32::MAX)))
    };
    let done = match (item, value) {
        (Item::Channels(kind), Value::Number(count)) => {
            let (mut counts, count) = (ChannelCounts::default(), Some(word(count)?));
            match *kind {
                "rx" => counts.rx = count,
                "tx" => counts.tx = count,
                "other" => counts.other = count,
                _ => counts.combined = count,
            }
            kernel.set_channels(interface, &counts)
        }
        (Item::Ring(ring), Value::Number(entries)) => {
            let entries = Some(word(entries)?);
            let rings = match *ring {
                "rx" => Rings { rx: entries, ..Rings::default() },
                _ => Rings { tx: entries, ..Rings::default() },
            };
            kernel.set_rings(interface, &rings)
        }
        (Item::Coalesce(name), Value::Number(number)) => {
            kernel.set_coalescing(interface, &[(*name, word(number)?)])
        }
        (Item::Coalesce(name), Value::Switch(on)) => {
            kernel.set_coalescing(interface, &[(*name, u32::from(*on))])
        }
        (Item::Feature(name), Value::Switch(on)) => kernel.set_features(interface, &[(name.as_str(), *on)]),
        (Item::RssTable, Value::Table(table)) => {
            let size = table_size(kernel, setting, interface)?;
            let entries = table.entries(size).map_err(|why| Refusal::because("set", setting, why))?;
            kernel.set_rss(interface, &RssChange { table: Some(entries), ..RssChange::default() })
        }
        (Item::RssKey, Value::Key(key)) => {
            kernel.set_rss(interface, &RssChange { key: Some(key.clone()), ..RssChange::default() })
        }
        (Item::RssFunction, Value::Words(name)) => {
            kernel.set_rss(interface, &RssChange { function: Some(name.clone()), ..RssChange::default() })
        }
        (Item::Hash(flow), Value::Words(letters)) => {
            let fields: Fields =
                letters.parse().map_err(|why: String| Refusal::because("set", setting, why))?;
            let wanted = match *flow {
                "udp4" => HashFields { udp4: Some(fields), ..HashFields::default() },
                _ => HashFields { udp6: Some(fields), ..HashFields::default() },
            };
            kernel.set_hash_fields(interface, &wanted)
        }
        (Item::Qdisc, Value::Words(kind)) => {
            let index = index.ok_or_else(|| refused(setting, &Absence::NotThere))?;
            kernel.set_qdisc(index, Some(kind.as_str()).filter(|kind| *kind != "default"))
        }
        _ => return Err(other()),
    };
    done.map_err(|refused| kernels(setting, &refused))
}

/// Entries of the indirection table.
fn table_size(kernel: &mut Kernel, setting: &Setting, interface: &str) -> Result<usize, Refusal> {
    use udpath_host::source::{Answer, Question};
    match kernel.ask(&Question::Rss(interface.to_owned())) {
        Ok(fact) => match fact.value {
            Answer::Rss(rss) => Ok(rss.main.table.len()),
            other => Err(Refusal::because("read", setting, format!("another answer came: {other:?}"))),
        },
        Err(absence) => Err(refused(setting, &absence)),
    }
}

/// The kernel's refusal to set, with its own sentence where it gave one.
fn kernels(setting: &Setting, refused: &Refused) -> Refusal {
    match (refused.errno, &refused.detail) {
        (Some(errno), None) => Refusal::kernel("set", setting, &std::io::Error::from_raw_os_error(errno)),
        (errno, _) => Refusal { errno, ..Refusal::because("set", setting, refused.why()) },
    }
}

/// Why there is no value.
pub(super) fn refused(setting: &Setting, absence: &Absence) -> Refusal {
    let errno = match absence {
        Absence::NotThere => libc::ENODEV,
        Absence::NotSupported => libc::EOPNOTSUPP,
        other => return Refusal::because("read", setting, other.to_string()),
    };
    Refusal::kernel("read", setting, &std::io::Error::from_raw_os_error(errno))
}
