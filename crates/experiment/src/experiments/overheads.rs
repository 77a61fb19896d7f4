//! Overheads of the host's stack for streams (SIGCOMM 2021): patterns and numbers of flows, offloads, buffers, where
//! the time goes.
//!
//! ```text
//!   udpath load sink --lab --pattern P --hosts N ...   one run per trial: throughput over the CPU time of the busier end   cases.rs
//!         │  the same, longer, with every CPU sampled                              time by class, per KiB                  ../work.rs
//!         └  with other receive buffers                                            delay from NAPI to the copy             buffers.rs
//! ```
//! Both ends are on this machine: on a veth the thread that sends also does the receiver's softirq work, unless RFS
//! moves it. So the sender is the busier end where the document's receiver is.

mod buffers;
mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use udpath_advise::result::Ratio;
use udpath_profile::Profile;
use udpath_profile::classes::Class;
use udpath_profile::trace::Source;

use crate::description::{Description, Unit};
use crate::entry::{CaseFound, Context, Effort, Entry, Error, Found, Progress, RatioFound, Watch};
use crate::in_turn::{Trials, in_turn};
use crate::outcome::{FigureOrigin, Line, Measured, Point, Sweep, Table};
use crate::program::{Load, ProgramError};
use crate::work::{Group, Spent, sample};
use cases::{CASES, Case};

/// Its line in the registry.
pub(super) const ENTRY: Entry = Entry { text: include_str!("../../data/overheads.toml"), measure };

/// How long a load may take until it sends: the lab of 24 pairs has 48 machines.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest run of a load that is sampled, which normally ends with the samples. Shorter: reading the machine and the
/// kernel's symbols takes seconds on a busy or large machine, and the samples would show the end of the lab.
const MAX_SAMPLED_RUN: Duration = Duration::from_secs(60);
/// Runs of a trial until one has a figure. Fewer: a busy machine that gives the load no CPU for as long as a trial ends
/// the experiment. More: a lab that cannot work is noticed late.
const ATTEMPTS: usize = 4;

/// How long and how often is measured.
#[derive(Debug, Clone, Copy)]
struct Extent {
    trial: Duration,
    blocks: usize,
    sampled: Duration,
    /// Cases, and buffers of the sweep.
    cases: usize,
    buffers: usize,
}

impl Extent {
    const fn of(effort: Effort) -> Self {
        match effort {
            Effort::Full => Self {
                trial: Duration::from_millis(400),
                blocks: 3,
                sampled: Duration::from_millis(1500),
                cases: CASES.len(),
                buffers: 4,
            },
            Effort::Least => Self {
                trial: Duration::from_millis(300),
                blocks: 1,
                sampled: Duration::from_millis(300),
                cases: 5,
                buffers: 1,
            },
        }
    }
}

/// What one run showed.
#[derive(Debug, Clone, Copy)]
struct Figure {
    /// Gbit/s delivered per core of the busier end.
    gbits: f64,
    /// The same of each end.
    sender: f64,
    receiver: f64,
    /// Bytes delivered per second.
    bytes: f64,
}

