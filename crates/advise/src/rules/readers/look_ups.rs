//! Readers that wait for a name server: a name for each client, as logging by name asks for.
//!
//! A resolver of the C library has a socket connected to the name server for as long as it waits. That it is the
//! reader's wait is not seen: a reader that sleeps although datagrams wait, in a process that waits for a name server,
//! is as close as it gets.

use std::net::SocketAddr;

use udpath_host::map::SocketMap;
use udpath_host::sockets::looks::LookUps;

use super::cause::{Cause, cause};
use super::seen::{BUSY, busiest, owners, threads};
use super::{STARVED, located, lost};
use crate::rule::{Found, Observed, counted, percent};
use crate::rules::SOCKETS;

/// Part of the looks that find a wait for a name server from which on that is where the time goes. Lower: a program
/// that asks for a name now and then is blamed on it. Higher: one that waits for other things for a third of the time
/// is missed.
const WAITING: f64 = 0.5;
/// Fewest looks that decide: of twenty, the 95 % interval of a half is a quarter to three quarters.
const ENOUGH: u32 = 20;
/// Servers of names ask others: that is their work, and no thread waits for it.
const NAMES: u16 = 53;

pub(super) fn found(on: Observed<'_>) -> Vec<Found> {
    let waits = on.map.sockets.iter().filter_map(|socket| Some((socket, wait(on, socket)?)));
    waits.take(SOCKETS).map(|(socket, wait)| of(on, socket, wait)).collect()
}

/// The waits of the process of a socket whose readers sleep although datagrams wait.
fn wait(on: Observed<'_>, socket: &SocketMap) -> Option<LookUps> {
    let is_lossy = socket.drops > 0 && socket.local.port() != NAMES;
    if !is_lossy || !matches!(cause(on, socket), Cause::Slow | Cause::Blocked | Cause::Unread) {
        return None;
    }
    let threads = threads(on, socket);
    let sleep = busiest(on, &threads) < BUSY
        && threads.iter().all(|thread| thread.waited < STARVED.0 && !thread.stopped);
    let waits = owners(on, socket).into_iter().filter_map(|process| process.look_ups);
    let mut long =
        waits.filter(|wait| wait.looks >= ENOUGH && f64::from(wait.open) >= WAITING * f64::from(wait.looks));
    long.next().filter(|_| sleep)
}

fn of(on: Observed<'_>, socket: &SocketMap, wait: LookUps) -> Found {
    let LookUps { server, looks, open } = wait;
    let evidence = format!(
        "{}, whose readers slept while datagrams waited; its process has a socket connected to the name server {}, and at {} of {} \
         such a socket of its user was open",
        lost(on, socket),
        shown(server),
        percent(f64::from(open) / f64::from(looks.max(1))),
        counted(looks as usize, "look")
    );
    located(on, socket, Found::new(evidence).rate(on.rate(socket.drops)))
}

/// Without the port, which is that of all name servers.
fn shown(server: SocketAddr) -> String {
    server.ip().to_string()
}

#[cfg(test)]
mod tests {
    use udpath_host::sockets::looks::QueueLooks;

    use super::*;
    use crate::rules::testing::{Host, Twin, only, thread};

    /// A collector whose reader sleeps while its queue is full, and whose process asks a name server.
    fn host() -> Host {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.serve(1, 0);
        let socket = &mut host.map.sockets[0];
        socket.local.set_port(514);
        (socket.drops, socket.queued, socket.queued_before) = (5000, 190_000, Some(190_000));
        socket.looks = Some(QueueLooks { looks: 200, full: 190, shrank: Some(80), ..QueueLooks::default() });
        host.map.processes[0].busiest = vec![thread(812, 0.05)];
        host.map.processes[0].look_ups =
            Some(LookUps { server: "192.0.2.53:53".parse().unwrap(), looks: 200, open: 188 });
        host
    }

    #[test]
    fn a_reader_that_waits_for_a_name_for_each_datagram() {
        let finding = only(&host(), "reader-waits-for-dns");
        assert_eq!(
            finding.evidence,
            "5,000 datagrams dropped in 10.0 s at 0.0.0.0:514 (knotd, pid 812), whose readers slept while datagrams waited; its \
             process has a socket connected to the name server 192.0.2.53, and at 94 % of 200 looks such a socket of its user was open"
        );
        let mut hardly = host();
        hardly.map.processes[0].busiest[0].ran = 0.0;
        only(&hardly, "reader-waits-for-dns");
    }

    #[test]
    fn twins_that_wait_for_something_else_or_for_nothing() {
        let twins: [Twin; 6] = [
            ("asks now and then", |host| host.map.processes[0].look_ups.as_mut().unwrap().open = 20),
            ("asks no name server", |host| host.map.processes[0].look_ups = None),
            ("has no time left", |host| host.map.processes[0].busiest[0].ran = 0.97),
            ("waits for a CPU", |host| host.map.processes[0].busiest[0].waited = 0.5),
            ("loses nothing", |host| host.map.sockets[0].drops = 0),
            ("serves names itself", |host| host.map.sockets[0].local.set_port(53)),
        ];
        for (what, twin) in twins {
            let mut host = host();
            twin(&mut host);
            assert_eq!(host.found("reader-waits-for-dns"), [], "{what}");
        }
    }
}
