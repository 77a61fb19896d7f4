//! The status of a server: the counters of the workers and the kernel, added up.

use std::sync::PoisonError;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use udpath_stack::counters::DropReason as FrameDrop;

use super::Server;
use crate::counts::{Counts, TcpCounts};
use crate::io::{FastPath, Io};
use crate::outcome::SendError;
use crate::status::{SocketStatus, Status, WorkerStatus};

impl Server {
    /// The status so far. Costs a few system calls per socket, and nothing on the packet path. Under heavy overload,
    /// call it at least every few minutes: the kernel's drop counters wrap at 32 bits.
    pub fn status(&self) -> Status {
        let by_endpoint: Vec<Vec<Counts>> = self
            .endpoints
            .iter()
            .map(|endpoints| endpoints.iter().map(|endpoint| endpoint.counts()).collect())
            .collect();
        let frames = self.fast_path.as_deref().map(FastPath::frames);
        // Read after the workers' counters, so that it includes all frames they received.
        let (xdp, arrivals) = match (&self.fast_path, &frames) {
            (Some(fast_path), Some(frames)) => fast_path.status(frames),
            _ => Default::default(),
        };
        let sockets = self.socket_statuses(&by_endpoint);
        let mut total = Counts::default();
        let workers: Vec<_> = by_endpoint
            .iter()
            .enumerate()
            .map(|(worker, endpoints)| {
                let mut counts = Counts::default();
                endpoints.iter().for_each(|endpoint| counts.add(endpoint));
                let port = arrivals.received.get(worker).copied().unwrap_or_default();
                if let Some(frames) = &frames {
                    let settled = frames.total.completed(worker);
                    counts.add_frames(&frames.by_worker[worker], settled, port.transmit_invalid);
                }
                total.add(&counts);
                let own = sockets.iter().filter(|socket| socket.worker == Some(worker));
                let kernel_drops = own.map(|socket| socket.kernel_drops).sum::<u64>() + port.dropped();
                let cpu = self.pinned.then(|| self.cpus[worker]);
                WorkerStatus { worker, cpu, kernel_drops, counts }
            })
            .collect();
        let at_sockets: u64 = sockets.iter().map(|socket| socket.kernel_drops).sum();
        let kernel_drops = at_sockets + arrivals.dropped();
        let received: Vec<u64> = workers.iter().map(|worker| worker.counts.received).collect();
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let warning = if self.io == Io::Percpu { watch.observe(&received, &self.cpus) } else { None };
        let losses = losses(at_sockets, &total);
        Status {
            io: self.io,
            rejected: self.rejected.clone(),
            batch: self.batch,
            gso: self.gso,
            seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_time().saturating_sub(self.started_cpu).as_secs_f64(),
            total,
            kernel_drops,
            workers,
            sockets,
            tcp: self.tcp_counts(),
            xdp,
            warnings: warning
                .map(str::to_owned)
                .into_iter()
                .chain(self.warning.clone())
                .chain(self.service_warnings.iter().flat_map(|hook| hook()))
                .chain(losses)
                .chain(self.fast_path.iter().flat_map(|fast_path| fast_path.warnings(&arrivals)))
                .collect(),
        }
    }

    fn tcp_counts(&self) -> Option<TcpCounts> {
        let mut counts = TcpCounts::default();
        self.tcp_counters.iter().for_each(|worker| worker.add_to(&mut counts));
        (!self.tcp_counters.is_empty()).then_some(counts)
    }

    fn socket_statuses(&self, by_endpoint: &[Vec<Counts>]) -> Vec<SocketStatus> {
        let mut sockets = Vec::new();
        for index in 0..self.binds.len() {
            for (worker, counts) in by_endpoint.iter().enumerate() {
                let socket = &self.endpoints[worker][index].socket;
                if self.io == Io::Shared && worker > 0 {
                    // All workers share one socket: add to the entry of the first worker.
                    if let Some(SocketStatus { counts: sum, .. }) = sockets.last_mut() {
                        sum.add(&counts[index]);
                    }
                    continue;
                }
                sockets.push(SocketStatus {
                    bind: socket.bind,
                    worker: (self.io != Io::Shared).then_some(worker),
                    receive_buffer_bytes: socket.receive_buffer,
                    kernel_drops: match &self.final_drops {
                        Some(drops) => drops[worker][index],
                        None => socket.kernel_drops(),
                    },
                    counts: counts[index].clone(),
                });
            }
        }
        sockets
    }
}

/// CPU time of the process so far.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Warnings about lost datagrams, from the first one on. Without numbers: each warning is printed once, and the
/// counters have the numbers.
fn losses(at_sockets: u64, total: &Counts) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |lost: u64, sentence: &str| {
        if lost > 0 {
            warnings.push(sentence.to_owned());
        }
    };
    warn(
        at_sockets,
        "the kernel drops datagrams at the sockets (kernel_drops): a receive buffer is full because its worker is too slow \
         or gets too little CPU time, or a checksum is wrong; add workers or CPUs, or raise --rcvbuf for bursts",
    );
    warn(
        total.dropped.frames(FrameDrop::BacklogFull),
        "frames are dropped because the backlog of the worker they are steered to is full (backlog_full): that worker is \
         too slow or gets too little CPU time; steer to more workers",
    );
    warn(
        total.dropped.frames(FrameDrop::FlowLimit),
        "frames are dropped because their flow fills a worker's backlog (flow_limit): one sender is faster than a worker",
    );
    warn(
        total.send_errors.by(SendError::NoBuffers) + total.send_errors.by(SendError::BufferFull),
        "replies are dropped (send_failed): the device's transmit queue or the send buffer is full, or the link is down",
    );
    warn(
        total.send_errors.by(SendError::Neighbour),
        "replies are dropped (neighbour): the senders of the requests, or the router to them, do not answer ARP or neighbour \
         discovery; if the requests are forged, filter them: `ip -s neigh show nud incomplete nud failed` lists the addresses",
    );
    warnings
}
