//! Network interfaces, each with everything that determines which CPU handles its packets. This module also names the
//! types of an interface's parts that the kernel answers directly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::irqs::Irq;
use crate::queues::{self, List, Lists, Owner, RxQueue, TxQueue};
use crate::text::{Malformed, cpu_list, one, optional, words};
use crate::{Absence, Fact, Missing, Provenance, Source, links};

mod relations;

use relations::relations;

pub use crate::client::netdev::{Counters, Napi, XdpFeatures};
pub use crate::client::route::{Link, Qdisc, Xdp};
pub use relations::Relation;
pub use udpath_netlink::ethtool::channels::{ChannelCounts, Channels};
pub use udpath_netlink::ethtool::coalesce::Coalescing;
pub use udpath_netlink::ethtool::features::{Feature, Features};
pub use udpath_netlink::ethtool::rings::Rings;
pub use udpath_netlink::ethtool::rss::{Fields, HashFields, Rss, RssContext};
pub use udpath_netlink::ethtool::time_stamping::{TimeStamping, TimeStampingOffer};
pub use udpath_netlink::ioctl::device::Driver;
pub use udpath_steer::rules::{FlowAction, FlowRule, Masked};

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index (`ifindex`).
    pub index: u32,
    /// `veth`, `bond`, `vlan`, `bridge`, ... as rtnetlink names it; `loopback`; `device` for real and emulated
    /// hardware.
    pub kind: String,
    /// Link-layer address.
    pub address: Option<String>,
    /// The hardware's permanent address.
    pub permanent_address: Option<String>,
    /// Up, carrier, speed.
    pub link: LinkState,
    /// MTU in bytes.
    pub mtu: u32,
    /// Related interfaces on the same path.
    pub relations: Vec<Relation>,
    /// VLAN id.
    pub vlan: Option<u16>,
    /// Bonding settings.
    pub bond: Option<Bond>,
    /// Driver, version, bus.
    pub driver: Option<Fact<Driver>>,
    /// NUMA node of the device. -1: not reported by the firmware, all CPUs are equally near. `None`: no device.
    pub node: Option<i32>,
    /// CPUs near the device.
    pub local_cpus: Option<CpuSet>,
    /// Channels.
    pub channels: Option<Fact<Channels>>,
    /// Descriptor rings.
    pub rings: Option<Fact<Rings>>,
    /// Interrupt coalescing.
    pub coalescing: Option<Fact<Coalescing>>,
    /// Offloads.
    pub features: Option<Fact<Features>>,
    /// Table, key, function, contexts.
    pub rss: Option<Fact<Rss>>,
    /// UDP hash fields.
    pub hash_fields: Option<Fact<HashFields>>,
    /// Flow rules.
    pub flow_rules: Option<Fact<Vec<FlowRule>>>,
    /// Timestamping capabilities of the device.
    pub time_stamping_offer: Option<Fact<TimeStampingOffer>>,
    /// Which packets it is configured to stamp.
    pub time_stamping: Option<Fact<TimeStamping>>,
    /// Receive queues.
    pub rx: Vec<RxQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
    /// NAPI instances with their own settings.
    pub napis: Option<Fact<Vec<Napi>>>,
    /// Interface-wide NAPI settings.
    pub napi_defaults: NapiDefaults,
    /// Queueing disciplines.
    pub qdiscs: Option<Fact<Vec<Qdisc>>>,
    /// XDP programs.
    pub xdp: Option<Xdp>,
    /// Its XDP features.
    pub xdp_features: Option<Fact<XdpFeatures>>,
    /// The kernel's counters of the interface: `rx_packets`, `rx_dropped`, `rx_missed_errors`, ...
    pub statistics: Counters,
    /// The driver's own counters.
    pub driver_counters: Option<Fact<Counters>>,
}

/// Up, carrier, speed.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LinkState {
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier. `None` while it is down.
    pub carrier: Option<bool>,
    /// `up`, `down`, `lowerlayerdown`, `unknown`, ...
    pub state: Option<String>,
    /// Mbit/s. `None`: unknown, as for most virtual devices.
    pub speed: Option<u32>,
    /// `full` or `half`.
    pub duplex: Option<String>,
    /// Number of carrier changes.
    pub carrier_changes: Option<u32>,
    /// Transmit queue length in packets.
    pub tx_queue_len: u32,
}

/// Bonding settings: /sys/class/net/BOND/bonding.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Bond {
    /// `802.3ad`, `active-backup`, ...
    pub mode: Option<String>,
    /// `layer2`, `layer3+4`, ...: determines which member a flow leaves through. `layer2` and `layer2+3` keep all flows
    /// between two hosts on one.
    pub xmit_hash_policy: Option<String>,
    /// The active member, in modes that have one.
    pub active: Option<String>,
}

