//! What can be tried on a running server: groups of settings that belong together.
//!
//! First the remedies of what the rules found, then what every interface, socket and thread offers. A group brings its
//! prerequisites along, because the ladder is not monotonic: softirq work on all CPUs loses while one socket is read by
//! all, and wins once sockets are chosen by CPU.
//!
//! Requests are in the form of `udpath plan`, so that they are resolved, checked and shown like everybody's.

use udpath_host::map::InterfaceMap;
use udpath_host::{Map, Snapshot};
use udpath_steer::CpuSet;

use super::device;
use super::group::{Group, TIMERS};
use super::target::Target;
use crate::finding::{Finding, Remedy, Severity};

/// Empty polls before the interrupt is enabled again, as in the kernel's example. 0 or 1: the timer is never used.
const DEFER: u32 = 2;
/// Entries of the flow table, and of each queue's: more than the flows of a trial. Fewer: flows share entries.
const FLOWS: u32 = 32_768;
/// Busy polling of a socket, microseconds: net.core.busy_poll's documented value. Longer: CPUs spin where they could
/// work.
const BUSY_POLL: u32 = 50;

/// Receive buffer of a socket, bytes: ten thousand small datagrams, 10 ms of a million a second. More: a reader that
/// falls behind answers requests that nobody waits for any more.
const RECEIVE_BUFFER: u32 = 8 << 20;

/// The remedies of findings, in their order; those of notes are not worth a race.
pub(super) fn of_findings<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Group> {
    let wanted = findings.filter(|finding| finding.severity != Severity::Note);
    let groups = wanted.filter_map(|finding| {
        let remedy = finding.remedies.iter().find(|remedy| matches!(remedy, Remedy::Changes { .. }))?;
        Some(Group::new(&finding.id, remedy.what(), remedy.settings().to_vec()))
    });
    groups.collect()
}

/// What a machine offers for a server whose datagrams arrive on `interface`, in the order in which it is worth trying.
pub(super) fn of_machine(snapshot: &Snapshot, map: &Map, interface: &str, target: &Target) -> Vec<Group> {
    let cpus = &snapshot.cpus.online;
    let mut groups = Vec::new();
    if let Some(interface) = map.interfaces.iter().find(|found| found.name == interface) {
        as_default(&mut groups, interface, snapshot);
        queues(&mut groups, interface, cpus, target);
        let device = snapshot.interfaces.iter().find(|found| found.name == interface.name);
        groups.extend(device.into_iter().flat_map(|device| device::offers(device, cpus.len())));
    }
    server(&mut groups, cpus, target);
    kernel(&mut groups, interface);
    groups
}

/// What somebody has set, off again.
fn as_default(groups: &mut Vec<Group>, interface: &InterfaceMap, snapshot: &Snapshot) {
    let name = &interface.name;
    if interface.queues.iter().any(|queue| !queue.rps.is_empty()) {
        let off = vec![format!("{name}:rps/rx-*=none")];
        groups.push(Group::new("no-rps", "packets stay on the CPU that received them", off));
    }
    let defaults =
        snapshot.interfaces.iter().find(|found| found.name == *name).map(|found| &found.napi_defaults);
    let Some(napi) = defaults else { return };
    if napi.gro_flush_timeout.is_some_and(|timer| timer > 0) {
        let off = vec![format!("{name}:napi/defer-hard-irqs=0"), format!("{name}:napi/gro-flush-timeout=0")];
        groups.push(Group::new(
            "no-defer",
            "an interrupt as soon as packets arrive, no timer between polls",
            off,
        ));
    }
    if napi.threaded.is_some_and(|threaded| threaded > 0) {
        let off = vec![format!("{name}:napi/threaded=off")];
        groups.push(Group::new("no-threaded-napi", "polls in softirq, not in a thread", off));
    }
}

