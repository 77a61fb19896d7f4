//! Samples aggregated as they arrive: the same chain at the same place is one entry with a weight.
//!
//! ```text
//! Record::Sample ──▸ chains: each different list of addresses once ──▸ tallies: (CPU, thread, context, chains) ──▸ weight
//!                                                                 └──▸ time line: (slice, CPU, context) ──▸ weight
//! ```
//! A context is determined when a chain is first seen, so the time line needs no second pass. Memory is bounded: chains
//! beyond [`MOST_CHAINS`] are counted without their addresses, places beyond [`MOST_PLACES`] with less detail; both are
//! reported.

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{self, Context};
use crate::perf::{Mode, Sample};
use crate::symbols::kernel::Kernel;

/// Most different chains, and most addresses of all chains together. A busy server has a few thousand chains of about
/// 300 bytes each, so this is 20 MiB at most. Lower: samples lose their names; higher: a profile of many programs
/// exceeds its memory bound.
pub const MOST_CHAINS: usize = 65_536;
const MOST_ADDRESSES: usize = 1_500_000;
/// Most places with full detail; then those without the program's chain, and those without any chain. Together seven
/// eighths of a power of two, which fill a hash table before it doubles: 11 MiB. Lower: rare stacks lose their names on
/// a machine with many CPUs; higher: the profile exceeds its memory bound.
pub const MOST_PLACES: usize = 196_608;
const MOST_WITH_COARSE: [usize; 3] = [MOST_PLACES, 217_088, 229_376];
/// Last slice of the time line. A recording lasts an hour at most; a later time is wrong.
const LAST_SLICE: u32 = 4000;

/// Largest weight of one sample: a thousand seconds, as nanoseconds or cycles. A larger one is a damaged record; sums
/// of smaller ones cannot overflow.
const HEAVIEST: u64 = 1 << 40;

/// A chain's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(u32);

/// The place of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The CPU.
    pub cpu: u32,
    /// The process; 0 for idle and for interrupts, which are not charged to a process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// The context.
    pub context: Context,
    /// The kernel's part of the chain.
    pub kernel: ChainId,
    /// The program's part; empty for an interrupt.
    pub user: ChainId,
}

/// A count and a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Samples.
    pub samples: u64,
    /// Their weight: nanoseconds, or cycles.
    pub weight: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.weight += other.weight;
    }
}

/// Each different list of addresses once.
#[derive(Debug, Default)]
struct Chains {
    known: HashMap<Arc<[u64]>, ChainId>,
    list: Vec<Arc<[u64]>>,
    /// Addresses of all lists together.
    addresses: usize,
    /// Chains without room.
    refused: u64,
}

/// The weights of one CPU in one slice of time, in the order of [`Context::ALL`].
pub type Slice = [u64; Context::ALL.len()];

/// All samples so far.
#[derive(Debug)]
pub struct Samples {
    kernel: Kernel,
    chains: Chains,
    contexts: HashMap<ChainId, Context>,
    tallies: HashMap<Place, Tally>,
    /// Samples recorded with less detail.
    coarse: u64,
    time_line: HashMap<(u32, u32), Slice>,
    /// Start of the first slice, and length of each, nanoseconds.
    begin: u64,
    slice: u64,
    scratch: (Vec<u64>, Vec<u64>),
}

impl Samples {
    /// Empty. Slices of the time line are `slice` nanoseconds long and start at `begin`, in the samples' clock;
    /// `kernel` has the function names that determine contexts.
    #[must_use]
    pub fn new(kernel: Kernel, begin: u64, slice: u64) -> Self {
        let mut chains = Chains::default();
        // Number 0: no addresses; also used for chains without room.
        chains.number(&[]);
        Self {
            kernel,
            chains,
            contexts: HashMap::new(),
            tallies: HashMap::new(),
            coarse: 0,
            time_line: HashMap::new(),
            begin,
            slice: slice.max(1),
            scratch: (Vec::new(), Vec::new()),
        }
    }

