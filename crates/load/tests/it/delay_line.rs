//! A delay line: holds the frames that `udpath_rig::Impair` redirects to it for a set time, then sends them on. It
//! records how long it held each.
//!
//! ```text
//!   server eth0 --- Impair: a share is redirected ---> server eth1 ===link=== line eth0
//!        ^                                                                      |
//!        +------- packet socket, marked so that Impair lets it pass <--- hold <-+
//! ```

mod sys;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sys::PacketSocket;
use udpath_lab::Lab;
use udpath_rig::DELAYED_MARK;

/// Offset of the UDP checksum in an Ethernet frame with a plain IPv4 header.
const UDP_CHECKSUM: usize = 14 + 20 + 6;

pub(crate) struct DelayLine {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl DelayLine {
    /// Holds what arrives at machine `line` for `delay`, and sends it from `server` towards `client`.
    pub(crate) fn start(lab: &Lab, delay: Duration) -> Self {
        let [line, server] = ["line", "server"].map(|name| lab.machine(name).unwrap());
        let from = line.towards("server").unwrap().ifindex();
        let to = server.towards("client").unwrap().ifindex();
        let arriving = line.run(|| PacketSocket::bound(from).unwrap()).unwrap();
        let leaving = server.run(|| PacketSocket::marked(to, DELAYED_MARK).unwrap()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || hold(&arriving, &leaving, delay, &flag));
        Self { stop, thread }
    }

    /// Releases the frames still held, and returns how long each frame was held, in nanoseconds.
    pub(crate) fn stop(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn hold(arriving: &PacketSocket, leaving: &PacketSocket, delay: Duration, stop: &AtomicBool) -> Vec<u64> {
    let mut held: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut times = Vec::new();
    loop {
        let now = Instant::now();
        while held.front().is_some_and(|(due, _)| *due <= now) {
            let (due, frame) = held.pop_front().unwrap();
            times.push((delay + due.elapsed()).as_nanos() as u64);
            leaving.send(&frame).unwrap();
        }
        if stop.load(Ordering::Relaxed) && held.is_empty() {
            return times;
        }
        let wait =
            held.front().map_or(Duration::from_millis(10), |(due, _)| due.saturating_duration_since(now));
        while let Some(mut frame) = arriving.receive(wait.min(Duration::from_millis(10))).unwrap() {
            // A local sender leaves the checksum to a NIC, but this frame does not pass one; 0 means "none" (RFC 768).
            frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
            held.push_back((Instant::now() + delay, frame));
            if held.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                break;
            }
        }
    }
}
