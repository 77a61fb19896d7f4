//! Rungs of the ladder on some CPUs and queues of this machine: measured in a lab, and as descriptions for the model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use udpath_files::kernel;
use udpath_lab::{Lab, LabBuilder, LinkSpec, NapiGuard, online_cpus};
use udpath_load::Engine;
use udpath_load::template::Protocol;
use udpath_model::Description;
use udpath_model::description::{Io as ModelIo, Link};
use udpath_model::kernel::Kernel;
use udpath_serve::Io;
use udpath_steer::CpuSet;

use super::CalibrationConfig;
use super::shares::Shares;
use crate::climb::FIRST_PORT;
use crate::config::Config;
use crate::ladder::Settings;
use crate::server_under_test::{CLIENT, SERVER, ServerUnderTest};
use crate::statistics::{Bound, median};
use crate::{Error, profiled, trial};

/// Flows, and requests in flight in each: enough that no CPU waits for the other, few enough that no ring overflows.
const FLOWS: u32 = 64;
const INFLIGHT: u32 = 4;
/// Payload, bytes.
const SIZE: usize = 100;
/// Frames in the ring of a veth queue (`VETH_RING_SIZE`).
const RING: usize = 256;

/// A rung with the CPUs and queues that it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabRung {
    /// How the server moves datagrams.
    pub io: Io,
    /// CPUs, each with a pinned worker.
    pub cpus: usize,
    /// Queues of the link.
    pub queues: u32,
    /// RPS over all of the CPUs.
    pub rps: bool,
    /// Datagrams per call.
    pub batch: usize,
}

/// What a rung carried.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The rung.
    pub rung: LabRung,
    /// Median of its trials, transactions per second.
    pub tps: f64,
    /// The trials.
    pub trials: Vec<f64>,
}

impl LabRung {
    /// Its name: the ladder's, with CPUs and queues.
    #[must_use]
    pub fn name(&self) -> String {
        let rung = match (self.io, self.rps, self.batch) {
            (_, _, 2..) => format!("{} batched", self.io),
            (Io::Shared, true, _) => "rps".to_owned(),
            (io, true, _) => format!("rps+{io}"),
            (io, false, _) => io.to_string(),
        };
        let plural = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (cpus, queues) = (plural(self.cpus as u64, "CPU"), plural(self.queues.into(), "queue"));
        format!("{rung}, {cpus}, {queues}")
    }

    /// The same for the model. `None` for an Io past the kernel's sockets, which it does not have.
    #[must_use]
    pub fn description(&self) -> Option<Description> {
        in_lab(&self.settings(), self.cpus, self.queues, FLOWS * INFLIGHT)
    }

    fn settings(&self) -> Settings {
        let base = Settings::base(self.cpus, FLOWS * INFLIGHT);
        Settings { io: self.io, batch: self.batch, rps: self.rps, pin: true, ..base }
    }
}

/// A server's settings in a lab of this machine, for the model. `None` for an Io past the kernel's sockets.
pub(crate) fn in_lab(settings: &Settings, cpus: usize, queues: u32, inflight: u32) -> Option<Description> {
    let io = match settings.io {
        Io::Shared => ModelIo::Shared,
        Io::Reuseport => ModelIo::Reuseport,
        Io::Percpu => ModelIo::Percpu,
        Io::Xdp => return None,
    };
    let queues = if settings.one_queue { 1 } else { queues };
    Some(Description {
        cores: cpus,
        virtual_machine: is_virtual(),
        kernel: this_kernel(),
        link: Link::Veth,
        queues: queues as usize,
        ring: RING,
        xps: queues > 1,
        rps: if settings.rps { vec![CpuSet::first_n(cpus as u32)] } else { Vec::new() },
        io,
        workers: settings.workers,
        batch: settings.batch,
        pin: settings.pin || io == ModelIo::Percpu,
        // The kernel doubles it.
        receive_buffer: settings.receive_buffer * 2,
        flows: FLOWS as usize,
        clients: 1,
        inflight: inflight as usize,
        payload: SIZE,
        ..Description::default()
    })
}

/// The running kernel, or the newest that the model has if its name is not a release.
fn this_kernel() -> Kernel {
    let name = rustix::system::uname();
    name.release().to_string_lossy().parse().unwrap_or(Kernel::new(6, 18))
}

/// Whether a hypervisor runs this machine: then interrupts between CPUs leave the guest.
fn is_virtual() -> bool {
    let cpuinfo = kernel::text("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")
}

/// A lab in which rungs with the same CPUs and queues are measured. It is gone when this is dropped.
pub struct Measurer<'a> {
    lab: Lab,
    config: Config,
    cpus: CpuSet,
    protocol: &'a dyn Protocol,
    trials: usize,
    /// Lets the server's end accept frames of the in-kernel loop.
    _napi: NapiGuard,
}

