//! UDP over kernel sockets: sends runs of requests to one flow in few system calls.
//!
//! ```text
//!   rr, flood   a message per datagram, many messages per sendmmsg
//!   rr (gso)    consecutive datagrams of one length, and a shorter one at the end, are a message (GSO)
//!   stream      up to 64 datagrams per message, segmented by the kernel or the device (GSO)
//! ```

mod one_way;
mod rr;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::sys::Batch;
use super::try_later;
use crate::transmit::Ledger;

pub(super) use one_way::OneWay;
pub(super) use rr::RequestReply;

/// Attempts to send after `ECONNREFUSED`, which reports an earlier datagram.
const MAX_REFUSALS: usize = 3;

/// Sends over the sockets of one thread's flows.
struct Sender {
    sockets: Vec<OwnedFd>,
    batch: Batch,
}

impl Sender {
    /// Sends up to `datagrams` of up to `size` bytes per system call, up to `segments` of them per message.
    fn new(sockets: Vec<OwnedFd>, datagrams: usize, segments: usize, size: usize) -> Self {
        Self { sockets, batch: Batch::new(datagrams, segments, size) }
    }

    fn socket(&self, index: usize) -> BorrowedFd<'_> {
        self.sockets[index].as_fd()
    }

    fn stop_segmenting(&mut self, ledger: &mut Ledger<'_>, why: &io::Error) {
        self.batch.stop_segmenting();
        ledger
            .warnings
            .push(format!("sent without GSO, one datagram per message: rejected by the kernel ({why})"));
    }

    /// Sends requests of flow `index`; returns how many are done. In an open loop a request that the kernel refuses
    /// is counted and skipped; in a closed loop its flow tries again later.
    fn send(&mut self, ledger: &mut Ledger<'_>, index: usize, intended: &[u64]) -> usize {
        let (mut done, mut refusals) = (0, 0);
        while done < intended.len() {
            self.write(ledger, index, intended.len() - done);
            let at = ledger.clock.now();
            let error = match self.batch.send(self.sockets[index].as_fd()) {
                Ok(datagrams) => {
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
            if self.batch.segments() && refuses_gso(&error) {
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

    /// Writes up to `count` datagrams of flow `index` into the batch.
    fn write(&mut self, ledger: &mut Ledger<'_>, index: usize, count: usize) {
        self.batch.clear();
        for datagram in 0..count.min(self.batch.capacity()) {
            self.batch.push(|bytes| ledger.write(index, datagram as u64, bytes));
        }
    }
}

/// Errors of a send with GSO that a send without it cannot have.
fn refuses_gso(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP))
}
