//! The transitions of an instance: what its supervisor does with it at each turn. `leave.rs` has its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use udpath_host::process::serving;
use udpath_host::source::Folder as Machine;

use crate::instance::{Instance, Phase, Progress};
use crate::query::{MISSED, Query};
use crate::sockets::Bound;
use crate::supervisor::Supervisor;
use crate::{Error, Event};

/// How long the first instance must have had the same sockets: servers open one after the other. Shorter misses some,
/// which are then not shared; longer delays the start.
const STAYS: Duration = Duration::from_millis(200);
/// Time between two looks at an instance that serves. Shorter: more CPU time, some 0.3 ms each. Longer: one that hangs
/// is noticed later.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Looks in a row at which datagrams waited and no CPU time was used, until it counts as hung: 5 s. Fewer: one that
/// waits for a disk or a database is killed.
const STUCK: u32 = 10;
impl Supervisor {
    /// One turn of the instance at `at`.
    pub(crate) fn step(&mut self, at: usize, now: Instant) -> Result<(), Error> {
        if let Some(query) = &mut self.instances[at].query {
            query.turn(now);
        }
        if let Some(how) = self.instances[at].has_ended()? {
            return self.ended(at, &how, now);
        }
        match self.instances[at].phase {
            Phase::Stopped { again } if self.instances[at].leaving || now < again => Ok(()),
            Phase::Stopped { .. } => self.start(at, now),
            Phase::Starting { until, seen } => self.starting(at, until, seen, now),
            Phase::Serving { since, look } if now >= look => {
                self.instances[at].phase = Phase::Serving { since, look: now + LOOK_INTERVAL };
                self.serving(at, now)
            }
            Phase::Serving { .. } => Ok(()),
            Phase::Draining { look, .. } if now < look => Ok(()),
            Phase::Draining { until, idle, .. } => self.draining(at, until, idle, now),
            Phase::Ending { until, killed: false } if now >= until => {
                self.instances[at].kill(now + self.config.drain)
            }
            Phase::Ending { until, killed: true } if now >= until => {
                let why = "does not end although it was killed: it may wait for a device".to_owned();
                Err(Error::Instance { number: self.instances[at].number, why })
            }
            Phase::Ending { .. } => Ok(()),
        }
    }

    fn start(&mut self, at: usize, now: Instant) -> Result<(), Error> {
        let until = now + self.config.start;
        let instance = &mut self.instances[at];
        let folder = self.folder.of_instance(instance.number)?;
        instance.started = now;
        instance.start(&self.config.command, self.known.as_ref(), self.units.as_ref(), &folder, until)
    }

    /// Waits for its sockets, then for its answer, then admits it.
    fn starting(
        &mut self,
        at: usize,
        until: Instant,
        seen: Option<Instant>,
        now: Instant,
    ) -> Result<(), Error> {
        let before: Vec<SocketAddr> = self.instances[at].sockets.iter().map(|socket| socket.local).collect();
        self.instances[at].look()?;
        let (number, slot) = (self.instances[at].number, self.instances[at].slot());
        let sockets = self.instances[at].sockets.clone();
        if !self.has_bound(&sockets) {
            return self.not_yet(at, until, now);
        }
        if self.shares.addresses().is_empty() {
            // The first instance: its addresses are the ones that all share.
            let same = before.iter().copied().eq(sockets.iter().map(|socket| socket.local));
            let seen = seen.filter(|_| same).unwrap_or(now);
            self.instances[at].phase = Phase::Starting { until, seen: Some(seen) };
            if now < seen + STAYS {
                return Ok(());
            }
            self.check_alone(&sockets)?;
            self.shares.share(sockets.iter().map(|socket| socket.local));
        }
        if let Some((address, count)) = doubled(&sockets) {
            let why = format!(
                "has {count} sockets at {address} itself, so it reads with several threads already: set their number in \
                 its own configuration"
            );
            return Err(Error::Instance { number, why });
        }
        if self.instances[at].query.is_none()
            && let Some(address) = self.query_address(&sockets)
        {
            let query = Query::open(self.probe, address, now);
            self.instances[at].query =
                query.map_err(Error::system(format!("open a socket to ask instance {number}")))?;
        }
        let query = self.instances[at].query.as_ref().and_then(|query| query.port().ok());
        self.shares.hold(slot, &sockets, query)?;
        if self.instances[at].query.as_ref().is_some_and(|query| !query.is_answered()) {
            return self.not_yet(at, until, now);
        }
        self.shares.admit(slot)?;
        self.shares.close_passed(self.instances[at].started);
        let instance = &mut self.instances[at];
        instance.phase = Phase::Serving { since: now, look: now + LOOK_INTERVAL };
        instance.proven = true;
        let status = instance.status(0);
        self.events.push(Event::Serving { number, pid: status.pid.unwrap_or(0), cpu: status.cpu });
        Ok(())
    }