impl<'a> Measurer<'a> {
    /// A lab with a link of so many queues, whose transmit mapping spreads over the first CPUs.
    ///
    /// # Errors
    /// The lab or its mapping is not possible here: it needs root.
    pub fn new(
        config: &CalibrationConfig,
        protocol: &'a dyn Protocol,
        cpus: usize,
        queues: u32,
    ) -> Result<Self, Error> {
        let cpus: CpuSet = online_cpus()?.iter().take(cpus).collect();
        let spec = LinkSpec::with_queues(queues);
        let builder = LabBuilder::new("calibrate").machine(CLIENT).machine(SERVER[0]);
        let lab = builder.link(CLIENT, SERVER[0], &spec).up()?;
        let (here, there) =
            (lab.machine(SERVER[0])?.towards(CLIENT)?, lab.machine(CLIENT)?.towards(SERVER[0])?);
        if queues > 1 {
            for end in [&here, &there] {
                end.spread_xps_over(&cpus)?;
            }
        }
        let napi = here.ensure_napi()?;
        let bound = Bound::new(0.01, 4).map_err(|_| Error::NothingSampled)?;
        let trials = config.trials.max(1);
        let config = Config {
            program: config.program.clone(),
            service: Vec::new(),
            queues,
            xps: queues > 1,
            moderation: 0,
            ladder: Vec::new(),
            left_out: Vec::new(),
            workers: cpus.len(),
            size: SIZE,
            flows: FLOWS,
            inflight: INFLIGHT,
            trial: config.trial,
            bound,
            duet: None,
            engine: Engine::Kernel,
            ipv6: false,
            profile: false,
            command: None,
        };
        Ok(Self { lab, config, cpus, protocol, trials, _napi: napi })
    }

    /// Measures rungs in turn, so that what else runs on the machine slows all alike.
    ///
    /// # Errors
    /// A server does not start, or the load fails; or `stop`.
    pub fn measure(
        &self,
        rungs: &[LabRung],
        watch: &mut dyn FnMut(&str),
        stop: &AtomicBool,
    ) -> Result<Vec<Measured>, Error> {
        let ports = FIRST_PORT..;
        let servers = rungs.iter().zip(ports).map(|(rung, port)| self.start(rung, port));
        let servers = servers.collect::<Result<Vec<_>, Error>>()?;
        let mut trials = vec![Vec::with_capacity(self.trials); rungs.len()];
        for round in 0..self.trials {
            for ((server, rung), trials) in servers.iter().zip(rungs).zip(&mut trials) {
                watch(&format!("{} (trial {} of {})", rung.name(), round + 1, self.trials));
                let plan = trial::plan(&self.config, server.address);
                let done = trial::run(
                    &self.lab,
                    self.config.engine,
                    &plan,
                    self.protocol,
                    server,
                    &mut |_| (),
                    stop,
                )?;
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                trials.push(done.map_or(0.0, |result| result.tps));
            }
        }
        let measured = |(rung, trials): (&LabRung, Vec<f64>)| Measured {
            rung: *rung,
            tps: median(trials.clone()).unwrap_or(0.0),
            trials,
        };
        Ok(rungs.iter().zip(trials).map(measured).collect())
    }

    /// Profiles a rung: where the CPU time of a transaction goes.
    pub(super) fn profile(&self, rung: &LabRung, stop: &AtomicBool) -> Result<Shares, Error> {
        let server = self.start(rung, FIRST_PORT)?;
        let plan = trial::plan(&self.config, server.address);
        let taken = profiled::profile(&self.lab, self.config.engine, &plan, self.protocol, &server, stop);
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let (result, _) = taken.map_err(|reason| Error::NotSampled { rung: rung.name(), reason })?;
        Ok(Shares::of(&result.profile))
    }

    fn start(&self, rung: &LabRung, port: u16) -> Result<ServerUnderTest, Error> {
        let home = (SERVER[0], Some(&self.cpus));
        ServerUnderTest::start(
            &self.lab,
            &self.config.launch(),
            self.protocol,
            home,
            &rung.name(),
            rung.settings(),
            port,
        )
    }
}

/// Length of a trial when nothing else is asked for. Shorter: on a shared machine one pause decides.
pub(super) const TRIAL: Duration = Duration::from_millis(400);
/// Trials of each rung when nothing else is asked for.
pub(super) const TRIALS: usize = 7;

impl CalibrationConfig {
    /// With the usual trials.
    #[must_use]
    pub fn new(program: std::path::PathBuf) -> Self {
        Self { program, trial: TRIAL, trials: TRIALS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_everything_that_differs() {
        let base = LabRung { io: Io::Shared, cpus: 2, queues: 4, rps: false, batch: 1 };
        let names = [
            base,
            LabRung { rps: true, ..base },
            LabRung { io: Io::Reuseport, rps: true, cpus: 1, queues: 1, ..base },
            LabRung { io: Io::Percpu, batch: 32, ..base },
        ];
        assert_eq!(
            names.map(|rung| rung.name()),
            [
                "shared, 2 CPUs, 4 queues",
                "rps, 2 CPUs, 4 queues",
                "rps+reuseport, 1 CPU, 1 queue",
                "percpu batched, 2 CPUs, 4 queues",
            ]
        );
    }

    #[test]
    fn every_rung_is_a_valid_description() {
        for io in Io::KERNEL {
            for (cpus, queues) in [(1, 1), (1, 4), (2, 1), (2, 2), (2, 4)] {
                for (rps, batch) in [(false, 1), (true, 1), (false, 32)] {
                    let rung = LabRung { io, cpus, queues, rps, batch };
                    assert_eq!(rung.description().unwrap().check(), Ok(()), "{}", rung.name());
                }
            }
        }
        assert!(LabRung { io: Io::Xdp, cpus: 1, queues: 1, rps: false, batch: 1 }.description().is_none());
    }
}
