//! Unmodified servers and their own configuration: recognised, read, and changed like any other setting.
//!
//! ```text
//!  recognise(pid) ─▸ Service ── knobs()          what its configuration says, with file and line
//!                          └── proposals(cpus)  what its authors' guide would change
//!  prepare(proposals, restart) ─▸ Prepared ── check()  the server's own checker, before anything is written
//!                                        └── changes  config:FILE ..., restart:SERVER ─▸ plan, apply, undo
//! ```
//! What is known about each server is data, in `crates/tune/services`: a file per server. The code knows formats
//! ([`format`](self)), not servers.
//!
//! A file is changed by replacing or inserting a few bytes, or by a drop-in where the server reads a folder. The
//! journal has its old text before it is written. The restart is a change of its own, made last, in an apply as in an
//! undo, and it fails unless the server answers afterwards: so a server that does not come back is rolled back like any
//! failed change.
//!
//! A server that reads with one thread can be restarted in several instances (`multiplied.rs`); what must differ
//! between those is in `instances.rs`.

mod advisory;
mod arguments;
mod check;
mod config;
mod confined;
mod credentials;
mod edit;
mod error;
mod format;
mod glob;
mod instances;
mod knob;
mod multiplied;
mod numbers;
mod prepare;
mod probe;
mod profile;
mod proposals;
mod reader;
mod readers;
mod restart;
mod shown;
mod start;
mod view;
mod writable;

use std::fs;
use std::io;
use std::net::SocketAddr;

use error_reporter::Report;
use udpath_host::process::{self, Server, Thread};
use udpath_host::source::Folder;
use udpath_host::{UnitName, processes};
use udpath_steer::CpuSet;

use arguments::{Arguments, command_line};
use config::{COMMAND_LINE, Config};
use reader::Reader;

pub use advisory::{Advisory, order as version_order};
pub use credentials::Credentials;
pub use edit::FileChange;
pub use error::ServiceError;
pub use instances::{Instances, account};
pub use knob::{Knob, Origin, Proposal};
pub use multiplied::{SUPERVISORS, number as instances};
pub use prepare::{Prepared, Request, permitted};
pub use profile::{Probe, Profile};
pub use restart::{By, Restart, started_again};
pub(crate) use restart::{finished, output};
pub use shown::{Outcome, Shape, Shown};
pub(crate) use writable::changeable;

/// Ports that are not served: the command ports of chronyd and NSD.
const COMMAND_PORTS: [u16; 2] = [323, 8952];

/// A running server that is known.
#[derive(Debug)]
pub struct Service {
    /// What is known about its program.
    pub profile: &'static Profile,
    /// Its first process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The version of its Debian package; `None` if it is not from a package.
    pub version: Option<String>,
    /// Its unit of systemd's system manager, by its control group.
    pub unit: Option<UnitName>,
    /// Its main configuration file, as it sees it.
    pub config_path: String,
    /// The address at which it is asked whether it serves; `None` without a bound UDP socket that is visible.
    pub address: Option<SocketAddr>,
    /// CPUs that it may use.
    pub cpus: CpuSet,
    arguments: Arguments,
    config: Config,
    /// The folder that it was started in, if that is known.
    start: Option<String>,
    /// The drop-in for new lines, if the server reads a folder of them.
    drop_in: Option<String>,
    /// Whose rights it has.
    rights: Credentials,
    /// What its paths begin with here: empty, the folder that is its root, or `/proc/PID/root` if its files are others
    /// than this machine's ([`view`]).
    view: String,
    /// Its root is another one since it has read them ([`view::changed_root`]).
    changed_root: bool,
    /// Other programs that serve its port at another address, or are not known; they are left alone.
    pub others: Vec<String>,
}

/// Recognises a running server by its first process, and reads its configuration.
///
/// # Errors
/// The process is gone, its program is not known, or its configuration is not readable.
pub fn recognise(pid: u32) -> Result<Service, ServiceError> {
    let failed = |cause| ServiceError::Process { pid, cause };
    let target = fs::read_link(format!("/proc/{pid}/exe")).map_err(failed)?;
    let program = target.display().to_string();
    let program = program.strip_suffix(" (deleted)").unwrap_or(&program).to_owned();
    let name = program.rsplit('/').next().unwrap_or_default();
    let unknown = || ServiceError::Unknown { pid, program: program.clone(), known: Profile::names() };
    let profile = Profile::of(name).ok_or_else(unknown)?;
    let arguments = Arguments::read(&String::from_utf8_lossy(&command_line(pid)?), &profile.switches);
    let unit = processes::unit(&Folder::live(), pid);
    let start = start::folder(pid, profile, &arguments, unit.as_ref());
    let config_path = config_path(pid, profile, &arguments, start.as_deref())?;
    let changed_root = view::changed_root(pid, profile, &arguments, &config_path);
    let view = if changed_root { String::new() } else { view::of(pid, &config_path) };
    let mut reader = Reader::of(pid, &view).map_err(failed)?;
    reader.start = start.as_ref().map(Into::into);
    let named = arguments.any(&profile.config_options).is_some();
    let is_file = |path: &str| view::is_file(pid, path);
    if let Some(instead) = profile.instead.iter().find(|instead| instead.holds(&arguments, named, is_file)) {
        return Err(ServiceError::NoFile { server: profile.name.clone(), instead: &instead.what });
    }
    let words = if profile.lines_as_words { arguments.operands() } else { Vec::new() };
    let lines = format::lines::of_words(&words).map_err(|why| {
        failed(io::Error::other(format!("its configuration is its command line, and {why}")))
    })?;
    let (config, config_path) = match lines.is_empty() {
        true => {
            (Config::read(&reader, &config_path, profile.format, profile.arguments.as_deref())?, config_path)
        }
        false => {
            let config = Config::of_lines(&reader, profile.format, &lines).map_err(failed)?;
            (config, COMMAND_LINE.to_owned())
        }
    };
    let drop_in = config.drop_in.clone().filter(|_| profile.drop_in);
    let cpus = Thread::look(pid, pid).map(|thread| thread.affinity).unwrap_or_default();
    let address = process::find(pid).ok().and_then(|server| address(&server, profile, None));
    let version = view::version(if changed_root { std::process::id() } else { pid }, &profile.package);
    Ok(Service {
        profile,
        pid,
        program,
        version,
        unit,
        config_path,
        address,
        cpus,
        arguments,
        config,
        start,
        drop_in,
        rights: reader.rights,
        view,
        changed_root,
        others: Vec::new(),
    })
}

