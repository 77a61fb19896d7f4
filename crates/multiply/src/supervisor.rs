//! The loop that starts, watches, adds and removes instances.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use error_reporter::Report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use udpath_tune::services::{Instances, Probe};

use crate::cgroup::Cgroup;
use crate::control::{Client, Control, Request};
use crate::folder::{self, Claim, Folder};
use crate::instance::{Instance, Phase};
use crate::shares::Shares;
use crate::units::Units;
use crate::{Config, Error, Event, InstanceStatus, SCHEMA, Status, leftovers, policy};

/// Time between two turns while an instance starts, drains or ends. Shorter: more CPU time. Longer: each takes longer.
const CHANGING: Duration = Duration::from_millis(10);
/// The same while all serve. The end of a process and a request are noticed at once, whatever this is.
const STEADY: Duration = Duration::from_millis(100);

/// Instances of a server. Dropping it kills what runs and takes everything back.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) config: Config,
    /// The server, if it is known.
    pub(crate) known: Option<Instances>,
    /// The unit that is multiplied, if the instances are units.
    pub(crate) units: Option<Units>,
    /// Ports of which it must bind one; empty for any.
    pub(crate) ports: Vec<u16>,
    pub(crate) probe: Probe,
    pub(crate) shares: Shares,
    /// By number, ascending.
    pub(crate) instances: Vec<Instance>,
    /// Not reported yet.
    pub(crate) events: Vec<Event>,
    /// Why instances were killed, and since when they had served, until their process has ended.
    pub(crate) after: BTreeMap<usize, (Option<Instant>, String)>,
    pub(crate) folder: Folder,
    cgroup: Cgroup,
    /// The CPU of each number.
    cpus: Vec<u32>,
    /// How many there should be.
    count: usize,
    /// All that were asked for at the start have served.
    ready: bool,
    stopping: bool,
    /// Those that are gone, for the last status.
    gone: BTreeMap<usize, InstanceStatus>,
    control: Control,
    waiting: Vec<(Client, Request)>,
    guard: Child,
}

impl Supervisor {
    /// Takes back what killed supervisors have left, and makes everything that instances need; none is started yet.
    ///
    /// # Errors
    /// An argument is invalid; the name is in use; the server cannot be multiplied; this machine has no cgroup v2, no
    /// BPF file system, or permission is denied. Nothing is left then.
    pub fn new(config: Config) -> Result<Self, Error> {
        folder::check(&config.name)?;
        let cpus: Vec<u32> = config.cpus.iter().collect();
        if !(1..=cpus.len()).contains(&config.count) {
            let (count, most) = (config.count, cpus.len());
            return Err(Error::Count { count, most, cpus: config.cpus.to_string() });
        }
        let known = Instances::of_command(&config.command)?;
        if let (crate::Choose::Cpu, Some(known)) = (config.choose, &known)
            && let Some(why) = known.flow_state()
        {
            return Err(Error::FlowState { server: known.server(), why });
        }
        let ports = match (config.port, &known) {
            (Some(port), _) => vec![port],
            (None, Some(known)) => known.ports(),
            (None, None) => Vec::new(),
        };
        let probe = config.probe.or(known.as_ref().map(Instances::probe)).unwrap_or(Probe::Bound);
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let units = config.unit.then(|| Units::of(&config.name)).transpose()?;
        let cgroup = match &units {
            Some(units) => Cgroup::of_units(&config.name, units)?,
            None => Cgroup::of(&config.name)?,
        };
        let events = leftovers::take_back()?.into_iter().map(|name| Event::TookBack { name }).collect();
        let folder = match Folder::claim(&config.name)? {
            Claim::Ours(folder) => folder,
            Claim::Held(pid) => return Err(Error::Running { name: config.name, pid }),
        };
        let made = folder.record(&cgroup, &config.journal).and_then(|()| {
            let guard = guard(&config.guard)?;
            cgroup.create()?;
            policy::set(&config.journal, cgroup.name())?;
            Ok((guard, Control::listen(folder.path())?))
        });
        let (guard, control) = match made {
            Ok(made) => made,
            Err(error) => {
                // The guard, or the next start, tries again if this fails.
                let _ = leftovers::end(&folder);
                return Err(error);
            }
        };
        let shares = Shares::new(config.choose.rule(), u32::try_from(cpus.len()).unwrap_or(u32::MAX));
        let count = config.count;
        Ok(Self {
            config,
            known,
            units,
            ports,
            probe,
            shares,
            instances: Vec::new(),
            events,
            after: BTreeMap::new(),
            folder,
            cgroup,
            cpus,
            count,
            ready: false,
            stopping: false,
            gone: BTreeMap::new(),
            control,
            waiting: Vec::new(),
            guard,
        })
    }

