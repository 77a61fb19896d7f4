//! The in-kernel load generator: loader and shared state of its two programs. `bpf/closed_loop.h` explains how they
//! work.
//!
//! ```text
//!   Requests::Echo      closed_loop.bpf.c     its own requests to an echo server; every byte of a reply is checked
//!   Requests::Prebuilt  prebuilt_loop.bpf.c   a protocol's requests; length, identifier and some fields are checked,
//!                                             and a sample of the replies is copied for a complete check (Samples)
//!   several of them     mixed_loop.bpf.c      calls the program of the loop that a reply belongs to
//! ```

mod echo;
mod homes;
mod mixed;
mod prebuilt;
mod samples;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use aya::programs::XdpMode;
use aya::programs::links::FdLink;
use aya::{Ebpf, EbpfLoader};

use crate::Error;
use crate::attach::{self, object};
use crate::shared_array::SharedArray;
use crate::sys;
use prebuilt::Order;

pub use echo::{HEADER, MAGIC, MIN_SIZE, header_check};
pub use prebuilt::{
    Declared, Element, Id, MAX_ELEMENTS, MAX_REQUEST_LEN, MAX_REQUESTS, MAX_RULES, ReplyRules, RequestTable,
    Rule, TableError, Verdict,
};
pub use samples::{Judged, MAX_SAMPLE_LEN, Sample, Samples};

/// Latency buckets per CPU: 128 for each power of two from 2^7 to 2^34 ns, and one each for the values below.
pub const BUCKETS: usize = SUB * 28;

/// Lost requests per slot whose late replies are still distinguished from duplicates.
const REMEMBERED: usize = 4;
/// The first word of a slot that has their numbers: `given_up` in closed_loop.h.
const GIVEN_UP: usize = 4;
const SUB: usize = 128;
const POLL_ENDED: &str = "poll_ended";
const TRACEPOINT: &str = "napi_poll";
/// Further replies that share one clock reading. Fewer: an eighth more CPU per transaction. More: latencies off by that
/// many replies' processing time, a tenth of a microsecond each, for a gain that halves each time.
const READERS: u64 = 1;

/// The highest latency in nanoseconds that falls into `bucket`. The last bucket also holds everything longer.
#[must_use]
pub fn bucket_value(bucket: usize) -> u64 {
    let (power, sub) = (bucket / SUB, (bucket % SUB) as u64);
    match power {
        0 => sub,
        _ => ((SUB as u64 + sub + 1) << (power - 1)) - 1,
    }
}

/// Parameters fixed before the program is loaded.
#[derive(Debug, Clone)]
pub struct Layout<'a> {
    /// What is sent, and so which program it is.
    pub requests: Requests<'a>,
    /// The server: what comes from anywhere else is no reply.
    pub server: SocketAddr,
    /// A reply later than this after its request is late, nanoseconds.
    pub timeout: u64,
    /// Transactions in flight, over all flows.
    pub slots: u32,
    /// Flows.
    pub flows: u32,
    /// The CPUs that send the requests: flow `f` has CPU `f` modulo their number as its home. Without any, the CPU that
    /// received a reply sends the next request.
    pub homes: &'a [usize],
}

/// The requests of a loop.
#[derive(Debug, Clone, Copy)]
pub enum Requests<'a> {
    /// A whole request as first sent, at least [`MIN_SIZE`] bytes, with [`MAGIC`] and the number of the run. Its body,
    /// everything after [`HEADER`], is expected back unchanged.
    Echo(&'a [u8]),
    /// Those of a protocol.
    Prebuilt(&'a RequestTable),
}

impl Requests<'_> {
    /// The program that sends them: the name of the object, too.
    const fn program(self) -> &'static str {
        match self {
            Self::Echo(_) => "closed_loop",
            Self::Prebuilt(_) => "prebuilt_loop",
        }
    }

    fn object(self) -> &'static [u8] {
        match self {
            Self::Echo(_) => object!("closed_loop"),
            Self::Prebuilt(_) => object!("prebuilt_loop"),
        }
    }
}

/// Words of a CPU's counters before its latency buckets.
const COUNTERS: usize = 16;

/// Words of a flow, and of the first other sender.
const FLOW_WORDS: usize = 8;
const STRANGER_WORDS: usize = 8;
/// The other sender is complete: its state in closed_loop.h.
const COMPLETE: u64 = 2;

/// Bits of the program's state, as in its source.
const RUNNING: u64 = 1;
const CONTESTED: u64 = 2;

/// The state of a slot's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The request in flight.
    pub seq: u64,
    /// Its send time, `CLOCK_MONOTONIC` nanoseconds; 0 if nothing is in flight.
    pub sent: u64,
}

