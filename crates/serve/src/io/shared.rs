//! `shared`: one socket per address, every worker blocks in a receive call on it.
//!
//! The simplest way, and what most programs do. The kernel wakes one waiting worker per datagram.

use std::net::SocketAddr;
use std::sync::Arc;

use super::socket::{Sharing, Socket, SocketConfig, WorkerSockets};
use crate::error::Error;
use crate::probe::{ProbeError, Prober};

/// Opens one socket per address for all workers.
pub(super) fn open(config: &SocketConfig<'_>) -> Result<WorkerSockets, Error> {
    let sockets = config
        .binds
        .iter()
        .map(|bind| Socket::open(*bind, Sharing::Alone, None, config.options).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(WorkerSockets { by_worker: vec![sockets; config.cpus.len()] })
}

/// Any worker must answer.
pub(super) fn probe(prober: &Prober<'_>, target: SocketAddr) -> Result<(), ProbeError> {
    prober.ask(target).map(|_any_worker| ())
}
