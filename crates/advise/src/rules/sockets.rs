//! Sockets and the threads that read them.

use udpath_profile::Profile;
use udpath_profile::classes::Class;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "one-socket",
        severity: Severity::Note,
        look: Look::Map(one_socket),
        cause: "if all its threads read it, they wait for its lock",
        fix: &["give each thread its own socket (SO_REUSEPORT)"],
    },
    Rule {
        id: "last-socket-takes-all",
        severity: Severity::Limit,
        look: Look::Map(last_takes_all),
        cause: "with SO_REUSEADDR alone, the socket that was bound last gets every datagram",
        fix: &["set SO_REUSEPORT on all of them before bind"],
    },
    Rule {
        id: "wake-ups",
        severity: Severity::Limit,
        look: Look::Profile(wake_ups),
        cause: "each datagram wakes its reader",
        fix: &["read until the queue is empty before sleeping, or use busy polling"],
    },
];

/// Threads from which on a process with one socket is worth a word.
const THREADS: usize = 4;
/// Sleeping and waking; a datagram that wakes a reader each time costs 15 to 30 %.
const WAKE_UPS: f64 = 0.2;

fn one_socket(on: Observed<'_>) -> Vec<Found> {
    let alone = on.map.sockets.iter().filter(|socket| socket.group == 1 && socket.peer.is_none());
    alone
        .filter_map(|socket| {
            let [pid] = socket.pids[..] else { return None };
            let process = on.map.processes.iter().find(|process| process.pid == pid)?;
            // Of threads, only those bound to CPUs look like workers; of a busy socket any may be.
            let workers = process.pinned >= 2 || process.threads >= THREADS;
            let busy = socket.drops > 0 || socket.queued > 0 || process.pinned >= 2;
            (workers && busy).then(|| {
                let threads = counted(process.threads, "thread");
                let evidence =
                    format!("{} is one socket of {} (pid {pid}, {threads})", socket.local, process.name);
                Found::new(evidence).at(Location::Process(pid)).at(Location::Socket(socket.inode))
            })
        })
        .collect()
}

fn last_takes_all(on: Observed<'_>) -> Vec<Found> {
    let mut seen = std::collections::BTreeSet::new();
    let groups = on.map.sockets.iter().filter(|socket| socket.group > 1 && seen.insert(socket.local));
    let unshared = groups.filter(|socket| {
        socket.options.as_ref().is_some_and(|options| options.reuseaddr && !options.reuseport)
    });
    unshared
        .map(|socket| {
            let sockets = counted(socket.group, "socket");
            let evidence =
                format!("{sockets} are bound to {} with SO_REUSEADDR and without SO_REUSEPORT", socket.local);
            Found::new(evidence)
                .at_all(socket.pids.first().copied().map(Location::Process))
                .at(Location::Socket(socket.inode))
        })
        .collect()
}

fn wake_ups(profile: &Profile) -> Vec<Found> {
    let share = profile.share(Class::Scheduling);
    (share >= WAKE_UPS).then(|| Found::cpu_time(share, "goes to sleeping and waking")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::sockets::SocketOptions;
    use udpath_profile::context::Context;

    use super::*;
    use crate::rules::testing::{Host, fires_above, only};

    #[test]
    fn one_socket_for_many_threads() {
        let mut host = Host::with_queues(1);
        host.serve(20, 0);
        let finding = only(&host, "one-socket");
        assert_eq!(finding.evidence, "0.0.0.0:53 is one socket of knotd (pid 812, 20 threads)");
        assert_eq!(finding.locations, [Location::Process(812), Location::Socket(9)]);
        for change in [
            |host: &mut Host| host.map.sockets[0].group = 20,
            |host: &mut Host| host.map.processes[0].threads = 1,
            |host: &mut Host| host.map.sockets[0].queued = 0,
        ] {
            let mut host = Host::with_queues(1);
            host.serve(20, 0);
            change(&mut host);
            assert_eq!(host.found("one-socket"), []);
        }
        // Pinned threads are workers also while nothing waits.
        host.serve(2, 2);
        host.map.sockets[0].queued = 0;
        only(&host, "one-socket");
    }

    #[test]
    fn sockets_that_do_not_share() {
        let mut host = Host::with_queues(1);
        host.serve(4, 0);
        host.map.sockets[0].group = 4;
        let options = SocketOptions { reuseaddr: true, ..SocketOptions::default() };
        host.map.sockets[0].options = Some(options.clone());
        let finding = only(&host, "last-socket-takes-all");
        assert_eq!(
            finding.evidence,
            "4 sockets are bound to 0.0.0.0:53 with SO_REUSEADDR and without SO_REUSEPORT"
        );
        host.map.sockets[0].options = Some(SocketOptions { reuseport: true, ..options });
        assert_eq!(host.found("last-socket-takes-all"), []);
    }

    #[test]
    fn readers_that_sleep_and_wake() {
        let line = (Context::Syscall, Class::Scheduling, None, None, "schedule", 300);
        let finding = fires_above("wake-ups", line, 200);
        assert_eq!(finding.evidence, "23 % of CPU time goes to sleeping and waking");
    }
}
