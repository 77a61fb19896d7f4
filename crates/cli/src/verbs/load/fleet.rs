//! A load by a fleet: announced over NATS, carried out by agents, merged here.
//!
//! stderr: on a terminal, the sum and each agent, once per second; always, agents that refuse or are lost.

use std::sync::atomic::AtomicBool;

use udpath_fleet::Order;
use udpath_fleet::caller::{self, Call, Event};
use udpath_report::fleet_text;

use super::single::finish;
use crate::args::load::Args;
use crate::args::load::task::Task;
use crate::exit::{Done, Failure};
use crate::terminal::{self, StatusBlock};
use crate::verbs::record::Recorder;

/// Carries out the task with a fleet and prints the sum; exits with 1 if agents were lost.
pub(super) fn run(args: &Args, task: &Task, record: Option<Recorder>, stop: &AtomicBool) -> Done {
    let server = args.fleet.fleet.as_deref().unwrap_or_default();
    let call = Call {
        access: args.fleet.access.of(server),
        fleet: args.fleet.access.fleet_name.clone(),
        order: order(args, task)?,
        agents: args.fleet.agents,
        gather: args.fleet.gather,
        lead: args.fleet.lead,
    };
    let mut block = StatusBlock::new();
    let outcome = caller::call(&call, &mut |event| inform(&mut block, event), stop);
    block.clear();
    let outcome = outcome?;
    finish(args, outcome.result, None, record)?;
    match outcome.lost.len() {
        0 => Ok(()),
        lost => {
            Err(Failure::Findings(format!("{lost} agent(s) were lost: the sums are those of the others")))
        }
    }
}

fn order(args: &Args, task: &Task) -> Result<Order, Failure> {
    let options = args.options.of(args.protocol)?;
    let options = options.iter().map(|(name, value)| {
        let text = value.to_str().map(|value| (name.to_owned(), value.to_owned()));
        text.ok_or_else(|| Failure::Usage(format!("invalid --{name}: a fleet takes UTF-8 text only")))
    });
    Ok(Order {
        protocol: args.protocol.name.to_owned(),
        engine: task.engine.name().to_owned(),
        options: options.collect::<Result<_, _>>()?,
        plan: task.plan.clone(),
    })
}

fn inform(block: &mut StatusBlock, event: Event) {
    match event {
        Event::View(view) => block.show(&fleet_text(&view, &terminal::style(), block.lines())),
        Event::Refused(agent, why) => block.message(&format!("agent {agent} refused: {why}")),
        Event::Lost(agent, why) => block.message(&format!("agent {agent} was lost: {why}")),
        Event::Prepared(agents, lead) => {
            block.show(&format!("{agents} agents start in {:.1} s\n", lead.as_secs_f64()));
        }
        Event::Connection(false) => {
            block
                .message("the connection to the NATS server is lost; agents carry on and keep their results");
        }
        Event::Connection(true) => block.message("the connection to the NATS server is back"),
    }
}