/// Interface-wide NAPI settings: /sys/class/net/DEV. Instances may have their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct NapiDefaults {
    /// Number of empty polls before interrupts are re-enabled.
    pub defer_hard_irqs: Option<u32>,
    /// How long they then stay off, in nanoseconds.
    pub gro_flush_timeout: Option<u64>,
    /// 0: in softirq; 1: in threads.
    pub threaded: Option<u32>,
}

/// Reads the interfaces, by index. `irqs`: the machine's, which include those of queues.
pub fn read(source: &dyn Source, irqs: &[Irq], missing: &mut Vec<Missing>) -> Vec<Interface> {
    let links = links::read(source, missing);
    // Kernels before 6.8 and 6.10 have none of these; if their substitute is missing too, that is noted.
    let netdev = |operation: &str| Provenance::Netdev(operation.into());
    let queues = if_any(missing, "queues and their NAPI", netdev("queue-get"), source.queues());
    let napis = if_any(missing, "NAPI instances", netdev("napi-get"), source.napis());
    let counters = if_any(missing, "counters of queues", netdev("qstats-get"), source.queue_counters());
    let xdp_features = if_any(missing, "XDP features", netdev("dev-get"), source.xdp_features());
    let qdiscs =
        answered(missing, "queueing disciplines", Provenance::Route("RTM_GETQDISC".into()), source.qdiscs());
    let lists = Lists {
        queues: List::new(queues, |queue| queue.interface),
        napis: List::new(napis, |napi| napi.interface),
        counters: List::new(counters, |queue| queue.interface),
        irqs,
    };
    let qdiscs = List::new(qdiscs, |qdisc| qdisc.interface);
    let xdp_features = List::new(xdp_features, |features| features.interface);
    let mut interfaces = Vec::with_capacity(links.len());
    for link in &links {
        let still = still_there(source, link);
        if let Err(why) = still {
            let from = Provenance::File(format!("/sys/class/net/{}", link.name));
            missing.push(Missing { what: format!("interface {}", link.name), from, why });
            continue;
        }
        let mut interface = Reader { source, name: &link.name, missing }.interface(link, &lists);
        interface.relations = relations(link, &links);
        interface.qdiscs = qdiscs.fact(link.index);
        interface.xdp_features =
            xdp_features.fact(link.index).and_then(|fact| Some(Fact::new(*fact.value.first()?, fact.from)));
        interfaces.push(interface);
    }
    interfaces
}

/// The answer; an absence is noted.
fn answered<T>(
    missing: &mut Vec<Missing>,
    what: &str,
    from: Provenance,
    answer: Result<Fact<T>, Absence>,
) -> Option<Fact<T>> {
    answer.map_err(|why| missing.push(Missing { what: what.to_owned(), from, why })).ok()
}

/// The answer; it is not noted if the kernel does not support it or the capture does not contain it.
fn if_any<T>(
    missing: &mut Vec<Missing>,
    what: &str,
    from: Provenance,
    answer: Result<Fact<T>, Absence>,
) -> Option<Fact<T>> {
    match answer {
        Err(Absence::NotSupported | Absence::NotCaptured) => None,
        answer => answered(missing, what, from, answer),
    }
}

/// Whether the interface still has that name and index: it may have disappeared since the list was read, and another
/// may have taken its name.
fn still_there(source: &dyn Source, link: &Link) -> Result<(), Absence> {
    match crate::source::number::<u32>(source, &format!("/sys/class/net/{}/ifindex", link.name)) {
        Ok(index) if index == link.index => Ok(()),
        Ok(index) => Err(Absence::Changed(format!("its number was {} and is {index}", link.index))),
        Err(Absence::NotThere) => Err(Absence::Changed("it is gone".into())),
        // Without sysfs the other sources still work.
        Err(_) => Ok(()),
    }
}

/// Reads one interface.
struct Reader<'a> {
    source: &'a dyn Source,
    name: &'a str,
    missing: &'a mut Vec<Missing>,
}

