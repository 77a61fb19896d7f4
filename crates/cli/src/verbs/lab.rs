//! `udpath lab`: machines (network namespaces) on this machine, kept until they are taken down.

use std::ffi::OsString;
use std::io::{self, Write};

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use udpath_lab::{Blueprint, Error, LabBuilder, LinkSpec, Listed, State, Swept};

use crate::exit::{Done, Failure};

/// Version of the JSON format of `lab list`; incremented when a field changes its meaning or is removed.
const SCHEMA: &str = "udpath.lab/1";
/// The default name of a lab.
const DEFAULT_NAME: &str = "lab";

/// Arguments of `udpath lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a lab and keep it: machines, with a link between each pair
    Up {
        /// The lab's name: a-z, 0-9 and -
        #[arg(default_value = DEFAULT_NAME)]
        name: String,
        /// Receive and transmit queues of each link's ends [default: one per online CPU]
        #[arg(long, value_name = "N")]
        queues: Option<u32>,
        /// Names of the machines
        #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "client,server")]
        machines: Vec<String>,
        /// Machines that accept frames sent by XDP, as `load --engine kernel` sends them from another machine
        #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
        xdp: Vec<String>,
    },
    /// Run a program in a machine and return its exit code
    Exec {
        /// The machine; the lab's name may be omitted if there is only one lab
        #[arg(value_name = "[LAB/]MACHINE")]
        machine: String,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// List the labs of this machine
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Remove labs
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Down {
        /// The lab with this name
        #[arg(group = "which")]
        name: Option<String>,
        /// Labs left behind by programs that were killed
        #[arg(long, group = "which")]
        stale: bool,
        /// The same and all kept labs; labs of running programs are not removed
        #[arg(long, group = "which")]
        all: bool,
    },
}

/// The JSON format of `lab list`.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    labs: Vec<Listed>,
}

pub(crate) fn run(args: Args) -> Done {
    match args.verb {
        Verb::Up { name, queues, machines, xdp } => up(&name, queues, &machines, &xdp),
        Verb::Exec { machine, command } => exec(&machine, &command),
        Verb::List { json } => list(json),
        Verb::Down { name: Some(name), .. } => udpath_lab::down(&name).map_err(failure),
        Verb::Down { all: true, .. } => removed(&udpath_lab::down_all().map_err(failure)?),
        Verb::Down { .. } => removed(&udpath_lab::sweep_stale().map_err(failure)?),
    }
}

fn up(name: &str, queues: Option<u32>, machines: &[String], xdp: &[String]) -> Done {
    let queues = match queues {
        Some(queues) => queues,
        None => u32::try_from(udpath_lab::online_cpus().map_err(failure)?.len()).unwrap_or(u32::MAX),
    };
    let spec = LinkSpec::with_queues(queues);
    let mut builder = LabBuilder::new(name);
    for (at, machine) in machines.iter().enumerate() {
        builder = builder.machine(machine);
        for earlier in &machines[..at] {
            builder = builder.link(earlier, machine, &spec);
        }
    }
    let blueprint = builder.up_kept().map_err(failure)?;
    if let Err(error) = keep_napi(name, xdp) {
        // If the lab does not support the requested options, remove it.
        udpath_lab::down(name).map_err(failure)?;
        return Err(failure(error));
    }
    let first = blueprint.machines[0].name.clone();
    table(&[Listed { state: State::Kept, blueprint }])?;
    eprintln!("use it with `udpath lab exec {name}/{first} -- CMD`, remove it with `udpath lab down {name}`");
    Ok(())
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
    let lab = udpath_lab::attach(&lab).map_err(failure)?;
    let machine = lab.machine(machine).map_err(failure)?;
    let [program, arguments @ ..] = command else {
        return Err(Failure::Usage("there is no program to run; write it after --".to_owned()));
    };
    // Returns only on failure.
    Err(failure(machine.become_program(program, arguments)))
}

fn the_only_lab() -> Result<String, Failure> {
    let mut labs = udpath_lab::list().map_err(failure)?;
    labs.retain(|lab| lab.state != State::Stale);
    match labs.as_slice() {
        [] => Err(Failure::Cannot(anyhow::anyhow!("there is no lab; make one with `udpath lab up`"))),
        [lab] => Ok(lab.blueprint.name.clone()),
        labs => {
            let names: Vec<&str> = labs.iter().map(|lab| lab.blueprint.name.as_str()).collect();
            Err(Failure::Usage(format!("there are several labs ({}); write LAB/MACHINE", names.join(", "))))
        }
    }
}

fn list(json: bool) -> Done {
    let labs = udpath_lab::list().map_err(failure)?;
    if json {
        let document = serde_json::to_string_pretty(&Document { schema: SCHEMA, labs });
        let document = document.context("cannot write the labs as JSON")?;
        return print(&(document + "\n"));
    }
    if labs.is_empty() {
        eprintln!("there is no lab; make one with `udpath lab up`");
        return Ok(());
    }
    table(&labs)?;
    if labs.iter().any(|lab| lab.state == State::Stale) {
        eprintln!("stale labs were left by killed programs; `udpath lab down --stale` removes them");
    }
    Ok(())
}

/// One row per interface; a machine without interfaces still has a row.
fn table(labs: &[Listed]) -> Done {
    let heads = ["LAB", "STATE", "PID", "MACHINE", "INTERFACE", "QUEUES", "IPV4", "IPV6", "PEER"];
    let mut rows = vec![heads.map(str::to_owned)];
    for Listed { state, blueprint } in labs {
        rows.extend(rows_of(*state, blueprint));
    }
    let widths: Vec<usize> =
        (0..heads.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    print(&text)
}

fn rows_of(state: State, blueprint: &Blueprint) -> Vec<[String; 9]> {
    let mut rows = Vec::new();
    for machine in &blueprint.machines {
        let row = |interface: &str, queues: &str, ipv4: &str, ipv6: &str, peer: &str| {
            let (lab, state, pid) = (blueprint.name.as_str(), state.as_str(), blueprint.pid.to_string());
            [lab, state, &pid, &machine.name, interface, queues, ipv4, ipv6, peer].map(str::to_owned)
        };
        let before = rows.len();
        for (spec, end, peer) in blueprint.ends_of(&machine.name) {
            rows.push(row(
                &end.interface,
                &spec.queues.to_string(),
                &end.ipv4[0].to_string(),
                &end.ipv6[0].to_string(),
                &format!("{}/{}", peer.machine, peer.interface),
            ));
        }
        if rows.len() == before {
            rows.push(row("-", "-", "-", "-", "-"));
        }
    }
    rows
}

/// The result of a sweep: each removed lab on stdout, the rest as the error.
fn removed(swept: &Swept) -> Done {
    print(&swept.removed.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    if swept.left.is_empty() {
        return Ok(());
    }
    Err(Failure::Cannot(anyhow::anyhow!("{}", swept.left.join("\n"))))
}

fn print(text: &str) -> Done {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::Cannot(error.into()))
}

/// An invalid lab description is a usage error.
fn failure(error: Error) -> Failure {
    match error {
        Error::Spec(mistake) => Failure::Usage(mistake.to_string()),
        other => Failure::Cannot(other.into()),
    }
}
