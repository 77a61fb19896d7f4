//! UDP over kernel sockets: sends runs of requests to one flow in few system calls.
//!
//! ```text
//!   rr, flood   a message per datagram, many messages per sendmmsg
//!   stream      up to 64 datagrams per message, segmented by the kernel or the device (GSO)
//! ```

mod one_way;
mod rr;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::sys::{Messages, set_segment};
use super::try_later;
use crate::transmit::Ledger;

pub(super) use one_way::OneWay;
pub(super) use rr::RequestReply;

/// Attempts to send after `ECONNREFUSED`, which reports an earlier datagram.
const MAX_REFUSALS: usize = 3;

/// Sends over the sockets of one thread's flows.
struct Sender {
    sockets: Vec<OwnedFd>,
    messages: Messages,
    /// Datagrams per message: 1 without GSO.
    segments: usize,
    /// Bytes of a datagram.
    size: usize,
}

impl Sender {
    /// Sends up to `batch` messages of `segments` datagrams of `size` bytes per system call.
    fn new(sockets: Vec<OwnedFd>, batch: usize, segments: usize, size: usize) -> Self {
        Self { sockets, messages: Messages::new(batch, segments * size), segments, size }
    }

    fn socket(&self, index: usize) -> BorrowedFd<'_> {
        self.sockets[index].as_fd()
    }

    /// Most datagrams per system call.
    fn batch(&self) -> usize {
        self.messages.count() * self.segments
    }

    /// Enables GSO for all flows, or disables it for good.
    fn segment(&mut self, ledger: &mut Ledger<'_>) {
        let size = self.size as u16;
        if let Some(error) = self.sockets.iter().find_map(|socket| set_segment(socket.as_fd(), size).err()) {
            self.stop_segmenting(ledger, &error);
        }
    }

    fn stop_segmenting(&mut self, ledger: &mut Ledger<'_>, why: &io::Error) {
        self.segments = 1;
        for socket in &self.sockets {
            // A kernel that cannot disable it could not enable it.
            let _ = set_segment(socket.as_fd(), 0);
        }
        ledger
            .warnings
            .push(format!("sent without GSO, one datagram per message: rejected by the kernel ({why})"));
    }

    /// Sends requests of flow `index`; returns how many are done. In an open loop a request that the kernel refuses
    /// is counted and skipped; in a closed loop its flow tries again later.
    fn send(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: &[u64]) -> usize {
        let (mut done, mut refusals) = (0, 0);
        while done < intended.len() {
            let count = self.write(ledger, index, intended.len() - done);
            let at = ledger.clock.now();
            let error = match self.messages.send(self.sockets[index].as_fd(), 0, count) {
                Ok(messages) => {
                    let datagrams = self.datagrams(messages);
                    ledger.sent_burst(index, &intended[done..done + datagrams], at);
                    done += datagrams;
                    continue;
                }
                Err(error) => error,
            };
            if try_later(&error) {
                ledger.queue_full += 1;
                return done;
            }
            if error.kind() == io::ErrorKind::ConnectionRefused {
                ledger.failures.refused += 1;
                refusals += 1;
                if refusals < MAX_REFUSALS {
                    continue;
                }
                return done;
            }
            if self.segments > 1 && refuses_gso(&error) {
                self.stop_segmenting(ledger, &error);
                continue;
            }
            if !ledger.refused(index, intended[done], &error, at) {
                return done;
            }
            done += 1;
        }
        done
    }

    /// Writes up to `count` datagrams of flow `index` into messages; returns the number of messages.
    fn write(&mut self, ledger: &mut Ledger<'_>, index: usize, count: usize) -> usize {
        let count = count.min(self.batch());
        for datagram in 0..count {
            let (message, place) = (datagram / self.segments, datagram % self.segments);
            let bytes = &mut self.messages.buffer(message)[place * self.size..][..self.size];
            let len = ledger.write(index, datagram as u64, bytes);
            // Segments have one size: only one-way modes send several per message, and their requests fill it.
            self.messages.set_len(message, place * self.size + len);
        }
        count.div_ceil(self.segments)
    }

    /// Datagrams in the first `messages` messages.
    fn datagrams(&self, messages: usize) -> usize {
        match self.segments {
            1 => messages,
            _ => (0..messages).map(|message| self.messages.len(message) / self.size).sum(),
        }
    }
}

/// Errors of a send with GSO that a send without it cannot have.
fn refuses_gso(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP))
}
