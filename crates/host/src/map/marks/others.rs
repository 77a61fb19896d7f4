//! What takes time on the way, and who else has a hand in it.

use super::{Found, Link, counted};
use crate::map::{Map, View};
use crate::snapshot::actors::Touch;
use crate::snapshot::netfilter::Hook;

/// Share of time taken by the hypervisor from which on figures are somebody else's. Lower: every virtual machine has the
/// mark. Higher: a starved one has not.
const STEAL: f64 = 0.02;
/// Threads from which on a process with one socket is worth a word.
const THREADS: usize = 4;
/// What a packet socket that takes every packet asks for (`ETH_P_ALL`, linux/if_ether.h).
const ALL: u16 = 3;
/// Root disciplines that have a lock of their own for each transmit queue, or none.
const MANY: [&str; 5] = ["mq", "mqprio", "noqueue", "taprio", "clsact"];

pub(super) fn one_qdisc(view: View<'_>, map: &Map) -> Found {
    map.interfaces
        .iter()
        .filter(|interface| interface.tx_queues > 1)
        .filter_map(|interface| {
            let now = view.now.interfaces.iter().find(|now| now.name == interface.name)?;
            let qdiscs = &now.qdiscs.as_ref()?.value;
            let root =
                qdiscs.iter().find(|qdisc| qdisc.parent == "root" && !MANY.contains(&qdisc.kind.as_str()))?;
            let what = format!(
                "{}: one queueing discipline ({}) in front of {}: every sender takes its lock",
                interface.name,
                root.kind,
                counted(interface.tx_queues, "transmit queue")
            );
            Some((vec![Link::Interface(interface.name.clone())], what))
        })
        .collect()
}

/// A driver turns each stamp into the kernel's time: igb and its like under a lock that all queues share
/// (`igb_ptp_systim_to_hwtstamp`), and mlx5 gives up compressed completions for it (`mlx5e_hwstamp_set`).
pub(super) fn stamped(_: View<'_>, map: &Map) -> Found {
    let every = map.interfaces.iter().filter_map(|interface| {
        let set = interface.time_stamping.as_ref().filter(|set| set.of_every_packet())?;
        let clock = set.clock.map_or_else(String::new, |clock| format!(", by the clock /dev/ptp{clock}"));
        let what = format!(
            "{} puts the time on every packet that it receives{clock}: its driver converts each stamp; a time daemon that \
             can do with those of PTP or NTP asks for fewer",
            interface.name
        );
        Some((vec![Link::Interface(interface.name.clone())], what))
    });
    every.collect()
}

pub(super) fn tap(view: View<'_>, map: &Map) -> Found {
    let taps = view.now.taps.sockets.iter().filter(|tap| tap.running && tap.protocol == ALL);
    taps.filter_map(|tap| {
        let name =
            view.now.interfaces.iter().find(|now| now.index == tap.interface).map(|now| now.name.clone());
        if tap.interface != 0 && !map.interfaces.iter().any(|shown| Some(&shown.name) == name.as_ref()) {
            return None;
        }
        let place = name.clone().unwrap_or_else(|| "every interface".into());
        let what = format!("a packet socket (inode {}) takes a copy of every packet of {place}", tap.inode);
        Some((vec![name.map_or(Link::Machine, Link::Interface)], what))
    })
    .collect()
}

pub(super) fn one_socket(_: View<'_>, map: &Map) -> Found {
    map.sockets
        .iter()
        .filter(|socket| socket.group == 1 && socket.peer.is_none())
        .filter_map(|socket| {
            let [pid] = socket.pids[..] else { return None };
            let process = map.processes.iter().find(|process| process.pid == pid)?;
            // Of threads, only those bound to CPUs look like workers; of a busy socket any may be.
            let workers = process.pinned >= 2 || process.threads >= THREADS;
            let busy = socket.drops > 0 || socket.queued > 0 || process.pinned >= 2;
            let what = format!(
                "{} is one socket of {} (pid {pid}, {}): if all of them read it, they wait for its lock; with \
                 SO_REUSEPORT each has its own",
                socket.local,
                process.name,
                counted(process.threads, "thread")
            );
            (workers && busy).then(|| (vec![Link::Socket(socket.inode)], what))
        })
        .collect()
}

pub(super) fn steal(_: View<'_>, map: &Map) -> Found {
    let shares: Vec<f64> = map.cpus.iter().filter_map(|cpu| Some(cpu.time?.steal)).collect();
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let what = format!("the hypervisor took {:.0} % of the CPU time", mean * 100.0);
    if mean > STEAL { vec![(vec![Link::Machine], what)] } else { Vec::new() }
}

pub(super) fn rivals(view: View<'_>, _: &Map) -> Found {
    let touching = view.now.actors.list.iter().filter(|actor| {
        let steering = [Touch::IrqAffinity, Touch::Channels, Touch::Rps, Touch::Xps, Touch::ThreadAffinity];
        actor.pid.is_some() && steering.iter().any(|touch| actor.touches.contains(touch))
    });
    touching
        .map(|actor| {
            let pid = actor.pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            (vec![Link::Machine], format!("{}{pid} changes these settings too: {}", actor.name, actor.when))
        })
        .collect()
}