/// The main configuration file of a process with these arguments, as it sees it. `start`: the folder that it was
/// started in.
fn config_path(
    pid: u32,
    profile: &Profile,
    arguments: &Arguments,
    start: Option<&str>,
) -> Result<String, ServiceError> {
    let named = profile.config_named(arguments);
    let Some(path) =
        named.as_deref().or_else(|| profile.searched.first().map(|_| file_name(&profile.config)))
    else {
        return Ok(profile.config.clone());
    };
    if path.starts_with('/') {
        return Ok(view::absolute("/", path));
    }
    let relative = || ServiceError::Relative { server: profile.name.clone(), pid, path: path.to_owned() };
    let start = start.ok_or_else(relative)?;
    let found = profile.searched.iter().map(|folder| view::absolute(start, &format!("{folder}{path}")));
    let found = found.into_iter().find(|path| view::is_file(pid, path));
    Ok(found.unwrap_or_else(|| match named {
        Some(_) => view::absolute(start, path),
        None => profile.config.clone(),
    }))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Service {
    /// A server with this profile, as if it ran with `text` as its only configuration file: what the text means, and
    /// what would be proposed for it. No file and no process is looked at.
    #[must_use]
    pub fn of_text(profile: &'static Profile, text: &str) -> Self {
        Self {
            profile,
            pid: 0,
            program: profile.name.clone(),
            version: None,
            unit: None,
            config_path: profile.config.clone(),
            address: None,
            cpus: CpuSet::default(),
            arguments: Arguments::read(&profile.name, &profile.switches),
            config: Config::of_text(&profile.config, profile.format, text),
            start: None,
            drop_in: None,
            rights: Credentials::default(),
            view: String::new(),
            changed_root: false,
            others: Vec::new(),
        }
    }
}

/// Recognises the servers on a port, as [`recognise`] does. Another program may have the same port at another address,
/// such as systemd-resolved at 127.0.0.53:53: one that is not recognised is named, and left alone, beside one that is.
///
/// # Errors
/// No server is there, or none is recognised.
pub fn on_port(port: u16) -> Result<Vec<Service>, ServiceError> {
    let (mut found, mut others, mut first) = (Vec::new(), Vec::new(), None);
    for server in process::serving(&Folder::live(), port)? {
        match recognise(server.pid) {
            Ok(service) => {
                let address = address(&server, service.profile, Some(port));
                found.push(Service { address, ..service });
            }
            Err(why) => {
                let at = server.sockets.first().map_or_else(String::new, |socket| socket.local.to_string());
                others.push(format!("{at} belongs to {}: {}", server.name, Report::new(&why)));
                first = first.or(Some(why));
            }
        }
    }
    match first {
        Some(why) if found.is_empty() => Err(why),
        _ => {
            found.iter_mut().for_each(|service| service.others.clone_from(&others));
            Ok(found)
        }
    }
}

impl Service {
    /// Included files that could not be read, each with its cause.
    #[must_use]
    pub fn unread(&self) -> &[String] {
        &self.config.unread
    }

    /// Files of its configuration that are younger than the process: what they say may not be in effect.
    #[must_use]
    pub fn changed_since(&self) -> Vec<&str> {
        let Some(started) = start::time(self.pid) else { return Vec::new() };
        let changed = self.config.files.iter().filter(|file| file.changed.is_some_and(|at| at > started));
        changed.map(|file| file.path.as_str()).collect()
    }

    /// Whether it has its configuration from its command line, and none from a file of its own.
    pub(super) fn has_no_file(&self) -> bool {
        self.config_path == COMMAND_LINE
    }

    /// Its name and process, for sentences.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} (process {})", self.profile.name, self.pid)
    }
}

/// The address to ask: of a socket that serves; of one bound to all addresses, one of this machine.
fn address(server: &Server, profile: &Profile, port: Option<u16>) -> Option<SocketAddr> {
    let bound = server.sockets.iter().filter(|socket| socket.peer.is_none());
    let mut bound: Vec<_> = bound.filter(|socket| !COMMAND_PORTS.contains(&socket.local.port())).collect();
    bound.sort_by_key(|socket| {
        let local = socket.local;
        (!profile.ports.contains(&local.port()), local.port(), local.is_ipv6(), local.ip())
    });
    let socket = bound.into_iter().find(|socket| port.is_none_or(|port| socket.local.port() == port))?;
    process::address_of(&Folder::live(), socket)
}

#[cfg(test)]
mod tests;
