//! Truth at three places: what the load counted, against the interfaces' own counters at both ends.
//!
//! ```text
//!  generator ── sent ──▸ its interface: tx ══▸ rx :the server's interface:  tx ══▸  generator ── received
//!                        sender's egress       server's ingress   server's egress
//! ```
//! A generator that counts wrongly, a path that loses, or somebody else's traffic makes a trial worthless, and the
//! ratio of two such trials can look like a gain. So a trial in which the places differ is refused, and the place
//! named.

use std::collections::BTreeMap;
use std::path::Path;

use udpath_files::kernel;

/// Largest difference of two places, as a share of the requests sent. Smaller: neighbour discovery and a few packets of
/// others fail trials. Larger: losses of the path count as the server's.
const TOLERANCE: f64 = 0.001;
/// Packets that may differ whatever was sent: ARP, neighbour discovery and router solicitations of a few seconds.
const OTHERS: u64 = 24;
/// The interface on which both ends are the same.
const LOOPBACK: &str = "lo";

/// Packets of one interface since it exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Packets {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Packets {
    fn since(self, earlier: Self) -> Self {
        Self {
            received: self.received.wrapping_sub(earlier.received),
            sent: self.sent.wrapping_sub(earlier.sent),
        }
    }
}

/// Where the interfaces of the thread's network namespace are.
const INTERFACES: &str = "/sys/class/net";
/// The counters of all interfaces of the caller's network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counters(BTreeMap<String, Packets>);

impl Counters {
    /// As the kernel has them now.
    pub(super) fn read() -> Self {
        let names = udpath_files::names(INTERFACES, udpath_files::MAX_NAMES).unwrap_or_default().into_iter();
        let packets = names.filter_map(|interface| {
            let folder = Path::new(INTERFACES).join(&interface).join("statistics");
            let count =
                |name: &str| -> Option<u64> { kernel::text(folder.join(name)).ok()?.trim().parse().ok() };
            let packets = Packets { received: count("rx_packets")?, sent: count("tx_packets")? };
            Some((interface.into_string().ok()?, packets))
        });
        Self(packets.collect())
    }

    /// The interface with most packets since `earlier`, by what `of` counts.
    pub(super) fn busiest(&self, earlier: &Self, of: fn(&Packets) -> u64) -> Option<String> {
        let grown = self.0.iter().map(|(name, now)| {
            (of(&now.since(earlier.0.get(name).copied().unwrap_or_default())), name.clone())
        });
        grown.max().filter(|(packets, _)| *packets > 0).map(|(_, name)| name)
    }

    fn of(&self, interface: &str) -> Packets {
        self.0.get(interface).copied().unwrap_or_default()
    }

    /// What one interface counted since `earlier`.
    pub(super) fn since(&self, earlier: &Self, interface: &str) -> Packets {
        self.of(interface).since(earlier.of(interface))
    }
}

/// The counts of one trial at all places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// Requests that the generator sent, and datagrams that it received.
    pub(super) generator: Packets,
    /// The generator's interface and its counts.
    pub(super) sender: (String, Packets),
    /// The server's interface and its counts.
    pub(super) server: (String, Packets),
}

impl Places {
    /// Whether the places agree.
    ///
    /// # Errors
    /// A sentence that names the first place that does not.
    pub(super) fn check(&self) -> Result<(), String> {
        let Packets { received, sent } = self.generator;
        let ((sender, out), (server, there)) = (&self.sender, &self.server);
        if sender == LOOPBACK && server == LOOPBACK {
            return agree(sent, "the generator sent", sent + received, there.received, "packets on lo");
        }
        agree(sent, "the generator sent", sent, out.sent, &format!("left {sender}, its interface"))?;
        agree(
            sent,
            &format!("{sender} sent"),
            out.sent,
            there.received,
            &format!("reached {server}, the server's interface"),
        )?;
        agree(
            sent,
            &format!("{server}, the server's interface, sent"),
            there.sent,
            received,
            "reached the generator",
        )
    }
}

/// Whether two places counted alike, of `all` requests.
fn agree(all: u64, here: &str, this: u64, that: u64, there: &str) -> Result<(), String> {
    let allowed = (all as f64 * TOLERANCE) as u64 + OTHERS;
    if this.abs_diff(that) <= allowed {
        return Ok(());
    }
    Err(format!("{here} {this}, {that} {there}: they differ by more than {} %", TOLERANCE * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(sent: u64, out: u64, there: Packets, received: u64) -> Places {
        Places {
            generator: Packets { received, sent },
            sender: ("eth0".into(), Packets { received, sent: out }),
            server: ("eth1".into(), there),
        }
    }

    #[test]
    fn the_place_that_differs_is_named() {
        let there = |received, sent| Packets { received, sent };
        let good = places(100_000, 100_003, there(100_005, 99_000), 99_000);
        assert_eq!(good.check(), Ok(()), "the server may answer less than it gets");
        for (bad, says) in [
            (places(100_000, 90_000, there(90_000, 90_000), 90_000), "left eth0, its interface"),
            (places(100_000, 100_000, there(99_000, 99_000), 99_000), "reached eth1, the server's interface"),
            (places(100_000, 100_000, there(100_000, 100_000), 99_000), "reached the generator"),
            (places(100_000, 100_000, there(150_000, 100_000), 100_000), "reached eth1"),
        ] {
            let refused = bad.check().unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn on_the_loopback_requests_and_replies_are_counted_together() {
        let both = Packets { received: 199_000, sent: 199_000 };
        let lo = |packets| ("lo".to_owned(), packets);
        let places = Places {
            generator: Packets { received: 99_000, sent: 100_000 },
            sender: lo(both),
            server: lo(both),
        };
        assert_eq!(places.check(), Ok(()));
        let twice = Packets { received: 300_000, sent: 300_000 };
        assert!(Places { sender: lo(twice), server: lo(twice), ..places }.check().is_err());
    }

    #[test]
    fn the_busiest_interface_is_found_by_growth() {
        let counters = |eth0, eth1| {
            let packets = |received| Packets { received, sent: 0 };
            Counters([("eth0".to_owned(), packets(eth0)), ("eth1".to_owned(), packets(eth1))].into())
        };
        let (before, after) = (counters(1_000_000, 10), counters(1_000_001, 500));
        assert_eq!(after.busiest(&before, |packets| packets.received).as_deref(), Some("eth1"));
        assert_eq!(before.busiest(&before, |packets| packets.received), None);
    }
}
