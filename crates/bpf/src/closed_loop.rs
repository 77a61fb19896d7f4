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
mod memory;
mod mixed;
mod owners;
mod prebuilt;
mod samples;

use std::net::{IpAddr, SocketAddr};

use aya::programs::XdpMode;
use aya::programs::links::FdLink;
use aya::{Ebpf, EbpfLoader};

use crate::Error;
use crate::attach::{self, object};

pub use echo::{HEADER, MAGIC, MIN_SIZE, header_check};
pub use memory::Memory;
pub use prebuilt::{
    Declared, Element, Id, MAX_ELEMENTS, MAX_REQUEST_LEN, MAX_REQUESTS, MAX_RULES, ReplyRules, RequestTable,
    Rule, TableError, Verdict,
};
pub use samples::{Judged, MAX_SAMPLE_LEN, Sample, Samples};

/// Latency buckets per CPU: 128 for each power of two from 2^7 to 2^34 ns, and one each for the values below.
pub const BUCKETS: usize = SUB * 28;

const SUB: usize = 128;
const POLL_ENDED: &str = "poll_ended";
const TRACEPOINT: &str = "napi_poll";

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

#[cfg(test)]
mod tests;