fn measure(description: &Description, context: &Context<'_>, watch: &mut Watch<'_>) -> Result<Found, Error> {
    let extent = Extent::of(context.effort);
    let cases = &CASES[..extent.cases];
    let profiled = || cases.iter().filter(|case| case.profiled);
    let steps = cases.len() * 2 * extent.blocks + profiled().count() + buffers::steps(extent.buffers);
    let mut step = 0;
    let mut next = |what: &str| {
        step += 1;
        watch(&Progress { what, step, steps });
        context.check()
    };
    let failed = |what: &str, cause: ProgramError| match context.check() {
        Ok(()) => Error::measuring(description, what, cause),
        // Ctrl-C ends the load as well.
        Err(interrupted) => interrupted,
    };

    let ids: Vec<&str> = cases.iter().map(|case| case.id).collect();
    let case = |id: &str| cases.iter().find(|case| case.id == id).unwrap_or(&cases[0]);
    let mut ends = BTreeMap::<String, Vec<Figure>>::new();
    let trials = in_turn(&ids, extent.blocks, |id, _| {
        next(id)?;
        let figure = trial(context, &case(id).arguments(extent.trial)).map_err(|cause| failed(id, cause))?;
        ends.entry(id.to_owned()).or_default().push(figure);
        // The unit does not matter to ratios, but a comparison takes figures below 1 for silence.
        Ok(figure.gbits * 1e9)
    })?;
    let mut works = BTreeMap::new();
    let mut notes = Vec::new();
    for case in profiled() {
        next(case.id)?;
        let taken = sampled(context, &|length| case.arguments(length), extent.sampled, &[])
            .map_err(|cause| failed(case.id, cause))?;
        match taken.profile {
            Ok(profile) => {
                let kib = taken.figure.bytes * profile.seconds / 1024.0;
                works.insert(case.id, Work::new(&profile, (taken.sender, &taken.receivers), kib));
            }
            Err(why) => notes.push(format!("{}: no profile: {why}", case.id)),
        }
    }
    let lengths = (extent.trial, extent.sampled);
    let buffers = buffers::measure(context, extent.buffers, lengths, &mut next, &failed)?;

    let mut found = trials.cases(description, |id| works.get(id)?.all.largest());
    found.values_mut().for_each(|case| in_gbits(&mut case.measured));
    let mut ratios = trials.ratios(description, |of, to| works.get(of)?.against(works.get(to)?));
    shares(&works, &mut found, &mut ratios);
    notes.extend(absent(&works));
    let left_out = CASES[extent.cases..].iter().map(|case| (case.id, LEFT_OUT));
    let missing = SHARES.map(|id| (id, NO_PROFILE)).into_iter().chain(left_out);
    Ok(Found {
        cases: found,
        ratios,
        sweeps: by_flows(&trials, cases),
        tables: vec![ends_of(cases, &ends), by_class(cases, &works), buffers],
        missing: missing.map(|(id, why)| (id.to_owned(), why.to_owned())).collect(),
        notes,
    })
}

/// Why a case has no figure that is not among the first ones.
const LEFT_OUT: &str = "left out of the least effort";
/// Cases whose figures come from profiles, and why one has none.
const SHARES: [&str; 3] = ["copy-share", "gro", "gro-jumbo"];
const NO_PROFILE: &str = "no profile could be taken, see the notes";

/// One run of a load, again if it had next to no CPU time, or its servers were not ready in time.
fn trial(context: &Context<'_>, arguments: &[String]) -> Result<Figure, ProgramError> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match figure(Load::start(&context.program, arguments)?, arguments) {
            Err(ProgramError::Lacks { .. } | ProgramError::Failed { .. })
                if left > 0 && !context.stop.load(Ordering::Relaxed) => {}
            done => return done,
        }
    }
}

fn figure(load: Load, arguments: &[String]) -> Result<Figure, ProgramError> {
    let lacks = |what| ProgramError::Lacks { command: format!("udpath load {}", arguments.join(" ")), what };
    let result = load.finish()?;
    let delivered = result.delivered.ok_or_else(|| lacks("delivered bytes"))?;
    // Not that of its throughput per core, which a sum has only if each of its clients has.
    let sender = Some(result.generator.cpu_seconds).filter(|seconds| *seconds > 0.0);
    let sender = sender.ok_or_else(|| lacks("CPU time of the sender"))?;
    let receiver = result.per_core.receiver.ok_or_else(|| lacks("CPU time of the receiver"))?;
    let bits = delivered.bytes as f64 * 8.0;
    // Of what arrived, over either end's CPU time.
    let [of_sender, of_receiver] = [sender, receiver.cpu_seconds].map(|seconds| bits / seconds / 1e9);
    Ok(Figure {
        gbits: of_sender.min(of_receiver),
        sender: of_sender,
        receiver: of_receiver,
        bytes: delivered.mbits * 1e6 / 8.0,
    })
}

