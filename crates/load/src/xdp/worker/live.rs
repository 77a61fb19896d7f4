//! Sending live frames, and the way back to AF_XDP when they do not get away.

use std::io::ErrorKind;

use udpath_stack::frame::Frame;

use super::super::lane::Staged;
use super::super::live::{LEAST, Live};
use super::Worker;

impl Worker<'_> {
    /// Shall what is due be sent as live frames?
    pub(super) fn goes_live(&self) -> bool {
        self.live.as_ref().is_some_and(|live| {
            let enough = || self.due.len() >= LEAST && self.lanes.iter().all(|lane| lane.waiting() == 0);
            !live.staged.is_empty() || enough()
        })
    }

    /// As `stage`, into a live frame.
    #[inline]
    pub(super) fn stage_live(&mut self, index: usize, intended: u64, now: u64) -> bool {
        if self.live.as_ref().is_some_and(|live| live.frames.is_full()) {
            self.send_live();
        }
        let Some(live) = &mut self.live else {
            // They have just turned out not to get away.
            return self.stage(index, intended, now);
        };
        let flow = &mut self.flows[index];
        if !flow.pending.room(flow.staged + 1, now) {
            self.held_back += 1;
            return false;
        }
        let len = flow.headers.payload_offset() + self.plan.size;
        let Some(bytes) = live.frames.frame(len) else {
            self.ring_full += 1;
            return false;
        };
        flow.write(&mut *self.template, self.plan.size, bytes);
        live.staged.push(Staged { index: index as u32, intended });
        true
    }

    /// Hands the waiting live frames to the kernel and enters their requests as sent.
    pub(super) fn send_live(&mut self) {
        let Some(Live { frames, staged }) = &mut self.live else { return };
        if staged.is_empty() {
            return;
        }
        let at = self.clock.now();
        let offered = frames.send();
        for request in staged.drain(..offered.frames) {
            self.flows[request.index as usize].enter(&mut self.tally, &self.clock, request.intended, at);
        }
        if offered.frames > 0 {
            self.sent_ever += offered.frames as u64;
            self.last_sent = at;
            self.live_sent += offered.frames as u64;
            self.live_calls += 1;
            self.live_dropped += (offered.frames - offered.taken) as u64;
        }
        match offered.failed {
            // The rest goes with the next call.
            Some(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Some(cause) => self.give_up_live(&cause.to_string()),
            None => {}
        }
    }

    /// From now on everything is sent by AF_XDP, first what waits.
    fn give_up_live(&mut self, why: &str) {
        self.live_now = false;
        let Some(mut live) = self.live.take() else { return };
        // The first thread's reason stands for all.
        let _ = self.sums.live_given_up.set(why.to_owned());
        let mut room = true;
        for (bytes, request) in live.frames.iter().zip(live.staged) {
            let frame = if room { self.frame_for(request.index as usize, bytes) } else { None };
            // Without room all that come behind are left too: a flow's requests leave in order.
            room = frame.is_some();
            let flow = &mut self.flows[request.index as usize];
            match frame {
                Some(frame) => self.lanes[flow.lane].stage(frame, request),
                None => {
                    flow.staged -= 1;
                    self.left += u64::from(request.intended >= self.clock.window());
                }
            }
        }
    }

    /// A frame of flow `index`'s lane with these bytes; none if there is no room.
    fn frame_for(&mut self, index: usize, bytes: &[u8]) -> Option<Frame> {
        let lane = self.flows[index].lane;
        if self.lanes[lane].is_full() {
            self.send(lane);
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
