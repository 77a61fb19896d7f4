//! `udpath multiply`: runs instances of a server until a signal, and changes, lists or ends running ones; `unit.rs`:
//! those of a service of systemd.
//!
//! stderr: what happens, and the instances' own output; stdout: a table, or one JSON document, at the end.

mod unit;

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::Context;
use error_reporter::Report;
use schemars::JsonSchema;
use serde::Serialize;
use udpath_host::visible;
use udpath_multiply::{
    Config, Event, Listed, Request, SCHEMA, Status, Supervisor, ask, journal_of, leftovers, list,
};
use udpath_report::{instances_text, multiply_event, to_pretty_json};
use udpath_steer::CpuSet;

use crate::args::multiply::{Args, GuardArgs};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal;

/// The JSON document of `--list`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct List<'a> {
    schema: &'static str,
    running: Vec<&'a Status>,
    /// Names whose supervisor was killed, with what it has left.
    left: Vec<&'a str>,
    /// Names whose supervisor does not answer.
    silent: Vec<&'a str>,
}

/// Runs, changes, lists or ends instances.
pub(crate) fn run(args: Args) -> Done {
    if args.list {
        return show_all(args.json);
    }
    if !args.command.is_empty() {
        return supervise(args);
    }
    if let Some(unit) = args.name.as_deref().filter(|name| !args.unit && unit::is(name)) {
        return unit::run(unit, &args);
    }
    match (args.name, args.count, args.stop) {
        (None, ..) => Err(Failure::Usage(
            "no command: expected udpath multiply -n N -- COMMAND, or the NAME of running instances"
                .to_owned(),
        )),
        (Some(name), Some(count), _) => changed(&name, Request::Count(count), args.json),
        (Some(name), None, true) => changed(&name, Request::Stop, args.json),
        (Some(name), None, false) => changed(&name, Request::Status, args.json),
    }
}

/// Asks a running supervisor.
fn changed(name: &str, request: Request, json: bool) -> Done {
    print(&ask(name, request)?, json)
}

fn show_all(json: bool) -> Done {
    let all = list()?;
    if json {
        let mut document = List { schema: SCHEMA, running: Vec::new(), left: Vec::new(), silent: Vec::new() };
        for one in &all {
            match one {
                Listed::Running(status) => document.running.push(status),
                Listed::Left { name } => document.left.push(name),
                Listed::Silent { name, .. } => document.silent.push(name),
            }
        }
        return terminal::print(&to_pretty_json(&document));
    }
    for one in &all {
        match one {
            Listed::Running(status) => terminal::print(&instances_text(status, terminal::style()))?,
            Listed::Left { name } => {
                stderrln!(
                    "{name}: its supervisor was killed; the next udpath multiply takes back what is left"
                );
            }
            Listed::Silent { name, pid } => stderrln!("{name}: its supervisor (pid {pid}) does not answer"),
        }
    }
    if all.is_empty() {
        stderrln!("no instances run");
    }
    Ok(())
}

/// Runs instances until a signal or a request.
fn supervise(args: Args) -> Done {
    let name = args.name.unwrap_or_else(|| program_name(&args.command));
    let allowed = allowed_cpus()?;
    let cpus = args.cpus.unwrap_or_else(|| allowed.clone());
    if let Some(cpu) = cpus.difference(&allowed).first() {
        return Err(Failure::Usage(format!(
            "CPU {cpu} of --cpus is not one that this process may use ({allowed})"
        )));
    }
    let journal = match args.unit {
        true => journal_of(&name),
        false => {
            std::path::absolute(&args.journal.state).context("cannot make the journal's path absolute")?
        }
    };
    let config = Config {
        count: args.count.unwrap_or_else(|| cpus.iter().count()),
        guard: ["/proc/self/exe", "multiply-guard", &name].map(str::to_owned).to_vec(),
        name,
        unit: args.unit,
        command: args.command,
        port: args.port,
        choose: args.choose,
        probe: args.probe,
        cpus,
        start: args.start_limit,
        drain: args.drain_limit,
        journal,
    };
    // Before anything is made, so that a signal during the start is not lost.
    let stop = signals::watch(Left::Instances)?;
    let ran = Supervisor::new(config).and_then(|supervisor| {
        supervisor.run(stop.as_fd(), &mut |event| {
            let said = multiply_event(event);
            stderrln!("{said}");
            if matches!(event, Event::Ready(_)) {
                notify(&format!("READY=1\nSTATUS={}", visible::line(&said)));
            }
        })
    });
    let status = ran
        .inspect_err(|error| notify(&format!("STATUS={}", visible::line(&Report::new(error).to_string()))))?;
    print(&status, args.json)
}

/// Reports to systemd, sd_notify(3), if that has started this program.
fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        // systemd notices the end of this process whether it reads this or not.
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

fn print(status: &Status, json: bool) -> Done {
    terminal::print(&if json { to_pretty_json(status) } else { instances_text(status, terminal::style()) })
}

/// The program's name: what is behind the last slash, without what a name cannot have.
fn program_name(command: &[String]) -> String {
    let name = command.first().map_or("", |program| program.rsplit('/').next().unwrap_or_default());
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
    name.chars().filter(|letter| plain(*letter)).collect()
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Result<CpuSet, Failure> {
    let mask = rustix::thread::sched_getaffinity(None).context("cannot read the CPUs of this process")?;
    let most = rustix::thread::CpuSet::MAX_CPU;
    Ok((0..most).filter(|cpu| mask.is_set(*cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Waits until the supervisor is gone, and takes back what it has left.
pub(crate) fn guard(args: &GuardArgs) -> Done {
    // Those of a terminal or of a unit's stop must not end it before the supervisor.
    signals::ignore()?;
    Ok(leftovers::guard(&args.name, io::stdin())?)
}
