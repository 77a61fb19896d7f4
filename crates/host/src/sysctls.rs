//! Kernel settings that affect UDP: files below `/proc/sys`.
//!
//! Many of `net.core` exist only in the initial network namespace. No file identifies the namespace; the absence of all
//! of them does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::value;
use crate::{Absence, Missing, Provenance, Source};

use SysctlScope::{Host, HostReadable, Namespace};

/// One setting below `/proc/sys`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Sysctl {
    /// `net.core.rmem_max`; an interface's name is part of it: `net.ipv4.conf.eth0.rp_filter`.
    pub name: String,
    /// Its text. Several numbers are separated by single spaces.
    pub value: String,
    /// Scope of the setting.
    pub scope: SysctlScope,
}

/// Scope of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SysctlScope {
    /// Machine-wide, and visible only in the initial network namespace: a container can neither read nor set it.
    Host,
    /// Per network namespace.
    Namespace,
    /// Machine-wide; other namespaces can read it, and some kernels show it only in the initial one.
    HostReadable,
}

/// Every sysctl that is read, and its scope (net/core/sysctl_net_core.c, net/ipv4/sysctl_net_ipv4.c).
const SYSCTLS: [(&str, SysctlScope); 43] = [
    ("net.core.rmem_default", HostReadable),
    ("net.core.rmem_max", HostReadable),
    ("net.core.wmem_default", HostReadable),
    ("net.core.wmem_max", HostReadable),
    ("net.core.optmem_max", HostReadable),
    ("net.core.netdev_max_backlog", Host),
    ("net.core.netdev_budget", Host),
    ("net.core.netdev_budget_usecs", Host),
    ("net.core.dev_weight", Host),
    ("net.core.dev_weight_rx_bias", Host),
    ("net.core.dev_weight_tx_bias", Host),
    ("net.core.busy_poll", Host),
    ("net.core.busy_read", Host),
    ("net.core.default_qdisc", Host),
    ("net.core.rps_sock_flow_entries", Host),
    ("net.core.rps_default_mask", Namespace),
    ("net.core.flow_limit_cpu_bitmap", Host),
    ("net.core.flow_limit_table_len", Host),
    ("net.core.gro_normal_batch", Host),
    ("net.core.netdev_tstamp_prequeue", Host),
    ("net.core.skb_defer_max", Host),
    ("net.core.bpf_jit_enable", Host),
    ("net.ipv4.udp_mem", Host),
    ("net.ipv4.udp_rmem_min", Namespace),
    ("net.ipv4.udp_wmem_min", Namespace),
    ("net.ipv4.udp_early_demux", Namespace),
    ("net.ipv4.ip_early_demux", Namespace),
    ("net.ipv4.udp_hash_entries", Namespace),
    ("net.ipv4.udp_child_hash_entries", Namespace),
    ("net.ipv4.udp_l3mdev_accept", Namespace),
    ("net.ipv4.ip_local_port_range", Namespace),
    ("net.ipv4.ip_no_pmtu_disc", Namespace),
    ("net.ipv4.ipfrag_high_thresh", Namespace),
    ("net.ipv4.neigh.default.gc_thresh3", Host),
    ("net.ipv6.neigh.default.gc_thresh3", Host),
    ("net.ipv6.ip6frag_high_thresh", Namespace),
    ("net.netfilter.nf_conntrack_max", HostReadable),
    ("net.netfilter.nf_conntrack_buckets", HostReadable),
    ("net.netfilter.nf_conntrack_udp_timeout", Namespace),
    ("net.netfilter.nf_conntrack_udp_timeout_stream", Namespace),
    ("net.bridge.bridge-nf-call-iptables", Namespace),
    ("kernel.numa_balancing", HostReadable),
    ("kernel.timer_migration", HostReadable),
];

/// Per-interface sysctls, below `net.ipv4.conf`. For `rp_filter` the kernel uses the higher of the interface's value
/// and `all`, for the other two it is enough that either is set.
const OF_AN_INTERFACE: [&str; 3] = ["rp_filter", "accept_local", "src_valid_mark"];

/// Reads the settings. What this kernel lacks is left out; that a namespace hides the host's is noted once.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<Sysctl> {
    let mut found = Vec::new();
    for (name, scope) in SYSCTLS {
        found.extend(one(source, missing, name.to_owned(), path(name), scope));
    }
    let interfaces = source.names("/proc/sys/net/ipv4/conf").unwrap_or_default();
    for interface in &interfaces {
        for setting in OF_AN_INTERFACE {
            let name = format!("net.ipv4.conf.{interface}.{setting}");
            // An interface's name may contain dots: the path is not derived from the name.
            let path = format!("/proc/sys/net/ipv4/conf/{interface}/{setting}");
            found.extend(one(source, missing, name, path, Namespace));
        }
    }
    let hosts = |scope| found.iter().any(|sysctl: &Sysctl| sysctl.scope == scope);
    if !hosts(Host) && (hosts(HostReadable) || hosts(Namespace)) {
        missing.push(Missing {
            what:
                "settings of net.core that are the host's: backlog, budget, RFS, flow limits, busy polling; \
                   they can be read and set only in the initial network namespace"
                    .into(),
            from: Provenance::File("/proc/sys/net/core".into()),
            why: Absence::NotThere,
        });
    }
    found
}

/// Its file. No name in the table has a dot within a component.
fn path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

fn one(
    source: &dyn Source,
    missing: &mut Vec<Missing>,
    name: String,
    path: String,
    scope: SysctlScope,
) -> Option<Sysctl> {
    match value(source, &path) {
        Ok(text) => {
            let value = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            Some(Sysctl { name, value, scope })
        }
        Err(Absence::NotThere | Absence::NotSupported | Absence::NotCaptured) => None,
        Err(why) => {
            missing.push(Missing { what: name, from: Provenance::File(path), why });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Folder;

    #[test]
    fn no_setting_is_read_twice() {
        let mut names: Vec<_> = SYSCTLS.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYSCTLS.len());
    }

    #[test]
    fn this_machines_are_read() {
        let mut missing = Vec::new();
        let found = read(&Folder::live(), &mut missing);
        let value = |name: &str| found.iter().find(|sysctl| sysctl.name == name).map(|s| s.value.as_str());
        assert!(value("net.core.rmem_max").unwrap().parse::<u64>().is_ok());
        assert_eq!(value("net.ipv4.udp_mem").unwrap().split(' ').count(), 3);
        assert!(value("net.ipv4.conf.lo.rp_filter").is_some());
    }

    #[test]
    fn a_namespace_hides_the_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let core = folder.path().join("proc/sys/net/core");
        std::fs::create_dir_all(&core).unwrap();
        std::fs::write(core.join("rmem_max"), "212992\n").unwrap();
        let mut missing = Vec::new();
        let found = read(&Folder::captured(folder.path()), &mut missing);
        assert_eq!(found.len(), 1);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].what.contains("only in the initial network namespace"), "{}", missing[0]);
    }
}