/// The program's counters, over all CPUs or for one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests whose first valid reply arrived in time.
    pub ok: u64,
    /// Requests whose first valid reply arrived after the timeout, but before they were given up.
    pub overdue: u64,
    /// First valid replies to requests that were given up.
    pub late: u64,
    /// Further valid replies.
    pub duplicate: u64,
    /// First valid replies overtaken by that of a later request of the same flow.
    pub reordered: u64,
    /// Damaged replies that carry the run's mark.
    pub corrupt: u64,
    /// Intact replies sent to another flow's port.
    pub wrong_flow: u64,
    /// Everything that was sent to one of the flows' ports: each is one of the above or refused (`reordered` is a
    /// subset of them).
    pub received: u64,
    /// Requests that the server refused with its first reply.
    pub refused: u64,
    /// The same, after they were given up.
    pub refused_late: u64,
    /// Next requests that were not sent, because the driver left no room in the reply's frame.
    pub unsent: u64,
    /// Datagrams to the flows' ports that the server did not send, of its family; not `received`. See
    /// [`Memory::stranger`].
    pub elsewhere: u64,
    /// Requests the program sent: one for each of `ok`, `overdue` and `refused`, except those that ended the loop.
    pub sent: u64,
}

/// One loop or several on an interface, attached until dropped.
#[derive(Debug)]
pub struct ClosedLoop {
    /// Closing it detaches; before the programs and the memory.
    _link: FdLink,
    /// Chooses the loop, if there are several.
    _mixed: Option<Ebpf>,
    memories: Vec<Memory>,
    _loops: Vec<Loop>,
}

/// A loop's programs, loaded.
#[derive(Debug)]
struct Loop {
    object: Ebpf,
    /// `None` if the tracepoint is not available: every reply then reads the clock.
    _poll_ended: Option<FdLink>,
}

/// The arrays shared by the program and this process: the state of every slot, and the counters.
#[derive(Debug)]
pub struct Memory {
    slots: SharedArray,
    counts: SharedArray,
    control: SharedArray,
    ports: SharedArray,
    flows: SharedArray,
    stranger: SharedArray,
    /// Prebuilt requests: their order, and copies of replies.
    prebuilt: Option<(Order, SharedArray)>,
    /// The server's family.
    ipv6: bool,
    /// See [`Layout::homes`].
    homes: Vec<usize>,
    slots_len: usize,
    /// Of several loops: whose port each is, and which loop this is.
    mixed: Option<mixed::Owners>,
    cpus: usize,
}

impl Memory {
    fn map(object: &Ebpf, layout: &Layout<'_>, cpus: usize) -> Result<Self, Error> {
        let program = layout.requests.program();
        let map = |name, len, words| SharedArray::map(object, program, name, len, words);
        let prebuilt = match layout.requests {
            Requests::Echo(_) => None,
            Requests::Prebuilt(table) => {
                table.fill(object, program)?;
                Some((table.order(), map("samples", cpus * samples::PER_CPU, samples::WORDS)?))
            }
        };
        let memory = Self {
            slots: map("slots", layout.slots as usize, 8)?,
            counts: map("counts", cpus, COUNTERS + BUCKETS)?,
            control: map("control", 1, 2)?,
            ports: map("ports", 65_536, 1)?,
            flows: map("flows", layout.flows as usize, FLOW_WORDS)?,
            stranger: map("stranger", 1, STRANGER_WORDS)?,
            prebuilt,
            ipv6: layout.server.is_ipv6(),
            homes: layout.homes.to_vec(),
            slots_len: layout.slots as usize,
            mixed: None,
            cpus,
        };
        if !sys::can_outwait_programs() {
            // The program then pays for the atomic exchange from the start.
            memory.control.element(0)[0].fetch_or(CONTESTED, AcqRel);
        }
        Ok(memory)
    }
}

/// An address as the program compares it: words in network byte order, IPv4 in the first.
fn address_words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [u32::from_ne_bytes(address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let mut words = [0; 4];
            for (word, bytes) in words.iter_mut().zip(address.octets().as_chunks().0) {
                *word = u32::from_ne_bytes(*bytes);
            }
            words
        }
    }
}

