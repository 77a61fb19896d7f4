//! The loop over kernel sockets: receive a burst, run the service over it, send the replies, publish the counters.
//!
//! With one socket the worker blocks in the receive call and makes no other call. With several it waits in `epoll` and
//! takes bursts from those that are ready. Stopping adds nothing to the packet path: the server shuts the sockets for
//! receiving, which wakes the worker once their queues are empty.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::epoll;

use crate::dispatch::{Dispatch, Received};
use crate::io::{KernelPort, Port};
use crate::lane::Lane;
use crate::service::{Service, WorkerId};
use crate::sys::{Receipt, Wait};

/// Bursts taken from one ready socket before the others get their turn. Fewer pay for `epoll_wait` more often,
/// which at batch 1 is once per datagram; more let a busy address delay a quiet one.
const BURSTS_PER_TURN: usize = 64;

/// First and longest pause after a receive call failed, when it fails again and again. A single error (an ICMP
/// message, a moment without memory) costs no pause. Shorter would burn a CPU on a socket that is broken for good,
/// longer would answer late once it works again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// One socket as the worker sees it.
pub(crate) struct LaneSide {
    pub(crate) port: KernelPort,
    pub(crate) lane: Arc<Lane>,
}

/// Takes bursts from kernel sockets and runs the service over them.
pub(super) struct ServiceRunner<S, F> {
    pub(super) dispatch: Dispatch<S, F>,
}

/// What a receive attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Moved,
    Idle,
    Woken,
    Failed,
}

impl<S: Service, F: Fn(WorkerId) -> S> ServiceRunner<S, F> {
    pub(super) fn is_stopping(&self) -> bool {
        self.dispatch.shared().stopping.load(Relaxed)
    }

    /// Blocks in the receive call.
    pub(super) fn serve_one<P: Port>(&mut self, port: &mut P, lane: &Arc<Lane>) {
        let mut pause = Pause::default();
        loop {
            while self.pass(port, lane, Wait::Block) == Pass::Moved {
                pause.reset();
            }
            // Woken, or the call failed.
            if self.is_stopping() {
                return;
            }
            pause.take();
        }
    }

    /// Waits for any of several sockets.
    pub(super) fn serve_many(&mut self, sides: &mut [LaneSide], stop: BorrowedFd<'_>) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Exclusive: where workers share a socket, a datagram wakes one of them, not all.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        for (name, side) in (0..).zip(sides.iter()) {
            epoll::add(&epoll, side.lane.socket.fd(), epoll::EventData::new_u64(name), flags)?;
        }
        epoll::add(&epoll, stop, epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(sides.len() + 1);
        let mut pause = Pause::default();
        while !self.is_stopping() {
            events.clear();
            match epoll::wait(epoll.as_fd(), rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let name = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                if let Some(side) = sides.get_mut(name) {
                    self.turn(side, &mut pause);
                }
            }
        }
        // The doors are closed: what is queued is all there will be.
        for side in sides {
            while self.pass_any(side) == Pass::Moved {}
        }
        Ok(())
    }

    /// Takes bursts from a ready socket.
    fn turn(&mut self, side: &mut LaneSide, pause: &mut Pause) {
        for _ in 0..BURSTS_PER_TURN {
            match self.pass_any(side) {
                Pass::Moved => pause.reset(),
                Pass::Idle | Pass::Woken => return,
                Pass::Failed => return pause.take(),
            }
        }
    }

    /// One burst, without waiting.
    pub(super) fn pass_any(&mut self, side: &mut LaneSide) -> Pass {
        match &mut side.port {
            KernelPort::Single(port) => self.pass(port, &side.lane, Wait::Now),
            KernelPort::Info(port) => self.pass(port, &side.lane, Wait::Now),
            KernelPort::Many(port) => self.pass(port, &side.lane, Wait::Now),
        }
    }

    /// Receives a burst, serves it, sends the replies, counts. Inlined for the reason given in `io/kernel.rs`.
    #[inline(always)]
    fn pass<P: Port>(&mut self, port: &mut P, lane: &Arc<Lane>, wait: Wait) -> Pass {
        match port.receive(wait) {
            Ok(Receipt::Datagrams(0)) => Pass::Idle,
            Ok(Receipt::Datagrams(count)) => {
                let mut received = Received::default();
                self.dispatch.begin_burst();
                self.dispatch.serve(port, lane, count, &mut received);
                port.send(&lane.published);
                lane.published.received(received.datagrams, received.bytes);
                Pass::Moved
            }
            Ok(Receipt::Woken) => Pass::Woken,
            Err(_) => {
                lane.published.receive_error();
                Pass::Failed
            }
        }
    }
}

/// Keeps a failing receive call from becoming a busy loop.
#[derive(Default)]
struct Pause {
    next: Option<Duration>,
}

impl Pause {
    fn reset(&mut self) {
        self.next = None;
    }

    fn take(&mut self) {
        if let Some(now) = self.next {
            std::thread::sleep(now);
        }
        self.next = Some(self.next.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE)));
    }
}
