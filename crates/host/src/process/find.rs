//! A server's processes, UDP sockets and threads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::{fmt, fs};

use serde::{Deserialize, Serialize};
use udpath_files::kernel;

use super::held::{Process, SocketId};
use super::option::{SocketSetting, SocketValue, get};
use super::thread::{self, Thread};
use super::{Error, sys};
use crate::sockets::table;

/// `SK_MEMINFO_RMEM_ALLOC` and `SK_MEMINFO_DROPS` of linux/sock_diag.h, as indices into `SO_MEMINFO`.
const QUEUED: usize = libc::SK_MEMINFO_RMEM_ALLOC as usize;
const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
/// `SK_MEMINFO_SNDBUF`, likewise.
const SEND_BUFFER: usize = libc::SK_MEMINFO_SNDBUF as usize;

/// A running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The PID requested.
    pub pid: u32,
    /// Name of that process.
    pub name: String,
    /// That process first, then its workers: descendants that run the same program, as nsd's do.
    pub processes: Vec<u32>,
    /// Its bound UDP sockets by inode, each listed once even if several processes have it.
    pub sockets: Vec<Socket>,
    /// Its sockets that share an address and port.
    pub groups: Vec<Group>,
    /// Its threads, by process and number.
    pub threads: Vec<Thread>,
}

/// A UDP socket of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Its identity.
    pub id: SocketId,
    /// A process of the server that has it, for reads and writes.
    pub pid: u32,
    /// Its descriptor number there.
    pub fd: u32,
    /// Bound address.
    pub local: SocketAddr,
    /// Peer address, if connected.
    pub peer: Option<SocketAddr>,
    /// Index of the interface it is bound to, in the server's network namespace.
    pub interface: Option<u32>,
    /// IPv6 only (`IPV6_V6ONLY`).
    pub v6only: bool,
    /// Its group, as an index into the server's groups.
    pub group: Option<usize>,
    /// Every setting of it that is readable.
    pub values: Vec<SocketValue>,
    /// Its send buffer, bytes by the kernel's accounting: twice what a server requests.
    pub send_buffer: u32,
    /// Bytes waiting to be received, by the kernel's accounting (whole buffers, not payload).
    pub queued: u32,
    /// Datagrams dropped at it since it was opened. Wraps at 32 bits.
    pub drops: u32,
}

impl Server {
    /// With these sockets only, and the parts of its groups that they are.
    #[must_use]
    pub fn with_sockets(mut self, wanted: impl Fn(&Socket) -> bool) -> Self {
        keep(&mut self, wanted);
        self
    }
}

impl Socket {
    /// The value of a setting; `None` if the kernel does not report it.
    #[must_use]
    pub fn value(&self, setting: SocketSetting) -> Option<SocketValue> {
        self.values.iter().copied().find(|value| value.setting() == setting)
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (fd {} of process {})", self.local, self.fd, self.pid)
    }
}

/// Sockets of one server that share an address and port, and therefore its datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The address they share.
    pub address: SocketAddr,
    /// The sockets, as indices into the server's, by inode: the order in which they were created. This is also the
    /// order in which they joined, which a program selects by, unless the server bound them in another order. Verify
    /// with counts.
    pub members: Vec<usize>,
}