pub(super) fn files(view: View<'_>, map: &Map) -> Found {
    let actors = &view.now.actors;
    let acts = |by: &str| actors.list.iter().find(|actor| actor.name == by);
    let files = actors.network_files.iter();
    files
        .filter_map(|file| {
            let when = &acts(&file.by)?.when;
            // Names may be patterns, or there is none: then it may be any interface.
            let named: Vec<&str> = file
                .matches
                .iter()
                .filter(|(key, _)| matches!(key.as_str(), "connection.interface-name" | "Match.Name"))
                .flat_map(|(_, value)| value.split_ascii_whitespace())
                .collect();
            let links: Vec<Link> = map
                .interfaces
                .iter()
                .filter(|interface| named.contains(&interface.name.as_str()))
                .map(|interface| Link::Interface(interface.name.clone()))
                .collect();
            let of = if named.is_empty() { "interfaces that it matches".into() } else { named.join(", ") };
            let sets: Vec<String> = file.sets.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let what = format!("{} sets {} of {of} by {}: {when}", file.by, sets.join(", "), file.path);
            Some((if links.is_empty() { vec![Link::Machine] } else { links }, what))
        })
        .collect()
}

pub(super) fn filtered(view: View<'_>, _: &Map) -> Found {
    let Some(hooks) = &view.now.netfilter.hooks else { return Vec::new() };
    let received = |hook: &&Hook| matches!(hook.hook.as_str(), "ingress" | "prerouting" | "input");
    let named: Vec<String> = hooks.value.iter().filter(received).map(function).collect();
    if named.is_empty() {
        return Vec::new();
    }
    let functions = counted(named.len(), "function");
    let what = format!("packet filters have {functions} on the way to sockets: {}", named.join("; "));
    vec![(vec![Link::Machine], what)]
}

/// `ip prerouting -200 ipv4_conntrack_in (nf_conntrack)`.
fn function(hook: &Hook) -> String {
    let device = hook.device.as_ref().map_or_else(String::new, |device| format!(" of {device}"));
    let what = match (&hook.chain, hook.program, &hook.function) {
        (Some(chain), ..) => format!("chain {} of table {} {}", chain.name, chain.family, chain.table),
        (None, Some(program), _) => format!("BPF program {program}"),
        (None, None, Some(function)) => function.clone(),
        (None, None, None) => "a function without a name".into(),
    };
    let module = hook.module.as_ref().map_or_else(String::new, |module| format!(" ({module})"));
    format!("{} {}{device} {} {what}{module}", hook.family, hook.hook, hook.priority)
}

#[cfg(test)]
mod tests {
    use crate::map::Selection;
    use crate::snapshot::actors::{Actor, NetworkFile};
    use crate::snapshot::netfilter::HookChain;
    use crate::source::Folder;
    use crate::{Fact, Provenance, Snapshot};

    use super::*;

    fn empty() -> Snapshot {
        let folder = tempfile::tempdir().unwrap();
        Snapshot::read(&Folder::captured(folder.path()))
    }

    fn told(snapshot: &Snapshot, rule: &str) -> Vec<String> {
        let map = Map::new(snapshot, None, &Selection::All).unwrap();
        map.marks.into_iter().filter(|mark| mark.rule == rule).map(|mark| mark.what).collect()
    }

    #[test]
    fn functions_on_the_way_in_are_named() {
        let mut snapshot = empty();
        assert_eq!(told(&snapshot, "filtered"), Vec::<String>::new());
        let hook = |hook: &str, priority| Hook {
            family: "ip".into(),
            hook: hook.into(),
            device: None,
            priority,
            function: Some("f".into()),
            module: None,
            chain: None,
            program: None,
        };
        let chain = HookChain { family: "inet".into(), table: "t".into(), name: "c".into() };
        let hooks = vec![
            Hook { module: Some("nf_conntrack".into()), ..hook("prerouting", -200) },
            Hook { chain: Some(chain), ..hook("input", 0) },
            Hook {
                program: Some(7),
                device: Some("eth0".into()),
                family: "netdev".into(),
                ..hook("ingress", 5)
            },
            hook("output", 0),
        ];
        snapshot.netfilter.hooks = Some(Fact::new(hooks, Provenance::SockDiag));
        assert_eq!(
            told(&snapshot, "filtered"),
            ["packet filters have 3 functions on the way to sockets: ip prerouting -200 f (nf_conntrack); \
              ip input 0 chain c of table inet t; netdev ingress of eth0 5 BPF program 7"]
        );
    }

    #[test]
    fn a_file_is_told_while_its_daemon_runs() {
        let mut snapshot = empty();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        snapshot.actors.network_files.push(NetworkFile {
            by: "NetworkManager".into(),
            path: "/etc/a".into(),
            matches: vec![pair("connection.interface-name", "ens1")],
            sets: vec![pair("ethtool.feature-gro", "false"), pair("ethernet.mtu", "9000")],
        });
        assert_eq!(told(&snapshot, "set-by-file"), Vec::<String>::new());
        snapshot.actors.list.push(Actor {
            name: "NetworkManager".into(),
            pid: Some(5),
            seen_by: String::new(),
            files: Vec::new(),
            touches: Vec::new(),
            when: "then".into(),
        });
        assert_eq!(
            told(&snapshot, "set-by-file"),
            ["NetworkManager sets ethtool.feature-gro=false, ethernet.mtu=9000 of ens1 by /etc/a: then"]
        );
    }
}
