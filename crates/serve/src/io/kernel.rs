//! The [`Port`] of a kernel socket, in the three forms that cost least where they apply:
//!
//! | batch | bound to | calls |
//! |---|---|---|
//! | 1 | one address | `recvfrom`, `sendto` |
//! | 1 | a wildcard | `recvmsg`, `sendmsg` with packet info |
//! | more | either | `recvmmsg` (waits for the first only), `sendmmsg` |

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::{Datagram, Port, Socket};
use crate::counters::Published;
use crate::sys::{Burst, Held, MAX_PAYLOAD_V4, MAX_PAYLOAD_V6, Receipt, Single, Wait, segmentation};

/// A kernel socket with the buffers of one worker's bursts.
pub(crate) enum KernelPort {
    Single(SinglePort),
    Info(InfoPort),
    Many(ManyPort),
}

pub(crate) struct SinglePort {
    socket: Held<Socket>,
    single: Single,
}

pub(crate) struct InfoPort {
    socket: Held<Socket>,
    burst: Burst,
}

pub(crate) struct ManyPort {
    socket: Held<Socket>,
    burst: Burst,
}

impl KernelPort {
    /// The form that fits; allocates, but touches nearly nothing of it.
    pub(crate) fn new(socket: Arc<Socket>, batch: usize, gso: bool) -> io::Result<Self> {
        let reply_room = if socket.bind.is_ipv6() { MAX_PAYLOAD_V6 } else { MAX_PAYLOAD_V4 };
        let wildcard = socket.bind.ip().is_unspecified();
        let gso = gso && segmentation(socket.fd());
        let socket = Held::new(socket);
        Ok(match (batch, wildcard) {
            (1, false) => Self::Single(SinglePort { single: Single::new(reply_room)?, socket }),
            (1, true) => Self::Info(InfoPort { burst: Burst::new(1, reply_room, true, false)?, socket }),
            _ => Self::Many(ManyPort { burst: Burst::new(batch, reply_room, wildcard, gso)?, socket }),
        })
    }
}

// Inlined into the loop: the kernel's mitigations leave the return predictor empty, so that every return after a
// system call is mispredicted. With one datagram per call that shows.
impl Port for SinglePort {
    #[inline(always)]
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt> {
        self.single.receive(self.socket.as_fd(), wait)
    }

    #[inline(always)]
    fn datagram(&mut self, _only: usize) -> (Datagram<'_>, &mut [u8]) {
        self.single.datagram()
    }

    #[inline(always)]
    fn queue(&mut self, _only: usize, len: usize) {
        self.single.queue(len);
    }

    #[inline(always)]
    fn send(&mut self, counts: &Published) {
        self.single.send(self.socket.as_fd(), counts);
    }
}

impl Port for InfoPort {
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt> {
        self.burst.receive_one(self.socket.as_fd(), wait)
    }

    fn datagram(&mut self, i: usize) -> (Datagram<'_>, &mut [u8]) {
        self.burst.datagram(i)
    }

    fn queue(&mut self, i: usize, len: usize) {
        self.burst.queue(i, len);
    }

    fn send(&mut self, counts: &Published) {
        self.burst.send_one(self.socket.as_fd(), counts);
    }
}

impl Port for ManyPort {
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt> {
        self.burst.receive(self.socket.as_fd(), wait)
    }

    fn datagram(&mut self, i: usize) -> (Datagram<'_>, &mut [u8]) {
        self.burst.datagram(i)
    }

    fn queue(&mut self, i: usize, len: usize) {
        self.burst.queue(i, len);
    }

    fn send(&mut self, counts: &Published) {
        self.burst.send(self.socket.as_fd(), counts);
    }
}
