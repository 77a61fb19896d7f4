//! The datagrams of an interval, the divisor of all costs per datagram.
//!
//! The kernel's UDP counts what its sockets receive and send. A service over AF_XDP takes its frames before that, so
//! where an interface has AF_XDP sockets the interface's own counters are read as well, and the larger number counts:
//! they include the little that the kernel's UDP still handles there, and frames that are no datagrams.

use udpath_host::snapshot::Snapshot;

use super::result::Datagrams;

/// Datagrams in the interval between two snapshots; `None` if neither source counted.
pub(super) fn datagrams(before: &Snapshot, after: &Snapshot) -> Option<Datagrams> {
    let families = [(before.udp.v4, after.udp.v4), (before.udp.v6, after.udp.v6)];
    let since: Vec<_> = families.into_iter().filter_map(|(then, now)| Some(now?.since(&then?))).collect();
    let counted = (!since.is_empty()).then(|| Datagrams {
        received: since.iter().map(|counted| counted.in_datagrams).sum(),
        sent: since.iter().map(|counted| counted.out_datagrams).sum(),
        dropped: since.iter().map(|counted| counted.in_errors + counted.no_ports).sum(),
    });
    match (counted, past_the_kernel(before, after)) {
        (counted, None) => counted,
        (None, past) => past,
        (Some(counted), Some(past)) => Some(Datagrams {
            received: counted.received.max(past.received),
            sent: counted.sent.max(past.sent),
            dropped: counted.dropped + past.dropped,
        }),
    }
}

/// Where the numbers come from, if not from the kernel's UDP.
pub(super) fn note(after: &Snapshot) -> Option<String> {
    let names = devices(after);
    (!names.is_empty()).then(|| {
        format!(
            "AF_XDP takes frames of {} past the kernel's UDP: datagrams are that interface's packets",
            names.join(", ")
        )
    })
}

/// The interfaces with AF_XDP sockets.
fn devices(after: &Snapshot) -> Vec<&str> {
    let bound = after.interfaces.iter().filter(|interface| interface.rx.iter().any(|queue| queue.xsk));
    bound.map(|interface| interface.name.as_str()).collect()
}

/// What those interfaces received, sent and dropped.
fn past_the_kernel(before: &Snapshot, after: &Snapshot) -> Option<Datagrams> {
    let names = devices(after);
    let since = |counter: &str| -> u64 {
        let of = |snapshot: &Snapshot, name: &str| {
            let interface = snapshot.interfaces.iter().find(|interface| interface.name == name);
            interface.and_then(|interface| interface.statistics.get(counter)).copied()
        };
        let grown = |name: &&str| Some(of(after, name)?.saturating_sub(of(before, name)?));
        names.iter().filter_map(grown).sum()
    };
    (!names.is_empty()).then(|| Datagrams {
        received: since("rx_packets"),
        sent: since("tx_packets"),
        dropped: since("rx_dropped"),
    })
}

#[cfg(test)]
mod tests {
    use udpath_host::queues::RxQueue;
    use udpath_host::source::Folder;

    use super::*;

    /// This machine, whose first interface has one queue and received and sent this many frames.
    fn machine(like: &Snapshot, xsk: bool, frames: u64) -> Snapshot {
        let mut machine = like.clone();
        for interface in &mut machine.interfaces {
            interface.rx.clear();
        }
        let first = &mut machine.interfaces[0];
        first.rx.push(RxQueue { xsk, ..RxQueue::default() });
        for counter in ["rx_packets", "tx_packets"] {
            first.statistics.insert(counter.into(), frames);
        }
        machine
    }

    #[test]
    fn frames_past_the_kernel_are_counted_by_their_device() {
        let here = Snapshot::read(&Folder::live());
        let since = |xsk| datagrams(&machine(&here, xsk, 100), &machine(&here, xsk, 1100));
        let past = since(true).expect("the device counted");
        assert_eq!((past.received, past.sent), (1000, 1000));
        assert_eq!(
            since(false).map(|counted| counted.handled()).unwrap_or_default(),
            0,
            "the kernel has the rest"
        );
        assert_eq!(devices(&machine(&here, true, 0)), [here.interfaces[0].name.as_str()]);
    }
}
