//! Whose datagrams these are. The kernel counts them by network namespace: a client on the same machine makes its
//! server's rate twice what it is, and another server there adds its own.
//!
//! ```text
//! sockets' own counts ──yes──▸ their share of the namespace's is the server's
//!        │ no (kernel before 6.3, no permission)
//!        ▼
//! packets of the loopback interface ──few──▸ the namespace's counts are the server's
//!        │ many
//!        ▼
//! the rate is not known
//! ```

use udpath_host::Snapshot;
use udpath_host::map::{Map, Selection};
use udpath_profile::Profile;
use udpath_profile::profile::Datagrams;
use udpath_profile::trace::Sample;

/// Part of the datagrams received that packets of the loopback interface may be where nobody counted by socket. Lower:
/// a resolver's look-ups on the same machine hide the rate. Higher: the rate is wrong by more than it is good for.
const LOCAL: f64 = 0.05;

/// A sample of what the sockets of a port received and sent in an interval, or why that was not counted.
pub type Counted = Result<Sample, String>;

/// Takes the datagrams of others from a profile's count. Returns why the rate is unknown, as a sentence, if it is.
pub fn only_own(
    profile: &mut Profile,
    (before, after): (&Snapshot, &Snapshot),
    selection: &Selection,
    counted: &Counted,
) -> Option<String> {
    let datagrams = profile.datagrams?;
    let past_the_kernel = after.interfaces.iter().any(|interface| interface.rx.iter().any(|queue| queue.xsk));
    // Those are counted by their interface.
    if past_the_kernel {
        return None;
    }
    match counted {
        Ok(sample) => {
            let map = Map::new(after, Some(before), selection).ok();
            let dropped =
                map.map_or(datagrams.dropped, |map| map.sockets.iter().map(|socket| socket.drops).sum());
            let share = |whole: u64, own: u64, all: u64| match all {
                0 => own,
                _ => (whole as f64 * own as f64 / all as f64).round() as u64,
            };
            profile.datagrams = Some(Datagrams {
                received: share(datagrams.received, sample.own.received, sample.received),
                sent: share(datagrams.sent, sample.own.sent, sample.sent),
                dropped,
            });
            None
        }
        Err(why) if is_local(datagrams, local(before, after)) => {
            profile.datagrams = None;
            Some(format!(
                "The rate that this path carries is unknown: the kernel's counters of datagrams are also those of clients on this \
                 machine, and {why}."
            ))
        }
        Err(_) => None,
    }
}

/// Packets that the loopback interface received.
fn local(before: &Snapshot, after: &Snapshot) -> u64 {
    let of = |snapshot: &Snapshot| {
        let lo = snapshot.interfaces.iter().find(|interface| interface.name == "lo");
        lo.and_then(|lo| lo.statistics.get("rx_packets")).copied().unwrap_or(0)
    };
    of(after).saturating_sub(of(before))
}

fn is_local(datagrams: Datagrams, local: u64) -> bool {
    local as f64 > LOCAL * datagrams.received.max(datagrams.sent) as f64
}

#[cfg(test)]
mod tests {
    use udpath_host::source::Folder;
    use udpath_profile::classes::Class;
    use udpath_profile::context::Context;
    use udpath_profile::trace::Served;

    use super::*;
    use crate::rules::testing::of;

    /// What counts, and why nothing does, where this many packets passed the loopback interface beside 8,000 datagrams.
    fn counted(local: u64, counted: &Counted) -> (Option<(u64, u64)>, Option<String>) {
        let mut before = Snapshot::read(&Folder::captured(std::path::Path::new("/no-such-folder")));
        let text = serde_json::to_string(&crate::rules::testing::Host::with_queues(1).snapshot.interfaces[0])
            .unwrap();
        let mut lo: udpath_host::interfaces::Interface = serde_json::from_str(&text).unwrap();
        lo.name = "lo".into();
        before.interfaces = vec![lo];
        let mut after = before.clone();
        after.interfaces[0].statistics.insert("rx_packets".into(), local);
        before.interfaces[0].statistics.insert("rx_packets".into(), 0);
        let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5)]);
        profile.datagrams = Some(Datagrams { received: 8000, sent: 8000, dropped: 0 });
        let why = only_own(&mut profile, (&before, &after), &Selection::All, counted);
        (profile.datagrams.map(|own| (own.received, own.sent)), why)
    }

    #[test]
    fn a_client_on_the_same_machine_does_not_double_the_rate() {
        // Half of all that the namespace had in the time of the sample.
        let own = Served { received: 500, sent: 400, addresses: Vec::new() };
        let sample = Sample { own, received: 1000, sent: 800 };
        assert_eq!(counted(8000, &Ok(sample)), (Some((4000, 4000)), None));
    }

    #[test]
    fn without_counts_by_socket_a_rate_with_local_clients_is_unknown() {
        let not = Err("sockets cannot be counted: not permitted".to_owned());
        let (datagrams, why) = counted(8000, &not);
        assert_eq!(datagrams, None);
        assert!(
            why.unwrap().contains("clients on this machine, and sockets cannot be counted: not permitted.")
        );
        // Over the network.
        assert_eq!(counted(100, &not), (Some((8000, 8000)), None));
    }
}
