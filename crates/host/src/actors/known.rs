//! Table of programs that change settings, and the kinds of settings.
//!
//! Sources: their manuals and packaged configuration files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use Touch::{
    Addresses, Channels, Coalescing, Features, Governor, IdleStates, IrqAffinity, Memory, Mtu, Netfilter,
    Qdiscs, Rings, Rps, Sysctls, ThreadAffinity, Xps,
};

/// A kind of setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Touch {
    /// IRQ affinity.
    IrqAffinity,
    /// Number of queues.
    Channels,
    /// Ring sizes.
    Rings,
    /// Interrupt moderation.
    Coalescing,
    /// Offloads.
    Features,
    /// RPS masks.
    Rps,
    /// XPS masks.
    Xps,
    /// Queueing disciplines.
    Qdiscs,
    /// MTU.
    Mtu,
    /// Addresses and routes.
    Addresses,
    /// Settings below `/proc/sys`.
    Sysctls,
    /// Frequency governors.
    Governor,
    /// Idle states.
    IdleStates,
    /// Packet filter rules.
    Netfilter,
    /// Thread affinity.
    ThreadAffinity,
    /// NUMA placement of memory, and same-page merging.
    Memory,
}

/// A program or package that changes settings.
pub(super) struct Known {
    pub(super) name: &'static str,
    /// Its programs or scripts, without directories.
    pub(super) programs: &'static [&'static str],
    /// Files through which it acts without a running process.
    pub(super) acts_by: &'static [&'static str],
    /// Its configuration files.
    pub(super) files: &'static [&'static str],
    pub(super) touches: &'static [Touch],
    pub(super) when: &'static str,
}

pub(super) const KNOWN: [Known; 19] = [
    Known {
        name: "irqbalance",
        programs: &["irqbalance"],
        acts_by: &[],
        files: &["/etc/default/irqbalance", "/etc/sysconfig/irqbalance", "/etc/irqbalance.env"],
        touches: &[IrqAffinity],
        when: "every 10 seconds, for interrupts that are not banned from it",
    },
    Known {
        name: "tuned",
        programs: &["tuned"],
        acts_by: &[],
        files: &["/etc/tuned/active_profile", "/etc/tuned/tuned-main.conf", "/etc/tuned/bootcmdline"],
        touches: &[
            Sysctls,
            Governor,
            IdleStates,
            IrqAffinity,
            ThreadAffinity,
            Features,
            Coalescing,
            Channels,
            Rings,
            Memory,
        ],
        when: "when its profile is applied or a device appears; with dynamic tuning, all the time",
    },
    Known {
        name: "NetworkManager",
        programs: &["NetworkManager"],
        acts_by: &[],
        files: &["/etc/NetworkManager/NetworkManager.conf"],
        touches: &[Rings, Coalescing, Features, Channels, Qdiscs, Mtu, Addresses],
        when: "when a connection is activated, as its [ethtool] and [tc] sections say",
    },
    Known {
        name: "systemd-networkd",
        programs: &["systemd-networkd"],
        acts_by: &[],
        files: &["/etc/systemd/networkd.conf"],
        touches: &[Qdiscs, Mtu, Addresses, Sysctls],
        when: "when a link comes up or its .network file is read again",
    },
    Known {
        name: "systemd-udevd",
        programs: &["systemd-udevd", "udevd"],
        acts_by: &[],
        files: &["/etc/udev/udev.conf"],
        touches: &[Channels, Rings, Coalescing, Features, Rps, Mtu, IrqAffinity],
        when: "when a device appears, as .link files and rules say",
    },
    Known {
        name: "google-guest-agent",
        programs: &["google_guest_agent", "google_guest_agent_manager", "google_guest_compat_manager"],
        acts_by: &["/etc/default/instance_configs.cfg"],
        files: &["/etc/default/instance_configs.cfg"],
        touches: &[IrqAffinity, Xps, Channels, Addresses],
        when: "at boot: google_set_multiqueue gives each queue its CPUs",
    },
    Known {
        name: "amazon-ec2-net-utils",
        programs: &[],
        acts_by: &["/usr/lib/udev/rules.d/99-vpc-policy-routes.rules"],
        files: &[],
        touches: &[Addresses, Mtu],
        when: "when an interface appears, and every minute",
    },
    Known {
        name: "walinuxagent",
        programs: &["waagent"],
        acts_by: &[],
        files: &["/etc/waagent.conf"],
        touches: &[Addresses, Netfilter],
        when: "at boot, and as long as it watches its firewall rules",
    },
    Known {
        name: "cloud-init",
        programs: &["cloud-init"],
        acts_by: &["/etc/cloud/cloud.cfg"],
        files: &["/etc/cloud/cloud.cfg"],
        touches: &[Addresses, Mtu],
        when: "at boot",
    },
    Known {
        name: "ksmtuned",
        programs: &["ksmtuned"],
        acts_by: &[],
        files: &["/etc/ksmtuned.conf"],
        touches: &[Memory],
        when: "every minute",
    },
    Known {
        name: "numad",
        programs: &["numad"],
        acts_by: &[],
        files: &["/etc/numad.conf"],
        touches: &[ThreadAffinity, Memory],
        when: "every 5 to 15 seconds, for busy processes",
    },
    Known {
        name: "bpftune",
        programs: &["bpftune"],
        acts_by: &[],
        files: &[],
        touches: &[Sysctls, Rings],
        when: "when it sees drops or pressure",
    },
    Known {
        name: "thermald",
        programs: &["thermald"],
        acts_by: &[],
        files: &["/etc/thermald/thermal-conf.xml"],
        touches: &[Governor],
        when: "when the processor gets hot",
    },
    Known {
        name: "power-profiles-daemon",
        programs: &["power-profiles-daemon"],
        acts_by: &[],
        files: &[],
        touches: &[Governor],
        when: "when a power profile is chosen",
    },
    Known {
        name: "tlp",
        programs: &[],
        acts_by: &["/etc/tlp.conf"],
        files: &["/etc/tlp.conf"],
        touches: &[Governor, Features],
        when: "at boot, and when the power source changes",
    },
    Known {
        name: "kubelet",
        programs: &["kubelet"],
        acts_by: &[],
        files: &["/var/lib/kubelet/config.yaml"],
        touches: &[ThreadAffinity, Sysctls],
        when: "when a pod begins or ends (CPU manager, pod sysctls)",
    },
    Known {
        name: "firewalld",
        programs: &["firewalld"],
        acts_by: &[],
        files: &["/etc/firewalld/firewalld.conf"],
        touches: &[Netfilter, Sysctls],
        when: "when it is loaded again",
    },
    Known {
        name: "docker",
        programs: &["dockerd"],
        acts_by: &[],
        files: &["/etc/docker/daemon.json"],
        touches: &[Netfilter, Sysctls],
        when: "when it starts, and when a network is made",
    },
    Known {
        name: "ifupdown",
        programs: &[],
        acts_by: &["/etc/network/interfaces"],
        files: &["/etc/network/interfaces"],
        touches: &[Rings, Coalescing, Features, Channels, Mtu, Addresses],
        when: "when an interface is brought up, as its ethtool lines and post-up commands say",
    },
];
