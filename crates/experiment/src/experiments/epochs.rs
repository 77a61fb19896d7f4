//! The chain of a send under locks, reference counts and epochs (scalebsd.org: UDP and providing liveness guarantees
//! with epoch).
//!
//! ```text
//!   64 threads that send     tables.rs: what is looked up, and under which protection
//!   a writer: a change       chain.rs: the lookups of one send, at each of the document's stages
//!   every millisecond
//! ```
//! More threads than CPUs take turns: a lock then costs more only if its holder loses the CPU, not because more CPUs
//! contend for its cache line. What 64 CPUs do to each other is not shown by 64 threads; the ratios here are those of
//! as many contenders as there are CPUs.

mod chain;
mod tables;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use udpath_stack::epoch::Domain;

use crate::description::{Description, Unit};
use crate::entry::{Context, Effort, Entry, Error, Found, Progress, Watch};
use crate::in_turn::in_turn;
use crate::outcome::{FigureOrigin, Line, Point, Sweep, Table};
use crate::readers::{self, Reading};
use crate::threads::{cpus, quantile};
use chain::{Chain, Stage};
use tables::{Interfaces, Neighbours, Protected, Protection, Sockets};

/// Its line in the registry.
pub(super) const ENTRY: Entry = Entry { text: include_str!("../../data/epochs.toml"), measure };

/// Threads of the document's load.
const THREADS: usize = 64;
/// Old tables that may wait for readers. A reader without a CPU holds all that were replaced since it had one: with 32
/// threads per CPU and slices of a few milliseconds, some hundred. Fewer: the writer waits for them. More: memory.
const MAX_REPLACED: usize = 4096;

/// How long and how often is measured.
struct Extent {
    trial: Duration,
    blocks: usize,
    /// Threads of the cases.
    load: usize,
    /// Threads of the sweep.
    threads: &'static [usize],
}

impl Extent {
    const fn of(effort: Effort) -> Self {
        match effort {
            // Every one of 32 threads per CPU gets it once within a trial.
            Effort::Full => Self {
                trial: Duration::from_millis(200),
                blocks: 10,
                load: THREADS,
                threads: &[1, 2, 4, 8, 16, 32, 64],
            },
            Effort::Least => Self { trial: Duration::from_millis(10), blocks: 1, load: 4, threads: &[1, 2] },
        }
    }
}

fn measure(description: &Description, context: &Context<'_>, watch: &mut Watch<'_>) -> Result<Found, Error> {
    let extent = Extent::of(context.effort);
    let cases = Stage::ALL.map(Stage::id);
    let steps = cases.len() * 2 * extent.blocks + Stage::ALL.len() * extent.threads.len() + 4;
    let mut step = 0;
    let mut next = |what: &str| {
        step += 1;
        watch(&Progress { what, step, steps });
        context.check()
    };
    let failed = |what: &str, cause| Error::measuring(description, what, cause);
    let waits = RefCell::new(BTreeMap::<&str, Vec<Duration>>::new());
    let trials = in_turn(&cases, extent.blocks, |case, _| {
        next(case)?;
        let stage = Stage::ALL.into_iter().find(|stage| stage.id() == case).unwrap_or(Stage::OneRing);
        let reading = send(stage, extent.load, extent.trial).map_err(|cause| failed(case, cause))?;
        waits.borrow_mut().entry(stage.id()).or_default().extend(reading.waits);
        Ok(reading.rate)
    })?;

    let mut sweep = BTreeMap::<(Stage, usize), f64>::new();
    for threads in extent.threads {
        for stage in Stage::ALL {
            next(stage.id())?;
            let reading = send(stage, *threads, extent.trial).map_err(|cause| failed(stage.id(), cause))?;
            sweep.insert((stage, *threads), 1e9 / reading.per_cpu_second);
        }
    }
    let (alone, tables) = each_table(&extent, &mut next, &failed)?;
    let costs = |id: &str| {
        let stage = Stage::ALL.into_iter().find(|stage| stage.id() == id)?;
        let contended = extent.threads.iter().copied().find(|threads| *threads >= cpus())?;
        Some((sweep.get(&(stage, 1)).copied()?, sweep.get(&(stage, contended)).copied()?, contended))
    };
    Ok(Found {
        cases: trials.cases(description, |_| None),
        ratios: trials.ratios(description, |of, to| Some(cause(costs(of)?, costs(to)?))),
        sweeps: vec![sweep_of(&extent, &sweep)],
        tables: vec![waits_of(&format!("wait of the writer, {} threads", extent.load), waits.into_inner()), tables],
        notes: vec![
            format!(
                "{} threads on {} CPUs: so many contend at a time; the others wait for a CPU, and the longest waits are those for a \
                 thread that lost its CPU while it held a lock",
                extent.load,
                cpus()
            ),
            "every stage announces an epoch once per packet, also those without tables under it: half a nanosecond".into(),
            alone,
        ],
        ..Found::default()
    })
}

