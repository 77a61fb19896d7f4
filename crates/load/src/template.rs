//! The interface between the load and a protocol: how requests are written and replies judged.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

pub use udpath_bpf::{Element, Id, MAX_REQUESTS, ReplyRules, Rule, Verdict};

use crate::plan::{MAX_SIZE, Plan, Transport};
use crate::result::{Kind, LoadResult};

/// What [`Protocol::prepare`] returns: the protocol to use for this run, none for the same one, or why the servers
/// cannot be loaded.
pub type Prepared = Result<Option<Box<dyn Protocol>>, Box<dyn Error + Send + Sync>>;

/// One protocol's side of the load: makes a [`Template`] for each sending thread.
pub trait Protocol: Send + Sync {
    /// The protocol's name, as typed by the user.
    fn name(&self) -> &'static str;

    /// The smallest request in bytes that the templates can write.
    fn min_size(&self) -> usize;

    /// The largest request in bytes that the templates can write.
    fn max_size(&self) -> usize {
        MAX_SIZE
    }

    /// Whether every request is as long as the plan says. Otherwise the templates choose each length, and the plan's
    /// size is the longest; such requests cannot be segments of one message (GSO).
    fn one_size(&self) -> bool {
        true
    }

    /// The lengths of the requests, if they follow from the protocol's options: the longest replaces the plan's size,
    /// and results state the mean.
    fn lengths(&self) -> Option<Lengths> {
        None
    }

    /// Where the requests go, if the protocol's options say so: a plan has these targets, and at least as many flows.
    fn targets(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Most requests of one flow that may be in flight: how many identifiers the protocol has (DNS 65,536, RADIUS 256).
    fn ids(&self) -> u64 {
        u64::MAX
    }

    /// How the kernel engine carries the protocol's transactions; `None` if it cannot.
    fn in_kernel(&self) -> Option<InKernel> {
        None
    }

    /// The protocols that this one consists of, if the kernel engine carries each of them apart.
    fn parts(&self) -> Option<Parts<'_>> {
        None
    }

    /// Asks the plan's targets what the requests need to know of them, such as an SNMP engine's identifier and clock.
    /// Called once per run, before anything is opened, in the network namespace that will send. Each target may take
    /// `timeout`.
    ///
    /// # Errors
    /// A sentence that names the target and what it did not answer.
    fn prepare(&self, _plan: &Plan, _timeout: Duration) -> Prepared {
        Ok(None)
    }

    /// A template for one sending thread.
    fn template(&self) -> Box<dyn Template>;

    /// Requests the receiver's total count in a one-way mode. `None` if the protocol has no such report, or the
    /// receiver does not send it within `timeout`.
    fn received(&self, _target: SocketAddr, _transport: Transport, _timeout: Duration) -> Option<Received> {
        None
    }

    /// What the replies, and the requests without one, show about the server: a warning for the result.
    fn hint(&self, _result: &LoadResult) -> Option<String> {
        None
    }

    /// Whether the caller requests the reports, because several loads share the receivers. Then a run neither
    /// requests them nor warns about their absence, and the caller completes the merged result
    /// ([`LoadResult::deliver`](crate::result::LoadResult::deliver)).
    fn asked_by_caller(&self) -> bool {
        false
    }
}

/// A protocol that consists of others, each with its share of the flows.
pub struct Parts<'a> {
    /// The others.
    pub parts: Vec<Part<'a>>,
    /// The part of each flow, by its index: flow `i` has that of slot `i` modulo their number. Each part has one.
    pub slots: &'a [u16],
}

/// One of them.
pub struct Part<'a> {
    /// Names it in results.
    pub name: String,
    /// Its flows are numbered from 0.
    pub protocol: &'a dyn Protocol,
    /// Where its requests go.
    pub target: SocketAddr,
    /// Bytes of its longest request.
    pub size: usize,
}

/// A protocol's transactions as the kernel engine carries them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InKernel {
    /// A reply is its request, byte by byte: the engine sends requests of its own, and checks all of every reply.
    Echo,
    /// Requests prepared before the run.
    Prebuilt(Prebuilt),
}

/// Requests that are written before the run.
///
/// The engine checks every reply's length, fields and identifier in the kernel. It also checks a sample of the replies
/// with [`Template::check`], as replies to the request as [`Template::write`] wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prebuilt {
    /// Which requests.
    pub requests: Written,
    /// The field by which replies name their transaction.
    pub id: Id,
    /// How a reply is judged.
    pub reply: ReplyRules,
}

