//! The servers of a port or an address, and which of their threads reads which socket.
//!
//! ```text
//!  port, or address ── sock_diag ─▸ inodes ── one pass over /proc/PID/fd ─▸ holders ── the first of each program ─▸ servers
//!
//!  thread ── /proc/PID/task/TID/syscall: epoll_wait(14, ...) ── /proc/PID/fdinfo/14 ─▸ inodes it waits for
//!                                        recvmmsg(7, ...)    ── /proc/PID/fd/7      ─▸ the one it waits for
//! ```
//! The kernel keeps no record of readers, so a thread is identified by what it waits for while it sleeps. A thread that
//! never sleeps is not seen; a few samples find all but the busiest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::find::keep;
use super::{Error, Server, Socket, Thread, ThreadId, find};
use crate::sockets::Socket as Listed;
use crate::text::of_process;
use crate::{Source, processes, sockets};

/// Maximum number of samples. Fewer: threads of a busy server are missed. More: it takes longer than a second to report
/// a thread that never sleeps.
const LOOKS: u32 = 200;
/// Minimum number of samples: another thread may wait for the same socket, and may have been busy before.
const LEAST: u32 = 10;
/// Longest time of more than the minimum of samples. Shorter: of some hundred threads, one that seldom waits is missed.
/// Longer: any user's program with thousands of threads makes a look take as many seconds.
const MAX_TIME: Duration = Duration::from_secs(3);
/// Pause between two samples: longer than a burst of datagrams, too short for users to notice.
const PAUSE: Duration = Duration::from_millis(2);

/// Listings of sockets of which none has an owner. Fewer: a server that closes its sockets at that moment is said to be
/// invisible. More: it takes longer to say so of those that the kernel has itself.
const LISTINGS: u32 = 5;

/// Loopback addresses that are tried, 127.0.0.1 first. Fewer: a server beside others that are bound to them is asked
/// nowhere.
const LOOPBACKS: u8 = 16;

/// Threads by the inode of the socket they wait for.
pub type Waiting = BTreeMap<u32, BTreeSet<ThreadId>>;

/// The servers whose UDP sockets are bound to a port, in the network namespace of the caller; each with only those
/// sockets, and with all its threads. Connected sockets belong to clients and are left out.
///
/// # Errors
/// No socket is bound to it, or its owner is not visible.
pub fn serving(source: &dyn Source, port: u16) -> Result<Vec<Server>, Error> {
    listed_again(|| of(source, port, bound(source, port)?))
}

/// The servers that get a datagram sent to this address of the caller's network namespace: of the sockets bound to
/// exactly it, else of those bound to any. Another program may have the same port at another address, such as
/// systemd-resolved at 127.0.0.53:53.
///
/// # Errors
/// As [`serving`].
pub fn answering(source: &dyn Source, to: SocketAddr) -> Result<Vec<Server>, Error> {
    listed_again(|| {
        let mut listed = bound(source, to.port())?;
        reached(&mut listed, to);
        of(source, to.port(), listed)
    })
}

/// Looks again while sockets are listed that no process has, although all can be seen: they were closed meanwhile, or
/// passed on.
fn listed_again(find: impl Fn() -> Result<Vec<Server>, Error>) -> Result<Vec<Server>, Error> {
    for _ in 1..LISTINGS {
        match find() {
            Err(Error::Hidden { hidden: 0, .. }) => std::thread::sleep(PAUSE),
            found => return found,
        }
    }
    find()
}

/// Whether a socket gets datagrams that are sent to this address of the caller's network namespace.
#[must_use]
pub fn is_bound(source: &dyn Source, to: SocketAddr) -> bool {
    let mut listed = bound(source, to.port()).unwrap_or_default();
    reached(&mut listed, to);
    !listed.is_empty()
}