    /// Whether these sockets are at the addresses that the instances share; of the first instance, at the port asked
    /// for.
    fn has_bound(&self, sockets: &[Bound]) -> bool {
        let addresses = self.shares.addresses();
        if !addresses.is_empty() {
            return addresses.iter().all(|address| sockets.iter().any(|socket| socket.local == *address));
        }
        match self.ports.as_slice() {
            [] => !sockets.is_empty(),
            ports => sockets.iter().any(|socket| ports.contains(&socket.local.port())),
        }
    }

    /// The address at which it is asked.
    fn query_address(&self, sockets: &[Bound]) -> Option<SocketAddr> {
        let of_port = |socket: &&Bound| self.ports.is_empty() || self.ports.contains(&socket.local.port());
        sockets.iter().find(of_port).map(|socket| socket.local)
    }

    /// It does not serve yet; a failure once its time is over.
    fn not_yet(&mut self, at: usize, until: Instant, now: Instant) -> Result<(), Error> {
        if now < until {
            return Ok(());
        }
        let sockets = &self.instances[at].sockets;
        let seconds = self.config.start.as_secs_f64();
        let why = match (self.has_bound(sockets), sockets.as_slice()) {
            (true, _) => {
                let asked =
                    self.query_address(sockets).map_or_else(String::new, |address| format!(" at {address}"));
                format!(
                    "did not answer a query from this machine{asked} within {seconds} s; allow it, or use --probe none"
                )
            }
            (false, bound) => {
                let wanted = match (self.shares.addresses().as_slice(), self.ports.as_slice()) {
                    ([], []) => "a UDP port".to_owned(),
                    ([], ports) => format!("UDP port {}", joined(ports)),
                    (addresses, _) => format!("UDP {}", joined(addresses)),
                };
                let instead: Vec<SocketAddr> = bound.iter().map(|socket| socket.local).collect();
                let instead =
                    if instead.is_empty() { String::new() } else { format!(", but {}", joined(&instead)) };
                format!("did not bind {wanted} within {seconds} s{instead}")
            }
        };
        self.fails(at, why, now)
    }

    /// It cannot go on: it is killed. One that has never served is not tried again.
    fn fails(&mut self, at: usize, why: String, now: Instant) -> Result<(), Error> {
        let instance = &mut self.instances[at];
        if !instance.proven {
            return Err(Error::Instance { number: instance.number, why });
        }
        self.hung(at, why, now)
    }