/// The requests that are written before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// This many, 1 to [`MAX_REQUESTS`], which all transactions send in turn: what [`Template::write`] writes for flow
    /// 0 and the seqs from 0. [`Template::write`] may put anything into the identifier: the engine replaces it in each
    /// transaction. Replies must distinguish the requests by [`Template::seq_bits`].
    InTurn(u32),
    /// Requests that must not be changed, such as signed ones: each transaction in flight has some of its own, up to
    /// 65,536 altogether, and sends them again and again. The identifier of a request is the low bits of its seq.
    Signed(Signed),
}

/// Requests that must not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed {
    /// How many different requests with the same identifier a flow sends before it repeats one, at least.
    pub per_id: u32,
    /// How long servers accept a request after it was written; `None`: always.
    pub lifetime: Option<Duration>,
    /// How long servers may remember a request and its reply, and answer from there if it is sent again; `None`: not at
    /// all.
    pub remembered: Option<Duration>,
}

impl InKernel {
    /// Whether servers may answer from memory, because requests are sent again.
    #[must_use]
    pub fn is_remembered(&self) -> bool {
        let Self::Prebuilt(Prebuilt { requests: Written::Signed(signed), .. }) = self else { return false };
        signed.remembered.is_some()
    }
}

/// How long requests are, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// The longest.
    pub longest: usize,
    /// Their mean, rounded.
    pub mean: usize,
}

/// A receiver's counts since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams; 0 over TCP.
    pub datagrams: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// CPU time of the receiver's process, user and system; none if it does not report it.
    pub cpu: Option<Duration>,
}

impl Received {
    /// The sum of two receivers' counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            datagrams: self.datagrams + other.datagrams,
            bytes: self.bytes + other.bytes,
            cpu: self.cpu.zip(other.cpu).map(|(one, other)| one + other),
        }
    }

    /// The counts after `before`. Nothing if the receiver was restarted since: it counts from 0 again.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            datagrams: self.datagrams.saturating_sub(before.datagrams),
            bytes: self.bytes.saturating_sub(before.bytes),
            cpu: self.cpu.zip(before.cpu).map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// Writes requests and judges replies of one protocol. Each sending thread owns its own instance.
///
/// A transaction is identified by `(flow, seq)`: `flow` counts from 0 over the plan, `seq` from 0 within the flow.
/// The template must recover both from the bytes of a reply alone.
pub trait Template: Send {
    /// The protocol's name, as typed by the user.
    fn name(&self) -> &'static str;

    /// The smallest request in bytes that can carry the data `check` needs.
    fn min_size(&self) -> usize;

    /// The longest reply to a request of `size` bytes; anything longer is truncated and judged corrupt.
    fn max_reply(&self, size: usize) -> usize {
        size
    }

    /// The number of low bits of `seq` that a reply carries. With less than 64, [`Judgement::Valid`] has only these
    /// bits, and the newest request that has them is meant. Never fewer bits than [`Protocol::ids`] needs.
    fn seq_bits(&self) -> u32 {
        u64::BITS
    }

    /// Writes the request of transaction `(flow, seq)` into `request` (at least [`Template::min_size`] bytes, as many
    /// as the plan's size) and returns its length: all of `request` if the protocol has [one size](Protocol::one_size).
    /// The same transaction always gives the same bytes: a request that was not accepted completely is written again.
    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize;

    /// Judges a reply that arrived on `flow`.
    fn check(&self, flow: u32, reply: &[u8]) -> Judgement;

    /// The intact replies that this template has judged, by what they say, if that differs: results add them up.
    fn kinds(&self) -> Vec<Kind> {
        Vec::new()
    }
}

/// The judgement of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The intact reply to request `seq` of the flow it arrived on.
    Valid {
        /// Sequence number of the request within its flow.
        seq: u64,
    },
    /// An intact reply by which the server refuses request `seq` of the flow it arrived on: a kiss-o'-death, REFUSED.
    Refused {
        /// Like that of `Valid`.
        seq: u64,
    },
    /// An intact reply that belongs to another flow.
    WrongFlow,
    /// Damaged, truncated or not of this protocol.
    Corrupt,
}
