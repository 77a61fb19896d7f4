//! From requests to changes of a plan, and their way into the journal.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use udpath_host::UnitName;
use udpath_host::source::Folder;

use super::knob::NO_FILE;
use super::multiplied::{self, INSTANCES};
use super::{By, FileChange, Proposal, Restart, Service, ServiceError, on_port, recognise};
use crate::plan::{Change, Consent, Plan};
use crate::settings::{Setting, Value};
use crate::units;

/// What requests about servers begin with.
const PREFIX: &str = "service:";
/// The object of a request that names a process instead of a port.
const PROCESS: &str = "pid/";
/// Why a server that reads with one thread runs several times.
const RUN_IN_INSTANCES: &str = "each instance has a thread that reads";
/// Allows files of a server's configuration to be changed.
const CONFIG: &str = "config";
/// Allows a server to be restarted.
const RESTART: &str = "restart";
/// Allows a knob to be set in spite of an advisory about it.
const SECURITY: &str = "security";
/// How long the running server may take to answer before anything is changed. Loaded servers answer in milliseconds.
const ANSWERS: Duration = Duration::from_secs(3);

/// Changes of a server's configuration, ready to be planned, shown and applied.
#[derive(Debug)]
pub struct Prepared {
    /// The server.
    pub service: Service,
    /// What is changed.
    pub proposals: Vec<Proposal>,
    /// The files, before and after.
    pub files: Vec<FileChange>,
    /// How the server is restarted; `None` if nothing says how, and then it can be shown but not applied.
    pub restart: Option<Restart>,
    /// In how many instances it is to run; `None`: in as many as now.
    instances: Option<usize>,
    /// Whether systemd restarts it: no other command was given.
    by_systemd: bool,
}

/// A server of a request, and what is wanted of it.
struct Wanted {
    service: Service,
    /// It was named, not found by its port.
    named: bool,
    proposals: Vec<Proposal>,
    instances: Option<usize>,
}

/// Which server, and which knob: `service:53:server-count=2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    target: Target,
    /// The knob and its value; `None` for all proposals.
    knob: Option<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Port(u16),
    Process(u32),
}

impl Request {
    /// A request about a knob; `None` if the text is not about a server's configuration.
    ///
    /// # Errors
    /// It is, and is not well formed.
    pub fn parse(text: &str) -> Result<Option<Self>, ServiceError> {
        let Some(rest) = text.strip_prefix(PREFIX) else { return Ok(None) };
        let wrong = || ServiceError::Request(text.to_owned());
        let (object, item) = rest.split_once(':').ok_or_else(wrong)?;
        let (knob, value) = item.split_once('=').ok_or_else(wrong)?;
        let (knob, value) = (knob.trim(), value.trim());
        // A value with anything else in it could be more than a value where it is written.
        let of = |text: &str, more: &[u8]| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        let well_formed = of(knob, b"-_") && of(value, b"-_.@");
        let target = target(object).filter(|_| well_formed).ok_or_else(wrong)?;
        Ok(Some(Self { target, knob: Some((knob.to_owned(), value.to_owned())) }))
    }

    /// All proposals for the server on a port, `53`, or of a process, `pid/812`.
    ///
    /// # Errors
    /// It is neither.
    pub fn all(object: &str) -> Result<Self, ServiceError> {
        let target = target(object).ok_or_else(|| ServiceError::Request(object.to_owned()))?;
        Ok(Self { target, knob: None })
    }
}

fn target(object: &str) -> Option<Target> {
    let number = |text: &str| -> Option<u32> {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
            .filter(|number| *number > 0)
    };
    match object.strip_prefix(PROCESS) {
        Some(pid) => number(pid).map(Target::Process),
        None => number(object).and_then(|port| u16::try_from(port).ok()).map(Target::Port),
    }
}

impl Service {
    /// Prepares proposals. `command`: how the server is restarted; without one, systemd restarts its unit.
    ///
    /// # Errors
    /// Two of them contradict each other.
    pub fn prepare(self, proposals: Vec<Proposal>, command: Option<&str>) -> Result<Prepared, ServiceError> {
        let files = self.files(&proposals)?;
        let systemd = fs::metadata("/run/systemd/system").is_ok();
        let unit = self.unit.as_ref().filter(|_| systemd && !self.has_other_files());
        let by_systemd = command.is_none() && unit.is_some();
        let by = command.map(By::of).or_else(|| Some(By::Unit(unit?.clone())));
        let server = self.profile.name.clone();
        let restart = by.zip(self.address).map(|(by, address)| Restart { server, address, by });
        Ok(Prepared { service: self, proposals, files, restart, instances: None, by_systemd })
    }

    /// The proposals that need no trial, for the CPUs that the server may use.
    #[must_use]
    pub fn settled(&self) -> Vec<Proposal> {
        let mut found = self.proposals(self.cpus.iter().count().max(1), None);
        found.retain(|proposal| !proposal.uncertain);
        found
    }
}

