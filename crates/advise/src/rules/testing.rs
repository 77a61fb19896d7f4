//! Machines and profiles that rules are tested on: healthy ones, for a test to spoil.

#[path = "../../../profile/tests/built/mod.rs"]
mod profiles;

use udpath_host::cpus::Cpu;
use udpath_host::interfaces::{Interface, LinkState, NapiDefaults};
use udpath_host::map::{
    CpuMap, InterfaceMap, Map, OutMap, ProcessMap, QueueMap, Selection, SocketMap, ThreadMap,
};
use udpath_host::source::Folder;
use udpath_host::{Fact, Provenance, Snapshot};
use udpath_profile::Profile;
use udpath_profile::classes::Class;
use udpath_profile::context::Context;
use udpath_steer::CpuSet;

pub(crate) use profiles::{Line, built, of};

use crate::finding::{Finding, Remedy};
use crate::rules::{of_map, of_profile};

/// A machine with one device, eth0.
pub(crate) struct Host {
    pub(crate) snapshot: Snapshot,
    pub(crate) map: Map,
}

pub(crate) fn fact<T>(value: T) -> Fact<T> {
    Fact::new(value, Provenance::SockDiag)
}

pub(crate) fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// What a machine is called that comes close, and what makes a machine with the cause into it.
pub(crate) type Twin = (&'static str, fn(&mut Host));

impl Host {
    /// With so many queues, each with an interrupt that may go anywhere, and two CPUs of one node.
    pub(crate) fn with_queues(queues: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut snapshot = Snapshot::read(&Folder::captured(folder.path()));
        let mut map = Map::new(&snapshot, None, &Selection::All).unwrap();
        snapshot.interfaces = vec![interface()];
        map.interfaces = vec![interface_map(queues)];
        let mut host = Self { snapshot, map };
        host.cpus(2, 1);
        host
    }

    /// So many CPUs, the first half of them in the first node if there are two.
    pub(crate) fn cpus(&mut self, count: u32, nodes: u32) {
        let node = |cpu| Some(cpu * nodes / count);
        self.snapshot.cpus.online = (0..count).collect();
        self.snapshot.cpus.list =
            (0..count).map(|number| Cpu { node: node(number), ..cpu(number) }).collect();
        self.map.cpus_online = count as usize;
        self.map.nodes = nodes as usize;
        let cpu_map = |cpu| CpuMap {
            cpu,
            node: node(cpu),
            online: true,
            queues: Vec::new(),
            rps_of: Vec::new(),
            time: None,
            ticks: None,
            softnet: None,
        };
        self.map.cpus = (0..count).map(cpu_map).collect();
    }

    /// A name server with one socket, half full, and so many threads, some of them pinned.
    pub(crate) fn serve(&mut self, threads: usize, pinned: usize) {
        self.map.sockets = vec![SocketMap {
            inode: 9,
            local: "0.0.0.0:53".parse().unwrap(),
            peer: None,
            pids: vec![812],
            group: 1,
            place: None,
            queued: 100_000,
            queued_before: None,
            looks: None,
            asked: Vec::new(),
            buffer: Some(200_000),
            drops: 0,
            options: None,
        }];
        self.map.processes = vec![ProcessMap {
            pid: 812,
            name: "knotd".into(),
            threads,
            pinned,
            sockets: 1,
            ..ProcessMap::default()
        }];
    }

    /// What a rule finds.
    pub(crate) fn found(&self, id: &str) -> Vec<Finding> {
        let found = of_map(&self.snapshot, &self.map);
        found.into_iter().filter(|finding| finding.id == id).collect()
    }
}

/// The one finding of a rule, which has an imperative for what to do.
#[track_caller]
pub(crate) fn only(host: &Host, id: &str) -> Finding {
    let found = host.found(id);
    let [finding] = &found[..] else { panic!("{id}: {found:?}") };
    sound(finding);
    finding.clone()
}

/// All settings that a finding's remedies change.
pub(crate) fn settings(finding: &Finding) -> Vec<String> {
    finding.remedies.iter().flat_map(Remedy::settings).cloned().collect()
}

/// What a rule finds in a profile.
pub(crate) fn found_in(profile: &Profile, id: &str) -> Vec<Finding> {
    of_profile(profile).into_iter().filter(|finding| finding.id == id).collect()
}

/// A second of other work.
pub(crate) const BASE: Line<'_> = (Context::Softirq, Class::Ip, None, None, "handle_softirqs ip_rcv", 1_000);

/// The only finding of a profile with this line beside a second of other work; there is none with so much less of it.
#[track_caller]
pub(crate) fn fires_above(id: &str, line: Line<'_>, less: u64) -> Finding {
    let found = of_profile(&of(&[BASE, line]));
    let [finding] = &found[..] else { panic!("{id}: {found:?}") };
    assert_eq!(finding.id, id);
    sound(finding);
    let mut fewer = line;
    fewer.5 = less;
    assert_eq!(of_profile(&of(&[BASE, fewer])), [], "{id}");
    finding.clone()
}

/// What must hold of any finding.
#[track_caller]
fn sound(finding: &Finding) {
    assert!(!finding.remedies.is_empty() && !finding.cause.is_empty(), "{finding:?}");
    let texts = [finding.evidence.as_str(), finding.cause.as_str()];
    for text in texts.into_iter().chain(finding.remedies.iter().map(Remedy::what)) {
        assert!(!text.is_empty() && !text.ends_with('.') && !text.contains("  "), "{text:?}");
    }
    for setting in finding.remedies.iter().flat_map(Remedy::settings) {
        let (name, value) = setting.split_once('=').expect("SETTING=VALUE");
        // `plan` and `apply` expand what stands for several sockets.
        let name = name.replace("-*", "-0").replace("port:53:selection", "group:812/9:selection");
        let name: udpath_tune::Setting = name.parse().unwrap_or_else(|why| panic!("{setting}: {why}"));
        name.value(value).unwrap_or_else(|why| panic!("{setting}: {why}"));
    }
}

fn interface() -> Interface {
    Interface {
        name: "eth0".into(),
        index: 2,
        kind: "device".into(),
        address: None,
        permanent_address: None,
        link: LinkState { up: true, ..LinkState::default() },
        mtu: 1500,
        relations: Vec::new(),
        vlan: None,
        bond: None,
        driver: None,
        node: None,
        local_cpus: None,
        channels: None,
        rings: None,
        coalescing: None,
        features: None,
        rss: None,
        hash_fields: None,
        flow_rules: None,
        time_stamping_offer: None,
        time_stamping: None,
        rx: Vec::new(),
        tx: Vec::new(),
        napis: None,
        napi_defaults: NapiDefaults::default(),
        qdiscs: None,
        xdp: None,
        xdp_features: None,
        statistics: udpath_host::interfaces::Counters::default(),
        driver_counters: None,
    }
}

fn interface_map(queues: u32) -> InterfaceMap {
    InterfaceMap {
        name: "eth0".into(),
        kind: "device".into(),
        driver: Some("ixgbe".into()),
        speed: None,
        carrier: Some(true),
        node: None,
        lower: Vec::new(),
        rx_queues: queues as usize,
        tx_queues: queues as usize,
        rss: None,
        xdp: false,
        time_stamping: None,
        packets: None,
        bytes: None,
        missed: 0,
        dropped: 0,
        queues: (0..queues).map(queue).collect(),
        out: OutMap::default(),
        pauses_received: None,
        pauses_sent: None,
    }
}

fn queue(queue: u32) -> QueueMap {
    QueueMap {
        queue,
        share: None,
        packets: None,
        bytes: None,
        drops: None,
        irq: Some(100 + queue),
        irq_from: None,
        interrupts: None,
        affinity: None,
        cpus: CpuSet::default(),
        hint: None,
        nodes: Vec::new(),
        rps: CpuSet::default(),
        xps: CpuSet::default(),
        xsk: false,
    }
}

fn cpu(number: u32) -> Cpu {
    Cpu { number, online: true, ..Cpu::default() }
}

/// A thread that ran so much of the interval, on CPU 0.
pub(crate) fn thread(tid: u32, ran: f64) -> ThreadMap {
    ThreadMap { tid, name: "knotd".into(), cpu: Some(0), ran, ..ThreadMap::default() }
}
