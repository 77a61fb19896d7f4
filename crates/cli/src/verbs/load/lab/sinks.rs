//! What the lab's sinks received: asked once for all clients, since clients that share a sink would each be told the
//! sum of all.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use udpath_lab::Machine;
use udpath_load::plan::{Plan, Transport};
use udpath_load::template::{Protocol, Received, Template};

use crate::exit::Failure;
use crate::verbs::load::{Args, protocol};

/// How long a sink may take to answer.
const ASK: Duration = Duration::from_secs(1);

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

    fn asked_by_caller(&self) -> bool {
        true
    }
}

/// What all servers have received so far; none if one does not tell.
pub(super) fn received(loads: &[(&Machine, Plan)], args: &Args) -> Result<Option<Received>, Failure> {
    // One question per server machine, from any client that reaches it.
    let mut servers = BTreeMap::<_, (&Machine, SocketAddr, Transport)>::new();
    for (machine, plan) in loads {
        for (interface, target) in machine.interfaces().iter().zip(&plan.targets) {
            servers.insert(interface.peer_machine(), (*machine, *target, plan.transport));
        }
    }
    let protocol = protocol(args.protocol);
    let mut sum = Received { cpu: Some(Duration::ZERO), ..Received::default() };
    for (machine, target, transport) in servers.into_values() {
        let asked = machine.run(|| protocol.received(target, transport, ASK)).context("cannot ask a sink")?;
        let Some(one) = asked else { return Ok(None) };
        sum = sum.plus(one);
    }
    Ok(Some(sum))
}