/// An address of this machine at which the kernel selects among sockets with a server's: its own, and for one that is
/// bound to any address, one of the loopback interface that no other program has. `None`: others get datagrams to all
/// of these.
#[must_use]
pub fn address_of(source: &dyn Source, socket: &Socket) -> Option<SocketAddr> {
    let local = socket.local;
    let own = |ip: IpAddr| SocketAddr::new(ip, local.port());
    let loopback = || (1..=LOOPBACKS).map(|last| own(Ipv4Addr::new(127, 0, 0, last).into()));
    let candidates: Vec<SocketAddr> = match local.ip() {
        IpAddr::V4(any) if any.is_unspecified() => loopback().collect(),
        IpAddr::V6(any) if any.is_unspecified() => {
            let four = loopback().filter(|_| !socket.v6only);
            std::iter::once(own(Ipv6Addr::LOCALHOST.into())).chain(four).collect()
        }
        _ => return Some(local),
    };
    let listed = bound(source, local.port()).unwrap_or_default();
    let has = |listed: &[Listed]| listed.iter().any(|other| other.inode == socket.id.inode);
    if !has(&listed) {
        // In another network namespace, which decides there.
        return candidates.first().copied();
    }
    candidates.into_iter().find(|to| {
        let mut reached_there = listed.clone();
        reached(&mut reached_there, *to);
        has(&reached_there)
    })
}

/// The sockets bound to a port that are not connected.
fn bound(source: &dyn Source, port: u16) -> Result<Vec<Listed>, Error> {
    let mut listed = sockets::list(source, &mut Vec::new()).ok_or(Error::NobodyServes { port })?.value;
    listed.retain(|socket| socket.local.port() == port && socket.peer.is_none());
    Ok(listed)
}

/// Keeps the sockets among which the kernel selects for a datagram to this address (`__udp4_lib_lookup` of
/// net/ipv4/udp.c).
fn reached(listed: &mut Vec<Listed>, to: SocketAddr) {
    let to = to.ip().to_canonical();
    let rank = |socket: &Listed| match socket.local.ip() {
        // One that is bound to an interface gets only what arrives there.
        IpAddr::V4(any) if any.is_unspecified() => to.is_ipv4().then_some((2, socket.interface.is_none())),
        IpAddr::V6(any) if any.is_unspecified() && to.is_ipv6() => Some((2, socket.interface.is_none())),
        // It receives IPv4 as well, unless IPV6_V6ONLY is set.
        IpAddr::V6(any) if any.is_unspecified() => {
            (socket.v6only != Some(true)).then_some((1, socket.interface.is_none()))
        }
        own => (own.to_canonical() == to).then_some((3, socket.interface.is_none())),
    };
    let best = listed.iter().filter_map(rank).max();
    listed.retain(|socket| best.is_some() && rank(socket) == best);
}

/// The servers that have these sockets, which are bound to this port.
fn of(source: &dyn Source, port: u16, mut listed: Vec<Listed>) -> Result<Vec<Server>, Error> {
    let wanted: HashMap<u32, usize> = sockets::inodes(&mut listed);
    if wanted.is_empty() {
        return Err(Error::NobodyServes { port });
    }
    let scan = processes::scan(source, &wanted).unwrap_or_default();
    let holders: BTreeSet<u32> = scan.holders.iter().map(|holder| holder.pid).collect();
    let mut servers: Vec<Server> = Vec::new();
    // Youngest first: a socket passed to a server at its start belongs to that server, not to the process that passed
    // it.
    for pid in firsts(source, &holders).into_iter().rev() {
        let mut server = match find(pid) {
            Err(Error::NoProcess { .. }) => continue,
            found => found?,
        };
        let taken = |inode: u32| {
            servers.iter().flat_map(|server| &server.sockets).any(|socket| socket.id.inode == inode)
        };
        keep(&mut server, |socket| wanted.contains_key(&socket.id.inode) && !taken(socket.id.inode));
        if !server.sockets.is_empty() {
            servers.push(server);
        }
    }
    if servers.is_empty() {
        return Err(Error::Hidden { port, hidden: scan.hidden });
    }
    servers.reverse();
    Ok(servers)
}

