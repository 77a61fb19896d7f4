//! From arguments and files to tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, anyhow};
use serde::de::DeserializeOwned;
use udpath_host::{Snapshot, Source, process, tables};
use udpath_steer::CpuSet;
use udpath_steer::drivers;
use udpath_steer::predict::{Queue, Sockets, Tables};
use udpath_steer::reuseport::By;
use udpath_steer::rss::IndirectionTable;
use udpath_steer::toeplitz::Fields;
use udpath_tune::Journal;
use udpath_tune::journal::selections;

use crate::args::predict::Args;
use crate::exit::Failure;
use crate::verbs::machine::look;

/// Default number of indirection table entries: what most NICs have.
const TABLE_SIZE: usize = 128;
/// Most bytes read from a file. The largest tables are under a megabyte; a larger file is not a table.
const LARGEST: u64 = 16 << 20;
/// Longest part of a parser's message that is shown, in characters: enough to find the place, but not the whole file.
const MAX_ERROR_LEN: usize = 300;

/// The input of a prediction.
pub(super) struct Known {
    pub(super) tables: Tables,
    /// The machine that was read, and the interface's index on it.
    pub(super) machine: Option<(Snapshot, u32)>,
}

/// The machine or the file, with the options on top. `ports`: the ports needed; `None`: all.
pub(super) fn known(args: &Args, ports: Option<&BTreeSet<u16>>) -> Result<Known, Failure> {
    let stdin = Path::new("-");
    if args.tables.as_deref() == Some(stdin) && args.table.as_deref() == Some("-") {
        return Err(Failure::Usage(
            "--tables - and --table - both read standard input: give one a file".into(),
        ));
    }
    let mut from = None;
    let mut tables = match (&args.interface, &args.tables) {
        (Some(name), _) => {
            let (tables, snapshot, index) = machine(args, name, ports)?;
            from = Some((snapshot, index));
            tables
        }
        (None, None) => Tables::default(),
        (None, Some(path)) => {
            let tables: Tables = read(path)?;
            tables.check().with_context(|| format!("cannot use {}", path.display()))?;
            tables
        }
    };
    if let Some(driver) = &args.driver {
        tables.driver = Some(driver.clone());
    }
    if let Some(key) = &args.key {
        tables.key = Some(key.clone());
    }
    if args.fields.is_some() {
        (tables.udp4, tables.udp6) = (args.fields, args.fields);
    } else if tables.driver.is_none() && args.tables.is_none() && args.interface.is_none() {
        (tables.udp4, tables.udp6) = (Some(Fields::AddressesPorts), Some(Fields::AddressesPorts));
    }
    tables.queues = args.queues.or(tables.queues);
    table(args, &mut tables)?;
    receive(args, &mut tables).map_err(Failure::Usage)?;
    if let Some(count) = args.sockets {
        let by = args.by.unwrap_or(By::Hash);
        // Also prevents a mistyped number from allocating gigabytes.
        let count = count.min(Tables::MAX_SOCKETS + 1);
        let cpu = |at| (by == By::Cpu).then_some(at);
        tables.sockets = Some(Sockets { by, cpus: (0..).map(cpu).take(count).collect() });
    }
    Ok(Known { tables, machine: from })
}

/// The machine's configuration of an interface.
fn machine(
    args: &Args,
    name: &str,
    ports: Option<&BTreeSet<u16>>,
) -> Result<(Tables, Snapshot, u32), Failure> {
    let snapshot = look(&args.place, |source| snapshot_of(args, source, ports))?;
    let Some(interface) = snapshot.interfaces.iter().find(|interface| interface.name == name) else {
        let known: Vec<&str> = snapshot.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        return Err(Failure::Usage(format!(
            "there is no interface '{name}'; there are {}",
            known.join(", ")
        )));
    };
    let tables = tables::tables(&snapshot, interface);
    tables.check().with_context(|| format!("the tables of {name} are inconsistent"))?;
    if args.verify.is_none() {
        stderrln!(
            "predicted from the current tables of {name}, not verified; --verify compares with real packets"
        );
    }
    let index = interface.index;
    Ok((tables, snapshot, index))
}

