//! Sends live frames, and falls back to AF_XDP when the kernel stops taking them.

use std::io::ErrorKind;

use udpath_stack::frame::Frame;

use super::super::lane::Staged;
use super::super::live::{LIVE_THRESHOLD, Live};
use super::{Frames, Payload};
use crate::transmit::Ledger;

impl Frames<'_> {
    /// Whether the requests that are due should be sent as live frames.
    pub(super) fn use_live_frames(&self, due: usize) -> bool {
        self.live.as_ref().is_some_and(|live| {
            let enough = || due >= LIVE_THRESHOLD && self.lanes.iter().all(|lane| lane.waiting() == 0);
            !live.staged.is_empty() || enough()
        })
    }

    /// Like `stage`, into a live frame.
    #[inline]
    pub(super) fn stage_live(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: u64) -> bool {
        if self.live.as_ref().is_some_and(|live| live.frames.is_full()) {
            self.send_live(ledger);
        }
        let Some(live) = &mut self.live else {
            // The kernel has just stopped accepting them.
            return self.stage(ledger, index, intended);
        };
        let (flow, request) = (&self.flows[index], self.scratch.as_deref_mut());
        let payload = Payload::next(ledger, index, self.size, request);
        let Some(bytes) = live.frames.frame(flow.headers.payload_offset() + payload.len()) else {
            ledger.queue_full += 1;
            return false;
        };
        flow.write(ledger, index, payload, bytes);
        live.staged.push(Staged { index: index as u32, intended });
        true
    }

    /// Submits the waiting live frames to the kernel and records their requests as sent.
    pub(super) fn send_live(&mut self, ledger: &mut Ledger<'_>) {
        let Some(Live { frames, staged }) = &mut self.live else { return };
        if staged.is_empty() {
            return;
        }
        let at = ledger.clock.now();
        let offered = frames.send();
        for Staged { index, intended } in staged.drain(..offered.frames) {
            ledger.unstage(index as usize, 1);
            ledger.sent(index as usize, intended, at);
        }
        if offered.frames > 0 {
            self.live_sent += offered.frames as u64;
            self.live_calls += 1;
            self.live_dropped += (offered.frames - offered.taken) as u64;
        }
        match offered.failed {
            // The rest goes with the next call.
            Some(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Some(cause) => self.give_up_live(ledger, &cause.to_string()),
            None => {}
        }
    }

    /// From now on everything is sent through AF_XDP, starting with the waiting frames.
    fn give_up_live(&mut self, ledger: &mut Ledger<'_>, why: &str) {
        self.staging_live = false;
        let Some(mut live) = self.live.take() else { return };
        // The result gives the reason of the first thread only.
        let _ = self.sums.live_given_up.set(why.to_owned());
        let mut room = true;
        for (bytes, request) in live.frames.iter().zip(live.staged) {
            let index = request.index as usize;
            let frame = if room { self.frame_for(ledger, index, bytes) } else { None };
            // Without room all later frames are dropped too: a flow's requests leave in order.
            room = frame.is_some();
            match frame {
                Some(frame) => self.lanes[self.flows[index].lane].stage(frame, request),
                None => {
                    ledger.unstage(index, 1);
                    ledger.unsent += u64::from(request.intended >= ledger.clock.window());
                }
            }
        }
    }

    /// A frame of flow `index`'s lane with these bytes; none if there is no room.
    fn frame_for(&mut self, ledger: &mut Ledger<'_>, index: usize, bytes: &[u8]) -> Option<Frame> {
        let lane = self.flows[index].lane;
        if self.lanes[lane].is_full() {
            self.send_lane(ledger, lane);
        }
        let lane = &mut self.lanes[lane];
        let mut frame = if lane.is_full() { None } else { lane.frame() }?;
        let fits = frame.set_len(bytes.len());
        debug_assert!(fits, "both have room for the plan's size");
        if fits {
            frame.bytes_mut().copy_from_slice(bytes);
        }
        Some(frame)
    }
}
