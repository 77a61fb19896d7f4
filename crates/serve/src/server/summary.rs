//! Adding up what the workers and the kernel counted.

use std::sync::PoisonError;

use super::Server;
use crate::io::{Fast, Io};
use crate::service::DropReason;
use crate::status::{Counts, SocketStatus, Status, TcpCounts, WorkerStatus};

impl Server {
    /// What was done so far. Costs a few system calls per socket and nothing on the packet path. Call it at least
    /// every few minutes under heavy overload: the kernel's own drop counters wrap at 32 bits.
    pub fn status(&self) -> Status {
        let by_lane: Vec<Vec<Counts>> =
            self.lanes.iter().map(|lanes| lanes.iter().map(|lane| lane.counts()).collect()).collect();
        let mut total = Counts::default();
        let workers: Vec<_> = by_lane
            .iter()
            .enumerate()
            .map(|(worker, lanes)| {
                let mut counts = Counts::default();
                lanes.iter().for_each(|lane| counts.add(lane));
                total.add(&counts);
                WorkerStatus { worker, cpu: self.pinned.then(|| self.cpus[worker]), counts }
            })
            .collect();
        let sockets = self.socket_statuses(&by_lane);
        let kernel_drops = sockets.iter().map(|socket| socket.kernel_drops).sum();
        let received: Vec<u64> = workers.iter().map(|worker| worker.counts.received).collect();
        let xdp = self.fast.as_deref().map(Fast::status);
        if let Some(xdp) = &xdp {
            // They left the service as replies and got no further.
            total.answered -= xdp.refused.min(total.answered);
            total.dropped.0[DropReason::SendFailed as usize] += xdp.refused;
        }
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let warning = if self.io == Io::Percpu { watch.observe(&received, &self.cpus) } else { None };
        Status {
            io: self.io,
            rejected: self.rejected.clone(),
            batch: self.batch,
            gso: self.gso,
            seconds: self.started.elapsed().as_secs_f64(),
            total,
            kernel_drops,
            workers,
            sockets,
            tcp: self.tcp_counts(),
            xdp,
            warnings: warning
                .map(str::to_owned)
                .into_iter()
                .chain(self.fast.iter().flat_map(|fast| fast.warnings()))
                .collect(),
        }
    }

    fn tcp_counts(&self) -> Option<TcpCounts> {
        let mut counts = TcpCounts::default();
        self.meters.iter().for_each(|meter| meter.add_to(&mut counts));
        (!self.meters.is_empty()).then_some(counts)
    }

    fn socket_statuses(&self, by_lane: &[Vec<Counts>]) -> Vec<SocketStatus> {
        let mut sockets = Vec::new();
        for index in 0..self.binds.len() {
            for (worker, counts) in by_lane.iter().enumerate() {
                let socket = &self.lanes[worker][index].socket;
                if self.io == Io::Shared && worker > 0 {
                    // The one socket of all workers: add to the entry that the first of them made.
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
