//! What the start-up probe found wrong.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use udpath_stack::port::xdp;
use udpath_stack::wire::Unfit;

/// What the start-up probe found wrong. The cause, where there is one, is the [source](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// No worker answered.
    #[error(
        "no answer from {target} to {attempts} datagrams within {} ms each; does a packet filter drop them?", timeout.as_millis()
    )]
    NoAnswer {
        /// The address probed.
        target: SocketAddr,
        /// Datagrams sent.
        attempts: usize,
        /// How long the probe waited for each answer.
        timeout: Duration,
    },
    /// A probe datagram cannot be sent.
    #[error(
        "cannot send a datagram to {target}; check that the loopback device is up and that no packet filter rejects it"
    )]
    Send {
        /// The address probed.
        target: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The probe cannot run on a worker's CPU.
    #[error("cannot run the probe on CPU {cpu}")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A datagram went to the worker of another CPU.
    #[error(
        "a datagram to {target} received on CPU {cpu} went to worker {answered} instead of {expected}; is the kernel older \
         than 6.2, or RPS set on the loopback device?"
    )]
    WrongWorker {
        /// The address probed.
        target: SocketAddr,
        /// The CPU that received it.
        cpu: u32,
        /// The worker that answered.
        answered: usize,
        /// The worker of that CPU.
        expected: usize,
    },
    /// The kernel's choice by flow hash never reached a worker.
    #[error("none of {flows} flows to {target} reached worker {worker}")]
    Unreached {
        /// Flows tried.
        flows: usize,
        /// The address probed.
        target: SocketAddr,
        /// The worker.
        worker: usize,
    },
    /// The thread of the probe panicked: a defect.
    #[error("the probe panicked")]
    Panicked,
    /// A probe frame cannot be built.
    #[error("cannot build a frame from {from} to {to}")]
    Frame {
        /// Its source.
        from: SocketAddr,
        /// Its destination.
        to: SocketAddr,
        /// The cause.
        source: Unfit,
    },
    /// An operation on a queue failed.
    #[error("{queue}: cannot {operation}")]
    Queue {
        /// Interface and queue.
        queue: String,
        /// The operation that failed.
        operation: &'static str,
        /// The cause.
        source: Box<xdp::Error>,
    },
    /// The XDP program passes the probe frame to the kernel.
    #[error(
        "{queue}: the program leaves a datagram from {from} to {to} to the kernel{reason}; serve another address, or use \
         reuseport"
    )]
    LeftToKernel {
        /// Interface and queue.
        queue: String,
        /// The source of the frame.
        from: SocketAddr,
        /// Its destination.
        to: SocketAddr,
        /// The program's reason in brackets, or nothing if it is unknown.
        reason: String,
    },
    /// An injected frame brought no reply.
    #[error(
        "{queue}: no reply within {seconds} s to a datagram from {from} to {to} injected into the queue; {seen}"
    )]
    NoReply {
        /// Interface and queue.
        queue: String,
        /// The source of the frame.
        from: SocketAddr,
        /// Its destination.
        to: SocketAddr,
        /// How long the probe waited.
        seconds: u64,
        /// What the workers counted in that time.
        seen: String,
    },
}

impl ProbeError {
    /// For `map_err`: `operation` failed on `queue`.
    pub(crate) fn on_queue(queue: &str, operation: &'static str) -> impl FnOnce(xdp::Error) -> Self {
        let queue = queue.to_owned();
        move |source| Self::Queue { queue, operation, source: Box::new(source) }
    }
}