impl Reader<'_> {
    fn path(&self, file: &str) -> String {
        format!("/sys/class/net/{}/{file}", self.name)
    }

    /// A sysfs file; drivers without the value lack the file, or reject the read.
    fn file<T>(&mut self, file: &str, parse: impl FnOnce(&str) -> Result<T, Malformed>) -> Option<T> {
        let what = format!("{file} of {}", self.name);
        optional(self.source, self.missing, &what, &self.path(file), parse)
    }

    fn answered<T>(
        &mut self,
        what: &str,
        from: Provenance,
        answer: Result<Fact<T>, Absence>,
    ) -> Option<Fact<T>> {
        answered(self.missing, &format!("{what} of {}", self.name), from, answer)
    }

    fn if_any<T>(
        &mut self,
        what: &str,
        from: Provenance,
        answer: Result<Fact<T>, Absence>,
    ) -> Option<Fact<T>> {
        if_any(self.missing, &format!("{what} of {}", self.name), from, answer)
    }

    fn interface(mut self, link: &Link, lists: &Lists<'_>) -> Interface {
        let (source, name) = (self.source, self.name);
        let ethtool = |message: &str| Provenance::Ethtool(message.into());
        let ioctl = |command: &str| Provenance::EthtoolIoctl(command.into());
        let device = source.target(&self.path("device")).ok();
        let device = device.as_deref().map(last);
        let driver = self.driver();
        let channels = self.answered("channels", ethtool("channels-get"), source.channels(name));
        let driver_counters =
            self.answered("driver's counters", ioctl("ETHTOOL_GSTATS"), source.driver_counters(name));
        let rss = self.answered("RSS", ethtool("rss-get"), source.rss(name));
        let owner = Owner {
            name,
            index: link.index,
            driver: driver.as_ref().map(|driver| &driver.value),
            channels: channels.as_ref().map(|channels| &channels.value),
            driver_counters: driver_counters.as_ref(),
            device,
        };
        let (rx, tx) = queues::read(source, self.missing, &owner, lists);
        Interface {
            name: name.to_owned(),
            index: link.index,
            kind: self.kind(link, device),
            address: link.address.clone(),
            permanent_address: link
                .permanent_address
                .clone()
                .or_else(|| source.permanent_address(name).ok().map(|fact| fact.value)),
            link: self.link_state(link),
            mtu: link.mtu,
            relations: Vec::new(),
            vlan: link.vlan,
            bond: self.bond(),
            node: self.file("device/numa_node", one).or_else(|| self.file("device/../numa_node", one)),
            local_cpus: self
                .file("device/local_cpulist", cpu_list)
                .or_else(|| self.file("device/../local_cpulist", cpu_list)),
            rings: self.answered("rings", ethtool("rings-get"), source.rings(name)),
            coalescing: self.answered("coalescing", ethtool("coalesce-get"), source.coalescing(name)),
            features: self.answered("offloads", ethtool("features-get"), source.features(name)),
            hash_fields: self.answered("hash fields", ethtool("rss-get"), source.hash_fields(name)),
            flow_rules: self.answered("flow rules", ioctl("ETHTOOL_GRXCLSRLALL"), source.flow_rules(name)),
            time_stamping_offer: self.if_any(
                "time stamps offered",
                ethtool("tsinfo-get"),
                source.time_stamping_offer(name),
            ),
            time_stamping: self.if_any("time stamping", ethtool("tsconfig-get"), source.time_stamping(name)),
            napis: lists.napis.fact(link.index).filter(|napis| !napis.value.is_empty()),
            napi_defaults: NapiDefaults {
                defer_hard_irqs: self.file("napi_defer_hard_irqs", one),
                gro_flush_timeout: self.file("gro_flush_timeout", one),
                threaded: self.file("threaded", one),
            },
            qdiscs: None,
            xdp: link.xdp,
            xdp_features: None,
            statistics: if link.statistics.is_empty() {
                links::statistics(source, name)
            } else {
                link.statistics.clone()
            },
            driver,
            channels,
            rss,
            rx,
            tx,
            driver_counters,
        }
    }

    /// The driver, from the ioctl or from the device's sysfs link.
    fn driver(&mut self) -> Option<Fact<Driver>> {
        let answer = match self.source.driver(self.name) {
            Err(why) => {
                let path = self.path("device/driver");
                let target = self.source.target(&path).map_err(|_| why);
                target.map(|target| {
                    let driver = Driver { name: last(&target).to_owned(), ..Driver::default() };
                    Fact::new(driver, Provenance::File(path))
                })
            }
            answer => answer,
        };
        self.answered("driver", Provenance::EthtoolIoctl("ETHTOOL_GDRVINFO".into()), answer)
    }

    fn kind(&self, link: &Link, device: Option<&str>) -> String {
        match (&link.kind, link.loopback, device) {
            (Some(kind), ..) => kind.clone(),
            (None, true, _) => "loopback".into(),
            (None, false, Some(_)) => "device".into(),
            (None, false, None) => "virtual".into(),
        }
    }

    fn link_state(&mut self, link: &Link) -> LinkState {
        LinkState {
            up: link.up,
            carrier: link.carrier,
            state: self.file("operstate", words),
            // -1, or 4,294,967,295 with some drivers: unknown.
            speed: self
                .file("speed", one::<i64>)
                .and_then(|speed| u32::try_from(speed).ok())
                .filter(|speed| *speed != u32::MAX),
            duplex: self.file("duplex", words).filter(|duplex| duplex != "unknown"),
            carrier_changes: self.file("carrier_changes", one),
            tx_queue_len: link.tx_queue_len,
        }
    }

    fn bond(&mut self) -> Option<Bond> {
        // `802.3ad 4`: the word, then its number.
        let mut word = |file: &str| {
            let text = self.file(file, words)?;
            text.split(' ').next().filter(|word| !word.is_empty()).map(str::to_owned)
        };
        let mode = word("bonding/mode")?;
        Some(Bond {
            mode: Some(mode),
            xmit_hash_policy: word("bonding/xmit_hash_policy"),
            active: word("bonding/active_slave"),
        })
    }
}

/// The last component of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
