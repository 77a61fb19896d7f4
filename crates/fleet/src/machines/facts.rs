//! The facts of one machine: what may be compared with another machine.
//!
//! A fact has the name of its setting in udpath's grammar, or that of a property. What belongs to a queue is one fact
//! of all queues, `eth0:rps/rx-*`: their common value, or a value for each queue, in order, separated by spaces.

use std::borrow::Cow;
use std::collections::BTreeSet;

use udpath_host::Snapshot;
use udpath_host::interfaces::Interface;
use udpath_host::map::{InterfaceMap, Map};
use udpath_steer::CpuSet;
use udpath_tune::settings::{Setting, Table, Value};

/// Stands for the interface's name in the name of a fact. In no name of a sysctl or setting.
pub(super) const INTERFACE: char = '@';
/// What is not there: no CPU, no program.
const NONE: &str = "none";
/// Sysctls of `net.ipv4.conf` that are not those of one interface.
const ALL_INTERFACES: [&str; 2] = ["all", "default"];

/// The facts of a machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Its interfaces that are up, other than the loopback, and whether each is a device: real or emulated hardware.
    pub(super) interfaces: Vec<(String, bool)>,
    /// The facts.
    pub(super) list: Vec<Fact>,
}

/// One fact.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fact {
    /// The interface it belongs to.
    pub(super) interface: Option<String>,
    /// Its name, with [`INTERFACE`] in place of the interface.
    pub(super) name: Cow<'static, str>,
    /// Its value.
    pub(super) value: String,
}

/// The facts that a map has.
pub(super) fn of_map(map: &Map) -> Facts {
    let mut facts = Facts::default();
    facts.machine("kernel", Some(&map.kernel));
    facts.machine("hypervisor", Some(map.hypervisor.as_deref().unwrap_or(NONE)));
    facts.machine("cpus", Some(map.cpus_online.to_string()));
    facts.machine("numa-nodes", Some(map.nodes.to_string()));
    for interface in map.interfaces.iter().filter(|interface| interface.kind != "loopback") {
        facts.interfaces.push((interface.name.clone(), interface.kind == "device"));
        facts.interface(interface);
    }
    facts
}

impl Facts {
    /// Adds what only a snapshot has. Facts of interfaces that are down are left out, as in a map.
    pub(super) fn add_snapshot(&mut self, now: &Snapshot) {
        let cpus = &now.cpus;
        self.machine("clock-source", now.kernel.clock_source.as_ref());
        self.machine("boot-parameters", Some(or_none(now.kernel.parameters.join(" "))));
        self.machine("cpu-model", cpus.model.as_ref());
        self.machine("smt", cpus.smt.as_ref().map(|smt| on(smt.active)));
        self.machine("isolated-cpus", Some(set(&cpus.isolated)));
        self.machine("nohz-full-cpus", Some(set(&cpus.nohz_full)));
        let policies = cpus.frequencies.iter();
        let governors: BTreeSet<&str> = policies.filter_map(|policy| policy.governor.as_deref()).collect();
        let governors: Vec<&str> = governors.into_iter().collect();
        self.machine("governor", (!governors.is_empty()).then(|| governors.join(" ")));
        for sysctl in &now.sysctls {
            let of = sysctl.name.strip_prefix("net.ipv4.conf.").and_then(|rest| rest.rsplit_once('.'));
            match of.filter(|(name, _)| !ALL_INTERFACES.contains(name)) {
                None => {
                    let name = format!("sysctl:{}", sysctl.name);
                    let value = as_setting(&name, &sysctl.value);
                    self.push(None, name.into(), Some(value));
                }
                // With slashes, since the name of an interface may contain dots.
                Some((interface, setting)) if self.has(interface) => {
                    let name = format!("sysctl:net/ipv4/conf/{INTERFACE}/{setting}");
                    self.push(Some(interface), name.into(), Some(&sysctl.value));
                }
                Some(_) => {}
            }
        }
        for interface in &now.interfaces {
            if self.has(&interface.name) {
                self.device(interface);
            }
        }
    }

