//! `udpath lab`: machines (network namespaces) on this machine, kept until they are taken down.

use std::ffi::OsString;

use schemars::JsonSchema;
use serde::Serialize;
use udpath_lab::{Error, LabBuilder, LinkSpec, Listed, State, Swept};
use udpath_report::{labs_text, to_pretty_json};

use crate::args::lab::{Args, Verb};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal;

/// Version of the JSON format of `lab list`; incremented when a field changes its meaning or is removed.
pub(crate) const SCHEMA: &str = "udpath.lab/1";
/// The JSON format of `lab list`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Document {
    schema: &'static str,
    labs: Vec<Listed>,
}

pub(crate) fn run(args: Args) -> Done {
    match args.verb {
        Verb::Up { name, queues, machines, xdp } => up(&name, queues, &machines, &xdp),
        Verb::Exec { machine, command } => exec(&machine, &command),
        Verb::List { json } => list(json),
        Verb::Down { name, all, .. } => down(name.as_deref(), all),
    }
}

fn up(name: &str, queues: Option<u32>, machines: &[String], xdp: &[String]) -> Done {
    let queues = match queues {
        Some(queues) => queues,
        None => u32::try_from(udpath_lab::online_cpus()?.len()).unwrap_or(u32::MAX),
    };
    let spec = LinkSpec::with_queues(queues);
    let mut builder = LabBuilder::new(name);
    for (at, machine) in machines.iter().enumerate() {
        builder = builder.machine(machine);
        for earlier in &machines[..at] {
            builder = builder.link(earlier, machine, &spec);
        }
    }
    let stop = signals::watch(Left::Labs)?;
    let blueprint = builder.up_kept()?;
    if let Some(signal) = stop.came() {
        udpath_lab::down(name)?;
        return Err(Failure::Cannot(anyhow::anyhow!("interrupted by {signal}; the lab has been removed")));
    }
    if let Err(error) = keep_napi(name, xdp) {
        // If the lab does not support the requested options, remove it.
        udpath_lab::down(name)?;
        return Err(error.into());
    }
    let first = blueprint.machines[0].name.clone();
    let labs = [Listed { state: State::Kept, blueprint }];
    terminal::print(&labs_text(&labs, &terminal::style()))?;
    stderrln!(
        "run programs in it with `udpath lab exec {name}/{first} -- CMD`; remove it with `udpath lab down {name}`"
    );
    Ok(())
}

/// Removes a lab, all, or those of programs that were killed.
fn down(name: Option<&str>, all: bool) -> Done {
    // A lab that is half removed would be of no use: signals wait for the end.
    let which = name.unwrap_or(if all { "--all" } else { "--stale" });
    signals::watch(Left::Rest(&format!("udpath lab down {}", which.escape_debug())))?;
    match name {
        Some(name) => Ok(udpath_lab::down(name)?),
        None if all => removed(&udpath_lab::down_all()?),
        None => removed(&udpath_lab::sweep_stale()?),
    }
}

fn keep_napi(name: &str, machines: &[String]) -> Result<(), Error> {
    let lab = udpath_lab::attach(name)?;
    machines.iter().try_for_each(|name| {
        lab.machine(name)?.interfaces().iter().try_for_each(udpath_lab::Interface::keep_napi)
    })
}

fn exec(machine: &str, command: &[OsString]) -> Done {
    let (lab, machine) = match machine.split_once('/') {
        Some((lab, machine)) => (lab.to_owned(), machine),
        None => (the_only_lab()?, machine),
    };
    let lab = udpath_lab::attach(&lab)?;
    let machine = lab.machine(machine)?;
    let [program, arguments @ ..] = command else {
        return Err(Failure::Usage("no program given; add it after --".to_owned()));
    };
    // Returns only on failure.
    Err(machine.become_program(program, arguments).into())
}

fn the_only_lab() -> Result<String, Failure> {
    let mut labs = udpath_lab::list()?;
    labs.retain(|lab| lab.state != State::Stale);
    match labs.as_slice() {
        [] => Err(Failure::Cannot(anyhow::anyhow!("no labs; create one with `udpath lab up`"))),
        [lab] => Ok(lab.blueprint.name.clone()),
        labs => {
            let names: Vec<&str> = labs.iter().map(|lab| lab.blueprint.name.as_str()).collect();
            Err(Failure::Usage(format!("there are several labs ({}); use LAB/MACHINE", names.join(", "))))
        }
    }
}

fn list(json: bool) -> Done {
    let labs = udpath_lab::list()?;
    if json {
        return terminal::print(&to_pretty_json(&Document { schema: SCHEMA, labs }));
    }
    if labs.is_empty() {
        stderrln!("no labs; create one with `udpath lab up`");
        return Ok(());
    }
    terminal::print(&labs_text(&labs, &terminal::style()))?;
    if labs.iter().any(|lab| lab.state == State::Stale) {
        stderrln!(
            "stale labs were left behind by killed programs; remove them with `udpath lab down --stale`"
        );
    }
    Ok(())
}

/// The result of a sweep: each removed lab on stdout, the rest as the error.
fn removed(swept: &Swept) -> Done {
    if !swept.removed.is_empty() {
        terminal::print(&swept.removed.join("\n"))?;
    }
    if swept.left.is_empty() {
        return Ok(());
    }
    Err(Failure::Cannot(anyhow::anyhow!("{}", swept.left.join("\n"))))
}
