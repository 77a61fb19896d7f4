//! The CPU of each worker, and opening the sockets of both transports.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::config::{Config, ConfigError};
use crate::cpus;
use crate::error::Error;
use crate::io::{Devices, Io, SocketConfig, WorkerSockets, XdpError};
use crate::sys;
use crate::tcp;

/// Ports tried when any port will do, but the one obtained for UDP is in use for TCP.
const MAX_PORT_ATTEMPTS: usize = 16;

/// Rejects the broadcast addresses of this host's subnets: no reply can be sent from one.
pub(super) fn check_addresses(binds: &[SocketAddr]) -> Result<(), Error> {
    let specific = |bind: &&SocketAddr| bind.is_ipv4() && !bind.ip().is_unspecified();
    for bind in binds.iter().filter(specific) {
        let cannot = |source| Error::Resources { operation: "look up an address to serve", source };
        // The port does not matter, but some kernels cannot connect to port 0.
        if sys::is_broadcast(SocketAddr::new(bind.ip(), 9)).map_err(cannot)? {
            return Err(ConfigError::Unservable(*bind).into());
        }
    }
    Ok(())
}

/// The CPU of each worker: the configured CPUs in turn, or those the process may use.
pub(super) fn worker_cpus(config: &Config) -> Result<Vec<u32>, Error> {
    let allowed = cpus::allowed_cpus().map_err(Error::Affinity)?;
    let chosen = match &config.cpus {
        Some(listed) => {
            if let Some(cpu) = listed.difference(&allowed).first() {
                return Err(Error::CpuNotAllowed { cpu, allowed });
            }
            listed.clone()
        }
        None => allowed,
    };
    let workers = config.workers.unwrap_or(chosen.len());
    Ok(chosen.iter().cycle().take(workers).collect())
}

/// The CPU of each worker of `xdp`: at least as many workers as queues.
pub(super) fn cpus_for_queues(config: &Config, cpus: &[u32], devices: &Devices) -> Result<Vec<u32>, Error> {
    let queues = devices.queues();
    if config.workers.is_some() && cpus.len() < queues {
        let interfaces = devices.names();
        return Err(XdpError::TooFewWorkers { queues, interfaces, workers: cpus.len() }.into());
    }
    Ok(cpus.iter().copied().cycle().take(queues.max(cpus.len())).collect())
}

/// The sockets, and for each worker the TCP listeners on the same addresses and ports.
pub(super) fn open_all(
    io: Io,
    config: &SocketConfig<'_>,
    with_tcp: bool,
) -> Result<(WorkerSockets, Vec<Vec<TcpListener>>), Error> {
    let any_port = config.binds.iter().any(|bind| bind.port() == 0);
    let mut attempts = if any_port && with_tcp { MAX_PORT_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        let sockets = io.open(config)?;
        if !with_tcp {
            return Ok((sockets, Vec::new()));
        }
        match listen_all(&sockets.binds(), config.cpus.len(), config.options.receive_buffer) {
            Ok(listeners) => return Ok((sockets, listeners)),
            Err(Error::Bind { source, .. }) if attempts > 0 && source.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

fn listen_all(
    binds: &[SocketAddr],
    workers: usize,
    receive_buffer: Option<usize>,
) -> Result<Vec<Vec<TcpListener>>, Error> {
    let mut by_worker: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for bind in binds {
        for (place, listener) in by_worker.iter_mut().zip(tcp::listen(*bind, workers, receive_buffer)?) {
            place.push(listener);
        }
    }
    Ok(by_worker)
}