    fn has(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|(name, _)| name == interface)
    }

    /// What a map says of an interface.
    fn interface(&mut self, map: &InterfaceMap) {
        let mut add =
            |name: &'static str, value: Option<String>| self.push(Some(&map.name), name.into(), value);
        add("@:kind", Some(map.kind.clone()));
        add("@:driver", map.driver.clone());
        add("@:speed", map.speed.map(|speed| format!("{speed} Mbit/s")));
        add("@:rx-queues", Some(map.rx_queues.to_string()));
        add("@:tx-queues", Some(map.tx_queues.to_string()));
        let rss = map.rss.as_ref();
        add("@:rss-queues", rss.map(|rss| rss.queues.to_string()));
        add("@:hash/udp4", rss.and_then(|rss| rss.udp4.clone()));
        add("@:hash/udp6", rss.and_then(|rss| rss.udp6.clone()));
        let queues = || map.queues.iter();
        add("@:irq/rx-*", each(queues().filter_map(|queue| queue.affinity.as_ref()).map(set)));
        add("@:rps/rx-*", each(queues().map(|queue| set(&queue.rps))));
        add("@:xps/tx-*", each(queues().map(|queue| set(&queue.xps))));
        add("@:qdisc", map.out.qdisc.clone());
        add("@:xdp", Some(if map.xdp { "attached" } else { NONE }.to_owned()));
    }

    /// What only a snapshot says of an interface.
    fn device(&mut self, interface: &Interface) {
        let name = interface.name.as_str();
        let mut add = |fact: Cow<'static, str>, value: Option<String>| self.push(Some(name), fact, value);
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        if let Some(driver) = interface.driver.as_ref().map(|fact| &fact.value) {
            let some = |text: &String| (!text.is_empty()).then(|| text.clone());
            add("@:driver-version".into(), some(&driver.version));
            add("@:firmware".into(), some(&driver.firmware));
        }
        add("@:mtu".into(), Some(interface.mtu.to_string()));
        add("@:tx-queue-len".into(), Some(interface.link.tx_queue_len.to_string()));
        if let Some(now) = interface.channels.as_ref().map(|fact| fact.value.now) {
            for (kind, count) in
                [("combined", now.combined), ("rx", now.rx), ("tx", now.tx), ("other", now.other)]
            {
                add(format!("@:channels/{kind}").into(), number(count));
            }
        }
        if let Some(rings) = interface.rings.as_ref().map(|fact| &fact.value) {
            add("@:ring/rx".into(), number(rings.rx));
            add("@:ring/tx".into(), number(rings.tx));
        }
        for (parameter, value) in interface.coalescing.iter().flat_map(|fact| &fact.value) {
            let switch = ["adaptive-", "cqe-mode-"].iter().any(|start| parameter.starts_with(start));
            let value = if switch { on(*value != 0).to_owned() } else { value.to_string() };
            add(format!("@:coalesce/{parameter}").into(), Some(value));
        }
        // What cannot be changed follows from the driver and the kernel.
        let features = interface.features.iter().flat_map(|fact| &fact.value);
        for (feature, state) in features.filter(|(_, state)| state.changeable) {
            add(format!("@:feature/{feature}").into(), Some(on(state.active).to_owned()));
        }
        // Not the key: each machine has its own.
        if let Some(rss) = interface.rss.as_ref().map(|fact| &fact.value.main) {
            let table = Value::Table(Table::Entries(rss.table.clone()));
            add("@:rss/table".into(), (!rss.table.is_empty()).then(|| format!("{table:#}")));
            add("@:rss/function".into(), rss.function.clone());
        }
        let napi = &interface.napi_defaults;
        add("@:napi/threaded".into(), napi.threaded.map(|mode| on(mode != 0).to_owned()));
        add("@:napi/defer-hard-irqs".into(), number(napi.defer_hard_irqs));
        add("@:napi/gro-flush-timeout".into(), napi.gro_flush_timeout.map(|timeout| timeout.to_string()));
        add("@:rfs/rx-*".into(), each(interface.rx.iter().filter_map(|queue| number(queue.rps_flow_cnt))));
        let receive = interface.tx.iter().filter_map(|queue| queue.xps_rxqs.as_ref());
        add("@:xps-rxqs/tx-*".into(), each(receive.map(set)));
    }

    fn machine(&mut self, name: &'static str, value: Option<impl AsRef<str>>) {
        self.push(None, name.into(), value);
    }

    fn push(&mut self, interface: Option<&str>, name: Cow<'static, str>, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            let interface = interface.map(str::to_owned);
            self.list.push(Fact { interface, name, value: value.as_ref().to_owned() });
        }
    }
}

const fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}

/// A value as its setting has it: the kernel writes masks as wide as its number of CPUs.
fn as_setting(name: &str, value: &str) -> String {
    let read = name.parse::<Setting>().ok().and_then(|setting| setting.value(value).ok());
    read.map_or_else(|| value.to_owned(), |read| read.to_string())
}

/// CPUs or queues as settings have them.
fn set(cpus: &CpuSet) -> String {
    Value::Cpus(cpus.clone()).to_string()
}

/// The common value of all queues, or one for each; `None` without queues.
fn each(values: impl Iterator<Item = String>) -> Option<String> {
    let values: Vec<String> = values.collect();
    let first = values.first()?;
    Some(if values.iter().all(|value| value == first) { first.clone() } else { values.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_are_alike_have_one_value() {
        let of = |values: &[&str]| each(values.iter().map(|value| (*value).to_owned()));
        assert_eq!(of(&["0-3", "0-3"]).as_deref(), Some("0-3"));
        assert_eq!(of(&["0", "1", "0"]).as_deref(), Some("0 1 0"));
        assert_eq!(of(&[]), None);
    }
}
