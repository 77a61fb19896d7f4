//! `reuseport`: a socket per worker and address in one reuseport group; the kernel chooses by a hash of the flow.

use std::net::SocketAddr;
use std::sync::Arc;

use super::socket::{Sharing, Socket, SocketConfig, WorkerSockets};
use crate::error::Error;
use crate::probe::{ProbeError, Prober};

/// Flows tried per worker until each worker has answered one. The probability that the hash misses a given worker by
/// chance is below 1e-27, for any number of workers. Fewer flows cause false alarms; more only delay a real one.
const FLOWS_PER_WORKER: usize = 64;

/// Opens a reuseport group per address.
pub(super) fn open(config: &SocketConfig<'_>) -> Result<WorkerSockets, Error> {
    open_group(config, |_worker| None)
}

/// Opens a socket per worker and address; `incoming_cpu` returns the CPU whose datagrams worker `i`'s sockets take.
pub(super) fn open_group(
    config: &SocketConfig<'_>,
    incoming_cpu: impl Fn(usize) -> Option<u32>,
) -> Result<WorkerSockets, Error> {
    let mut by_worker: Vec<Vec<Arc<Socket>>> = Vec::with_capacity(config.cpus.len());
    for worker in 0..config.cpus.len() {
        let sockets = config.binds.iter().enumerate().map(|(index, bind)| {
            // The first worker's socket turns port 0 into a real port; the others join it there.
            let (address, sharing) = match by_worker.first() {
                Some(first) => (first[index].bind, Sharing::Member),
                None => (*bind, Sharing::First),
            };
            Socket::open(address, sharing, incoming_cpu(worker), config.options).map(Arc::new)
        });
        let sockets = sockets.collect::<Result<_, _>>()?;
        by_worker.push(sockets);
    }
    Ok(WorkerSockets { by_worker })
}

/// Many flows together must reach every worker.
pub(super) fn probe(
    prober: &Prober<'_>,
    config: &SocketConfig<'_>,
    target: SocketAddr,
) -> Result<(), ProbeError> {
    let mut reached = vec![false; config.cpus.len()];
    let flows = FLOWS_PER_WORKER * reached.len();
    for _ in 0..flows {
        let worker = prober.ask(target)?;
        if let Some(place) = reached.get_mut(worker) {
            *place = true;
        }
        if reached.iter().all(|yes| *yes) {
            return Ok(());
        }
    }
    let worker = reached.iter().position(|yes| !yes).unwrap_or(0);
    Err(ProbeError::Unreached { flows, target, worker })
}