/// A run that was sampled.
struct Sampled {
    figure: Figure,
    /// The process that sent, and those that received.
    sender: u32,
    receivers: BTreeSet<u32>,
    profile: Result<Profile, String>,
}

/// Runs the load that `arguments` describes until it was sampled for this long.
fn sampled(
    context: &Context<'_>,
    arguments: &dyn Fn(Duration) -> Vec<String>,
    length: Duration,
    traced: &[Source],
) -> Result<Sampled, ProgramError> {
    let arguments = arguments(MAX_SAMPLED_RUN);
    let mut load = Load::start(&context.program, &arguments)?;
    let (sender, sends) = (load.pid(), load.await_sending(START_TIMEOUT));
    let receivers = load.children();
    let profile = match sends {
        true => sample(length, traced, context.stop),
        false => Err("the load did not start to send".to_owned()),
    };
    load.stop();
    Ok(Sampled { figure: figure(load, &arguments)?, sender, receivers, profile })
}

/// Where the time of a case went.
struct Work {
    /// Of both ends and of softirqs.
    all: Spent,
    sender: Spent,
    receivers: Spent,
    /// NAPI and GRO, and the samples that were seen there.
    gro: (u64, u64),
    /// KiB delivered in the sampled time.
    kib: f64,
    hardware: bool,
}

impl Work {
    fn new(profile: &Profile, (sender, receivers): (u32, &BTreeSet<u32>), kib: f64) -> Self {
        let gro = profile.stacks.iter().filter(|stack| stack.class == Class::NapiGro);
        Self {
            all: Spent::with_interrupts(profile, |pid| pid == sender || receivers.contains(&pid)),
            sender: Spent::of_processes(profile, |pid| pid == sender),
            receivers: Spent::of_processes(profile, |pid| receivers.contains(&pid)),
            gro: gro.fold((0, 0), |(ns, samples), stack| (ns + stack.ns, samples + stack.samples)),
            kib: kib.max(f64::MIN_POSITIVE),
            hardware: profile.hardware.is_some(),
        }
    }

    fn per_kib(&self, group: Group) -> f64 {
        self.all.ns(group) as f64 / self.kib
    }

    /// What differs most from another case, per KiB: the measured cause of a ratio.
    fn against(&self, to: &Self) -> Option<String> {
        let change = |group: &Group| self.per_kib(*group) - to.per_kib(*group);
        let most = Group::ALL.into_iter().max_by(|a, b| change(a).abs().total_cmp(&change(b).abs()))?;
        let total = |work: &Self| work.all.total() as f64 / work.kib;
        Some(format!(
            "CPU time per KiB is {:.0} ns instead of {:.0} ns; most of the difference is {}, {:.0} ns instead of {:.0} ns.",
            total(self),
            total(to),
            most.name(),
            self.per_kib(most),
            to.per_kib(most)
        ))
    }
}

fn in_gbits(measured: &mut Measured) {
    for figure in [&mut measured.median, &mut measured.low, &mut measured.high] {
        *figure /= 1e9;
    }
}

/// The two figures of the document that are shares: data copy of the receiver's time, and what jumbo frames save of
/// GRO.
fn shares(
    works: &BTreeMap<&str, Work>,
    cases: &mut BTreeMap<String, CaseFound>,
    ratios: &mut BTreeMap<(String, String), RatioFound>,
) {
    let once = |value| Measured { median: value, low: value, high: value, trials: 1 };
    let mut add = |id: &str, value: f64| {
        cases.insert(id.into(), CaseFound { measured: once(value), cpu: None, limited_by: None });
    };
    if let Some(jumbo) = works.get("jumbo") {
        add("copy-share", jumbo.receivers.share(Group::Copy));
    }
    let (Some(with), Some(without)) = (works.get("jumbo"), works.get("gso-gro")) else { return };
    let cost = |work: &Work| work.gro.0 as f64 / work.kib;
    add("gro-jumbo", cost(with));
    add("gro", cost(without));
    if with.gro.1 > 0 && without.gro.1 > 0 {
        // The samples of a class are counted events: the standard error of the logarithm of their ratio.
        let error = 1.96 * (1.0 / with.gro.1 as f64 + 1.0 / without.gro.1 as f64).sqrt();
        let ratio = cost(with) / cost(without);
        let ratio = Ratio { ratio, low: ratio * (-error).exp(), high: ratio * error.exp() };
        let cause = Some(format!(
            "NAPI and GRO take {:.1} ns per KiB with an MTU of 9000 and {:.1} ns with 1500 ({} and {} samples).",
            cost(with),
            cost(without),
            with.gro.1,
            without.gro.1
        ));
        ratios.insert(("gro-jumbo".into(), "gro".into()), RatioFound { ratio, cause });
    }
}

