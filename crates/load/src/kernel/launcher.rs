//! Starts the loop's slots, and restarts them when a request or reply is lost.
//!
//! Slot `s` belongs to flow `s / inflight` for the whole run. Compare-and-swap of a slot's sequence number decides
//! whether the program in the kernel or this side advances it (see `bpf/closed_loop.h`).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use udpath_bpf::Memory;

use super::KernelError;
use super::flows::Flows;
use super::requests::Requests;
use crate::elsewhere::Elsewhere;
use crate::result::Counts;

/// Nanoseconds of `CLOCK_MONOTONIC`: what `bpf_ktime_get_ns()` reads in the program.
pub(super) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}

/// The outcome of all requests, from the first launch to the end of the drain.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) counts: Counts,
    /// Requests that the driver left no room for in the reply's frame; this side sent them.
    pub(super) unsent: u64,
    /// Who answered instead of the targets.
    pub(super) elsewhere: Vec<Elsewhere>,
    pub(super) last_send_error: Option<io::Error>,
}

/// The user-space half of the loop.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    in_kernel: &'a Memory,
    flows: &'a Flows,
    requests: &'a Requests,
    inflight: usize,
    /// The request being sent.
    bytes: Vec<u8>,
    /// The sequence number each slot had at the last scan, plus one; 0 before.
    seen: Vec<u64>,
    launched: u64,
    given_up: u64,
    send_errors: u64,
    last_send_error: Option<io::Error>,
}

impl<'a> Launcher<'a> {
    pub(super) fn new(
        in_kernel: &'a Memory,
        flows: &'a Flows,
        requests: &'a Requests,
        inflight: u32,
    ) -> Self {
        let inflight = inflight as usize;
        let seen = vec![0; flows.len() * inflight];
        Self {
            in_kernel,
            flows,
            requests,
            inflight,
            bytes: Vec::new(),
            seen,
            launched: 0,
            given_up: 0,
            send_errors: 0,
            last_send_error: None,
        }
    }

    /// Sends the first request of every slot, each flow's from its home CPU.
    pub(super) fn launch_all(&mut self, target: SocketAddr) -> Result<(), KernelError> {
        for flow in 0..self.flows.len() {
            let local = self
                .flows
                .local(flow)
                .map_err(|source| KernelError::Read { what: "a flow's own address", source })?;
            for slot in self.slots_of(flow) {
                self.in_kernel.assign(slot, flow as u32, local);
            }
        }
        self.in_kernel.set_running(true);
        let flows = self.flows;
        flows.on_home_cpus(|flow| {
            for slot in self.slots_of(flow) {
                self.send(slot, flow);
            }
        })?;
        match self.last_send_error.take() {
            Some(source) if self.send_errors as usize >= self.seen.len() => {
                Err(KernelError::Launch { target, source })
            }
            kept => {
                self.last_send_error = kept;
                Ok(())
            }
        }
    }

    /// Gives up every request that has been in flight for longer than `timeout`, and sends the slot's next one.
    pub(super) fn relaunch_stuck(&mut self, timeout: Duration) -> Result<(), KernelError> {
        let stuck = self.take_stuck(timeout);
        if stuck.is_empty() {
            return Ok(());
        }
        // From their home CPU, like the first: otherwise every loss would move a flow to the CPU of this thread.
        let (flows, inflight) = (self.flows, self.inflight);
        flows.on_home_cpus(|flow| {
            let first = stuck.partition_point(|slot| slot / inflight < flow);
            for slot in stuck[first..].iter().take_while(|slot| *slot / inflight == flow) {
                self.send(*slot, flow);
            }
        })
    }

    /// Whether a request is in flight.
    pub(super) fn in_flight(&self) -> bool {
        (0..self.seen.len()).any(|slot| self.in_kernel.slot(slot).sent != 0)
    }

    /// Gives up all requests that are in flight; how many that were.
    pub(super) fn give_up_all(&mut self) -> u64 {
        let before = self.given_up;
        for slot in 0..self.seen.len() {
            let state = self.in_kernel.slot(slot);
            self.given_up += u64::from(state.sent != 0 && self.in_kernel.give_up(slot, state.seq));
        }
        self.given_up - before
    }

    /// The outcome of all requests so far. Those in flight count as sent only.
    pub(super) fn counts(&self) -> Counts {
        let mut answered_of_lost = 0;
        let mut counts = Counts { sent: self.launched, send_errors: self.send_errors, ..Counts::default() };
        for cpu in 0..self.in_kernel.cpus() {
            let n = self.in_kernel.counters(cpu);
            counts.ok += n.ok;
            counts.late += n.late + n.overdue;
            counts.refused += n.refused + n.refused_late;
            answered_of_lost += n.late + n.refused_late;
            counts.duplicate += n.duplicate;
            counts.reordered += n.reordered;
            counts.corrupt += n.corrupt;
            counts.wrong_flow += n.wrong_flow;
            counts.received += n.received;
            counts.sent += n.sent;
        }
        counts.lost = self.given_up.saturating_sub(answered_of_lost);
        counts
    }

    /// The final account of the run.
    pub(super) fn account(self, asked: SocketAddr) -> Account {
        let unsent = (0..self.in_kernel.cpus()).map(|cpu| self.in_kernel.counters(cpu).unsent).sum();
        let count = (0..self.in_kernel.cpus()).map(|cpu| self.in_kernel.counters(cpu).elsewhere).sum();
        let elsewhere = self.in_kernel.stranger().map(|from| Elsewhere { asked, from, count: Some(count) });
        Account {
            counts: self.counts(),
            unsent,
            elsewhere: Vec::from_iter(elsewhere),
            last_send_error: self.last_send_error,
        }
    }

    fn slots_of(&self, flow: usize) -> std::ops::Range<usize> {
        flow * self.inflight..(flow + 1) * self.inflight
    }

    fn take_stuck(&mut self, timeout: Duration) -> Vec<usize> {
        let oldest = now().saturating_sub(timeout.as_nanos() as u64);
        let mut stuck = Vec::new();
        for slot in 0..self.seen.len() {
            let state = self.in_kernel.slot(slot);
            // Seen at two scans: the program moves `seq` on before it writes the new time of sending.
            let again = self.seen[slot] == state.seq + 1;
            self.seen[slot] = state.seq + 1;
            let idle = state.sent == 0;
            let waiting = again && state.sent <= oldest;
            if waiting && (idle || self.in_kernel.give_up(slot, state.seq)) {
                self.given_up += u64::from(!idle);
                self.seen[slot] = 0;
                stuck.push(slot);
            }
        }
        stuck
    }

    /// Sends the next request of a slot that has nothing in flight. If the kernel does not accept the request, the
    /// slot stays idle until the next scan tries again.
    fn send(&mut self, slot: usize, flow: usize) {
        let seq = self.in_kernel.launch(slot, now());
        let request = self.in_kernel.request(slot);
        self.requests.write(
            slot,
            (flow as u32, (slot - flow * self.inflight) as u32),
            seq,
            request,
            &mut self.bytes,
        );
        match self.flows.send(flow, &self.bytes) {
            Ok(()) => self.launched += 1,
            Err(error) => {
                // ECONNREFUSED belongs to an earlier request: an ICMP answer that the socket kept for the next call.
                self.send_errors += 1;
                self.last_send_error = Some(error);
                self.in_kernel.idle(slot);
            }
        }
    }
}
