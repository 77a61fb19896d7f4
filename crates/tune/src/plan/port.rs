//! Requests about the server on a port: `port:53:...`, expanded to its sockets and threads.
//!
//! | request | becomes |
//! |---|---|
//! | `port:53:receive-buffer=8388608` | `socket:PID/INODE:receive-buffer` of each socket bound to the port; likewise `busy-poll` and so on |
//! | `port:53:incoming-cpu=one-per-cpu` | for each reuseport group, the next CPU for each member |
//! | `port:53:selection=by-cpu` | `group:PID/INODE:selection` of each reuseport group |
//! | `port:53:threads=0-3` | `thread:PID/TID:affinity` of each thread that waits for one of the sockets |
//! | `port:53:threads=one-per-cpu` | the same, each on the CPU that `incoming-cpu=one-per-cpu` gives its socket |
//!
//! `port:127.0.0.1:53:...` and `port:[::]:53:...` mean only the sockets bound to exactly that address: another program
//! may have the same port at another one.
//!
//! The CPUs are the online ones, round-robin if there are more sockets or threads; `one-per-cpu:2-7` uses these
//! instead.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use error_reporter::Report;
use udpath_steer::CpuSet;

use super::{PlanError, SettingRequest};
use crate::machine::Machine;
use crate::settings::Setting;
use udpath_host::Source;
use udpath_host::process::{Error, Server, Socket, SocketSetting, waiting};

/// The part of a port that selects threads.
const THREADS: &str = "threads";
/// The value that spreads over CPUs.
const SPREAD: &str = "one-per-cpu";

/// The requests that a port request expands to; `None` for any other request.
pub(super) fn expanded(
    machine: &dyn Machine,
    request: &SettingRequest,
) -> Result<Option<Vec<SettingRequest>>, PlanError> {
    let Some(rest) = request.name.strip_prefix("port:") else { return Ok(None) };
    let parts = rest.rsplit_once(':').and_then(|(object, item)| Some((bound(object)?, item)));
    let ((address, port), item) =
        parts.ok_or_else(|| PlanError::Port { name: request.name.clone(), why: usage() })?;
    let setting = SocketSetting::ALL.into_iter().find(|setting| setting.name() == item);
    if setting.is_none() && item != THREADS {
        return Err(PlanError::Port { name: request.name.clone(), why: usage() });
    }
    let failed = |error: Error| PlanError::Unserved {
        name: request.name.clone(),
        why: Report::new(error).to_string(),
    };
    let mut servers = machine.serving(port).map_err(failed)?;
    if let Some(address) = address {
        let only = |server: Server| server.with_sockets(|socket| socket.local == address);
        servers = servers.into_iter().map(only).filter(|server| !server.sockets.is_empty()).collect();
        if servers.is_empty() {
            let why = format!("no UDP socket is bound to {address}");
            return Err(PlanError::Unserved { name: request.name.clone(), why });
        }
    }
    let mut found = Vec::new();
    for server in &servers {
        let named = |socket: &Socket| format!("{} of {}", socket.local, server.name);
        match setting {
            Some(SocketSetting::Selection) => {
                let first = |members: &Vec<usize>| members.first().map(|&at| &server.sockets[at]);
                let firsts = server.groups.iter().filter(|group| group.members.len() > 1);
                found.extend(firsts.filter_map(|group| first(&group.members)).map(|socket| {
                    (socket_name(socket, SocketSetting::Selection), request.value.clone(), named(socket))
                }));
            }
            Some(setting) => {
                let cpus = spread(machine.source(), request, port)?;
                for socket in &server.sockets {
                    let value = match &cpus {
                        Some(cpus) if setting == SocketSetting::IncomingCpu => {
                            cpus[place(server, socket).unwrap_or(0) % cpus.len()].to_string()
                        }
                        _ => request.value.clone(),
                    };
                    found.push((socket_name(socket, setting), value, named(socket)));
                }
            }
            None => {
                let cpus = spread(machine.source(), request, port)?;
                found.extend(threads(server, cpus.as_deref(), &request.value).map_err(failed)?);
            }
        }
    }
    if found.is_empty() {
        let why = "its sockets are not in a reuseport group".to_owned();
        return Err(PlanError::Unserved { name: request.name.clone(), why });
    }
    let requests = found.into_iter().map(|(name, value, of)| {
        let reason = if request.reason.is_empty() { of } else { format!("{}; {of}", request.reason) };
        SettingRequest { name, value, from: None, reason }
    });
    Ok(Some(requests.collect()))
}