    /// No other process has a socket at these addresses: the selection would take its datagrams from it.
    fn check_alone(&self, sockets: &[Bound]) -> Result<(), Error> {
        let ours: Vec<u32> = self.instances.iter().flat_map(Instance::pids).collect();
        for bound in sockets {
            for server in serving(&Machine::live(), bound.local.port())? {
                let shares = server.sockets.iter().any(|socket| socket.local == bound.local);
                if shares && !ours.contains(&server.pid) {
                    return Err(Error::Foreign {
                        address: bound.local,
                        pid: server.pid,
                        program: server.name,
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether it still has its sockets, answers, and reads.
    fn serving(&mut self, at: usize, now: Instant) -> Result<(), Error> {
        self.instances[at].look()?;
        let (sockets, slot) = (self.instances[at].sockets.clone(), self.instances[at].slot());
        if !self.has_bound(&sockets) {
            return self.hung(at, "closed its socket".to_owned(), now);
        }
        // A reload may have opened new ones.
        let query = self.instances[at].query.as_ref().and_then(|query| query.port().ok());
        self.shares.hold(slot, &sockets, query)?;
        let given = self.shares.datagrams(slot)?;
        let instance = &mut self.instances[at];
        let progress = instance.progress(given);
        let before = std::mem::replace(&mut instance.progress, progress);
        instance.stuck = if is_stuck(before, progress) { instance.stuck + 1 } else { 0 };
        let missed = instance.query.as_ref().map_or(0, Query::missed);
        if instance.stuck >= STUCK {
            let seconds = (LOOK_INTERVAL * STUCK).as_secs();
            return self.hung(at, format!("used no CPU time for {seconds} s while datagrams waited"), now);
        }
        if missed >= MISSED && !is_overloaded(before, progress) {
            return self.hung(at, format!("did not answer {missed} queries"), now);
        }
        Ok(())
    }

    /// It leaves at once, and is started again later.
    pub(crate) fn hung(&mut self, at: usize, why: String, now: Instant) -> Result<(), Error> {
        let instance = &self.instances[at];
        let number = instance.number;
        let served = match instance.phase {
            Phase::Serving { since, .. } => Some(since),
            _ => None,
        };
        self.cut_off(at, now)?;
        // The first reason stays: that a killed instance takes long to end does not say why it was killed.
        self.after.entry(number).or_insert((served, why));
        Ok(())
    }

    /// Its process has ended: asked for, or not.
    fn ended(&mut self, at: usize, how: &str, now: Instant) -> Result<(), Error> {
        let phase = self.instances[at].phase;
        let slot = self.instances[at].slot();
        self.shares.empty(slot)?;
        self.instances[at].clear()?;
        let number = self.instances[at].number;
        let killed = self.after.remove(&number);
        if self.instances[at].leaving {
            self.instances[at].phase = Phase::Stopped { again: now };
            return Ok(());
        }
        if !self.instances[at].proven {
            return Err(Error::Instance { number, why: self.early(how) });
        }
        let (served, why) = match (killed, phase) {
            (Some((served, why)), _) => (served, Some(why)),
            (None, Phase::Serving { since, .. }) => (Some(since), None),
            (None, _) => (None, None),
        };
        let again = self.instances[at].restart_later(served, now);
        self.events.push(match why {
            Some(why) => Event::Hung { number, why, again },
            None => Event::Ended { number, how: how.to_owned(), again },
        });
        Ok(())
    }

    /// Why an instance that ended before it served may have done so.
    fn early(&self, how: &str) -> String {
        let others = self.ports.iter().filter_map(|port| serving(&Machine::live(), *port).ok()).flatten();
        // What this process has of them are sockets that it keeps.
        let ours: Vec<u32> =
            self.instances.iter().flat_map(Instance::pids).chain([std::process::id()]).collect();
        let other = others.filter(|server| !ours.contains(&server.pid)).find_map(|server| {
            server
                .sockets
                .first()
                .map(|socket| format!("{} (pid {}) has UDP {}", server.name, server.pid, socket.local))
        });
        let hint = match (other, how.ends_with(": 0")) {
            (Some(other), _) => format!("; {other}"),
            (None, true) => {
                "; a server that goes to the background must stay in the foreground, such as chronyd -d"
                    .to_owned()
            }
            (None, false) => String::new(),
        };
        format!("ended before it served ({how}){hint}")
    }
}

/// Datagrams wait, and it has used no CPU time since the last look.
fn is_stuck(before: Progress, now: Progress) -> bool {
    before.queued > 0 && now.queued > 0 && now.ran == before.ran
}

/// It has read datagrams since the last look, and others wait: a query was dropped, or waits as well.
fn is_overloaded(before: Progress, now: Progress) -> bool {
    now.queued > 0 && now.taken > before.taken && now.queued <= before.queued.saturating_add(now.queued / 2)
}

/// An address that has more than one of these sockets, and how many.
fn doubled(sockets: &[Bound]) -> Option<(SocketAddr, usize)> {
    let mut counts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for socket in sockets {
        *counts.entry(socket.local).or_default() += 1;
    }
    counts.into_iter().find(|(_, count)| *count > 1)
}

fn joined<T: ToString>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
