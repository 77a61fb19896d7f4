//! Sockets that a running process does not read: most often beside another one of its own that it does read, and that
//! gets nothing because of them.
//!
//! ```text
//! looks at its queue ── never shorter, often the same ─▸ not read ─┬─ a wider socket of the process got nothing ─▸ overlap
//!                                                                  ├─ others of its group are read ─▸ its flows get no answer
//!                                                                  └─ none, and it drops, though its process ran ─▸ unread
//! ```
//! A reader that is only slow is seen: the kernel takes each datagram that was read off what waits, also while the
//! queue is full.

use udpath_host::map::SocketMap;

use super::seen::{IDLE, looks, owners, threads};
use super::{located, lost, named};
use crate::rule::{Found, Observed, counted, number, percent};
use crate::rules::SOCKETS;

/// Looks that find as much waiting as the look before from which on the queue stood still. Lower: a reader that was
/// held up for some tens of milliseconds does not read. Higher: a queue that filled up in the interval is not judged.
const STILL: u32 = 20;

/// The socket of the same process that gets what this one does not read once this one is gone, if it got nothing.
pub(super) fn wider<'a>(on: Observed<'a>, socket: &SocketMap) -> Option<&'a SocketMap> {
    let others = on.map.sockets.iter().filter(|other| other.inode != socket.inode);
    let mut wider = others.filter(|other| {
        let same = other.local.port() == socket.local.port() && other.pids == socket.pids;
        let address = other.local.ip();
        // An IPv6 wildcard takes IPv4 as well.
        let takes = address == socket.local.ip()
            || (address.is_unspecified() && (address.is_ipv6() || socket.local.is_ipv4()));
        let is_wider = other.peer.is_none() && (address != socket.local.ip() || socket.peer.is_some());
        same && takes && is_wider && other.drops == 0 && other.queued == 0
    });
    wider.next()
}

/// How many others of its group are read, if its process has one of these: they keep up (nothing stands still in them,
/// though something may wait at the end), or are seen to get shorter. A process of a group that reads none may be
/// blocked.
fn read_in_group(on: Observed<'_>, socket: &SocketMap) -> usize {
    if socket.group < 2 || socket.peer.is_some() {
        return 0;
    }
    let others = on.map.sockets.iter().filter(|other| {
        other.inode != socket.inode && other.local == socket.local && other.peer.is_none() && other.group > 1
    });
    let reads = |other: &&SocketMap| {
        let seen = looks(other);
        let shrinks = seen.and_then(|seen| seen.shrank).is_some_and(|shrank| shrank > 0);
        let moves = seen.and_then(|seen| seen.still).is_some_and(|still| still < STILL);
        shrinks || (other.drops == 0 && (other.queued == 0 || moves))
    };
    let read: Vec<_> = others.filter(reads).collect();
    if read.iter().any(|other| other.pids == socket.pids) { read.len() } else { 0 }
}

/// Did datagrams wait that nothing of its process took?
pub(super) fn is_unread(on: Observed<'_>, socket: &SocketMap) -> bool {
    let stood = looks(socket)
        .is_some_and(|seen| seen.shrank == Some(0) && seen.still.is_some_and(|still| still >= STILL));
    let threads = threads(on, socket);
    if !stood || threads.is_empty() || threads.iter().any(|thread| thread.stopped) {
        return false;
    }
    let grew = socket.queued_before.is_some_and(|before| socket.queued > before);
    let runs = threads.iter().any(|thread| thread.busy() >= IDLE);
    // A few datagrams that wait for no one, as at a socket that only sends, are not a loss.
    let explained = wider(on, socket).is_some() || read_in_group(on, socket) > 0;
    if explained { socket.drops > 0 || grew } else { socket.drops > 0 && runs }
}

pub(super) fn found(on: Observed<'_>) -> Vec<Found> {
    if on.map.seconds.is_none() {
        return Vec::new();
    }
    let unread = on.map.sockets.iter().filter(|socket| is_unread(on, socket)).take(SOCKETS);
    unread.map(|socket| of(on, socket)).collect()
}

