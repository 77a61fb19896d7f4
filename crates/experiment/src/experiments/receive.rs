//! One socket under a flood (Red Hat, 2017): in this kernel over 1, 2 and 4 receive queues, and in the datapath's own
//! socket at each step that the kernel's took.
//!
//! ```text
//!   kernel   client, on the other CPUs: load sink --mode flood ══ veth, 1 | 2 | 4 queues, NAPI ══▸ serve sink, CPU 0   kernel.rs
//!            the same ═══════════════════════════════════════════════════════════════════▸ bare read | recvfrom        bare.rs
//!   memory   1 | 2 | 4 | 8 producers ──▸ socket::queue at each Step ──▸ reader, CPU 0                                  socket_flood.rs
//! ```

mod bare;
mod kernel;

use std::collections::BTreeMap;
use std::time::Duration;

use udpath_stack::socket::queue::Step;

use crate::description::{Description, Unit};
use crate::entry::{Context, Effort, Entry, Error, Found, Progress, Watch};
use crate::in_turn::{Trials, in_turn};
use crate::outcome::{FigureOrigin, Line, Point, Sweep};
use crate::socket_flood::flood;
use crate::threads::cpus;

/// Its line in the registry.
pub(super) const ENTRY: Entry = Entry { text: include_str!("../../data/receive.toml"), measure };

/// Producers of the least and of the most contended case, as receive queues in the document.
const FEWEST: usize = 1;
const MOST: usize = 8;

/// How long and how often is measured.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// A trial in memory, and their blocks.
    flood: Duration,
    flood_blocks: usize,
    /// Producers of the sweep.
    producers: &'static [usize],
    /// A trial of the kernel, and their blocks.
    load: Duration,
    load_blocks: usize,
    /// Sampled time of a profile.
    sampled: Duration,
}

impl Extent {
    const fn of(effort: Effort) -> Self {
        match effort {
            Effort::Full => Self {
                flood: Duration::from_millis(80),
                flood_blocks: 12,
                producers: &[1, 2, 4, 8],
                load: Duration::from_millis(400),
                load_blocks: 6,
                sampled: Duration::from_millis(2500),
            },
            Effort::Least => Self {
                flood: Duration::from_millis(10),
                flood_blocks: 1,
                producers: &[1, 2],
                load: Duration::from_millis(50),
                load_blocks: 1,
                sampled: Duration::from_millis(300),
            },
        }
    }
}

/// The name of a step in the ids of cases.
const fn name(step: Step) -> &'static str {
    match step {
        Step::SocketLock => "socket-lock",
        Step::OneQueue => "queue-lock",
        Step::BulkRelease => "bulk",
        Step::BusyLock => "busy-lock",
        Step::TwoQueues => "two-queues",
        Step::Bursts => "bursts",
        Step::Ring => "ring",
    }
}

fn measure(description: &Description, context: &Context<'_>, watch: &mut Watch<'_>) -> Result<Found, Error> {
    let extent = Extent::of(context.effort);
    let in_memory: Vec<(String, Step, usize)> = [FEWEST, MOST]
        .into_iter()
        .flat_map(|producers| Step::ALL.map(|step| (format!("{}-{producers}", name(step)), step, producers)))
        .collect();
    let of_sweep = Step::ALL.len() * extent.producers.len();
    let steps = in_memory.len() * 2 * extent.flood_blocks + of_sweep + kernel::steps(extent);
    let mut step = 0;
    let mut next = |what: &str| {
        step += 1;
        watch(&Progress { what, step, steps });
        context.check()
    };

    let ids: Vec<&str> = in_memory.iter().map(|(id, ..)| id.as_str()).collect();
    let rate = |what: &str, step, producers| {
        flood(step, producers, extent.flood).map_err(|cause| Error::measuring(description, what, cause))
    };
    let memory = in_turn(&ids, extent.flood_blocks, |case, _| {
        next(case)?;
        let (_, step, producers) = in_memory.iter().find(|(id, ..)| id == case).unwrap_or(&in_memory[0]);
        rate(case, *step, *producers)
    })?;
    let mut points = BTreeMap::<Step, Vec<Point>>::new();
    for producers in extent.producers {
        for step in Step::ALL {
            next(name(step))?;
            let y = rate(name(step), step, *producers)?;
            points.entry(step).or_default().push(Point { x: *producers as f64, y, low: y, high: y });
        }
    }
    let of_kernel = kernel::measure(description, context, extent, &mut next)?;

    let mut cases = memory.cases(description, |_| None);
    cases.extend(of_kernel.trials.cases(description, |id| of_kernel.limited_by.get(id).cloned()));
    let mut ratios = memory.ratios(description, |of, to| cause(&memory, of, to));
    ratios.extend(of_kernel.trials.ratios(description, |of, to| of_kernel.cause(of, to)));
    let line = |(step, points)| Line { name: name(step).into(), origin: FigureOrigin::Measured, points };
    let sweep = Sweep {
        title: "one socket in memory, by producers".into(),
        x: "producers".into(),
        unit: Unit::Pps,
        lines: points.into_iter().map(line).collect(),
    };
    let mut notes = vec![format!(
        "in memory, {MOST} producers run on {} CPU(s) beside the reader's: {} threads at most contend at a time, on the document's \
         machine one for each receive queue and the reader",
        cpus() - 1,
        contenders()
    )];
    notes.extend(of_kernel.notes);
    Ok(Found { cases, ratios, sweeps: vec![sweep], tables: of_kernel.tables, notes, ..Found::default() })
}

/// How the two steps do with one producer and with the most: what contention costs each of them here.
fn cause(trials: &Trials, of: &str, to: &str) -> Option<String> {
    let rates = |id: &str| {
        let (step, _) = id.rsplit_once('-')?;
        let at = |producers| trials.median(&format!("{step}-{producers}"));
        Some((step.to_owned(), at(FEWEST)? / 1e6, at(MOST)? / 1e6))
    };
    let ((of, of_one, of_most), (to, to_one, to_most)) = (rates(of)?, rates(to)?);
    let same = of == to;
    let mut words = format!(
        "With {} contenders at a time, {to} delivers {to_one:.1} M/s from one producer and {to_most:.1} M/s from {MOST}",
        contenders()
    );
    if !same {
        words += &format!(", {of} {of_one:.1} M/s and {of_most:.1} M/s");
    }
    Some(words + ".")
}

/// Threads that contend for the socket at a time: the reader, and a producer on each other CPU.
fn contenders() -> usize {
    cpus().min(MOST + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_that_is_measured_in_memory_is_described() {
        let description = Description::parse(ENTRY.text).unwrap();
        for producers in [FEWEST, MOST] {
            for step in Step::ALL {
                let id = format!("{}-{producers}", name(step));
                assert!(description.case(&id).is_some(), "{id}");
            }
        }
        for id in kernel::ids() {
            assert!(description.case(id).is_some(), "{id}");
        }
    }
}