/// Finds a server's sockets and threads by PID. Covers the network namespace of its processes; a socket held only by an
/// `io_uring` has no descriptor and is not listed.
///
/// # Errors
/// No such process, or no permission to duplicate its descriptors.
pub fn find(pid: u32) -> Result<Server, Error> {
    let processes = family(pid)?;
    let mut sockets = BTreeMap::new();
    let mut threads = Vec::new();
    let mut name = String::new();
    for &member in &processes {
        let found = collect(member, &mut sockets).and_then(|()| thread::of(member));
        let tids = match found {
            // A worker that just ended.
            Err(Error::NoProcess { .. }) if member != pid => continue,
            found => found?,
        };
        for tid in tids {
            match Thread::look(member, tid) {
                Ok(thread) => threads.push(thread),
                Err(Error::ThreadGone { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        if member == pid {
            let first = threads.iter().find(|thread| thread.id.pid == pid && thread.id.tid == pid);
            name = first.ok_or(Error::NoProcess { pid })?.name.clone();
        }
    }
    let mut sockets: Vec<Found> = sockets.into_values().collect();
    let groups = groups(&mut sockets);
    let sockets = sockets.into_iter().map(|found| found.socket).collect();
    Ok(Server { pid, name, processes, sockets, groups, threads })
}

/// A socket, and whether `SO_REUSEPORT` is set.
struct Found {
    socket: Socket,
    reuseport: bool,
}

/// Adds the UDP sockets of one process, by inode; known ones stay unchanged.
fn collect(pid: u32, known: &mut BTreeMap<u32, Found>) -> Result<(), Error> {
    let process = Process::open(pid)?;
    let udp = udp_inodes(pid)?;
    for (fd, inode) in process.sockets()? {
        // Only sockets that the kernel lists as UDP are duplicated.
        if !udp.contains(&inode) || known.contains_key(&inode) {
            continue;
        }
        let Some(duplicate) = process.take(fd)? else { continue };
        if let Some(found) = look(pid, fd, inode, duplicate.as_fd())? {
            known.insert(inode, found);
        }
    }
    Ok(())
}

/// Inodes of the UDP sockets in a process's network namespace.
fn udp_inodes(pid: u32) -> Result<BTreeSet<u32>, Error> {
    Ok(listed(pid)?.lines().filter_map(table::inode).collect())
}

/// The lines of `/proc/PID/net/udp` and `udp6`.
fn listed(pid: u32) -> Result<String, Error> {
    let mut lines = String::new();
    for list in ["udp", "udp6"] {
        let path = format!("/proc/{pid}/net/{list}");
        match table::whole(|| kernel::text(&path)) {
            Ok(text) => lines.extend(text.split_inclusive('\n').skip(1)),
            // A kernel without IPv6, or the process has ended, which opening it reports.
            Err(cause) if matches!(cause.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EINVAL)) => {
            }
            Err(cause) => return Err(Error::answered(format!("read {path}"), cause, "CAP_SYS_PTRACE")),
        }
    }
    Ok(lines)
}

/// The members of the socket's group, in their order; `None` without a group.
///
/// # Errors
/// The process does not have the socket, or processes other than it and its workers have members of the group.
pub fn group(pid: u32, socket: SocketId) -> Result<Option<Vec<SocketId>>, Error> {
    let members = members(pid, socket)?;
    Ok(members.map(|members| members.into_iter().map(|(_, member)| member).collect()))
}

/// The same, each member with a process that has it.
///
/// # Errors
/// As [`group`].
pub fn members(pid: u32, socket: SocketId) -> Result<Option<Vec<(u32, SocketId)>>, Error> {
    let server = find(pid)?;
    let Some(found) = server.sockets.iter().find(|found| found.id == socket) else {
        return Err(Error::SocketGone { pid, inode: socket.inode, cookie: socket.cookie });
    };
    let Some(group) = found.group else { return Ok(None) };
    let strangers = strangers(&server, found)?;
    if strangers > 0 {
        return Err(Error::Strangers { socket: found.to_string(), pid, strangers });
    }
    let member = |&at: &usize| (server.sockets[at].pid, server.sockets[at].id);
    Ok(Some(server.groups[group].members.iter().map(member).collect()))
}

/// Number of sockets outside the server with the same binding and user: they may be in its group. The list has no
/// interfaces, so sockets of others bound to an interface count as well.
fn strangers(server: &Server, socket: &Socket) -> Result<usize, Error> {
    let lines = listed(socket.pid)?;
    let column = |line: &'_ str, at| line.split_whitespace().nth(at).map(str::to_owned);
    // Bound address, peer address, user.
    let key = |line: &str| [1, 2, 7].map(|at| column(line, at));
    let of = |wanted: u32| lines.lines().find(|line| table::inode(line) == Some(wanted)).map(key);
    let own = of(socket.id.inode);
    let own = |line: &&str| own.as_ref() == Some(&key(line));
    let known = |inode: &u32| server.sockets.iter().any(|known| known.id.inode == *inode);
    Ok(lines.lines().filter(own).filter_map(table::inode).filter(|inode| !known(inode)).count())
}

/// `None` if it is not a bound UDP socket: the descriptor may refer to another file by now.
fn look(pid: u32, fd: u32, inode: u32, socket: BorrowedFd<'_>) -> Result<Option<Found>, Error> {
    let what = || format!("read the socket at descriptor {fd} of process {pid}");
    let failed = |cause: std::io::Error| Error::answered(what(), cause, "CAP_SYS_PTRACE");
    let option = |name| sys::option(socket, name);
    let is = |name, wanted| option(name).is_ok_and(|found| found == wanted);
    if !is(libc::SO_TYPE, libc::SOCK_DGRAM) || !is(libc::SO_PROTOCOL, libc::IPPROTO_UDP) {
        return Ok(None);
    }
    let local = rustix::net::getsockname(socket).map_err(|errno| failed(errno.into()))?;
    let Ok(local) = SocketAddr::try_from(local) else { return Ok(None) };
    // ENOTCONN is the usual answer.
    let peer = rustix::net::getpeername(socket).ok().and_then(|peer| SocketAddr::try_from(peer?).ok());
    let cookie = rustix::net::sockopt::socket_cookie(socket).map_err(|errno| failed(errno.into()))?;
    let memory = sys::memory(socket).map_err(failed)?;
    let mut values = Vec::new();
    for setting in SocketSetting::ALL {
        // Options this kernel does not have are omitted.
        values.extend(get(socket, setting).ok().flatten());
    }
    let interface = option(libc::SO_BINDTOIFINDEX).ok().and_then(|index| u32::try_from(index).ok());
    let socket = Socket {
        id: SocketId { inode, cookie },
        pid,
        fd,
        local,
        peer,
        interface: interface.filter(|index| *index > 0),
        v6only: local.is_ipv6() && rustix::net::sockopt::ipv6_v6only(socket).unwrap_or(false),
        group: None,
        values,
        send_buffer: memory[SEND_BUFFER],
        queued: memory[QUEUED],
        drops: memory[DROPS],
    };
    Ok(Some(Found { socket, reuseport: option(libc::SO_REUSEPORT).is_ok_and(|on| on != 0) }))
}

/// Groups the sockets as the kernel does (`udp_reuseport_add_sock`), and stores each socket's group.
fn groups(sockets: &mut [Found]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut by_key = BTreeMap::new();
    for (at, Found { socket, reuseport }) in sockets.iter_mut().enumerate() {
        // A connected one receives only its peer's datagrams.
        if !*reuseport || socket.peer.is_some() {
            continue;
        }
        let key = (socket.local, socket.interface, socket.v6only);
        let group = *by_key.entry(key).or_insert_with(|| {
            groups.push(Group { address: socket.local, members: Vec::new() });
            groups.len() - 1
        });
        groups[group].members.push(at);
        socket.group = Some(group);
    }
    groups
}

/// The process, followed by its descendants that run the same program, by PID.
fn family(pid: u32) -> Result<Vec<u32>, Error> {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let Ok(pids) = kernel::numbers("/proc") else { return Ok(vec![pid]) };
    let parents: BTreeMap<u32, u32> = pids.into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    if !parents.contains_key(&pid) {
        return Err(Error::NoProcess { pid });
    }
    let own = program(pid);
    let mut family = BTreeSet::from([pid]);
    // Children come in any order: repeat until nothing is added.
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(child, parent)| family.contains(parent) && !family.contains(child))
            .map(|(child, _)| *child)
            .filter(|child| own.is_some() && program(*child) == own)
            .collect();
        if more.is_empty() {
            family.remove(&pid);
            return Ok([pid].into_iter().chain(family).collect());
        }
        family.extend(more);
    }
}

/// Field 4 of `/proc/PID/stat`.
fn parent(pid: u32) -> Option<u32> {
    let stat = super::text(&format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Removes all other sockets from a server.
pub(super) fn keep(server: &mut Server, wanted: impl Fn(&Socket) -> bool) {
    let kept: Vec<bool> = server.sockets.iter().map(wanted).collect();
    let place = |at: usize| kept[..at].iter().filter(|kept| **kept).count();
    let groups = std::mem::take(&mut server.groups);
    let mut numbers = BTreeMap::new();
    for (number, mut group) in groups.into_iter().enumerate() {
        group.members.retain(|&at| kept[at]);
        group.members.iter_mut().for_each(|at| *at = place(*at));
        if !group.members.is_empty() {
            numbers.insert(number, server.groups.len());
            server.groups.push(group);
        }
    }
    let mut at = 0;
    server.sockets.retain(|_| {
        at += 1;
        kept[at - 1]
    });
    for socket in &mut server.sockets {
        socket.group = socket.group.and_then(|number| numbers.get(&number).copied());
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A resolver beside a server opens and closes a socket for each query.
    #[test]
    fn every_socket_is_found_while_others_are_opened_and_closed() {
        let own: Vec<UdpSocket> = (0..60).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let bound = || own.iter().map(|socket| socket.local_addr().unwrap()).collect::<BTreeSet<_>>();
        let stop = AtomicBool::new(false);
        let churn = || {
            while !stop.load(Ordering::Relaxed) {
                let _ = (0..20).map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<Vec<_>>();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(churn);
            scope.spawn(churn);
            for _ in 0..30 {
                let found = find(std::process::id()).unwrap();
                let found = found.sockets.iter().map(|socket| socket.local).collect::<BTreeSet<_>>();
                let missed: Vec<_> = bound().difference(&found).copied().collect();
                if !missed.is_empty() {
                    stop.store(true, Ordering::Relaxed);
                    panic!("not found: {missed:?}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
