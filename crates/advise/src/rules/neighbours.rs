//! Neighbours that do not answer ARP or IPv6 neighbour discovery, and what waits for them.
//!
//! The kernel keeps packets for a neighbour while it waits for its answer, up to 3 s, and charges them to the socket
//! that sent them: replies to addresses where nobody answers, forged ones for example, fill its send buffer, and the
//! server waits in its send call.

use udpath_host::map::SocketMap;
use udpath_host::sockets::Socket;

use super::readers::looks;
use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, number, percent};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "neighbours-unresolved",
    severity: Severity::Loss,
    look: Look::Map(unresolved),
    cause: "replies to hosts that do not answer ARP or IPv6 neighbour discovery wait for up to 3 s and fill the send buffer: the \
            server waits in its send call and reads nothing until it returns",
    fix: &[
        "`ip neigh show nud incomplete nud failed` lists the addresses; if the requests are forged, filter them; if one is \
         a router, repair it",
        "send without waiting (MSG_DONTWAIT) and drop what does not fit, as `udpath serve` does; a larger receive buffer only \
         delays the loss",
        "let fewer packets wait for each neighbour: lower net.ipv4.neigh.IFACE.unres_qlen_bytes (IPv6: net.ipv6.neigh)",
    ],
}];

/// Share of the looks that find no room in a send buffer from which on its server waits for it. Lower: one that sends
/// bursts. Higher: one whose neighbours fail together, and that sends on until its buffer is full again.
const MOST: f64 = 0.5;

fn unresolved(on: Observed<'_>) -> Vec<Found> {
    // Those that failed hold no packets; the next packet to one of them makes it incomplete again.
    let Some(entries) = on.map.neighbours.entries.filter(|entries| entries.incomplete > 0) else {
        return Vec::new();
    };
    let waiting = on.map.sockets.iter().filter_map(|socket| Some((socket, full(on, socket)?)));
    waiting
        .take(super::SOCKETS)
        .map(|(socket, full)| {
            let owner = on.map.processes.iter().find(|process| socket.pids.contains(&process.pid));
            let who =
                owner.map_or_else(String::new, |process| format!(" ({}, pid {})", process.name, process.pid));
            let others = match entries.failed {
                0 => String::new(),
                failed => format!(", {} did not answer", number(failed)),
            };
            let buffer = format!("the send buffer of {}{who}", socket.local);
            let evidence = format!(
                "{}; {} being resolved{others}",
                match full {
                    Full::Now { waiting, size } => format!(
                        "{} of {} bytes of {buffer} are in use",
                        number(waiting.into()),
                        number(size.into())
                    ),
                    Full::AtLooks { full, looks } => format!(
                        "{buffer} was full at {} of {}",
                        percent(f64::from(full) / f64::from(looks)),
                        counted(looks as usize, "look")
                    ),
                },
                match entries.incomplete {
                    1 => "1 neighbour is".to_owned(),
                    many => format!("{} are", counted(many as usize, "neighbour")),
                }
            );
            Found::new(evidence)
                .at_all(owner.map(|process| Location::Process(process.pid)))
                .at(Location::Socket(socket.inode))
        })
        .collect()
}

/// A send buffer without room.
enum Full {
    /// Of so many bytes, at the end of the interval.
    Now { waiting: u32, size: u32 },
    /// At most looks within it.
    AtLooks { full: u32, looks: u32 },
}

/// Whether a socket's send buffer has no room. An interval is judged by its looks: when the neighbours fail, the buffer
/// is empty for a moment, and that may be its end.
fn full(on: Observed<'_>, socket: &SocketMap) -> Option<Full> {
    if let Some((looks, full)) = looks(socket).and_then(|seen| Some((seen.looks, seen.no_room?))) {
        return (f64::from(full) >= MOST * f64::from(looks)).then_some(Full::AtLooks { full, looks });
    }
    let is = |read: &&Socket| read.inode == socket.inode && read.local == socket.local;
    let read = on.snapshot.sockets.list.iter().find(is)?;
    let memory = read.memory.filter(|memory| memory.has_no_room(read.send_queue))?;
    Some(Full::Now { waiting: read.send_queue, size: memory.send_buffer })
}

#[cfg(test)]
mod tests {
    use udpath_host::neighbours::NeighbourEntries;
    use udpath_host::sockets::SocketMemory;
    use udpath_host::sockets::looks::QueueLooks;

    use super::*;
    use crate::rules::testing::{Host, only};

    fn host(send_queue: u32, incomplete: u64) -> Host {
        let mut host = Host::with_queues(1);
        host.serve(1, 0);
        let memory = SocketMemory { send_buffer: 212_992, ..SocketMemory::default() };
        let text = r#"{"local": "0.0.0.0:53", "uid": 0, "receive_queue": 0, "send_queue": 0, "drops": 0, "inode": 9}"#;
        let socket: Socket = serde_json::from_str(text).unwrap();
        host.snapshot.sockets.list = vec![Socket { send_queue, memory: Some(memory), ..socket }];
        host.map.neighbours.entries = Some(NeighbourEntries { resolved: 3, incomplete, failed: 40 });
        host
    }

    #[test]
    fn a_send_buffer_full_of_replies_to_hosts_that_do_not_answer() {
        let finding = only(&host(213_504, 60), "neighbours-unresolved");
        assert_eq!(
            finding.evidence,
            "213,504 of 212,992 bytes of the send buffer of 0.0.0.0:53 (knotd, pid 812) are in use; 60 neighbours are being \
             resolved, 40 did not answer"
        );
        assert_eq!(finding.locations, [Location::Process(812), Location::Socket(9)]);
        let router = only(&host(213_504, 1), "neighbours-unresolved");
        assert!(router.evidence.contains("; 1 neighbour is being resolved"), "{}", router.evidence);
    }

    #[test]
    fn of_an_interval_the_looks_decide() {
        let looked = |no_room, send_queue| {
            let mut host = host(send_queue, 60);
            host.map.sockets[0].looks =
                Some(QueueLooks { looks: 200, no_room: Some(no_room), ..QueueLooks::default() });
            host
        };
        // They have just failed.
        let finding = only(&looked(186, 0), "neighbours-unresolved");
        assert!(
            finding.evidence.starts_with(
                "the send buffer of 0.0.0.0:53 (knotd, pid 812) was full at 93 % of 200 looks; 60"
            ),
            "{}",
            finding.evidence
        );
        assert_eq!(looked(99, 213_504).found("neighbours-unresolved"), []);
    }

    #[test]
    fn a_full_buffer_of_a_slow_device_or_a_neighbour_that_few_wait_for_is_none() {
        assert_eq!(host(213_504, 0).found("neighbours-unresolved"), []);
        assert_eq!(host(150_000, 60).found("neighbours-unresolved"), []);
    }
}