/// Calls `load` with the loader, with everything of `layout` filled in, and the number of CPUs.
fn with_loader<T>(
    layout: &Layout<'_>,
    load: impl FnOnce(&mut EbpfLoader<'_>, usize) -> Result<T, Error>,
) -> Result<T, Error> {
    let program = layout.requests.program();
    let cpus = aya::util::nr_cpus().map_err(|(_, cause)| Error::NotPermitted { program, cause })?;
    let cpus_len = cpus as u32;
    let (server_port, server_ipv6) = (layout.server.port(), i32::from(layout.server.is_ipv6()));
    let server_address = address_words(layout.server.ip());
    let (of_echo, of_table);
    let mut loader = EbpfLoader::new();
    match layout.requests {
        Requests::Echo(request) => {
            of_echo = echo::Constants::new(request);
            of_echo.set(&mut loader);
        }
        Requests::Prebuilt(table) => {
            of_table = prebuilt::Constants::new(table);
            of_table.set(&mut loader);
            loader
                .map_max_entries("requests", table.blocks())
                .map_max_entries("samples", cpus_len * samples::PER_CPU as u32);
        }
    }
    loader
        .override_global("timeout", &layout.timeout, true)
        .override_global("server_port", &server_port, true)
        .override_global("server_ipv6", &server_ipv6, true)
        .override_global("server_address", &server_address, true)
        .override_global("cpus_len", &cpus_len, true)
        .map_max_entries("slots", layout.slots)
        .map_max_entries("flows", layout.flows)
        .map_max_entries("homes", cpus_len)
        .map_max_entries("counts", cpus_len);
    load(&mut loader, cpus)
}

impl ClosedLoop {
    /// Attaches a loop for each of `layouts` to `interface` in the calling thread's network namespace; nothing is sent
    /// before [`Memory::launch`]. Of several, each must have ports of its own.
    ///
    /// # Errors
    /// No such interface, no native XDP, another program attached, no permission, no memory.
    pub fn attach(interface: &str, layouts: &[Layout<'_>]) -> Result<Self, Error> {
        let loaded: Vec<_> = layouts.iter().map(Loop::load).collect::<Result<_, _>>()?;
        let (mut loops, mut memories): (Vec<_>, Vec<_>) = loaded.into_iter().unzip();
        let (_link, _mixed) = match (&mut loops[..], layouts) {
            ([only], [layout]) => {
                let program = layout.requests.program();
                (attach::xdp_link(program, &mut only.object, interface, XdpMode::Driver)?, None)
            }
            (loops, _) => {
                let mut mixed = mixed::load(loops, &mut memories, layouts)?;
                (attach::xdp_link(mixed::PROGRAM, &mut mixed, interface, XdpMode::Driver)?, Some(mixed))
            }
        };
        Ok(Self { _link, _mixed, memories, _loops: loops })
    }

    /// The memory shared with each loop's program, in the order of the layouts.
    #[must_use]
    pub fn memories(&self) -> &[Memory] {
        &self.memories
    }
}

impl Loop {
    fn load(layout: &Layout<'_>) -> Result<(Self, Memory), Error> {
        with_loader(layout, |loader, cpus| {
            let requests = layout.requests;
            let mut object = attach::load_xdp(requests.program(), loader, requests.object())?;
            let memory = Memory::map(&object, layout, cpus)?;
            homes::open(&mut object, layout)?;
            let poll_ended = attach::raw_tracepoint(POLL_ENDED, &mut object, TRACEPOINT).ok();
            memory.share_clock(poll_ended.is_some());
            Ok((Self { object, _poll_ended: poll_ended }, memory))
        })
    }
}

impl Memory {
    /// Number of possible CPUs: the range of the per-CPU counters.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Turns replies into requests, or (false) only counts them.
    pub fn set_running(&self, running: bool) {
        let state = &self.control.element(0)[0];
        if running {
            state.fetch_or(RUNNING, AcqRel);
        } else {
            state.fetch_and(!RUNNING, AcqRel);
        }
    }

    /// Lets replies of one poll share a clock reading. Only while the program sees the end of polls.
    fn share_clock(&self, share: bool) {
        self.control.element(0)[1].store(if share { READERS } else { 0 }, Release);
    }

    /// Assigns `slot` to `flow`, whose socket is bound to `local`. Before the slot's first launch.
    pub fn assign(&self, slot: usize, flow: u32, local: SocketAddr) {
        let port = local.port();
        let [a, b, c, d] = address_words(local.ip()).map(u64::from);
        let its = self.flows.element(flow as usize);
        its[1].store(a | b << 32, Release);
        its[2].store(c | d << 32, Release);
        let home = self.homes.get(flow as usize % self.homes.len().max(1)).map_or(0, |cpu| *cpu as u64 + 1);
        let packed = u64::from(flow) | u64::from(port.to_be()) << 32 | home << 48;
        let words = self.slots.element(slot);
        words[2].store(packed, Release);
        if let Some((order, _)) = &self.prebuilt {
            words[3].store(order.first(slot), Release);
        }
        self.ports.element(usize::from(port))[0].store(u64::from(flow) + 1, Release);
        if let Some(owners) = &self.mixed {
            owners.claim(port);
        }
    }

    /// Prebuilt requests: the one that the slot has in flight, or sends next.
    #[must_use]
    pub fn request(&self, slot: usize) -> u32 {
        self.slots.element(slot)[3].load(Acquire) as u32
    }

    /// Prebuilt requests: the copies of replies. None of an echo loop.
    #[must_use]
    pub fn samples(&self) -> Option<Samples<'_>> {
        self.prebuilt.as_ref().map(|(_, samples)| Samples::new(samples, self.cpus))
    }

    /// Records that `slot` is about to send a request at `now`, and returns the request's sequence number. Only for a
    /// slot with nothing in flight.
    #[must_use]
    pub fn launch(&self, slot: usize, now: u64) -> u64 {
        let words = self.slots.element(slot);
        words[1].store(now, Release);
        words[0].load(Acquire)
    }

    /// Requests so far by the CPU that is their flow's home; empty if flows have no homes.
    #[must_use]
    pub fn by_home(&self) -> BTreeMap<usize, u64> {
        let mut sent = BTreeMap::new();
        for slot in 0..self.slots_len {
            let words = self.slots.element(slot);
            if let Some(cpu) = ((words[2].load(Acquire) >> 48) as usize).checked_sub(1) {
                *sent.entry(cpu).or_default() += words[0].load(Acquire);
            }
        }
        sent
    }

    /// The state of the slot's transaction.
    #[must_use]
    pub fn slot(&self, slot: usize) -> Slot {
        let words = self.slots.element(slot);
        let seq = words[0].load(Acquire);
        Slot { seq, sent: words[1].load(Acquire) }
    }

    /// Records that the request about to be launched was not sent.
    pub fn idle(&self, slot: usize) {
        self.slots.element(slot)[1].store(0, Release);
    }

    /// Gives up the request `seq` of `slot` as lost. False if its reply came first; then nothing has changed.
    ///
    /// The first call takes some tens of milliseconds: from then on the program exchanges numbers atomically, and every
    /// run that began before must have ended.
    #[must_use]
    pub fn give_up(&self, slot: usize, seq: u64) -> bool {
        self.contest();
        let words = self.slots.element(slot);
        if words[0].load(Acquire) != seq {
            return false;
        }
        // Recorded first: a reply that arrives right after the exchange must be found late, not a duplicate.
        // It replaces one that has been answered since (0), otherwise the oldest.
        let place = (GIVEN_UP..GIVEN_UP + REMEMBERED).min_by_key(|place| words[*place].load(Acquire));
        let remembered = &words[place.unwrap_or(GIVEN_UP)];
        let before = remembered.swap(seq + 1, AcqRel);
        let won = words[0].compare_exchange(seq, seq + 1, AcqRel, Acquire).is_ok();
        if won {
            if let Some((order, _)) = &self.prebuilt {
                words[3].store(order.next(words[3].load(Acquire), slot, seq + 1), Release);
            }
            words[1].store(0, Release);
        } else {
            remembered.store(before, Release);
        }
        won
    }

    /// From now on the program and this process compete for slots.
    fn contest(&self) {
        if self.control.element(0)[0].fetch_or(CONTESTED, AcqRel) & CONTESTED == 0 {
            sys::outwait_programs();
        }
    }

    /// One CPU's counters.
    #[must_use]
    pub fn counters(&self, cpu: usize) -> Counters {
        let words = self.counts.element(cpu);
        let word = |i: usize| words[i].load(Relaxed);
        Counters {
            ok: word(0),
            late: word(1),
            duplicate: word(2),
            reordered: word(3),
            corrupt: word(4),
            wrong_flow: word(5),
            received: word(6),
            sent: (word(0) + word(8) + word(11)).saturating_sub(word(7)),
            overdue: word(8),
            refused: word(11),
            refused_late: word(12),
            unsent: word(13),
            elsewhere: word(15),
        }
    }

    /// Who sent the first of the datagrams that are [`Counters::elsewhere`].
    #[must_use]
    pub fn stranger(&self) -> Option<SocketAddr> {
        let words = self.stranger.element(0);
        if words[0].load(Acquire) != COMPLETE {
            return None;
        }
        let bytes: Vec<u8> = words[1..3].iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let address = if self.ipv6 {
            IpAddr::from(*bytes.first_chunk::<16>()?)
        } else {
            IpAddr::from(*bytes.first_chunk::<4>()?)
        };
        Some(SocketAddr::new(address, words[3].load(Relaxed) as u16))
    }

    /// Adds the latency buckets of all CPUs to `sum`, which has [`BUCKETS`] elements.
    pub fn add_latency(&self, sum: &mut [u64]) {
        for cpu in 0..self.cpus {
            for (sum, count) in sum.iter_mut().zip(&self.counts.element(cpu)[COUNTERS..]) {
                *sum += count.load(Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