    /// Runs the instances until `stop` becomes readable or a request ends them; each is ended in order. Returns the
    /// last status of each.
    ///
    /// # Errors
    /// An instance did not serve at the start, or the kernel refuses. All are ended then.
    pub fn run(mut self, stop: BorrowedFd<'_>, watch: &mut dyn FnMut(&Event)) -> Result<Status, Error> {
        loop {
            let turned = self.turn(Instant::now());
            for event in self.events.drain(..) {
                watch(&event);
            }
            turned?;
            if self.stopping && self.instances.is_empty() {
                break;
            }
            if self.wait(stop)? {
                self.stopping = true;
            }
            while let Some((client, request)) = self.control.next() {
                self.asked(client, request);
            }
        }
        let status = self.status()?;
        for (client, request) in std::mem::take(&mut self.waiting) {
            match request {
                Request::Count(_) => client.refuse("the supervisor was stopped".to_owned()),
                Request::Status | Request::Stop => client.answer(status.clone()),
            }
        }
        self.end()?;
        Ok(status)
    }

    fn turn(&mut self, now: Instant) -> Result<(), Error> {
        self.add_and_remove(now)?;
        for at in 0..self.instances.len() {
            if let Err(error) = self.step(at, now) {
                self.failed(at, error, now)?;
            }
        }
        let gone = |instance: &Instance| instance.leaving && matches!(instance.phase, Phase::Stopped { .. });
        for at in (0..self.instances.len()).rev().filter(|at| gone(&self.instances[*at])).collect::<Vec<_>>()
        {
            let instance = self.instances.remove(at);
            instance.remove()?;
            let status = instance.status(self.shares.datagrams(instance.slot())?);
            self.gone.insert(instance.number, status);
            self.events.push(Event::Gone { number: instance.number });
        }
        let reached = !self.stopping
            && self.instances.len() == self.count
            && self.instances.iter().all(Instance::is_serving);
        if reached && !self.ready {
            self.ready = true;
            let status = self.status()?;
            self.events.push(Event::Ready(Box::new(status)));
        }
        if reached && !self.waiting.is_empty() {
            let status = self.status()?;
            let (counts, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
                .into_iter()
                .partition(|(_, request)| matches!(request, Request::Count(_)));
            self.waiting = others;
            counts.into_iter().for_each(|(client, _)| client.answer(status.clone()));
        }
        Ok(())
    }

    /// An instance that has never served is not tried again: all end at the start, else its number is given up.
    fn failed(&mut self, at: usize, error: Error, now: Instant) -> Result<(), Error> {
        let instance = &self.instances[at];
        if instance.proven {
            return self.hung(at, Report::new(error).to_string(), now);
        }
        if !self.ready {
            return Err(error);
        }
        let (number, why) = (instance.number, Report::new(error).to_string());
        self.count = self.count.min(number - 1);
        self.leave(at, now)?;
        for (client, request) in std::mem::take(&mut self.waiting) {
            match request {
                Request::Count(_) => client.refuse(why.clone()),
                other => self.waiting.push((client, other)),
            }
        }
        self.events.push(Event::GivenUp { number, why });
        Ok(())
    }

    /// The first instance alone until it serves: it decides the addresses. At the end, the others go before the first.
    fn add_and_remove(&mut self, now: Instant) -> Result<(), Error> {
        let keep = match self.stopping {
            false => self.count,
            true => usize::from(self.instances.len() > 1),
        };
        for at in 0..self.instances.len() {
            if self.instances[at].number > keep && !self.instances[at].leaving {
                self.leave(at, now)?;
            }
        }
        if self.stopping {
            return Ok(());
        }
        let alone = self.instances.first().is_none_or(|first| !first.proven);
        for number in 1..=if alone { 1 } else { self.count } {
            match self.instances.iter().position(|instance| instance.number >= number) {
                Some(at) if self.instances[at].number == number => {}
                at => {
                    let cpu = self.cpus[number - 1];
                    let instance = Instance::new(number, cpu, &self.cgroup, now);
                    self.instances.insert(at.unwrap_or(self.instances.len()), instance);
                }
            }
        }
        Ok(())
    }

    fn asked(&mut self, client: Client, request: Request) {
        match request {
            Request::Status => match self.status() {
                Ok(status) => client.answer(status),
                Err(error) => client.refuse(Report::new(error).to_string()),
            },
            Request::Stop => {
                self.stopping = true;
                self.waiting.push((client, request));
            }
            Request::Count(_) if self.stopping || !self.ready => {
                client.refuse(format!("{} is starting or ending; ask again later", self.folder.name()));
            }
            Request::Count(count) if !(1..=self.cpus.len()).contains(&count) => {
                let (most, cpus) = (self.cpus.len(), self.config.cpus.to_string());
                client.refuse(Error::Count { count, most, cpus }.to_string());
            }
            Request::Count(count) => {
                self.count = count;
                self.waiting.push((client, request));
            }
        }
    }

    /// Waits for the end of a process, a request, or the next turn. Returns whether it was asked to stop.
    fn wait(&self, stop: BorrowedFd<'_>) -> Result<bool, Error> {
        let time = if self.instances.iter().any(Instance::is_changing) { CHANGING } else { STEADY };
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let control = self.control.descriptor();
        let mut wanted = vec![PollFd::from_borrowed_fd(control, PollFlags::IN)];
        // Once it has been asked, its descriptor stays readable.
        if !self.stopping {
            wanted.push(PollFd::from_borrowed_fd(stop, PollFlags::IN));
        }
        let ends = self.instances.iter().filter_map(|instance| instance.ended.as_ref());
        wanted.extend(ends.map(|ended| PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)));
        match poll(&mut wanted, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::system("wait for the instances")(errno.into())),
        }
        Ok(!self.stopping && !wanted[1].revents().is_empty())
    }

    fn status(&self) -> Result<Status, Error> {
        let mut instances = self.gone.clone();
        if !self.stopping {
            instances.clear();
        }
        for instance in &self.instances {
            instances.insert(instance.number, instance.status(self.shares.datagrams(instance.slot())?));
        }
        Ok(Status {
            schema: SCHEMA.to_owned(),
            name: self.folder.name().to_owned(),
            pid: std::process::id(),
            command: self.config.command.clone(),
            choose: self.config.choose,
            addresses: self.shares.addresses(),
            count: self.count,
            instances: instances.into_values().collect(),
        })
    }

    /// Takes everything back, and waits for the guard, which finds nothing left.
    fn end(&mut self) -> Result<(), Error> {
        let done = leftovers::end(&self.folder);
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        done
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // After an end nothing is left, and this does nothing.
        let _ = self.end();
    }
}

/// Starts the guard, in a process group of its own: ^C must not end it.
fn guard(words: &[String]) -> Result<Child, Error> {
    let (program, arguments) = words.split_first().ok_or_else(|| Error::Refused("no guard".to_owned()))?;
    let mut command = Command::new(program);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.args(arguments).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().map_err(Error::system(format!("run {program}")))
}