fn of(on: Observed<'_>, socket: &SocketMap) -> Found {
    let what = if socket.drops > 0 {
        lost(on, socket)
    } else {
        let grown = socket.queued.saturating_sub(socket.queued_before.unwrap_or(0));
        format!("{} bytes more wait at {}", number(grown.into()), named(on, socket))
    };
    let looks = counted(looks(socket).map_or(0, |seen| seen.looks as usize), "look");
    let ran: f64 = threads(on, socket).iter().map(|thread| thread.ran).sum();
    let evidence = format!(
        "{what}, whose queue got shorter at none of {looks} while its process ran {} of the time",
        percent(ran)
    );
    let Some(wider) = wider(on, socket) else {
        if let read @ 1.. = read_in_group(on, socket) {
            return located(on, socket, of_group(socket, evidence, read).rate(on.rate(socket.drops)));
        }
        return located(on, socket, Found::new(evidence).rate(on.rate(socket.drops)))
            .advice("if a thread does read it, find what that waits for (`strace -f -p PID`)");
    };
    let given = if socket.peer.is_some() {
        "the kernel gives a peer's datagrams to the socket that is connected to it"
    } else if socket.local.ip().is_multicast() {
        "the kernel gives a copy of each datagram to both"
    } else {
        "the kernel gives the datagrams of an address to the socket that is bound to it"
    };
    let cause = format!("{given}, and the program reads only its other socket, {}", wider.local);
    let found = Found::new(format!("{evidence}; {} of the same process got nothing", wider.local))
        .rate(on.rate(socket.drops))
        .cause(cause)
        .advice("read both sockets, or do not bind the second: IP_PKTINFO chooses the address that a reply is sent from");
    let found = if ran < IDLE * owners(on, socket).len() as f64 {
        found.advice("if the program reads both, find what its threads wait for (`strace -f -p PID`)")
    } else {
        found
    };
    located(on, socket, found)
}

