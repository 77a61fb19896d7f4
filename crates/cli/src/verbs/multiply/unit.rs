//! Instances of a service of systemd: the setting `unit:NAME/instances` by another name.

use anyhow::anyhow;
use udpath_host::UnitName;
use udpath_host::source::Folder;
use udpath_multiply::{Choose, Error, Request, ask};
use udpath_tune::plan::Consent;
use udpath_tune::services::{Instances, Probe};
use udpath_tune::units::{Original, main_pid, value_of};
use udpath_tune::{Journal, Live, Plan, SettingRequest, apply, undo};

use crate::args::multiply::{Args, DRAIN_LIMIT, START_LIMIT};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};

/// Kinds of units that have processes.
const KINDS: [&str; 3] = [".service", ".slice", ".scope"];

/// Whether a name is that of a unit.
pub(super) fn is(name: &str) -> bool {
    KINDS.iter().any(|kind| name.ends_with(kind))
}

/// Multiplies a unit, changes the number of its instances, shows them, or has it run as before.
pub(super) fn run(unit: &str, args: &Args) -> Done {
    if !unit.ends_with(".service") {
        return Err(Failure::Usage(format!("{unit} cannot be multiplied: only a service has a program")));
    }
    let unit = &unit.parse::<UnitName>().map_err(Failure::usage)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot.into());
    }
    let now = value_of(&Folder::live(), unit).map_err(cannot)?;
    match (args.count, args.stop) {
        (Some(count), _) => set(unit, count, now.as_deref(), args),
        (None, true) => stop(unit, now.is_some(), args),
        (None, false) if now.is_none() => Err(cannot(format!(
            "{unit} is not multiplied; udpath multiply {unit} -n N runs it in N instances"
        ))),
        (None, false) => super::print(&ask(unit, Request::Status)?, args.json),
    }
}

fn set(unit: &UnitName, count: usize, now: Option<&str>, args: &Args) -> Done {
    let cpus = args.cpus.clone().map_or_else(super::allowed_cpus, Ok)?;
    let most = cpus.iter().count();
    if !(1..=most).contains(&count) {
        return Err(Error::Count { count, most, cpus: cpus.to_string() }.into());
    }
    check(unit, now.is_some(), args.choose)?;
    let options = options(args);
    let kept = now.and_then(|now| now.split_once(' ')).map_or("", |(_, options)| options);
    let options = if options.is_empty() { kept } else { &options };
    change(unit, format!("{count} {options}").trim_end(), args)?;
    super::print(&ask(unit, Request::Status)?, args.json)
}

/// That it runs, and that its program can run several times: both are reported better before it is restarted.
fn check(unit: &UnitName, is_multiplied: bool, choose: Choose) -> Done {
    let source = Folder::live();
    Original::read(&source, unit).map_err(cannot)?;
    let pid = main_pid(&source, unit).map_err(cannot)?;
    let pid =
        pid.ok_or_else(|| cannot(format!("{unit} does not run; start it first: systemctl start {unit}")))?;
    if is_multiplied {
        return Ok(());
    }
    let known = Instances::of_process(pid)?;
    if let (Choose::Cpu, Some(known)) = (choose, &known)
        && let Some(why) = known.flow_state()
    {
        return Err(Error::FlowState { server: known.server(), why }.into());
    }
    Ok(())
}

/// The options that are not their defaults.
fn options(args: &Args) -> String {
    let mut options = Vec::new();
    let mut add = |name: &str, value: String| options.push(format!("{name} {value}"));
    if let Some(port) = args.port {
        add("--port", port.to_string());
    }
    if args.choose == Choose::Cpu {
        add("--choose", "cpu".to_owned());
    }
    if let Some(probe) = args.probe {
        let name = match probe {
            Probe::Dns => "dns",
            Probe::Ntp => "ntp",
            Probe::Stun => "stun",
            Probe::Bound => "none",
        };
        add("--probe", name.to_owned());
    }
    if let Some(cpus) = &args.cpus {
        add("--cpus", cpus.to_string());
    }
    for (name, limit, default) in
        [("--start-limit", args.start_limit, START_LIMIT), ("--drain-limit", args.drain_limit, DRAIN_LIMIT)]
    {
        if limit != default {
            add(name, format!("{}ms", limit.as_millis()));
        }
    }
    options.join(" ")
}

/// Applies the setting, journaled.
fn change(unit: &str, value: &str, args: &Args) -> Done {
    let machine = Live::new();
    let lock = Journal::at(&args.journal.state).lock()?;
    signals::watch(Left::Settings(&args.journal.state))?;
    let request = SettingRequest::parse(&format!("{}={value}", setting(unit)), "udpath multiply")?;
    let plan = Plan::resolve(&machine, vec![request], &Consent::default())?;
    if !plan.is_empty() {
        let applied = apply(&machine, &lock, &plan, None, |_| Ok(()))?;
        stderrln!("applied as {}; udpath multiply {unit} --stop undoes it", applied.id);
    }
    Ok(())
}

/// Undoes every apply that has set it and nothing else, latest first.
fn stop(unit: &UnitName, is_multiplied: bool, args: &Args) -> Done {
    if !is_multiplied {
        return Err(cannot(format!("{unit} is not multiplied")));
    }
    {
        let journal = Journal::at(&args.journal.state);
        let lock = journal.lock()?;
        signals::watch(Left::Settings(&args.journal.state))?;
        let setting = setting(unit);
        let entries = journal.entries()?;
        let ours = entries.iter().rev().filter(|entry| {
            let intents = &entry.intents;
            entry.stands() && !intents.is_empty() && intents.iter().all(|intent| intent.setting == setting)
        });
        for entry in ours {
            undo(&Live::new(), &lock, Some(entry.id), "udpath multiply --stop", true)?;
        }
    }
    // Set with other settings in one apply, or by another journal.
    if value_of(&Folder::live(), unit).map_err(cannot)?.is_some() {
        change(unit, "none", args)?;
    }
    match args.json {
        true => super::show_all(true),
        false => {
            stderrln!("{unit} runs as before");
            Ok(())
        }
    }
}

fn setting(unit: &str) -> String {
    format!("unit:{unit}/instances")
}

fn cannot(why: String) -> Failure {
    Failure::Cannot(anyhow!(why))
}