fn usage() -> String {
    let items: Vec<&str> = SocketSetting::ALL.into_iter().map(SocketSetting::name).collect();
    format!("write it like port:53:receive-buffer ({}, {THREADS})", items.join(", "))
}

/// `53`, or `127.0.0.1:53`: an address, if there is one, and the port.
fn bound(object: &str) -> Option<(Option<SocketAddr>, u16)> {
    if let Some(port) = number(object) {
        return Some((None, port));
    }
    let address: SocketAddr = object.parse().ok().filter(|address: &SocketAddr| address.port() > 0)?;
    Some((Some(address), address.port()))
}

/// A port number of digits only.
fn number(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?.filter(|port| *port > 0)
}

fn socket_name(socket: &Socket, setting: SocketSetting) -> String {
    Setting::Socket { pid: socket.pid, inode: socket.id.inode, setting }.to_string()
}

/// The socket's index in its group; `None` if it does not share its port.
fn place(server: &Server, socket: &Socket) -> Option<usize> {
    let group = &server.groups[socket.group?];
    let at = group.members.iter().position(|&at| server.sockets[at].id == socket.id)?;
    (group.members.len() > 1).then_some(at)
}

/// The CPUs to spread over, if requested.
fn spread(source: &dyn Source, request: &SettingRequest, port: u16) -> Result<Option<Vec<u32>>, PlanError> {
    let Some(rest) = request.value.strip_prefix(SPREAD) else { return Ok(None) };
    let wrong = |why: String| PlanError::Port { name: format!("port:{port}={}", request.value), why };
    let list = match rest.strip_prefix(':') {
        Some(list) => list.to_owned(),
        None if rest.is_empty() => {
            source.text("/sys/devices/system/cpu/online").map_err(|why| wrong(why.to_string()))?
        }
        None => return Err(wrong(format!("write {SPREAD}, or {SPREAD}:2-7"))),
    };
    let cpus = CpuSet::from_list(list.trim()).map_err(|why| wrong(why.to_string()))?;
    if cpus.is_empty() {
        return Err(wrong("name at least one CPU".to_owned()));
    }
    Ok(Some(cpus.iter().collect()))
}

/// The threads that wait for the server's sockets, each with its CPUs and the socket it reads. A thread that reads
/// several is placed with its first socket; threads that read the same socket are spread round-robin.
fn threads(
    server: &Server,
    cpus: Option<&[u32]>,
    value: &str,
) -> Result<Vec<(String, String, String)>, Error> {
    let waiting = waiting(server)?;
    let mut seen = BTreeSet::new();
    // How many threads each index has been given; readers of unshared sockets get indices of their own.
    let mut alone = 0;
    let mut found = Vec::new();
    let by_place: BTreeMap<(usize, u32), &Socket> = server
        .sockets
        .iter()
        .map(|socket| ((place(server, socket).unwrap_or(0), socket.id.inode), socket))
        .collect();
    for socket in by_place.into_values() {
        for thread in waiting.get(&socket.id.inode).into_iter().flatten() {
            if !seen.insert(*thread) {
                continue;
            }
            let at = place(server, socket).unwrap_or_else(|| {
                alone += 1;
                alone - 1
            });
            let value = cpus.map_or(value.to_owned(), |cpus| cpus[at % cpus.len()].to_string());
            let setting = Setting::Thread { pid: thread.pid, tid: thread.tid };
            found.push((setting.to_string(), value, format!("reads {} of {}", socket.local, server.name)));
        }
    }
    Ok(found)
}
