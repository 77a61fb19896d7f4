//! `percpu`: a socket per worker and address in one reuseport group; the kernel chooses the socket whose
//! `SO_INCOMING_CPU` names the CPU that received the datagram.
//!
//! The common alternative, a BPF program that returns the CPU number as an index, depends on the order of binding:
//! closing socket 0 moves the last socket into its place, and the reopened one is added at the end, so that one
//! restarted worker silently sends every datagram to a worker on another CPU. Here each socket names its CPU. The order
//! does not matter, no privilege is needed, and a datagram received on a CPU that no socket names is distributed by
//! flow hash instead of being lost.
//!
//! This helps only if datagrams arrive on all the workers' CPUs; `status/spread.rs` checks that.

use std::net::SocketAddr;

use super::reuseport;
use super::socket::{SocketConfig, WorkerSockets};
use crate::cpus;
use crate::error::Error;
use crate::probe::{ProbeError, Prober};

/// Flows that the probe sends from each CPU. A kernel that ignores the option (4.5 to 6.1) spreads them by hash: two
/// workers then pass with a probability of 2^-16. Fewer: such a kernel passes now and then; more: the start takes
/// longer, 50 us a flow.
const FLOWS: u32 = 8;

/// Opens a reuseport group per address; each socket names its worker's CPU.
pub(super) fn open(config: &SocketConfig<'_>) -> Result<WorkerSockets, Error> {
    let mut distinct = config.cpus.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() < config.cpus.len() {
        return Err(Error::MoreWorkersThanCpus { workers: config.cpus.len(), cpus: distinct.len() });
    }
    reuseport::open_group(config, |worker| Some(config.cpus[worker]))
}

/// Datagrams sent from a worker's CPU must reach that worker: over the loopback it is received on the CPU that sent it.
pub(super) fn probe(
    prober: &Prober<'_>,
    config: &SocketConfig<'_>,
    target: SocketAddr,
) -> Result<(), ProbeError> {
    // In a new thread, so that the caller's affinity does not change.
    let probe = || {
        for (worker, cpu) in config.cpus.iter().enumerate() {
            cpus::pin_to(*cpu).map_err(|source| ProbeError::Pin { cpu: *cpu, source })?;
            for _ in 0..FLOWS {
                let answered = prober.ask(target)?;
                if answered != worker {
                    return Err(ProbeError::WrongWorker { target, cpu: *cpu, answered, expected: worker });
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(probe).join().unwrap_or(Err(ProbeError::Panicked)))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use super::*;
    use crate::io::socket::{Sharing, Socket, SocketOptions};
    use crate::sys::{ReceiveResult, Single, Wait};

    /// Flows sent from each CPU; by flow hash instead, all of them go to the right worker with a probability of 2^-80.
    const MANY_FLOWS: usize = 40;

    /// Empties each socket; returns how many datagrams were queued there.
    fn queued(sockets: &[Arc<Socket>]) -> Vec<usize> {
        sockets
            .iter()
            .map(|socket| {
                let mut port = Single::new(64).unwrap();
                let mut count = 0;
                while port.receive(socket.fd(), Wait::Now).unwrap() == ReceiveResult::Datagrams(1) {
                    count += 1;
                }
                count
            })
            .collect()
    }

    /// Sends one datagram per flow, from a thread pinned to `cpu`.
    fn send_from(cpu: u32, target: SocketAddr) {
        std::thread::spawn(move || {
            cpus::pin_to(cpu).unwrap();
            for _ in 0..MANY_FLOWS {
                let any = if target.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
                UdpSocket::bind(any).unwrap().send_to(b"x", target).unwrap();
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_mapping_survives_a_reopened_socket() {
        let cpus: Vec<u32> = cpus::allowed_cpus().unwrap().iter().collect();
        for bind in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let binds = [bind.parse().unwrap()];
            let config = SocketConfig { binds: &binds, cpus: &cpus, options: SocketOptions::default() };
            let sockets = open(&config).unwrap();
            let mut sockets: Vec<_> = sockets.by_worker.into_iter().map(|mut one| one.remove(0)).collect();
            let address = sockets[0].bind;
            let target = match address {
                SocketAddr::V4(v4) => SocketAddr::from(([127, 0, 0, 1], v4.port())),
                SocketAddr::V6(_) => address,
            };
            // First as opened, then with each worker's socket closed and reopened in turn, which reorders the group.
            for reopened in std::iter::once(None).chain((0..cpus.len()).map(Some)) {
                if let Some(worker) = reopened
                    && cpus.len() > 1
                {
                    drop(sockets.remove(worker));
                    let again =
                        Socket::open(address, Sharing::Member, Some(cpus[worker]), SocketOptions::default())
                            .unwrap();
                    sockets.insert(worker, Arc::new(again));
                }
                for (worker, cpu) in cpus.iter().enumerate() {
                    send_from(*cpu, target);
                    let mut expected = vec![0; cpus.len()];
                    expected[worker] = MANY_FLOWS;
                    assert_eq!(queued(&sockets), expected, "{bind}: CPU {cpu}, reopened {reopened:?}");
                }
            }
        }
    }

    #[test]
    fn two_workers_on_one_cpu_are_refused() {
        let binds = ["127.0.0.1:0".parse().unwrap()];
        let error = open(&SocketConfig { binds: &binds, cpus: &[0, 0], options: SocketOptions::default() })
            .unwrap_err();
        assert!(error.to_string().contains("2 workers do not fit 1 CPUs"), "{error}");
    }
}
