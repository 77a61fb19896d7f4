//! Frames over a device's queues: requests into lanes or live frames, replies out of the queues' ports.
//!
//! No lock is taken, and the kernel is called per burst: to send, and to wait.

mod live;
mod replies;

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use udpath_stack::frame::{BURST, Burst};
use udpath_stack::port::Port;
use udpath_stack::wire::{self, UdpChecksum};

use super::Sums;
use super::lane::{Lane, Staged};
use super::live::Live;
use super::mailbox::{JudgedReply, Mailboxes};
use super::progress::{SendProgress, Since};
use super::table::Table;
use crate::transmit::{Ledger, Transmit};

/// Interval between checks that requests leave at all, nanoseconds: a system call per port each. Longer: a link that
/// went down is noticed later.
const CHECK_INTERVAL: u64 = 100_000_000;
/// A thread that has sent nothing for this long despite attempts gives up, nanoseconds. Shorter: a link that
/// flaps ends the run. Longer: a run over a removed interface wastes its whole window.
const STUCK_TIMEOUT: u64 = 1_000_000_000;

/// How one flow sends.
pub(super) struct Flow {
    pub(super) lane: usize,
    pub(super) headers: wire::Template,
}

/// The queues and flows of one thread.
pub(super) struct Frames<'a> {
    sums: &'a Sums,
    table: &'a Table,
    thread: usize,
    /// Payload bytes of a request; of the longest one if `scratch` exists.
    size: usize,
    /// Where requests are written first whose length is only known then.
    scratch: Option<Box<[u8]>>,
    lanes: Vec<Lane>,
    flows: Vec<Flow>,
    /// None: everything is sent through lanes.
    live: Option<Live>,
    /// Whether requests are currently staged as live frames.
    staging_live: bool,
    mailboxes: Mailboxes,
    replies: Burst,
    judged: ArrayVec<JudgedReply, BURST>,
    check_at: u64,
    progress: SendProgress,
    stuck_since: Option<u64>,
    /// This thread no longer waits for replies.
    finished: bool,
    strangers: u64,
    damaged: u64,
    live_sent: u64,
    live_calls: u64,
    live_dropped: u64,
}

impl<'a> Frames<'a> {
    pub(super) fn new(
        sums: &'a Sums,
        table: &'a Table,
        ledger: &Ledger<'_>,
        lanes: Vec<Lane>,
        flows: Vec<Flow>,
        live: Option<Live>,
        mailboxes: Mailboxes,
    ) -> Self {
        Self {
            sums,
            table,
            thread: ledger.thread,
            size: ledger.plan.size,
            scratch: None,
            lanes,
            flows,
            live,
            staging_live: false,
            mailboxes,
            replies: Burst::new(),
            judged: ArrayVec::new(),
            check_at: CHECK_INTERVAL,
            progress: SendProgress::default(),
            stuck_since: None,
            finished: false,
            strangers: 0,
            damaged: 0,
            live_sent: 0,
            live_calls: 0,
            live_dropped: 0,
        }
    }

    /// For requests that differ in length.
    pub(super) fn with_scratch(mut self) -> Self {
        self.scratch = Some(vec![0; self.size].into());
        self
    }

    /// Writes the next request of flow `index` into its lane, or a live frame. False: there is no room for it yet.
    #[inline]
    fn stage(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: u64) -> bool {
        if self.staging_live {
            return self.stage_live(ledger, index, intended);
        }
        let lane = self.flows[index].lane;
        if self.lanes[lane].is_full() {
            self.send_lane(ledger, lane);
        }
        let lane = &mut self.lanes[lane];
        let frame = if lane.is_full() { None } else { lane.frame() };
        let Some(mut frame) = frame else {
            ledger.queue_full += 1;
            return false;
        };
        let (flow, request) = (&self.flows[index], self.scratch.as_deref_mut());
        let payload = Payload::next(ledger, index, self.size, request);
        // It fits: the size was checked against the MTU before the start, and the frame against the size. If it did
        // not, the reply would never arrive, and would count as lost.
        let fits = frame.set_len(flow.headers.payload_offset() + payload.len());
        debug_assert!(fits, "a frame has room for the plan's size");
        flow.write(ledger, index, payload, frame.bytes_mut());
        lane.stage(frame, Staged { index: index as u32, intended });
        true
    }

    /// Submits one lane's burst to the kernel and records its requests as sent.
    #[inline]
    fn send_lane(&mut self, ledger: &mut Ledger<'_>, lane: usize) {
        let lane = &mut self.lanes[lane];
        if lane.waiting() > 0 {
            let at = ledger.clock.now();
            for Staged { index, intended } in lane.hand_over() {
                ledger.unstage(index as usize, 1);
                ledger.sent(index as usize, intended, at);
            }
        }
        lane.flush();
    }
}

