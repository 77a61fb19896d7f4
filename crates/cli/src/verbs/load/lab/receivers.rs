//! What the lab's servers received in a one-way mode. Each server is queried once for all clients, because it reports
//! the sum over the clients that share it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use udpath_lab::Machine;
use udpath_load::plan::{Plan, Transport};
use udpath_load::template::{InKernel, Lengths, Parts, Prepared, Protocol, Received, Template};

use crate::args::load::Args;
use crate::exit::Failure;
use crate::verbs::load::single::protocol;

/// How long a server may take to report.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A protocol whose servers the load does not query: their reports are added to the merged result.
pub(super) struct WithoutReports(pub(super) Box<dyn Protocol>);

impl Protocol for WithoutReports {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn min_size(&self) -> usize {
        self.0.min_size()
    }

    fn max_size(&self) -> usize {
        self.0.max_size()
    }

    fn one_size(&self) -> bool {
        self.0.one_size()
    }

    fn lengths(&self) -> Option<Lengths> {
        self.0.lengths()
    }

    fn ids(&self) -> u64 {
        self.0.ids()
    }

    fn in_kernel(&self) -> Option<InKernel> {
        self.0.in_kernel()
    }

    fn parts(&self) -> Option<Parts<'_>> {
        self.0.parts()
    }

    fn prepare(&self, plan: &Plan, timeout: Duration) -> Prepared {
        Ok(self.0.prepare(plan, timeout)?.map(|prepared| Box::new(Self(prepared)) as Box<dyn Protocol>))
    }

    fn template(&self) -> Box<dyn Template> {
        self.0.template()
    }

    fn asked_by_caller(&self) -> bool {
        true
    }
}

/// What all servers have received so far; `None` if one does not report it.
pub(super) fn received(loads: &[(&Machine, Plan)], args: &Args) -> Result<Option<Received>, Failure> {
    // One query per server, from any client that reaches it.
    let mut servers = BTreeMap::<_, (&Machine, SocketAddr, Transport)>::new();
    for (machine, plan) in loads {
        for (interface, target) in machine.interfaces().iter().zip(&plan.targets) {
            servers.insert(interface.peer_machine(), (*machine, *target, plan.transport));
        }
    }
    let protocol = protocol(args)?;
    let mut sum = Received { cpu: Some(Duration::ZERO), ..Received::default() };
    for (machine, target, transport) in servers.into_values() {
        let asked = machine.run(|| protocol.received(target, transport, TIMEOUT));
        let asked = asked.context("cannot query a server")?;
        let Some(one) = asked else { return Ok(None) };
        sum = sum.plus(one);
    }
    Ok(Some(sum))
}
