//! Counters of the IP layer, the neighbour tables and connection tracking, over the interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::view::View;
use crate::ip::{Ip, IpCounters};
use crate::neighbours::{NeighbourCounters, NeighbourEntries, Neighbours};
use crate::netfilter::{Conntrack, ConntrackCpu};

/// Connection tracking, of all CPUs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ConntrackMap {
    /// Connections tracked now.
    pub count: u64,
    /// Their limit.
    pub max: Option<u64>,
    /// Packets dropped because no connection could be made for them.
    pub drops: u64,
    /// Connections that lost a race with one of the same addresses; their packets are dropped.
    pub insert_failed: u64,
}

pub(super) fn ip(view: View<'_>) -> Ip {
    let then = view.earlier.map(|then| &then.ip);
    let since = |now: Option<IpCounters>, then: Option<IpCounters>| {
        now.map(|now| then.map_or(now, |then| now.since(&then)))
    };
    Ip {
        v4: since(view.now.ip.v4, then.and_then(|then| then.v4)),
        v6: since(view.now.ip.v6, then.and_then(|then| then.v6)),
    }
}

pub(super) fn neighbours(view: View<'_>) -> Neighbours {
    let then = view.earlier.map(|then| &then.neighbours);
    let since = |now: Option<NeighbourCounters>, then: Option<NeighbourCounters>| {
        now.map(|now| then.map_or(now, |then| now.since(&then)))
    };
    let now = &view.now.neighbours;
    Neighbours {
        v4: since(now.v4, then.and_then(|then| then.v4)),
        v6: since(now.v6, then.and_then(|then| then.v6)),
        // They fail together, seconds after the first packet: at one end there may be none.
        entries: now.entries.map(|entries| NeighbourEntries {
            incomplete: entries
                .incomplete
                .max(then.and_then(|then| then.entries).map_or(0, |then| then.incomplete)),
            ..entries
        }),
    }
}

pub(super) fn conntrack(view: View<'_>) -> Option<ConntrackMap> {
    let now = view.now.netfilter.conntrack.as_ref()?;
    let then = view.earlier.and_then(|then| then.netfilter.conntrack.as_ref());
    let cpus = now.cpus.iter().map(|(cpu, counts)| since(counts, then, *cpu));
    let sum = |of: fn(&ConntrackCpu) -> u32| cpus.clone().map(|counts| u64::from(of(&counts))).sum();
    Some(ConntrackMap {
        count: now.count,
        max: now.max,
        drops: sum(|counts| counts.drop),
        insert_failed: sum(|counts| counts.insert_failed),
    })
}

fn since(now: &ConntrackCpu, then: Option<&Conntrack>, cpu: u32) -> ConntrackCpu {
    then.and_then(|then| then.cpus.get(&cpu)).map_or(*now, |then| now.since(then))
}