/// What this machine cannot show.
fn absent(works: &BTreeMap<&str, Work>) -> Vec<String> {
    let mut notes = vec![
        "a veth has no IOMMU and no DCA in its path, and this machine's nodes and caches are those of a virtual machine: neither is measured".to_owned(),
    ];
    if !works.values().any(|work| work.hardware) {
        notes.push("this machine has no hardware counters, so cache misses are not measured".into());
    }
    notes
}

/// Throughput per core over the number of flows, by pattern.
fn by_flows(trials: &Trials, cases: &[Case]) -> Vec<Sweep> {
    let line = |pattern: &str| {
        let of_pattern = cases.iter().filter(|case| {
            case.tcp && case.options.is_empty() && (case.pattern == pattern || case.id == "single")
        });
        let points = of_pattern.filter_map(|case| {
            let mut measured = trials.measured(case.id)?;
            in_gbits(&mut measured);
            let Measured { median: y, low, high, .. } = measured;
            Some(Point { x: f64::from(case.flows()), y, low, high })
        });
        Line { name: pattern.into(), origin: FigureOrigin::Measured, points: points.collect() }
    };
    let published = Line {
        name: "one-to-one, published".into(),
        origin: FigureOrigin::Published,
        points: [(1.0, 42.0), (24.0, 15.0)].map(|(x, y)| Point { x, y, low: y, high: y }).to_vec(),
    };
    vec![Sweep {
        title: "TCP throughput per core of the busier end".into(),
        x: "flows".into(),
        unit: Unit::GbitPerCore,
        lines: ["one-to-one", "incast", "outcast", "all-to-all"]
            .map(line)
            .into_iter()
            .chain([published])
            .collect(),
    }]
}

fn ends_of(cases: &[Case], ends: &BTreeMap<String, Vec<Figure>>) -> Table {
    let rows = cases.iter().filter_map(|case| {
        let figures = ends.get(case.id)?;
        let median = |of: fn(&Figure) -> f64| {
            let figure = udpath_advise::statistics::median(figures.iter().map(of).collect());
            figure.map_or_else(|| "-".into(), |figure| format!("{figure:.1}"))
        };
        let bytes = median(|figure| figure.bytes * 8.0 / 1e9);
        Some(vec![
            case.id.into(),
            case.flows().to_string(),
            bytes,
            median(|figure| figure.sender),
            median(|figure| figure.receiver),
        ])
    });
    let columns = ["case", "flows", "Gbit/s", "per sender's core", "per receiver's core"];
    Table {
        title: "throughput of each end".into(),
        columns: columns.map(Into::into).to_vec(),
        rows: rows.collect(),
    }
}

fn by_class(cases: &[Case], works: &BTreeMap<&str, Work>) -> Table {
    let rows = cases.iter().filter_map(|case| Some((case, works.get(case.id)?))).flat_map(|(case, work)| {
        [("both, softirqs", &work.all), ("sender", &work.sender), ("receivers", &work.receivers)]
            .map(|(of, spent)| [vec![case.id.to_owned(), of.into()], spent.cells()].concat())
    });
    let columns = ["case", "of"].into_iter().chain(Group::ALL.map(Group::name));
    Table {
        title: "CPU time by class".into(),
        columns: columns.map(Into::into).collect(),
        rows: rows.collect(),
    }
}
