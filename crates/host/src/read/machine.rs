//! Reads everything about the machine except interfaces, in dependency order.

use super::{actors, cpus, irqs, kernel, limits, netfilter, processes, sockets, softnet, sysctls, udp};
use crate::snapshot::{
    actors::Actors, cpus::Cpus, cpus::Node, irqs::Softirq, kernel::Audit, kernel::Kernel, limits::Limits,
    netfilter::Netfilter, sockets::Sockets, softnet::Softnet, sysctls::Sysctl, udp::Udp,
};
use crate::{Fact, Missing, Provenance, Source};

/// The parts, as in the snapshot.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) kernel: Kernel,
    pub(crate) cpus: Cpus,
    pub(crate) nodes: Vec<Node>,
    pub(crate) limits: Limits,
    pub(crate) interrupts: irqs::Interrupts,
    pub(crate) softirqs: Vec<Softirq>,
    pub(crate) softnet: Softnet,
    pub(crate) udp: Udp,
    pub(crate) sockets: Sockets,
    pub(crate) sysctls: Vec<Sysctl>,
    pub(crate) netfilter: Netfilter,
    pub(crate) actors: Actors,
}

/// Reads them.
pub(crate) fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Machine {
    let mut kernel = kernel::read(source, missing);
    let nodes = cpus::nodes(source, missing);
    let cpus = cpus::read(source, &nodes, missing);
    // One pass over all processes serves both sockets and actors.
    let mut listed = sockets::list(source, missing);
    let inodes = listed.as_mut().map(|listed| sockets::inodes(&mut listed.value)).unwrap_or_default();
    let scan = processes::scan(source, &inodes);
    let scan = super::text::noted(missing, "processes", "/proc", scan).unwrap_or_default();
    let sockets = listed.map(|listed| sockets::join(source, listed, &inodes, &scan, missing));
    if kernel.audit.is_none() {
        kernel.audit = Some(audit(source, &scan.seen));
    }
    kernel.stamping = Some(stamping(&scan.seen));
    let mounts = limits::mounts(source, missing);
    Machine {
        kernel,
        cpus,
        nodes,
        limits: limits::read(source, &mounts, None, missing),
        interrupts: irqs::read(source, missing),
        softirqs: irqs::softirqs(source, missing),
        softnet: softnet::read(source, missing),
        udp: udp::read(source, missing),
        sockets: sockets.unwrap_or_default(),
        sysctls: sysctls::read(source, missing),
        netfilter: netfilter::read(source, missing),
        actors: actors::read(source, &scan.seen, missing),
    }
}

/// If the boot parameters do not decide it, the audit state is what the kernel reports, else what its daemon is
/// expected to have enabled.
fn audit(source: &dyn Source, seen: &[processes::Seen]) -> Fact<Audit> {
    if let Ok(Fact { value: status, from }) = source.audit_status() {
        let state = match (status.enabled, status.pid) {
            (0, _) => Audit::Unused,
            (_, 0) => Audit::On,
            _ => Audit::Daemon,
        };
        return Fact::new(state, from);
    }
    let runs = seen.iter().any(|process| process.name == "auditd");
    let from = Provenance::Derived("whether auditd runs".into());
    Fact::new(if runs { Audit::Daemon } else { Audit::Unused }, from)
}

/// Programs that set `SO_TIMESTAMP` or `SO_TIMESTAMPING` on their sockets: network time clients and servers.
const STAMPING: [&str; 8] =
    ["chronyd", "ntpd", "ntp-daemon", "openntpd", "ptp4l", "sfptpd", "systemd-timesyn", "timemaster"];

/// Whether a process of this name matters even without a UDP socket.
pub fn is_telling(name: &str) -> bool {
    name == "auditd" || STAMPING.contains(&name)
}

fn stamping(seen: &[processes::Seen]) -> Fact<Vec<String>> {
    let names = seen.iter().map(|process| process.name.as_str()).filter(|name| STAMPING.contains(name));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.dedup();
    Fact::new(names, Provenance::Derived("running programs known to request it".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_stamp_packets() {
        let seen = |name: &str| processes::Seen { pid: 1, name: name.into(), executable: None };
        let found = stamping(&[seen("sshd"), seen("chronyd"), seen("chronyd"), seen("systemd-timesyn")]);
        assert_eq!(found.value, ["chronyd", "systemd-timesyn"]);
    }
}
