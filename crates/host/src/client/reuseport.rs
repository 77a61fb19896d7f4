//! Reuseport groups as the kernel has them. No message of netlink shows them: a BPF iterator does
//! ([`udpath_bpf::ReuseportIterator`]), for root. It runs while it is read, and never on the packet path.

use std::fmt;

use error_reporter::Report;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_bpf::{Chooser, GroupMember, ReuseportIterator};
use udpath_netlink::Error;

/// A reuseport group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelGroup {
    /// What selects among its sockets.
    pub selector: Selector,
    /// Number of its sockets.
    pub sockets: u32,
    /// Its sockets.
    pub members: Vec<Member>,
}

/// A socket of a reuseport group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its cookie, unique since boot. `None`: it was never asked for; sock_diag asks for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
    /// Its inode, which descriptors name. `None`: a socket of the kernel itself, or a capture of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u32>,
    /// Its index in the group, from 0: the number with which a program selects it. `None`: above 1,023.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Its `SO_INCOMING_CPU`; for a connected socket, the CPU of the last datagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming_cpu: Option<u32>,
}

/// What selects among the sockets of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selector {
    /// The kernel: by its hash of the flow, or by `SO_INCOMING_CPU`.
    Kernel,
    /// A classic BPF program that returns the number of the CPU that received the datagram.
    Cpu {
        /// Modulo this; `None`: as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        modulus: Option<u32>,
    },
    /// Another classic BPF program.
    Classic {
        /// Its number of instructions.
        length: u32,
    },
    /// An eBPF program.
    Extended {
        /// Its ID, as in `bpftool prog show id N`.
        id: u32,
    },
}

impl Selector {
    /// The index that it returns for a datagram received on `cpu`. `None`: it does not select by CPU, or divides by 0,
    /// which the kernel refuses.
    #[must_use]
    pub fn index(self, cpu: u32) -> Option<u32> {
        match self {
            Self::Cpu { modulus: None } => Some(cpu),
            Self::Cpu { modulus: Some(modulus) } => cpu.checked_rem(modulus),
            Self::Kernel | Self::Classic { .. } | Self::Extended { .. } => None,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("by the kernel"),
            Self::Cpu { modulus: None } => f.write_str("by CPU (classic BPF program)"),
            Self::Cpu { modulus: Some(modulus) } => {
                write!(f, "by CPU modulo {modulus} (classic BPF program)")
            }
            Self::Classic { length: 1 } => f.write_str("by a classic BPF program (1 instruction)"),
            Self::Classic { length } => write!(f, "by a classic BPF program ({length} instructions)"),
            Self::Extended { id } => write!(f, "by an eBPF program (id {id})"),
        }
    }
}

impl From<udpath_bpf::ReuseportGroup> for KernelGroup {
    fn from(group: udpath_bpf::ReuseportGroup) -> Self {
        let member = |member: &GroupMember| Member {
            cookie: member.cookie,
            inode: member.inode,
            index: member.index,
            incoming_cpu: member.incoming_cpu,
        };
        Self {
            selector: group.chooser.into(),
            sockets: group.sockets,
            members: group.members.iter().map(member).collect(),
        }
    }
}

impl From<Chooser> for Selector {
    fn from(chooser: Chooser) -> Self {
        match chooser {
            Chooser::Kernel => Self::Kernel,
            Chooser::Cpu { modulus } => Self::Cpu { modulus },
            Chooser::Classic { length } => Self::Classic { length },
            Chooser::Extended { id } => Self::Extended { id },
        }
    }
}

/// Reads the groups. The first reading loads the iterator, which is kept.
#[derive(Debug, Default)]
pub(super) struct Reader(Option<ReuseportIterator>);

impl Reader {
    /// The groups of the calling thread's network namespace.
    pub(super) fn groups(&mut self) -> Result<Vec<KernelGroup>, Error> {
        let iterator = match self.0.take() {
            Some(loaded) => loaded,
            None => ReuseportIterator::load().map_err(refused)?,
        };
        let groups = self.0.insert(iterator).groups().map_err(refused)?;
        Ok(groups.into_iter().map(KernelGroup::from).collect())
    }
}

fn refused(error: udpath_bpf::Error) -> Error {
    match error {
        udpath_bpf::Error::NotPermitted { .. } => Error::errno(libc::EPERM),
        other => Error::other(Report::new(other)),
    }
}