/// Reads the machine, including the options of the sockets on those ports. They are read through the sockets themselves
/// and from the journal, which a captured machine does not have.
fn snapshot_of(args: &Args, source: &dyn Source, ports: Option<&BTreeSet<u16>>) -> Snapshot {
    let mut snapshot = Snapshot::read(source);
    if args.place.is_captured() {
        return snapshot;
    }
    let Snapshot { sockets, missing, .. } = &mut snapshot;
    let asked = |port: u16| ports.is_none_or(|ports| ports.contains(&port));
    process::look_closer(sockets, |socket| asked(socket.local.port()), missing);
    if let Err(error) = selections(&Journal::at(&args.journal.state), sockets) {
        let error = anyhow::Error::from(error);
        stderrln!("warning: cannot read which socket selections udpath has set: {error:#}");
    }
    snapshot
}

/// The indirection table of `--table`; without one, the queues in turn.
fn table(args: &Args, tables: &mut Tables) -> Result<(), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let driver = tables.driver.as_deref().and_then(drivers::find);
    let size = args.table_size.or(driver.and_then(|driver| driver.table)).unwrap_or(TABLE_SIZE);
    let made = match args.table.as_deref() {
        None => match tables.queues {
            // A table read earlier is kept; the check of the whole input reports queues out of range. If the machine
            // was read, nothing is assumed: without a table, another rule applies.
            Some(queues) if tables.table.is_none() && queues > 1 && args.interface.is_none() => {
                stderrln!("no indirection table given: assuming {queues} queues in turn over {size} entries");
                IndirectionTable::spread(size, queues)
            }
            _ => return Ok(()),
        },
        Some(text) => match (text.strip_prefix("equal:"), text.strip_prefix("weight:")) {
            (Some(queues), _) => {
                let queues = number(queues).map_err(Failure::Usage)?;
                IndirectionTable::equal(size, 0, queues)
            }
            (_, Some(weights)) => {
                let weights: Result<Vec<u32>, String> = weights.split(',').map(number).collect();
                IndirectionTable::weight(size, &weights.map_err(Failure::Usage)?)
            }
            (None, None) => {
                let table: IndirectionTable = read(Path::new(text))?;
                if args.table_size.is_some_and(|size| size != table.entries().len()) {
                    let (entries, file) = (table.entries().len(), text);
                    return Err(Failure::Usage(format!(
                        "{file} has {entries} entries: remove --table-size, which is for equal and weight"
                    )));
                }
                Ok(table)
            }
        },
    };
    tables.table = Some(made.map_err(|error| usage(&error))?);
    Ok(())
}

/// IRQ CPUs and RPS maps of all queues.
fn receive(args: &Args, tables: &mut Tables) -> Result<(), String> {
    if args.irq_cpus.is_none() && args.rps_cpus.is_none() {
        return Ok(());
    }
    let named = tables.table.as_ref().and_then(|table| table.entries().iter().max());
    let Some(queues) = tables.queues.or(named.map(|last| last.saturating_add(1))) else {
        return Err("--irq-cpus and --rps-cpus need the number of queues: add --queues N".into());
    };
    let irq_cpus: Vec<u32> = args.irq_cpus.iter().flat_map(CpuSet::iter).collect();
    let mut known: BTreeMap<u32, Queue> =
        std::mem::take(&mut tables.receive).into_iter().map(|queue| (queue.queue, queue)).collect();
    for number in 0..queues.min(Tables::MAX_QUEUES) {
        let queue = known.entry(number).or_insert_with(|| Queue { queue: number, ..Queue::default() });
        if let Some(turn) = (number as usize).checked_rem(irq_cpus.len()) {
            queue.irq_cpus = Some([irq_cpus[turn]].into_iter().collect());
        }
        if args.rps_cpus.is_some() {
            queue.rps_cpus.clone_from(&args.rps_cpus);
        }
    }
    tables.receive = known.into_values().collect();
    Ok(())
}

/// One JSON document from a file or from standard input.
fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let (name, bytes) = udpath_report::read_input(path, LARGEST)?;
    serde_json::from_slice(&bytes).map_err(|error| anyhow!("cannot use {name}: {}", shown(&error)).into())
}

/// A message that quotes the input: on one line, bounded, and without terminal control characters.
fn shown(error: &serde_json::Error) -> String {
    error.to_string().chars().take(MAX_ERROR_LEN).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A whole number.
fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("invalid number `{text}`: expected a table such as equal:8 or weight:6,2"))
}