/// Among processes that hold the same sockets and run the same program, the one that the others descend from.
fn firsts(source: &dyn Source, holders: &BTreeSet<u32>) -> Vec<u32> {
    let program = |pid: u32| source.target(&format!("/proc/{pid}/exe")).ok();
    let parent = |pid: u32| {
        let stat = of_process(source, &format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let worker = |pid: u32| {
        parent(pid).is_some_and(|parent| holders.contains(&parent) && program(parent) == program(pid))
    };
    holders.iter().copied().filter(|pid| !worker(*pid)).collect()
}

/// Which threads wait for the sockets of a server. Samples until each socket has one, and a few times more.
///
/// # Errors
/// A socket without a waiting thread.
pub fn waiting(server: &Server) -> Result<Waiting, Error> {
    let (mut found, begin, mut looks) = (Waiting::new(), Instant::now(), 0);
    while looks < LOOKS && (looks < LEAST || begin.elapsed() < MAX_TIME) {
        looks += 1;
        for Thread { id, .. } in &server.threads {
            for inode in waits_for(id.pid, id.tid) {
                if server.sockets.iter().any(|socket| socket.id.inode == inode) {
                    found.entry(inode).or_default().insert(*id);
                }
            }
        }
        if looks >= LEAST && found.len() == server.sockets.len() {
            return Ok(found);
        }
        std::thread::sleep(PAUSE);
    }
    let lonely = server.sockets.iter().find(|socket| !found.contains_key(&socket.id.inode));
    lonely.map_or(Ok(found), |socket| Err(Error::NobodyWaits { socket: socket.to_string(), looks }))
}

/// Inodes of the sockets that a thread is waiting for now; empty while it runs.
fn waits_for(pid: u32, tid: u32) -> Vec<u32> {
    let call = super::text(&format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    match waits_on(&call) {
        Some(On::Epoll(fd)) => {
            let text = super::text(&format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
            text.lines().filter_map(epoll_inode).collect()
        }
        Some(On::Socket(fd)) => {
            let target = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
            target.to_str().and_then(super::held::socket_inode).into_iter().collect()
        }
        None => Vec::new(),
    }
}

/// The descriptor number that a thread waits on.
#[derive(Debug, PartialEq, Eq)]
enum On {
    /// An epoll instance.
    Epoll(u32),
    /// A socket itself.
    Socket(u32),
}

/// `232 0xe 0x7fb7 0x2 ...` of `/proc/PID/task/TID/syscall` (proc(5)): the system call number, and its arguments.
fn waits_on(call: &str) -> Option<On> {
    let mut words = call.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let fd = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    // Newer architectures have no epoll_wait.
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_epoll_wait {
        return Some(On::Epoll(fd));
    }
    match number {
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Some(On::Epoll(fd)),
        libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg | libc::SYS_read => Some(On::Socket(fd)),
        _ => None,
    }
}

/// `tfd: 9 events: 19 data: 1 pos:0 ino:339098 sdev:9` of an epoll instance's fdinfo: the inode is hexadecimal. An
/// inode of another file system may have the same number; the caller knows the inodes of its sockets.
fn epoll_inode(line: &str) -> Option<u32> {
    let line = line.strip_prefix("tfd:")?;
    let inode = line.split_whitespace().find_map(|word| word.strip_prefix("ino:"))?;
    u32::from_str_radix(inode, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::source::Folder;

    #[test]
    fn a_system_call_shows_what_its_thread_waits_on() {
        let number = |number: libc::c_long, rest: &str| waits_on(&format!("{number} {rest}"));
        assert_eq!(number(libc::SYS_epoll_pwait, "0xe 0x7fb754000bd0 0x2"), Some(On::Epoll(14)));
        assert_eq!(number(libc::SYS_recvmmsg, "0x7 0x0"), Some(On::Socket(7)));
        assert_eq!(number(libc::SYS_futex, "0x7 0x0"), None);
        assert_eq!(number(libc::SYS_recvfrom, "0xffffffffffffffff"), None);
        for other in ["running\n", "-1 0x7ffc 0x7fb7\n", "", "232", "232 14"] {
            assert_eq!(waits_on(other), None, "{other}");
        }
        let line = "tfd:        9 events:       19 data:                1  pos:0 ino:339098 sdev:9";
        assert_eq!(epoll_inode(line), Some(0x33_9098));
        assert_eq!(epoll_inode("pos:\t0"), None);
    }

    #[test]
    fn a_datagram_reaches_the_sockets_of_its_address() {
        let socket = |local: &str, inode| sockets::tests::socket(local, inode, 0);
        let only = |mut socket: Listed| {
            socket.v6only = Some(true);
            socket
        };
        let all = || {
            vec![
                socket("127.0.0.53:53", 1),
                socket("0.0.0.0:53", 2),
                socket("0.0.0.0:53", 3),
                socket("[::]:53", 4),
                only(socket("[::]:53", 5)),
                socket("[::1]:53", 6),
                Listed { interface: Some(2), ..socket("0.0.0.0:53", 7) },
                socket("[::ffff:192.0.2.7]:53", 8),
            ]
        };
        let of = |mut listed: Vec<Listed>, to: &str| -> Vec<u32> {
            reached(&mut listed, to.parse().unwrap());
            listed.iter().map(|socket| socket.inode).collect()
        };
        for (to, inodes) in [
            ("127.0.0.53:53", &[1][..]),
            ("127.0.0.1:53", &[2, 3]),
            ("192.0.2.1:53", &[2, 3]),
            ("192.0.2.7:53", &[8]),
            ("[::1]:53", &[6]),
            ("[2001:db8::1]:53", &[4, 5]),
        ] {
            assert_eq!(of(all(), to), inodes, "{to}");
        }
        let six = || vec![socket("[::]:53", 4), only(socket("[::]:53", 5))];
        assert_eq!(of(six(), "127.0.0.1:53"), [4]);
        assert_eq!(of(vec![socket("127.0.0.53:53", 1)], "127.0.0.1:53"), [0; 0]);
    }

    #[test]
    fn another_program_on_the_port_is_not_the_server_at_an_address() {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = one.local_addr().unwrap().port();
        let live = Folder::live();
        let elsewhere = SocketAddr::from(([127, 0, 0, 53], port));
        assert_eq!(answering(&live, one.local_addr().unwrap()).unwrap().len(), 1);
        assert!(is_bound(&live, one.local_addr().unwrap()) && !is_bound(&live, elsewhere));
        let nobody = answering(&live, elsewhere).unwrap_err();
        assert!(matches!(nobody, Error::NobodyServes { .. }), "{nobody}");
        // One that is bound to all is asked where it alone answers.
        let all = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = all.local_addr().unwrap().port();
        let server = || serving(&live, port).unwrap().remove(0);
        let of_all = |server: &Server| {
            let socket = server.sockets.iter().find(|socket| socket.local.ip().is_unspecified()).unwrap();
            address_of(&live, socket)
        };
        assert_eq!(of_all(&server()), Some(SocketAddr::from(([127, 0, 0, 1], port))));
    }

    #[test]
    fn sockets_without_a_process_are_listed_again() {
        type Outcome = fn() -> Result<Vec<Server>, Error>;
        let after = |outcomes: &[Outcome]| {
            let at = std::cell::Cell::new(0);
            let found = listed_again(|| {
                at.set(at.get() + 1);
                outcomes[(at.get() - 1).min(outcomes.len() - 1)]()
            });
            (found.unwrap_err().to_string(), at.get())
        };
        let closed =
            after(&[|| Err(Error::Hidden { port: 53, hidden: 0 }), || Err(Error::NobodyServes { port: 53 })]);
        assert_eq!(closed, (Error::NobodyServes { port: 53 }.to_string(), 2));
        let (said, times) = after(&[|| Err(Error::Hidden { port: 53, hidden: 0 })]);
        assert!(
            said.ends_with("or to the kernel (WireGuard, VXLAN)") && times == LISTINGS as usize,
            "{said}"
        );
        let (said, times) = after(&[|| Err(Error::Hidden { port: 53, hidden: 3 })]);
        assert!(said.contains("of 3 processes cannot be read: CAP_SYS_PTRACE") && times == 1, "{said}");
    }

    #[test]
    fn this_process_serves_its_port_and_the_thread_that_reads_is_known() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let to = socket.local_addr().unwrap();
        let reader = std::thread::spawn(move || {
            socket.recv(&mut [0; 8]).unwrap();
            rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
        });
        let mut servers = serving(&Folder::live(), port).unwrap();
        let server = servers.pop().unwrap();
        assert_eq!((server.pid, server.sockets.len(), servers.len()), (std::process::id(), 1, 0));
        let waiting = waiting(&server).unwrap();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"end", to).unwrap();
        let tid = reader.join().unwrap();
        let seen: Vec<u32> = waiting[&server.sockets[0].id.inode].iter().map(|thread| thread.tid).collect();
        assert_eq!(seen, [tid]);
        // A child of another test may have the socket until its exec.
        let ended = |found| matches!(found, Err(Error::NobodyServes { .. }));
        let nobody = (0..1000).any(|_| {
            let ended = ended(serving(&Folder::live(), port));
            if !ended {
                std::thread::sleep(PAUSE);
            }
            ended
        });
        assert!(nobody, "{:?}", serving(&Folder::live(), port));
    }
}