impl Prepared {
    /// Prepares what was asked for, one for each server. `command`: how it is restarted.
    ///
    /// # Errors
    /// A server is not found or not recognised, or a knob cannot be set.
    pub fn of(requests: &[Request], command: Option<&str>) -> Result<Vec<Self>, ServiceError> {
        let mut services: Vec<Wanted> = Vec::new();
        for request in requests {
            let found = match request.target {
                Target::Port(port) => on_port(port)?,
                Target::Process(pid) => vec![recognise(pid)?],
            };
            let several = found.len() > 1;
            let mut refused = None;
            let mut settable = 0;
            for service in found {
                let at =
                    services.iter().position(|known| known.service.pid == service.pid).unwrap_or_else(|| {
                        services.push(Wanted {
                            service,
                            named: false,
                            proposals: Vec::new(),
                            instances: None,
                        });
                        services.len() - 1
                    });
                let Wanted { service, named, proposals, instances } = &mut services[at];
                *named |= matches!(request.target, Target::Process(_));
                match &request.knob {
                    Some((knob, value)) if knob == INSTANCES => *instances = Some(service.count(value)?),
                    Some((knob, value)) => match service.propose(knob, value) {
                        // Another server of the port may have it.
                        Err(why @ ServiceError::NoKnob { .. }) if several => refused = Some(why),
                        proposal => {
                            proposals.push(proposal?);
                            settable += 1;
                        }
                    },
                    None => {
                        let mut all = service.settled();
                        all.retain(|one| proposals.iter().all(|known| known.knob != one.knob));
                        proposals.extend(all);
                    }
                }
            }
            if let Some(why) = refused.filter(|_| settable == 0) {
                return Err(why);
            }
        }
        let prepared = |wanted: Wanted| {
            let prepared = wanted.service.prepare(wanted.proposals, command)?;
            Ok((wanted.named, Self { instances: wanted.instances, ..prepared }))
        };
        let prepared: Result<Vec<_>, ServiceError> = services.into_iter().map(prepared).collect();
        Ok(without_strangers(prepared?))
    }

    /// The same in so many instances.
    ///
    /// # Errors
    /// Several instances of the server cannot share a port, or there are fewer CPUs.
    pub fn in_instances(self, count: usize) -> Result<Self, ServiceError> {
        let instances = Some(self.service.count(&count.to_string())?);
        Ok(Self { instances, ..self })
    }

