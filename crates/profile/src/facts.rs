//! Context of the samples: sockets and their owners, packet sockets, tracked connections. Taken from the snapshots at
//! the beginning and the end; kept in the result, so that findings can be computed again from a file.

use std::collections::HashMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_host::processes;
use udpath_host::snapshot::Snapshot;
use udpath_host::source::Source;

/// Most sockets kept. Higher: a resolver's thousands of open queries fill the file; lower: servers with many ports lose
/// some.
const MOST_SOCKETS: usize = 256;

/// What a profile is about. Empty: the whole machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Focus {
    /// The processes that serve this UDP port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// These processes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pids: Vec<u32>,
}

/// Context of the samples.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Facts {
    /// The requested focus.
    #[serde(default)]
    pub focus: Focus,
    /// Online CPUs; fewer may have been sampled.
    #[serde(default)]
    pub online: u32,
    /// Unconnected UDP sockets of the observed namespace.
    #[serde(default)]
    pub sockets: Vec<BoundSocket>,
    /// Packet sockets that receive packets.
    #[serde(default)]
    pub packet_sockets: Vec<PacketSocketOwner>,
    /// Connections that netfilter tracks; `None` without connection tracking.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracked: Option<u64>,
    /// The kernel's release.
    #[serde(default)]
    pub kernel: String,
}

/// A UDP socket that is bound and not connected.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct BoundSocket {
    /// The local address.
    pub local: SocketAddr,
    /// The processes that have it open.
    pub pids: Vec<u32>,
    /// Datagrams it dropped in the interval.
    pub drops: u32,
}

/// A packet socket and its process.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PacketSocketOwner {
    /// Its inode, as /proc/PID/fd shows it.
    pub inode: u64,
    /// Its process; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid: Option<u32>,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

impl Facts {
    /// For the interval between two snapshots.
    #[must_use]
    pub fn new(before: &Snapshot, after: &Snapshot) -> Self {
        let earlier: HashMap<u32, u32> =
            before.sockets.list.iter().map(|socket| (socket.inode, socket.drops)).collect();
        let open =
            after.sockets.list.iter().filter(|socket| socket.peer.is_none() && socket.local.port() != 0);
        let bound = |socket: &udpath_host::sockets::Socket| {
            let mut pids: Vec<u32> = socket.owners.iter().map(|owner| owner.pid).collect();
            pids.dedup();
            let then = earlier.get(&socket.inode).copied().unwrap_or(0);
            BoundSocket { local: socket.local, pids, drops: socket.drops.wrapping_sub(then) }
        };
        let running =
            after.packet_sockets.sockets.iter().filter(|socket| socket.running && socket.protocol != 0);
        Self {
            focus: Focus::default(),
            online: u32::try_from(after.cpus.online.len()).unwrap_or(u32::MAX),
            sockets: open.take(MOST_SOCKETS).map(bound).collect(),
            packet_sockets: running
                .map(|socket| PacketSocketOwner { inode: socket.inode, pid: None, name: String::new() })
                .collect(),
            tracked: after.netfilter.conntrack.as_ref().map(|conntrack| conntrack.count),
            kernel: after.kernel.release.clone(),
        }
    }

    /// Finds the processes of the packet sockets. Those that cannot be found stay `None`.
    pub fn name_packet_sockets(&mut self, source: &dyn Source) {
        let inodes = self.packet_sockets.iter().enumerate();
        let wanted: HashMap<u32, usize> =
            inodes.filter_map(|(at, socket)| Some((u32::try_from(socket.inode).ok()?, at))).collect();
        if wanted.is_empty() {
            return;
        }
        let Ok(scan) = processes::scan(source, &wanted) else { return };
        for holder in &scan.holders {
            let at = wanted.get(&holder.inode);
            let Some(socket) = at.and_then(|at| self.packet_sockets.get_mut(*at)) else { continue };
            socket.pid = Some(holder.pid);
            let seen = scan.seen.iter().find(|seen| seen.pid == holder.pid);
            socket.name = seen.map(|seen| seen.name.clone()).unwrap_or_default();
        }
    }
}