/// One trial of a stage.
fn send(stage: Stage, threads: usize, trial: Duration) -> Result<Reading, EpochsError> {
    let domain = Domain::new(threads, MAX_REPLACED);
    let chain = Chain::new(stage, &domain, threads);
    let mut registered = register(&domain, threads)?.into_iter();
    let chain = &chain;
    let reading = readers::read(
        threads,
        trial,
        |thread| {
            let Some(mut reader) = registered.next() else { return Box::new(|_| 0) };
            Box::new(move |ports| {
                ports.iter().fold(0, |sum, port| sum.wrapping_add(chain.send(&reader.pin(), thread, *port)))
            })
        },
        |version| chain.change(version),
    )?;
    Ok(reading)
}

fn register(domain: &Domain, threads: usize) -> Result<Vec<udpath_stack::epoch::Reader>, EpochsError> {
    (0..threads).map(|thread| Ok(domain.register(format!("sender {thread}"))?)).collect()
}

/// Why a trial failed.
#[derive(Debug, thiserror::Error)]
enum EpochsError {
    #[error(transparent)]
    Threads(#[from] crate::threads::ThreadError),
    #[error(transparent)]
    Readers(#[from] udpath_stack::epoch::TooManyReaders),
}

/// Measures one table alone.
type Alone = fn(Protection, Duration) -> Result<Reading, EpochsError>;

/// Each table of the chain alone, under each protection, with a thread per CPU; and what the epoch saves, as a
/// sentence.
fn each_table(
    extent: &Extent,
    next: &mut dyn FnMut(&str) -> Result<(), Error>,
    failed: &dyn Fn(&str, EpochsError) -> Error,
) -> Result<(String, Table), Error> {
    let mut rows = Vec::new();
    let mut means = [0.0; 3];
    let tables: [(&str, Alone); 4] = [
        ("interface list", |by, trial| {
            alone(by, trial, Interfaces::new, |list, port| list.address(port).value())
        }),
        ("interface address", |by, trial| {
            alone(by, trial, tables::Address::new, |address, _| address.value())
        }),
        ("link-layer table", |by, trial| {
            alone(by, trial, Neighbours::new, |neighbours, port| neighbours.look_up(port.into()))
        }),
        ("pcb hash", |by, trial| alone(by, trial, Sockets::new, Sockets::look_up)),
    ];
    for (name, measured) in tables {
        next(name)?;
        for (mean, by) in means.iter_mut().zip(Protection::ALL) {
            let reading = measured(by, extent.trial).map_err(|cause| failed(name, cause))?;
            let cost = 1e9 / reading.per_cpu_second;
            *mean += cost / tables.len() as f64;
            let [p50, p99, max] = wait_words(&reading.waits);
            rows.push(vec![name.into(), by.name().into(), format!("{cost:.1} ns"), p50, p99, max]);
        }
    }
    let [lock, count, epoch] = means;
    let sentence = format!(
        "one lookup costs {lock:.0} ns of CPU time under a read lock, {count:.0} ns with a reference count, {epoch:.1} ns under an epoch \
         (mean of the four tables, {} threads)",
        cpus()
    );
    let columns = ["table", "protection", "CPU time per lookup", "writer p50", "p99", "max"];
    let title = format!("each table alone, {} threads", cpus());
    Ok((sentence, Table { title, columns: columns.map(Into::into).to_vec(), rows }))
}

/// One trial of one table.
fn alone<T: Send + Sync + 'static>(
    by: Protection,
    trial: Duration,
    make: fn(u32) -> T,
    look_up: fn(&T, u16) -> u32,
) -> Result<Reading, EpochsError> {
    let domain = Domain::new(cpus(), MAX_REPLACED);
    let table = Protected::new(by, &domain, || make(0));
    let mut registered = register(&domain, cpus())?.into_iter();
    let table = &table;
    let reading = readers::read(
        cpus(),
        trial,
        |_| {
            let Some(mut reader) = registered.next() else { return Box::new(|_| 0) };
            Box::new(move |ports| {
                ports.iter().fold(0, |sum: u32, port| {
                    let guard = reader.pin();
                    sum.wrapping_add(table.with(&guard, |table| look_up(table, *port)))
                })
            })
        },
        |version| table.replace(make(version)),
    )?;
    Ok(reading)
}

/// What two stages cost with one thread and with one per CPU.
fn cause(of: (f64, f64, usize), to: (f64, f64, usize)) -> String {
    let ((of_one, of_all, threads), (to_one, to_all, _)) = (of, to);
    format!(
        "CPU time per packet is {of_one:.0} ns instead of {to_one:.0} ns with one thread, {of_all:.0} ns instead of {to_all:.0} ns with {threads} \
         threads on {} CPUs, which is all the contention that this machine has.",
        cpus()
    )
}

fn sweep_of(extent: &Extent, costs: &BTreeMap<(Stage, usize), f64>) -> Sweep {
    let line = |stage: Stage| Line {
        name: stage.id().into(),
        origin: FigureOrigin::Measured,
        points: extent
            .threads
            .iter()
            .filter_map(|threads| {
                let y = *costs.get(&(stage, *threads))?;
                Some(Point { x: *threads as f64, y, low: y, high: y })
            })
            .collect(),
    };
    Sweep {
        title: "CPU time of a send, by threads".into(),
        x: "threads".into(),
        unit: Unit::NsPerPacket,
        lines: Stage::ALL.map(line).to_vec(),
    }
}

fn waits_of(title: &str, waits: BTreeMap<&str, Vec<Duration>>) -> Table {
    let rows = Stage::ALL.iter().filter_map(|stage| {
        let waits = waits.get(stage.id())?;
        Some([vec![stage.id().into()], wait_words(waits).to_vec()].concat())
    });
    Table {
        title: title.into(),
        columns: ["stage", "p50", "p99", "max"].map(Into::into).to_vec(),
        rows: rows.collect(),
    }
}

/// Median, 99th percentile and the longest.
fn wait_words(waits: &[Duration]) -> [String; 3] {
    let micros: Vec<f64> = waits.iter().map(|wait| wait.as_secs_f64() * 1e6).collect();
    [0.5, 0.99, 1.0].map(|at| match micros.is_empty() {
        true => "-".into(),
        false => format!("{:.1} us", quantile(micros.clone(), at)),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::entry::Context;

    #[test]
    fn every_stage_and_table_is_measured() {
        let stop = AtomicBool::new(false);
        let context =
            Context { program: "udpath".into(), effort: Effort::Least, modelled: &|_| None, stop: &stop };
        let (mut last, mut all) = (0, 0);
        let outcome = crate::run(&ENTRY, &context, &mut |now| (last, all) = (now.step, now.steps)).unwrap();
        assert_eq!(last, all, "the steps announced are those taken");
        assert_eq!(outcome.cases.len(), 6);
        for case in &outcome.cases {
            assert!(case.measured.is_some_and(|measured| measured.median > 0.0), "{}", case.id);
        }
        assert!(outcome.comparisons.iter().all(|pair| pair.measured.is_some()));
        assert_eq!(outcome.sweeps[0].lines.len(), 6);
        assert_eq!(outcome.tables[1].rows.len(), 12, "four tables under three protections");
        for table in &outcome.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
        }
    }

    #[test]
    fn a_stopped_run_is_interrupted() {
        let stop = AtomicBool::new(true);
        let context =
            Context { program: "udpath".into(), effort: Effort::Least, modelled: &|_| None, stop: &stop };
        assert!(matches!(crate::run(&ENTRY, &context, &mut |_| ()), Err(Error::Interrupted)));
    }
}
