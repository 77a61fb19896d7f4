//! Reads [`Interface`]s: the list, then each interface's groups, then their relations.
//!
//! Lists that cover all interfaces are read once. An interface that disappears while it is read is left out and
//! reported as gone.

use super::links;
use super::queues::{self, List, Lists, Owner};
use super::text::{cpu_list, one, optional, words};
use crate::snapshot::irqs::Irq;
use crate::snapshot::{Bond, Counters, Driver, Interface, Link, LinkState, NapiDefaults, Relation};
use crate::{Absence, Fact, Missing, Provenance, Source};

/// Reads them, by index. `irqs`: the machine's, which include those of queues.
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

/// Interfaces below, above and beside.
fn relations(link: &Link, links: &[Link]) -> Vec<Relation> {
    let name = |index: u32| links.iter().find(|other| other.index == index).map(|other| other.name.clone());
    let mut relations = Vec::new();
    match (link.link, link.link_namespace) {
        (Some(index), Some(namespace)) => relations.push(Relation::Elsewhere { index, namespace }),
        (Some(index), None) if index != link.index => {
            let related = if link.kind.as_deref() == Some("veth") { Relation::Peer } else { Relation::Lower };
            relations.extend(name(index).map(related));
        }
        _ => {}
    }
    relations.extend(link.master.and_then(name).map(Relation::Upper));
    for other in links.iter().filter(|other| other.index != link.index) {
        if other.master == Some(link.index) {
            relations.push(Relation::Lower(other.name.clone()));
        }
        let on_this = other.link == Some(link.index) && other.link_namespace.is_none();
        if on_this && other.kind.as_deref() != Some("veth") {
            relations.push(Relation::Upper(other.name.clone()));
        }
    }
    relations
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
    fn file<T>(&mut self, file: &str, parse: impl FnOnce(&str) -> Result<T, super::Malformed>) -> Option<T> {
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
                statistics(source, name)
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

/// The counters of an interface, file by file: if rtnetlink does not report them.
pub(crate) fn statistics(source: &dyn Source, name: &str) -> Counters {
    let directory = format!("/sys/class/net/{name}/statistics");
    let names = source.names(&directory).unwrap_or_default();
    let count = |name: String| {
        let value = crate::source::number(source, &format!("{directory}/{name}")).ok()?;
        Some((name, value))
    };
    names.into_iter().filter_map(count).collect()
}

/// The last component of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
        Link { index, name: name.into(), kind: kind.map(str::to_owned), ..Link::default() }
    }

    #[test]
    fn a_vlan_on_a_bond_of_two_is_related_throughout() {
        let mut members = [link(2, "eth0", None), link(3, "eth1", None)];
        for member in &mut members {
            member.master = Some(4);
        }
        let [eth0, eth1] = members;
        let bond = link(4, "bond0", Some("bond"));
        let mut vlan = link(5, "bond0.7", Some("vlan"));
        vlan.link = Some(4);
        let links = [eth0, eth1, bond, vlan];
        let names = |of: usize| relations(&links[of], &links);
        assert_eq!(names(0), [Relation::Upper("bond0".into())]);
        let of_bond = [
            Relation::Lower("eth0".into()),
            Relation::Lower("eth1".into()),
            Relation::Upper("bond0.7".into()),
        ];
        assert_eq!(names(2), of_bond);
        assert_eq!(names(3), [Relation::Lower("bond0".into())]);
    }

    #[test]
    fn the_other_end_of_a_veth_is_here_or_elsewhere() {
        let (mut near, mut far) = (link(2, "a", Some("veth")), link(3, "b", Some("veth")));
        (near.link, far.link) = (Some(3), Some(2));
        let links = [near.clone(), far];
        assert_eq!(relations(&links[0], &links), [Relation::Peer("b".into())]);
        // The same index in another namespace is a different interface.
        near.link_namespace = Some(0);
        let links = [near, link(3, "other", None)];
        assert_eq!(relations(&links[0], &links), [Relation::Elsewhere { index: 3, namespace: 0 }]);
        assert_eq!(relations(&links[1], &links), []);
    }
}
