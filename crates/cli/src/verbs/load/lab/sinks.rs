//! What the lab's sinks received: asked once for all clients, since clients that share a sink would each be told the
//! sum of all.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use udpath_lab::Machine;
use udpath_load::plan::{Plan, Transport};
use udpath_load::result::{Delivered, LoadResult};
use udpath_load::template::{Protocol, Received, Template};

use crate::exit::Failure;
use crate::verbs::load::{Args, protocol};

/// How long a sink may take to answer, the time between two questions, and how often it is asked at most.
const ASK: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(50);
const QUESTIONS: usize = 80;

/// A protocol whose receivers the load need not ask: their answers are put in afterwards.
pub(super) struct Unasked(pub(super) Box<dyn Protocol>);

impl Protocol for Unasked {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn min_size(&self) -> usize {
        self.0.min_size()
    }

    fn template(&self) -> Box<dyn Template> {
        self.0.template()
    }

    fn received(&self, _: SocketAddr, transport: Transport, _: Duration) -> Option<Received> {
        (transport == Transport::Udp).then(Received::default)
    }
}

/// What all servers have received so far; none if one does not tell.
pub(super) fn received(loads: &[(&Machine, Plan)], args: &Args) -> Result<Option<Received>, Failure> {
    // One question per server machine, from any client that reaches it.
    let mut servers = BTreeMap::new();
    for (machine, plan) in loads {
        for (interface, target) in machine.interfaces().iter().zip(&plan.targets) {
            servers.insert(interface.peer_machine(), (*machine, *target, plan.transport));
        }
    }
    let protocol = protocol(args.protocol);
    let mut sum = Received::default();
    for (machine, target, transport) in servers.into_values() {
        let asked = machine.run(|| protocol.received(target, transport, ASK)).context("cannot ask a sink")?;
        let Some(one) = asked else { return Ok(None) };
        sum = Received { datagrams: sum.datagrams + one.datagrams, bytes: sum.bytes + one.bytes };
    }
    Ok(Some(sum))
}

/// The same, once it stands still.
pub(super) fn settled(loads: &[(&Machine, Plan)], args: &Args) -> Result<Option<Received>, Failure> {
    let mut last = received(loads, args)?;
    for _ in 0..QUESTIONS {
        if last.is_none() {
            return Ok(None);
        }
        thread::sleep(ASK_AGAIN);
        let now = received(loads, args)?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

/// Enters what arrived between two answers into the merged result.
pub(super) fn deliver(result: &mut LoadResult, before: Received, after: Received) {
    let datagrams = after.datagrams.saturating_sub(before.datagrams);
    result.delivered = Some(Delivered {
        datagrams,
        bytes: after.bytes.saturating_sub(before.bytes),
        per_second: datagrams as f64 / result.seconds.max(f64::MIN_POSITIVE),
    });
    result.counts.deliver(datagrams);
}
