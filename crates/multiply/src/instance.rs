//! One instance: its process, its sockets, and what it is doing.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use udpath_tune::services::Instances;
use udpath_tune::units as unit;

use crate::cgroup::Cgroup;
use crate::query::Query;
use crate::sockets::{self, Bound};
use crate::units::{self, Units};
use crate::{Error, InstanceStatus, State, sys};

/// The pause before the first restart; doubled with each further one, up to [`MOST_PAUSE`]. Shorter: one that fails at
/// once is started more often. Longer: its share of the load waits for it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before a restart.
const MOST_PAUSE: Duration = Duration::from_secs(30);
/// After this time in service a failure counts as the first one again.
const SETTLED: Duration = Duration::from_secs(60);

/// What it is doing, and until when.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// Not running. `again`: when it is started.
    Stopped {
        again: Instant,
    },
    /// Started. `seen`: since when it has had the same sockets.
    Starting {
        until: Instant,
        seen: Option<Instant>,
    },
    Serving {
        since: Instant,
        look: Instant,
    },
    /// `idle`: looks in a row that found it asleep with empty queues.
    Draining {
        until: Instant,
        idle: u32,
        look: Instant,
    },
    /// SIGTERM was sent, or SIGKILL if `killed`.
    Ending {
        until: Instant,
        killed: bool,
    },
}

/// What a look at a serving instance found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes in its queues.
    pub(crate) queued: u64,
    /// Datagrams given to its sockets and not dropped there.
    pub(crate) taken: u64,
    /// CPU time used, ns.
    pub(crate) ran: u64,
}

/// One instance.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) number: usize,
    pub(crate) cpu: u32,
    pub(crate) phase: Phase,
    /// When its process was started: its sockets were bound later.
    pub(crate) started: Instant,
    /// It is not started again once it has ended.
    pub(crate) leaving: bool,
    /// It has served at least once.
    pub(crate) proven: bool,
    pub(crate) sockets: Vec<Bound>,
    pub(crate) query: Option<Query>,
    pub(crate) progress: Progress,
    /// Looks in a row at which datagrams waited and it used no CPU time.
    pub(crate) stuck: u32,
    cgroup: Cgroup,
    /// Its process; of a unit, the command that starts it, while that runs.
    child: Option<Child>,
    /// Its unit was started, and has not been found ended since.
    unit_started: bool,
    /// Readable once the process has ended.
    pub(crate) ended: Option<OwnedFd>,
    failures: u32,
    restarts: u32,
}

impl Instance {
    /// Not started yet.
    pub(crate) fn new(number: usize, cpu: u32, cgroup: &Cgroup, now: Instant) -> Self {
        Self {
            number,
            cpu,
            phase: Phase::Stopped { again: now },
            started: now,
            leaving: false,
            proven: false,
            sockets: Vec::new(),
            query: None,
            progress: Progress::default(),
            stuck: 0,
            cgroup: cgroup.child(number),
            child: None,
            unit_started: false,
            ended: None,
            failures: 0,
            restarts: 0,
        }
    }

