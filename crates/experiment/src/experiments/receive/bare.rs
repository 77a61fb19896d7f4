//! A bare receiver: one socket and one thread that reads it by `read` or `recvfrom`, and counts.
//!
//! `udpath serve sink` has no `read`, which does not return the sender, so both calls are compared without a server
//! around them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use udpath_lab::Machine;

use crate::threads::{ThreadError, pin};

/// How long one read waits, so that the thread sees the end.
const READ_TIMEOUT: Duration = Duration::from_millis(20);
/// Reads between two of the clock. Fewer: the clock is part of the cost. More: the time of the last one is less exact.
const READS_PER_CLOCK: u64 = 64;

/// How it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Recvfrom,
}

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
pub(super) enum BareError {
    #[error("cannot bind {at}")]
    Bind {
        at: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Lab(#[from] udpath_lab::Error),
    #[error(transparent)]
    Threads(#[from] ThreadError),
    #[error("cannot read the socket")]
    Read(#[from] io::Error),
    #[error("cannot send the flood")]
    Load(#[source] Box<udpath_load::Error>),
    #[error("{0} datagrams arrived, too few for a rate")]
    TooFew(u64),
}

/// Datagrams per second that a thread on CPU 0 reads at `at` of `machine`, with a receive buffer of `buffer` bytes,
/// while `load` runs.
pub(super) fn receive(
    machine: &Machine,
    at: SocketAddr,
    (call, buffer): (Call, usize),
    load: impl FnOnce() -> Result<(), BareError>,
) -> Result<f64, BareError> {
    let socket = machine.run(|| UdpSocket::bind(at))?.map_err(|cause| BareError::Bind { at, cause })?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    // As large as a sink's, if this process may exceed net.core.rmem_max, as that may.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| count_datagrams(&socket, call, &over));
        let loaded = load();
        over.store(true, Ordering::Relaxed);
        let rate = reader.join().map_err(|_panic| ThreadError::Panicked)?;
        loaded.and(rate)
    })
}

fn count_datagrams(socket: &UdpSocket, call: Call, over: &AtomicBool) -> Result<f64, BareError> {
    pin(0)?;
    let mut buffer = [0; 2048];
    // The first clock reading comes after a few datagrams: the flood has begun.
    let (mut began, mut ended) = (None, None);
    let mut read = 0_u64;
    while !over.load(Ordering::Relaxed) {
        let done = match call {
            Call::Read => rustix::io::read(socket, &mut buffer).map(drop).map_err(io::Error::from),
            Call::Recvfrom => socket.recv_from(&mut buffer).map(drop),
        };
        match done {
            Ok(()) => {
                read += 1;
                if read.is_multiple_of(READS_PER_CLOCK) {
                    let now = Some((Instant::now(), read));
                    began = began.or(now);
                    ended = now;
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match (began, ended) {
        (Some((first, before)), Some((last, after))) if after > before => {
            Ok((after - before) as f64 / (last - first).as_secs_f64())
        }
        _ => Err(BareError::TooFew(read)),
    }
}