    /// The changes for a plan: the files, then the restart. None if everything is already so.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let unit = self.service.unit.as_ref().filter(|_| self.by_systemd);
        let multiplied = self.instances.zip(unit).map(|(count, unit)| self.multiplied(unit, count));
        // Of one whose unit changes, the restart is part of that.
        let in_restart = self.instances.filter(|_| unit.is_none());
        if self.files.is_empty() && in_restart.is_none() {
            return multiplied.into_iter().collect();
        }
        let path = |path: &str| self.service.real(path).unwrap_or_else(|| self.service.here(path));
        let file = |file: &FileChange| Change {
            setting: Setting::Config(path(&file.path)),
            from: Some(Value::File(file.old.clone())),
            to: Value::File(Some(file.new.clone())),
            irq: None,
            reason: self.reason(),
        };
        let restart = self.restart.iter().map(|restart| Change {
            setting: Setting::Restart(restart.clone()),
            from: Some(Value::Unknown),
            to: in_restart
                .map_or_else(|| Value::Words("the new configuration".to_owned()), multiplied::value),
            irq: None,
            reason: match in_restart {
                None => "the server reads it at its start".to_owned(),
                Some(_) => RUN_IN_INSTANCES.to_owned(),
            },
        });
        self.files.iter().map(file).chain(restart).chain(multiplied).collect()
    }

    /// What is set, and what that exposes.
    fn reason(&self) -> String {
        let ids: Vec<String> = self.proposals.iter().map(Proposal::id).collect();
        let set = format!("{}: {}", self.service.profile.name, ids.join(", "));
        let exposed = self.proposals.iter().filter_map(Proposal::exposes);
        [set].into_iter().chain(exposed).collect::<Vec<_>>().join("; ")
    }

    /// Whether the caller has allowed what its proposals expose.
    ///
    /// # Errors
    /// The consent that is missing.
    pub fn permitted(&self, consent: &Consent) -> Result<(), ServiceError> {
        let exposes = self.proposals.iter().filter(|_| !self.files.is_empty()).find_map(Proposal::exposes);
        match exposes.filter(|_| !consent.insecure.contains(SECURITY)) {
            Some(what) => Err(ServiceError::Consent { what, consent: SECURITY }),
            None => Ok(()),
        }
    }

    /// The change of a unit that makes systemd run it in instances.
    fn multiplied(&self, unit: &UnitName, count: usize) -> Change {
        let now = units::value_of(&Folder::live(), unit).ok();
        Change {
            setting: Setting::Instances { unit: unit.clone() },
            from: now.map(|now| now.map_or(Value::Unset, Value::Words)),
            to: Value::Words(count.to_string()),
            irq: None,
            reason: RUN_IN_INSTANCES.to_owned(),
        }
    }

    /// Whether it can be applied here and now: the files are those of this mount namespace, something restarts the
    /// server, the server answers, and its own checker accepts the new configuration. Changes nothing; needs root.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check(&self) -> Result<(), ServiceError> {
        let Service { profile, pid, unit, address, .. } = &self.service;
        let server = &profile.name;
        let fixed = |why: String| ServiceError::Fixed { server: server.clone(), pid: *pid, why };
        // Nor is it known that there is nothing to do.
        if let Some(unread) = self.service.unread().first() {
            return Err(fixed(format!("{unread}, so that it is not known as a whole")));
        }
        if self.service.has_no_file() {
            return Err(fixed(NO_FILE.to_owned()));
        }
        if self.files.is_empty() && self.instances.is_none() {
            return Ok(());
        }
        if self.service.has_other_files() {
            return Err(fixed("its files are those of a container; change its image or volume".to_owned()));
        }
        if let Some(why) = self.service.unchecked().filter(|_| !self.files.is_empty()) {
            return Err(fixed(why));
        }
        if let Some(file) = self.files.iter().find(|file| self.service.real(&file.path).is_none()) {
            let why = format!("it sees another {} than this machine has", file.path);
            return Err(fixed(why));
        }
        self.service.writable(&self.files).map_err(&fixed)?;
        let namespace = |path: &str| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        if namespace(&format!("/proc/{pid}/ns/net")) != namespace("/proc/thread-self/ns/net") {
            return Err(fixed("it is in another network namespace; name that with --netns".to_owned()));
        }
        if address.is_none() {
            return Err(fixed("it has no UDP socket, so that nothing shows whether it serves".to_owned()));
        }
        let Some(restart) = &self.restart else {
            let unit = unit.as_deref().map_or("it is not a unit of systemd".to_owned(), |unit| {
                format!("systemd, which runs its unit {unit}, is not reachable")
            });
            return Err(fixed(format!("{unit}; say how it is restarted with --restart COMMAND")));
        };
        if let Some(unit) = unit.as_ref().filter(|_| self.by_systemd) {
            self.is_of(unit)
                .map_err(|why| fixed(format!("{why}; say how it is restarted with --restart COMMAND")))?;
        }
        let answers = profile.probe.wait(restart.address, ANSWERS);
        answers.map_err(|why| ServiceError::Silent { server: server.clone(), why })?;
        self.service.check(&self.files)
    }

    /// Whether systemd agrees that the server is this unit: its control group's name alone may be somebody's who has
    /// control groups of their own, and a group may have processes that are not the unit's program.
    fn is_of(&self, unit: &UnitName) -> Result<(), String> {
        let pid = self.service.pid;
        match units::processes_of(&Folder::live(), unit) {
            Ok(pids) if pids.contains(&pid) => Ok(()),
            Ok(_) => Err(format!("systemd does not run it as the program of {unit}")),
            Err(why) => Err(why),
        }
    }
}

/// Without the servers whose files root does not change, if there are others of the port: any user can start one at
/// another address. What is left names them.
fn without_strangers(prepared: Vec<(bool, Prepared)>) -> Vec<Prepared> {
    let (mut kept, mut strangers) = (Vec::new(), Vec::new());
    for (named, one) in prepared {
        match one.service.writable(&one.files) {
            Err(why) if !named => strangers.push((one, why)),
            _ => kept.push(one),
        }
    }
    // Where nothing of the others changes, there is no server that was meant instead.
    if kept.iter().all(|one| one.files.is_empty()) {
        kept.extend(strangers.into_iter().map(|(one, _)| one));
        return kept;
    }
    for (Prepared { service, .. }, why) in strangers {
        let at = service.address.map_or_else(String::new, |address| format!("{address} belongs to "));
        let other = format!("{at}{}: {why}", service.title());
        kept.iter_mut().for_each(|one| one.service.others.push(other.clone()));
    }
    kept
}

/// Whether the caller has allowed what a plan does to servers.
///
/// # Errors
/// The consent that is missing.
pub fn permitted(plan: &Plan, consent: &Consent) -> Result<(), ServiceError> {
    let missing = |name: &'static str, what: String| match consent.insecure.contains(name) {
        true => Ok(()),
        false => Err(ServiceError::Consent { what, consent: name }),
    };
    plan.changes.iter().try_for_each(|change| match &change.setting {
        Setting::Config(path) => missing(CONFIG, format!("this changes the configuration file {path}")),
        Setting::Restart(restart) => {
            missing(RESTART, format!("this restarts {} ({})", restart.server, restart.by))
        }
        Setting::Instances { unit } => missing(RESTART, format!("this restarts the unit {unit}")),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests;