    /// Its slot in the selections.
    pub(crate) const fn slot(&self) -> u32 {
        self.number as u32 - 1
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.cgroup.pids()
    }

    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. })
    }

    /// Whether something is expected of it within milliseconds.
    pub(crate) fn is_changing(&self) -> bool {
        !matches!(self.phase, Phase::Serving { .. } | Phase::Stopped { .. })
    }

    /// Starts it: a process with its output on our stderr, or a unit.
    pub(crate) fn start(
        &mut self,
        command: &[String],
        known: Option<&Instances>,
        units: Option<&Units>,
        folder: &Path,
        until: Instant,
    ) -> Result<(), Error> {
        let words = match known {
            Some(known) => known.prepare(self.number, folder)?,
            None => command.to_vec(),
        };
        let fill = |word: &String| {
            word.replace("{n}", &self.number.to_string())
                .replace("{cpu}", &self.cpu.to_string())
                .replace("{folder}", &folder.display().to_string())
        };
        let words: Vec<String> = words.iter().map(fill).collect();
        let mut start = match (units, self.cgroup.unit()) {
            (Some(units), Some(name)) => units.start(
                name,
                &unit::Instance { number: self.number, cpu: self.cpu, command: &words, folder },
            )?,
            _ => self.process(&words)?,
        };
        let run = format!("run {}", start.get_program().display());
        let output = || {
            let stderr = rustix::io::dup(std::io::stderr().as_fd()).map(Stdio::from);
            stderr.map_err(|errno| Error::system(run.clone())(errno.into()))
        };
        start.stdin(Stdio::null()).stdout(output()?).stderr(output()?);
        // ^C reaches the supervisor alone, which ends the instances in order.
        std::os::unix::process::CommandExt::process_group(&mut start, 0);
        let child = start.spawn().map_err(Error::system(run))?;
        self.unit_started = self.cgroup.unit().is_some();
        if !self.unit_started {
            self.ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        }
        self.child = Some(child);
        self.phase = Phase::Starting { until, seen: None };
        Ok(())
    }

    /// A process of ours, in its cgroup and on its CPU.
    fn process(&self, words: &[String]) -> Result<Command, Error> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| Error::Refused("no command".to_owned()))?;
        if !self.cgroup.path().exists() {
            self.cgroup.create()?;
        }
        let mut start = Command::new(program);
        start.args(arguments);
        sys::start_in(&mut start, self.cgroup.procs()?, self.cpu);
        Ok(start)
    }

    /// How its process ended; `None` while it runs, and once that was dealt with.
    pub(crate) fn has_ended(&mut self) -> Result<Option<String>, Error> {
        if let (true, Some(unit)) = (self.unit_started, self.cgroup.unit()) {
            if let Some(child) = &mut self.child {
                let start =
                    child.try_wait().map_err(Error::system(format!("wait for the start of {unit}")))?;
                match start {
                    None => return Ok(None),
                    Some(status) if status.success() => self.child = None,
                    Some(_) => return Ok(Some(units::how(unit))),
                }
            }
            return Ok((!self.cgroup.has_processes()).then(|| units::how(unit)));
        }
        let Some(child) = &mut self.child else {
            let ending = matches!(self.phase, Phase::Ending { .. });
            return Ok(ending.then(|| "it was not started".to_owned()));
        };
        let ended = child.try_wait().map_err(Error::system(format!("wait for instance {}", self.number)))?;
        Ok(ended.map(|status| status.to_string()))
    }

    /// Reads what it has bound.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        self.sockets = sockets::bound(&self.pids())?;
        Ok(())
    }

    /// How far it has come, given the number of datagrams that its slot got.
    pub(crate) fn progress(&self, given: u64) -> Progress {
        let drops: u64 = self.sockets.iter().map(|socket| u64::from(socket.drops)).sum();
        Progress {
            queued: self.sockets.iter().map(|socket| u64::from(socket.queued)).sum(),
            taken: given.saturating_sub(drops),
            ran: sockets::run_time(&self.pids()),
        }
    }

    /// Whether none of its threads runs, wants to run, waits for a disk or is stopped.
    pub(crate) fn is_asleep(&self) -> bool {
        sockets::are_asleep(&self.pids())
    }

    /// Asks it to end.
    pub(crate) fn terminate(&mut self, until: Instant) {
        if let Some(unit) = self.cgroup.unit() {
            units::stop(unit);
        } else if let Some(child) = &self.child {
            // Fails only if it has ended.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        self.phase = Phase::Ending { until, killed: false };
    }

    /// Ends it and all that it has started.
    pub(crate) fn kill(&mut self, until: Instant) -> Result<(), Error> {
        self.phase = Phase::Ending { until, killed: true };
        self.cgroup.kill()?;
        // Also a start that systemd has not got to yet.
        if let Some(unit) = self.cgroup.unit() {
            units::stop(unit);
        }
        Ok(())
    }

    /// Its process has ended: ends what that has started, too.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        self.cgroup.kill()?;
        (self.child, self.ended, self.query) = (None, None, None);
        self.unit_started = false;
        self.sockets.clear();
        (self.progress, self.stuck) = (Progress::default(), 0);
        Ok(())
    }

    /// Schedules the next start after a failure, and returns the pause before it.
    pub(crate) fn restart_later(&mut self, served: Option<Instant>, now: Instant) -> Duration {
        if served.is_some_and(|since| now >= since + SETTLED) {
            self.failures = 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(MOST_PAUSE);
        self.failures += 1;
        self.restarts += 1;
        self.phase = Phase::Stopped { again: now + pause };
        pause
    }

    /// Removes its cgroup.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        self.cgroup.remove()
    }

    pub(crate) fn status(&self, datagrams: u64) -> InstanceStatus {
        InstanceStatus {
            number: self.number,
            state: match self.phase {
                Phase::Stopped { .. } => State::Stopped,
                Phase::Starting { .. } => State::Starting,
                Phase::Serving { .. } => State::Serving,
                Phase::Draining { .. } => State::Draining,
                Phase::Ending { .. } => State::Ending,
            },
            cpu: self.cpu,
            pid: match self.cgroup.unit() {
                Some(_) => self.pids().first().copied(),
                None => self.child.as_ref().map(Child::id),
            },
            datagrams,
            restarts: self.restarts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_minute_of_service() {
        let now = Instant::now();
        let cgroup = Cgroup::recorded("/nowhere".into(), "/nowhere".into());
        let mut instance = Instance::new(1, 0, &cgroup, now);
        let pauses: Vec<u128> = (0..11).map(|_| instance.restart_later(Some(now), now).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        let later = now + SETTLED;
        assert_eq!(instance.restart_later(Some(now), later), FIRST_PAUSE);
        assert_eq!(instance.status(7).restarts, 12);
    }
}
