//! The flows of the kernel engine: ordinary UDP sockets that hold the source ports and send the first requests.
//!
//! A flow's requests start on its home CPU. On a veth the receiving CPU is the sending one: flows that all started on
//! one CPU would stay on it for the whole run, and those whose replies come back on another CPU would move there. So
//! there the program in the kernel sends them from their home, too ([`udpath_bpf::Layout::homes`]), as a NIC's hash
//! keeps each flow on its queue.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::KernelError;
use super::interface::Interface;
use crate::plan::Plan;

/// The sockets of a plan and the CPU each starts on.
#[derive(Debug)]
pub(super) struct Flows {
    sockets: Vec<UdpSocket>,
    /// CPUs this thread may run on; flow `f` starts on `cpus[f % cpus.len()]`.
    cpus: Vec<usize>,
    /// Flows of other loops before these.
    before: usize,
    /// Whether each flow stays on its CPU.
    stay: bool,
}

impl Flows {
    /// Opens the plan's flows. Connected, so that the kernel knows the path and resolves the next hop. `before`: flows
    /// of other loops, so that those of many small loops spread over the CPUs.
    pub(super) fn open(plan: &Plan, before: usize) -> Result<Self, crate::Error> {
        let sockets = crate::flows::open(plan)?.into_iter().map(UdpSocket::from).collect();
        let allowed = sched_getaffinity(None).map_err(|cause| KernelError::Affinity(cause.into()))?;
        let mut cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        let turn = before % cpus.len().max(1);
        cpus.rotate_left(turn);
        Ok(Self { sockets, cpus, before, stay: false })
    }

    /// Gives the flows their homes: on a veth with several queues, a CPU for each queue.
    pub(super) fn settle(&mut self, interface: &Interface) {
        if !interface.moves_flows() {
            return;
        }
        self.cpus.sort_unstable();
        self.cpus.truncate(interface.queues);
        let turn = self.before % self.cpus.len().max(1);
        self.cpus.rotate_left(turn);
        self.stay = true;
    }

    /// The CPUs that alone send the flows' requests; none if a request leaves by the CPU that received the last reply.
    pub(super) fn homes(&self) -> &[usize] {
        if self.stay { &self.cpus } else { &[] }
    }

    /// Number of flows.
    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Local address and port of a flow.
    pub(super) fn local(&self, flow: usize) -> io::Result<SocketAddr> {
        self.sockets[flow].local_addr()
    }

    /// Sends one request of `flow`.
    pub(super) fn send(&self, flow: usize, request: &[u8]) -> io::Result<()> {
        self.sockets[flow].send(request).map(drop)
    }

    /// Runs `work` for the flows of each home CPU, on that CPU, and restores the thread's affinity.
    pub(super) fn on_home_cpus(&self, mut work: impl FnMut(usize)) -> Result<(), KernelError> {
        let before = sched_getaffinity(None).map_err(|cause| KernelError::Affinity(cause.into()))?;
        for (turn, cpu) in self.cpus.iter().enumerate() {
            let mut only = CpuSet::new();
            only.set(*cpu);
            sched_setaffinity(None, &only).map_err(|cause| KernelError::Affinity(cause.into()))?;
            (turn..self.len()).step_by(self.cpus.len()).for_each(&mut work);
        }
        sched_setaffinity(None, &before).map_err(|cause| KernelError::Affinity(cause.into()))
    }
}