fn of_group(socket: &SocketMap, evidence: String, read: usize) -> Found {
    let others = counted(socket.group - 1, "other socket");
    let cause = format!(
        "SO_REUSEPORT spreads the flows over the {} sockets of the group, and no thread reads this one: its share of them gets no answer",
        socket.group
    );
    Found::new(format!("{evidence}; of the {others} of its group, {read} {} read", if read == 1 { "is" } else { "are" }))
        .cause(cause)
        .advice("read every socket of the group, or close those that no thread reads: their flows then go to the others")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use udpath_host::sockets::looks::QueueLooks;

    use super::STILL;
    use crate::finding::{Location, Remedy};
    use crate::rules::testing::{Host, Twin, only, settings, thread};

    const STOOD: QueueLooks =
        QueueLooks { looks: 200, full: 200, dropping: 150, still: Some(180), shrank: Some(0), no_room: None };

    /// A server whose threads ran this much, that reads 0.0.0.0:53, and has bound this address as well, which drops.
    fn beside(local: &str, ran: f64) -> Host {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.serve(2, 0);
        host.map.processes[0].busiest = vec![thread(812, 0.0), thread(813, ran)];
        host.map.sockets[0].queued = 0;
        host.map.sockets[0].queued_before = Some(0);
        let mut second = host.map.sockets[0].clone();
        (second.inode, second.local, second.drops) = (10, local.parse().unwrap(), 5000);
        (second.queued, second.queued_before, second.looks) = (200_000, Some(200_000), Some(STOOD));
        host.map.sockets.insert(0, second);
        host
    }

    #[test]
    fn a_socket_that_gets_all_and_is_not_read_is_named_beside_the_one_that_is_read() {
        let finding = only(&beside("192.0.2.1:53", 0.09), "socket-not-read");
        assert_eq!(
            finding.evidence,
            "5,000 datagrams dropped in 10.0 s at 192.0.2.1:53 (knotd, pid 812), whose queue got shorter at none of 200 looks \
             while its process ran 9.0 % of the time; 0.0.0.0:53 of the same process got nothing"
        );
        assert!(finding.cause.ends_with("reads only its other socket, 0.0.0.0:53"), "{}", finding.cause);
        assert_eq!(finding.locations, [Location::Process(812), Location::Socket(10)]);
        let fixes: Vec<&str> = finding.remedies.iter().map(Remedy::what).collect();
        assert!(fixes[0].starts_with("read both sockets"), "{fixes:?}");
        assert_eq!(settings(&finding), [""; 0], "no larger buffer");
        for id in ["reader-blocked", "reader-slow", "receive-buffer-small", "socket-drops", "group-uneven"] {
            assert_eq!(beside("192.0.2.1:53", 0.09).found(id), [], "{id}");
        }
    }

    #[test]
    fn a_process_that_only_waits_for_its_other_socket_is_not_called_blocked() {
        let host = beside("192.0.2.1:53", 0.0);
        let finding = only(&host, "socket-not-read");
        assert!(finding.remedies.iter().any(|fix| fix.what().starts_with("if the program reads both")));
        assert_eq!(host.found("reader-blocked"), []);
        // A queue that is not full yet.
        let mut host = beside("192.0.2.1:53", 0.0);
        (host.map.sockets[0].drops, host.map.sockets[0].queued_before) = (0, Some(150_000));
        let finding = only(&host, "socket-not-read");
        assert!(
            finding.evidence.starts_with("50,000 bytes more wait at 192.0.2.1:53"),
            "{}",
            finding.evidence
        );
    }

    #[test]
    fn a_connected_socket_and_an_ipv6_wildcard() {
        let mut host = beside("0.0.0.0:53", 0.09);
        let peer: SocketAddr = "198.51.100.7:4000".parse().unwrap();
        host.map.sockets[0].peer = Some(peer);
        assert!(only(&host, "socket-not-read").cause.starts_with("the kernel gives a peer's datagrams"));
        let mut host = beside("192.0.2.1:53", 0.09);
        host.map.sockets[1].local = "[::]:53".parse().unwrap();
        assert!(only(&host, "socket-not-read").cause.ends_with("[::]:53"));
    }

    #[test]
    fn a_member_of_a_group_that_nobody_reads_is_named_with_the_group() {
        let group = |ran| {
            let mut host = beside("0.0.0.0:53", ran);
            for socket in &mut host.map.sockets {
                socket.group = 2;
            }
            host
        };
        for ran in [0.09, 0.0] {
            let finding = only(&group(ran), "socket-not-read");
            let end = "; of the 1 other socket of its group, 1 is read";
            assert!(finding.evidence.ends_with(end), "{}", finding.evidence);
            assert!(
                finding.cause.starts_with("SO_REUSEPORT spreads the flows over the 2 sockets"),
                "{}",
                finding.cause
            );
            let fixes: Vec<&str> = finding.remedies.iter().map(Remedy::what).collect();
            assert!(fixes[0].starts_with("read every socket of the group"), "{fixes:?}");
            assert!(!fixes.iter().any(|fix| fix.contains("strace")), "{fixes:?}");
            for id in
                ["reader-blocked", "reader-slow", "receive-buffer-small", "socket-drops", "group-uneven"]
            {
                assert_eq!(group(ran).found(id), [], "{id}");
            }
        }
        // Something waits for a reader that keeps up, too, when the interval ends.
        let mut host = group(0.09);
        let moves =
            QueueLooks { looks: 200, still: Some(STILL - 1), shrank: Some(0), ..QueueLooks::default() };
        (host.map.sockets[1].queued, host.map.sockets[1].looks) = (900, Some(moves));
        assert!(only(&host, "socket-not-read").evidence.ends_with("of its group, 1 is read"));
        host.map.sockets[1].looks = Some(QueueLooks { still: Some(STILL), ..moves });
        assert!(!host.found("socket-not-read").iter().any(|found| found.evidence.contains("of its group")));
        // One whose other members drop as well, with a queue that stands still, says nothing of this one.
        let mut host = group(0.3);
        (host.map.sockets[1].drops, host.map.sockets[1].queued) = (10, 200_000);
        host.map.sockets[1].looks = Some(STOOD);
        assert!(!host.found("socket-not-read").iter().any(|found| found.evidence.contains("of its group")));
    }

    #[test]
    fn twins_that_read_are_not_named() {
        let twins: [Twin; 5] = [
            ("read, but too slowly", |host| host.map.sockets[0].looks.as_mut().unwrap().shrank = Some(3)),
            ("looked at too rarely", |host| host.map.sockets[0].looks.as_mut().unwrap().still = Some(19)),
            ("looked at by an earlier udpath", |host| {
                let looks = host.map.sockets[0].looks.as_mut().unwrap();
                (looks.still, looks.shrank) = (None, None);
            }),
            ("stopped", |host| host.map.processes[0].busiest[1].stopped = true),
            ("old datagrams, none lost", |host| host.map.sockets[0].drops = 0),
        ];
        for (what, twin) in twins {
            let mut host = beside("192.0.2.1:53", 0.09);
            twin(&mut host);
            assert_eq!(host.found("socket-not-read"), [], "{what}");
        }
    }

    #[test]
    fn without_a_second_socket_the_process_must_run_and_the_cause_is_open() {
        let alone = |ran| {
            let mut host = beside("192.0.2.1:53", ran);
            host.map.sockets.remove(1);
            host
        };
        let finding = only(&alone(0.3), "socket-not-read");
        assert!(
            finding.cause.contains("or the one that does waited for something else"),
            "{}",
            finding.cause
        );
        let asleep = alone(0.0);
        assert_eq!(asleep.found("socket-not-read"), []);
        only(&asleep, "reader-blocked");
        // A second socket that gets datagrams, too, or is another process's, explains nothing.
        let mut host = beside("192.0.2.1:53", 0.3);
        host.map.sockets[1].queued = 100;
        assert!(!only(&host, "socket-not-read").evidence.contains("of the same process"));
        let mut host = beside("192.0.2.1:53", 0.3);
        host.map.sockets[1].pids = vec![900];
        assert!(!only(&host, "socket-not-read").evidence.contains("of the same process"));
    }
}
