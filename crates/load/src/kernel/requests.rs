//! What the loop sends: requests of its own, or those of a protocol.

use udpath_bpf::{HEADER, MAGIC, MAX_REQUESTS, MIN_SIZE, RequestTable, header_check};

use crate::plan::{Plan, PlanError};
use crate::template::{InKernel, Prebuilt, Protocol, Signed, Written};

/// The requests of a run.
#[derive(Debug)]
pub(super) enum Requests {
    /// For an echo server; slot and sequence number are filled in when one is sent.
    Echo { request: Vec<u8>, run: u32 },
    /// A protocol's.
    Prebuilt(RequestTable),
}

impl Requests {
    /// Prepares the requests of run `run` of `plan`, with `inflight` in flight per flow.
    pub(super) fn new(
        plan: &Plan,
        protocol: &dyn Protocol,
        inflight: u32,
        run: u64,
    ) -> Result<Self, PlanError> {
        match protocol.in_kernel() {
            None => Err(cannot(format!(
                "{} does not declare how its transactions run in the kernel: use another engine",
                protocol.name()
            ))),
            Some(InKernel::Echo) if plan.size < MIN_SIZE => {
                Err(PlanError::TooSmall { size: plan.size, protocol: "the kernel engine", min: MIN_SIZE })
            }
            Some(InKernel::Echo) => {
                let run = run as u32;
                Ok(Self::Echo { request: echo_request(plan.size, plan.seed, run), run })
            }
            Some(InKernel::Prebuilt(_)) if plan.sources.len() > 1 => {
                // A reply's port identifies its flow.
                Err(cannot(format!(
                    "{} needs one source address: remove all --source but one",
                    protocol.name()
                )))
            }
            Some(InKernel::Prebuilt(Prebuilt { requests, id, reply })) => {
                let slots = (plan.own_flows(), inflight);
                let mut write = writer(plan, protocol);
                match requests {
                    Written::InTurn(count) => {
                        let seqs = 0..u64::from(count).min(MAX_REQUESTS as u64 + 1);
                        RequestTable::new(seqs.map(|seq| write(0, seq)).collect(), id, reply, slots, run)
                    }
                    Written::Signed(signed) => {
                        check_lifetime(plan, protocol.name(), &signed)?;
                        RequestTable::of_slots(id, reply, slots, run, signed.per_id, write)
                    }
                }
                .map(Self::Prebuilt)
                .map_err(|error| cannot(error.to_string()))
            }
        }
    }

    /// As the program takes them.
    pub(super) fn in_kernel(&self) -> udpath_bpf::Requests<'_> {
        match self {
            Self::Echo { request, .. } => udpath_bpf::Requests::Echo(request),
            Self::Prebuilt(table) => udpath_bpf::Requests::Prebuilt(table),
        }
    }

    /// Writes transaction `seq` of `slot`, which is the one of `(flow, place)`; of a table, request `request`.
    pub(super) fn write(&self, slot: usize, place: (u32, u32), seq: u64, request: u32, to: &mut Vec<u8>) {
        match self {
            Self::Echo { request, run } => {
                to.clone_from(request);
                let check = header_check(slot as u32, seq, *run);
                to[4..8].copy_from_slice(&(slot as u32).to_le_bytes());
                to[8..16].copy_from_slice(&seq.to_le_bytes());
                to[20..24].copy_from_slice(&check.to_le_bytes());
            }
            Self::Prebuilt(table) => table.write(request, place, seq, to),
        }
    }
}

fn cannot(what: String) -> PlanError {
    PlanError::Engine { engine: "kernel", what }
}

/// An echo request, at least [`MIN_SIZE`] bytes. Any body will do as long as its bytes differ from place to place:
/// splitmix64's steps.
fn echo_request(size: usize, seed: u64, run: u32) -> Vec<u8> {
    let mut request = vec![0; size];
    request[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    request[16..20].copy_from_slice(&run.to_le_bytes());
    let mut state = seed;
    for byte in &mut request[HEADER..] {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        *byte = (mixed >> 56) as u8;
    }
    request
}

/// Writes requests as the protocol does; flows are the machine's own.
fn writer(plan: &Plan, protocol: &dyn Protocol) -> impl FnMut(u32, u64) -> Vec<u8> {
    let (mut template, segment) = (protocol.template(), plan.segment);
    let mut room = vec![0; plan.size];
    move |own, seq| {
        let len = template.write(segment.flow(own), seq, &mut room);
        room.get(..len).unwrap_or(&room).to_vec()
    }
}

/// Rejects a run that outlasts its requests.
fn check_lifetime(plan: &Plan, protocol: &str, signed: &Signed) -> Result<(), PlanError> {
    let takes = plan.warmup + plan.duration + plan.timeout;
    match signed.lifetime.filter(|lifetime| takes > *lifetime) {
        None => Ok(()),
        Some(lifetime) => Err(cannot(format!(
            "{protocol}'s requests are signed before the run with a time that servers accept for {} s: shorten --duration, or use \
             another engine",
            lifetime.as_secs()
        ))),
    }
}

/// The warning that the server may have answered from memory, if requests were sent again, at `rate` per second in
/// total, before it had to forget them.
pub(super) fn remembered(protocol: &dyn Protocol, table: &RequestTable, rate: f64) -> Option<String> {
    let InKernel::Prebuilt(Prebuilt { requests: Written::Signed(signed), .. }) = protocol.in_kernel()? else {
        return None;
    };
    let (again, remembered) = (table.count() as f64 / rate.max(1.0), signed.remembered?.as_secs_f64());
    (again < remembered).then(|| {
        format!(
            "each of the {} prebuilt requests was sent again after {again:.1} s: a server that keeps its replies for {remembered} s \
             answers from there; compare with the socket engine",
            table.count()
        )
    })
}