/// A request on its way into a frame, which must have its length before it is written.
enum Payload<'a> {
    /// As long as all others: it is written into the frame.
    Sized(usize),
    /// Already written elsewhere.
    Written(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// The next request of flow `index`, of `size` bytes or, with `scratch`, of the length that its template chooses.
    #[inline]
    fn next(ledger: &mut Ledger<'_>, index: usize, size: usize, scratch: Option<&'a mut [u8]>) -> Self {
        let Some(scratch) = scratch else { return Self::Sized(size) };
        let len = ledger.write(index, ledger.staged(index), scratch);
        Self::Written(&scratch[..len])
    }

    fn len(&self) -> usize {
        match self {
            Self::Sized(size) => *size,
            Self::Written(request) => request.len(),
        }
    }
}

impl Flow {
    /// Writes `payload`, the next request of this flow, whose index is `index`, into `frame`, which has exactly its
    /// length.
    #[inline]
    fn write(&self, ledger: &mut Ledger<'_>, index: usize, payload: Payload<'_>, frame: &mut [u8]) {
        let size = payload.len();
        if let Some(bytes) = frame.get_mut(self.headers.payload_offset()..) {
            match payload {
                Payload::Sized(_) => {
                    ledger.write(index, ledger.staged(index), bytes);
                }
                Payload::Written(request) => bytes.copy_from_slice(request),
            }
        }
        let written = self.headers.emit(frame, size, UdpChecksum::Computed);
        debug_assert!(written.is_ok(), "{written:?}");
        ledger.stage(index, 1);
    }
}

impl Transmit for Frames<'_> {
    /// Longer: the transmit ring, 2,048 packets or a millisecond's worth, runs dry. Shorter: CPU time for polling.
    const RETRY: u64 = 50_000;
    /// Other threads may send slightly longer than this one, and this one's ports receive their replies.
    const GRACE: u64 = 100_000_000;

    fn batch(&self) -> usize {
        BURST
    }

    fn begin_turn(&mut self, due: usize) {
        self.staging_live = self.use_live_frames(due);
    }

    fn send(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: &[u64]) -> usize {
        intended.iter().take_while(|intended| self.stage(ledger, index, **intended)).count()
    }

    /// Sends everything in lanes and live frames, and reclaims the frames that were sent.
    fn flush(&mut self, ledger: &mut Ledger<'_>) {
        self.send_live(ledger);
        for lane in 0..self.lanes.len() {
            self.send_lane(ledger, lane);
        }
    }

    fn wait(&mut self, pause: u64) {
        if pause > 0 {
            self.mailboxes.sleep(&self.lanes, pause);
        }
    }

    fn receive(&mut self, ledger: &mut Ledger<'_>) -> usize {
        self.receive_ports(ledger) + self.receive_judged(ledger)
    }

    /// Ends the run if no request has left for too long.
    fn check(&mut self, ledger: &mut Ledger<'_>, now: u64) {
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_INTERVAL;
        let live = SendProgress { trouble: self.live_dropped, gone: self.live_sent - self.live_dropped };
        let mut sent = live;
        self.lanes.iter_mut().for_each(|lane| sent += lane.progress());
        match self.progress.advance(sent) {
            Since::Left => {
                self.stuck_since = None;
                return;
            }
            Since::Idle => return,
            Since::Failed => {}
        }
        let since = *self.stuck_since.get_or_insert(now);
        if now - since > STUCK_TIMEOUT {
            let name = self.lanes.first().map_or("", |lane| lane.port.properties().name.as_str());
            let name = name.split(' ').next().unwrap_or_default();
            ledger.give_up_run(format!(
                "{name} sent nothing for {:.1} s: its link is down, or the interface was removed",
                (now - since) as f64 / 1e9
            ));
        }
    }

    fn may_end(&mut self) -> bool {
        if !self.finished {
            self.finished = true;
            self.sums.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        self.sums.waiting.load(Ordering::Acquire) == 0
    }

    fn close(mut self, ledger: &mut Ledger<'_>) {
        ledger.unsent += self.live.as_ref().map_or(0, |live| live.staged.len() as u64);
        ledger.unsent += self.lanes.iter_mut().map(Lane::close).sum::<u64>();
        ledger.own_drops += self.lanes.iter().map(|lane| lane.port.counts().missed).sum::<u64>();
        ledger.own_drops += self.mailboxes.lost;
        let dropped: u64 = self.lanes.iter().map(|lane| lane.port.statistics().dropped_sending).sum();
        for (sum, count) in [
            (&self.sums.handed_over, self.mailboxes.handed_over),
            (&self.sums.strangers, self.strangers),
            (&self.sums.damaged, self.damaged),
            (&self.sums.dropped, dropped + self.live_dropped),
            (&self.sums.live, self.live_sent),
            (&self.sums.live_calls, self.live_calls),
            (&self.sums.ring_full, ledger.queue_full),
        ] {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }
}