    /// Adds a sample and returns its place.
    pub fn add(&mut self, sample: &Sample<'_>) -> Place {
        let (kernel, user) = &mut self.scratch;
        kernel.clear();
        user.clear();
        sample.chain.split(kernel, user);
        let kernel = self.chains.number(kernel);
        let context = self.context(sample, kernel);
        // An interrupt has nothing to do with the process and the code that it interrupted; on many CPUs, keeping them
        // would turn equal work into a hundred thousand places.
        let interrupt = matches!(context, Context::HardIrq | Context::Softirq);
        let (pid, tid) = if interrupt { (0, 0) } else { (sample.pid, sample.tid) };
        let user = if interrupt { ChainId(0) } else { self.chains.number(&self.scratch.1) };
        let weight = sample.period.min(HEAVIEST);
        let place = Place { cpu: sample.cpu, pid, tid, context, kernel, user };
        let place = self.room(place);
        self.tallies.entry(place).or_default().add(Tally { samples: 1, weight });
        // A time before the beginning goes to the first slice: the clocks of CPUs may differ slightly.
        let slice = sample.time.saturating_sub(self.begin) / self.slice;
        let slice = u32::try_from(slice).unwrap_or(LAST_SLICE).min(LAST_SLICE);
        self.time_line.entry((slice, sample.cpu)).or_default()[context as usize] += weight;
        place
    }

    /// The place itself, or the next less detailed one if there is no room. CPU and context are always kept.
    fn room(&mut self, place: Place) -> Place {
        let own = Place { user: ChainId(0), ..place };
        let bare = Place { tid: place.pid, kernel: ChainId(0), ..own };
        for (at, (place, most)) in [place, own, bare].into_iter().zip(MOST_WITH_COARSE).enumerate() {
            if self.tallies.len() < most || self.tallies.contains_key(&place) {
                self.coarse += u64::from(at > 0);
                return place;
            }
        }
        self.coarse += 1;
        Place { pid: 0, tid: 0, ..bare }
    }

    fn context(&mut self, sample: &Sample<'_>, chain: ChainId) -> Context {
        if sample.mode != Mode::Kernel {
            return context::of(sample.mode, []);
        }
        // All time of process 0 except interrupts is idle, also if functions have no names.
        let otherwise =
            |context| if sample.pid == 0 && context == Context::Kernel { Context::Idle } else { context };
        let (kernel, addresses) = (&self.kernel, &self.chains.list[chain.0 as usize]);
        let told = *self.contexts.entry(chain).or_insert_with(|| {
            context::of(Mode::Kernel, addresses.iter().filter_map(|address| kernel.frame(*address)))
        });
        otherwise(told)
    }

    /// The addresses of a chain, the innermost first.
    #[must_use]
    pub fn chain(&self, id: ChainId) -> &[u64] {
        &self.chains.list[id.0 as usize]
    }

    /// Every place with its tally, in no particular order.
    pub fn tallies(&self) -> impl Iterator<Item = (&Place, &Tally)> {
        self.tallies.iter()
    }

    /// The time line: slice from 0, CPU, weights. In no particular order.
    pub fn time_line(&self) -> impl Iterator<Item = (u32, u32, &Slice)> {
        self.time_line.iter().map(|((slice, cpu), weights)| (*slice, *cpu, weights))
    }

    /// The kernel's functions.
    #[must_use]
    pub const fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Replaces the kernel's functions: BPF programs loaded in the meantime are then included.
    pub fn rename(&mut self, kernel: Kernel) {
        self.kernel = kernel;
    }

    /// Samples without room for their chain or place.
    #[must_use]
    pub const fn nameless(&self) -> u64 {
        self.chains.refused + self.coarse
    }

    /// Different chains.
    #[must_use]
    pub fn chains(&self) -> usize {
        self.chains.list.len()
    }
}

impl Chains {
    fn number(&mut self, addresses: &[u64]) -> ChainId {
        if let Some(known) = self.known.get(addresses) {
            return *known;
        }
        if self.list.len() >= MOST_CHAINS || self.addresses + addresses.len() > MOST_ADDRESSES {
            self.refused += 1;
            return ChainId(0);
        }
        let id = ChainId(u32::try_from(self.list.len()).unwrap_or(0));
        self.addresses += addresses.len();
        let addresses: Arc<[u64]> = addresses.into();
        self.list.push(Arc::clone(&addresses));
        self.known.insert(addresses, id);
        id
    }
}