/// How the interface's packets reach CPUs.
fn queues(groups: &mut Vec<Group>, interface: &InterfaceMap, cpus: &CpuSet, target: &Target) {
    let (name, port) = (&interface.name, target.port);
    let tx = interface.tx_queues as u32;
    let interrupts: Vec<u32> =
        interface.queues.iter().filter(|queue| queue.irq.is_some()).map(|queue| queue.queue).collect();
    let order: Vec<u32> = cpus.iter().collect();
    let nth = |at: u32| order[at as usize % order.len().max(1)];
    if order.len() > 1 {
        if interrupts.len() > 1 {
            let spread = interrupts.iter().map(|queue| format!("{name}:irq/rx-{queue}={}", nth(*queue)));
            groups.push(Group::new("irqs", "each queue's interrupt on a CPU of its own", spread.collect()));
        }
        if tx > 1 {
            let own = (0..tx).map(|queue| {
                let users: CpuSet = order.iter().copied().filter(|cpu| cpu % tx == queue).collect();
                format!("{name}:xps/tx-{queue}={users}")
            });
            groups.push(Group::new("xps", "each CPU sends on its own queue (XPS)", own.collect()));
        }
        let all = format!("{name}:rps/rx-*={cpus}");
        groups.push(Group::new("rps", "softirq work on all CPUs, by flow (RPS)", vec![all.clone()]));
        if target.group() > 1 {
            let split = vec![all.clone(), format!("port:{port}:selection=by-cpu"), pinned(port)];
            let what = "softirq work on all CPUs, each feeds the socket of its own reader";
            groups.push(Group::new("rps+by-cpu", what, split));
        }
        let (softirqs, readers) = halves(&order);
        let apart = vec![format!("{name}:rps/rx-*={softirqs}"), format!("port:{port}:threads={readers}")];
        let what = format!("softirq work on CPU {softirqs}, the server's threads on CPU {readers}");
        groups.push(Group::new("apart", what, apart));
        let flows = vec![
            all,
            format!("sysctl:net.core.rps_sock_flow_entries={FLOWS}"),
            format!("{name}:rfs/rx-*={FLOWS}"),
        ];
        groups.push(Group::new("rfs", "RPS to the CPU that last read the flow's socket (RFS)", flows));
    }
    for timer in TIMERS {
        let defer = vec![
            format!("{name}:napi/defer-hard-irqs={DEFER}"),
            format!("{name}:napi/gro-flush-timeout={}", timer * 1000),
        ];
        let what = format!("polls {timer} us apart instead of an interrupt for each few packets");
        groups.push(Group::new(&format!("defer-{timer}us"), what, defer));
    }
    let threaded = vec![format!("{name}:napi/threaded=on")];
    groups.push(Group::new("threaded-napi", "polls in a thread that the scheduler places", threaded));
    let gro = vec![format!("{name}:feature/gro=off")];
    groups.push(Group::new("gro-off", "no attempt to merge packets that do not merge", gro));
}

/// The server's sockets and threads.
fn server(groups: &mut Vec<Group>, cpus: &CpuSet, target: &Target) {
    let port = target.port;
    if cpus.len() > 1 && target.threads() > 1 {
        groups.push(Group::new("pinned", "each reading thread on a CPU of its own", vec![pinned(port)]));
    }
    if cpus.len() > 1 && target.group() > 1 {
        let by_cpu = vec![format!("port:{port}:selection=by-cpu"), pinned(port)];
        let what = "the CPU that received a datagram chooses the socket, and its reader runs there";
        groups.push(Group::new("by-cpu", what, by_cpu));
    }
    let poll = vec![format!("port:{port}:busy-poll={BUSY_POLL}")];
    groups.push(Group::new("busy-poll", "reads poll the device before they sleep", poll));
    let buffer = vec![format!("port:{port}:receive-buffer={RECEIVE_BUFFER}")];
    groups.push(Group::new("receive-buffer", "room for longer bursts in the sockets", buffer));
}

/// Work per datagram that the kernel does for everybody.
fn kernel(groups: &mut Vec<Group>, interface: &str) {
    let demux = vec!["sysctl:net.ipv4.udp_early_demux=0".to_owned()];
    groups.push(Group::new("no-early-demux", "no lookup of a connected socket before routing", demux));
    let sources = vec![
        "sysctl:net.ipv4.conf.all.rp_filter=0".to_owned(),
        // With slashes: the name of a VLAN's interface has a dot.
        format!("sysctl:net/ipv4/conf/{interface}/rp_filter=0"),
    ];
    let what = "no validation of source addresses (lowers security)";
    groups.push(Group::new("no-rp-filter", what, sources));
}

fn pinned(port: u16) -> String {
    format!("port:{port}:threads=one-per-cpu")
}

/// The CPUs for softirqs, and those for the server: half each, the server's the larger.
fn halves(cpus: &[u32]) -> (CpuSet, CpuSet) {
    let (softirqs, readers) = cpus.split_at(cpus.len() / 2);
    (softirqs.iter().copied().collect(), readers.iter().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_share_no_cpu() {
        let (softirqs, readers) = halves(&[0, 1, 2]);
        assert_eq!((softirqs.to_string(), readers.to_string()), ("0".into(), "1-2".into()));
    }

    #[test]
    fn losses_come_first_and_notes_not_at_all() {
        let finding = |id: &str, severity, settings: &[&str]| Finding {
            id: id.into(),
            severity,
            locations: Vec::new(),
            share: None,
            rate: None,
            evidence: String::new(),
            cause: String::new(),
            remedies: vec![
                Remedy::Advice("use less".into()),
                Remedy::Changes {
                    what: "more".into(),
                    settings: settings.iter().map(|text| (*text).to_owned()).collect(),
                    netns: None,
                },
            ],
        };
        let findings = [
            finding("c", Severity::Loss, &["eth0:ring/rx=1024"]),
            finding("a", Severity::Limit, &["eth0:qdisc=mq"]),
            finding("b", Severity::Note, &["eth0:qdisc=mq"]),
        ];
        let groups = of_findings(findings.iter());
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["c", "a"]);
        assert_eq!(groups[0].requests, ["eth0:ring/rx=1024"]);
    }
}
