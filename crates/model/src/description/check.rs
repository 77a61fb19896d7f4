//! Whether a description can be: each limit, and what contradicts what.

use thiserror::Error;
use udpath_steer::CpuSet;

use super::{Description, Io, Link, MAX_CPUS, Transport};

/// Why a description cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum DescriptionError {
    /// A number out of range.
    #[error("{field} is {value}: expected {low} to {high}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// Lowest.
        low: f64,
        /// Highest.
        high: f64,
    },
    /// Too many CPUs.
    #[error("{cores} cores with {threads} threads each are {} CPUs: expected at most {MAX_CPUS}", cores * threads)]
    Cpus {
        /// Cores.
        cores: usize,
        /// Threads per core.
        threads: usize,
    },
    /// Nodes do not divide the cores.
    #[error("{cores} cores cannot be divided evenly over {nodes} nodes")]
    Nodes {
        /// Cores.
        cores: usize,
        /// Nodes.
        nodes: usize,
    },
    /// A card has more queues than there are CPUs.
    #[error("queues is {queues}, but there are {cpus} CPUs: a card has at most one queue per CPU")]
    Queues {
        /// Queues.
        queues: usize,
        /// CPUs.
        cpus: usize,
    },
    /// A list names a CPU that is not there.
    #[error("{field} names CPU {cpu}, but the last one is {last}")]
    NoCpu {
        /// The field.
        field: &'static str,
        /// The CPU.
        cpu: u32,
        /// The last that there is.
        last: usize,
    },
    /// RPS for another number of queues.
    #[error("rps has {lists} lists for {queues} queues: expected none, one for all queues, or one per queue")]
    Rps {
        /// Lists.
        lists: usize,
        /// Queues.
        queues: usize,
    },
    /// RPS before 2.6.35.
    #[error("kernel {0} has no RPS: remove rps, or set kernel to 2.6.35 or later")]
    NoRps(String),
    /// SO_REUSEPORT before 3.9, or selection by CPU before 4.5.
    #[error("kernel {kernel} has no {what}: set io to shared, or kernel to {since} or later")]
    NoIo {
        /// The kernel.
        kernel: String,
        /// What it lacks.
        what: &'static str,
        /// Which one has it.
        since: &'static str,
    },
    /// By CPU without fixed workers.
    #[error("io percpu needs pinned workers: set pin to true")]
    Unpinned,
    /// Both loops, or none.
    #[error("{0}")]
    Loop(&'static str),
    /// Fields that exclude each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// Most of anything that is counted: flows, requests in flight, workers, ring and buffer entries. More needs gigabytes,
/// and no machine has that.
const MOST: f64 = 1_000_000.0;
/// Highest rate: several times that of 100 Gbit/s with the shortest frames.
const MAX_RATE: f64 = 1e9;

impl Description {
    /// Checks that there can be such a machine, service and load.
    ///
    /// # Errors
    /// The first contradiction or value out of range.
    pub fn check(&self) -> Result<(), DescriptionError> {
        self.check_ranges()?;
        let (cpus, cores, threads) = (self.cpus(), self.cores, self.threads_per_core);
        if cpus > MAX_CPUS {
            return Err(DescriptionError::Cpus { cores, threads });
        }
        if cores % self.nodes != 0 {
            return Err(DescriptionError::Nodes { cores, nodes: self.nodes });
        }
        if self.link == Link::Card && self.queues > cpus {
            return Err(DescriptionError::Queues { queues: self.queues, cpus });
        }
        let lists = [("irqs", &self.irqs), ("worker_cpus", &self.worker_cpus)];
        for (field, list) in lists.into_iter().chain(self.rps.iter().map(|list| ("rps", list))) {
            check_list(field, list, cpus)?;
        }
        if self.rps.len() > 1 && self.rps.len() != self.queues {
            return Err(DescriptionError::Rps { lists: self.rps.len(), queues: self.queues });
        }
        self.check_kernel()?;
        self.check_load()
    }

    fn check_ranges(&self) -> Result<(), DescriptionError> {
        let count = |count: usize| count as f64;
        let cpus = MAX_CPUS as f64;
        for (field, value, low, high) in [
            ("cores", count(self.cores), 1.0, cpus),
            ("threads_per_core", count(self.threads_per_core), 1.0, 8.0),
            ("nodes", count(self.nodes), 1.0, 16.0),
            ("speed", self.speed, 0.05, 20.0),
            ("interconnect", self.interconnect, 0.05, 20.0),
            ("hz", f64::from(self.hz), 100.0, 1000.0),
            ("link_gbps", self.link_gbps, 0.0, 1600.0),
            ("queues", count(self.queues), 1.0, cpus),
            ("transmit_queues", count(self.transmit_queues), 0.0, cpus),
            ("ring", count(self.ring), 8.0, 65_536.0),
            ("moderation_us", self.moderation_us, 0.0, 10_000.0),
            ("workers", count(self.workers), 1.0, 1024.0),
            ("batch", count(self.batch), 1.0, 1024.0),
            ("service_ns", self.service_ns, 0.0, 1e9),
            ("receive_buffer", count(self.receive_buffer), 2304.0, 1e9),
            ("flows", count(self.flows), 1.0, MOST),
            ("clients", count(self.clients), 1.0, MOST),
            ("inflight", count(self.inflight), 0.0, MOST),
            ("rate", self.rate, 0.0, MAX_RATE),
            ("wire_us", self.wire_us, 0.0, 1e6),
            ("payload", count(self.payload), 0.0, 65_507.0),
        ] {
            if !(low..=high).contains(&value) {
                return Err(DescriptionError::Range { field, value, low, high });
            }
        }
        Ok(())
    }

    fn check_kernel(&self) -> Result<(), DescriptionError> {
        let kernel = self.kernel;
        if !self.rps.is_empty() && !kernel.has_rps() {
            return Err(DescriptionError::NoRps(kernel.to_string()));
        }
        let no_io = |what, since| DescriptionError::NoIo { kernel: kernel.to_string(), what, since };
        match (self.transport, self.io) {
            (Transport::Udp, Io::Reuseport) if !kernel.has_reuseport() => Err(no_io("SO_REUSEPORT", "3.9")),
            (Transport::Udp, Io::Percpu) if !kernel.has_selection() => {
                Err(no_io("selection of sockets by CPU", "4.5"))
            }
            (Transport::Udp, Io::Percpu) if !self.pin => Err(DescriptionError::Unpinned),
            _ => Ok(()),
        }
    }

    fn check_load(&self) -> Result<(), DescriptionError> {
        match (self.inflight, self.rate > 0.0) {
            (0, false) => {
                return Err(DescriptionError::Loop(
                    "there is no load: set inflight for a closed loop, or rate for an open one",
                ));
            }
            (1.., true) => {
                return Err(DescriptionError::Loop(
                    "inflight and rate exclude each other: set inflight to 0 for an open loop at rate",
                ));
            }
            _ => {}
        }
        let contradiction = match (self.link, self.transport) {
            (Link::Veth, _) if self.inflight == 0 => {
                "link veth has a closed loop: set inflight, and rate to 0"
            }
            (Link::Veth, Transport::Tcp) => {
                "link veth carries udp only: set transport to udp, or link to card"
            }
            (_, Transport::Tcp) if self.inflight == 0 => "transport tcp needs a closed loop: set inflight",
            (_, Transport::Tcp) if self.inflight > self.flows => {
                "transport tcp has one request at a time on each flow: set inflight to at most flows"
            }
            (_, Transport::Tcp) if self.batch > 1 => {
                "transport tcp reads one request per call: set batch to 1"
            }
            _ if !self.replies && self.inflight > 0 => {
                "a service that does not reply needs an open loop: set rate"
            }
            _ => return Ok(()),
        };
        Err(DescriptionError::Contradiction(contradiction))
    }
}

fn check_list(field: &'static str, list: &CpuSet, cpus: usize) -> Result<(), DescriptionError> {
    match list.last() {
        Some(cpu) if cpu as usize >= cpus => Err(DescriptionError::NoCpu { field, cpu, last: cpus - 1 }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(change: impl FnOnce(&mut Description)) -> String {
        let mut description = Description { cores: 4, workers: 4, queues: 4, ..Description::default() };
        assert_eq!(description.check(), Ok(()));
        change(&mut description);
        description.check().unwrap_err().to_string()
    }

    #[test]
    fn each_contradiction_is_a_sentence() {
        let cases: Vec<(String, &str)> = vec![
            (wrong(|d| d.cores = 0), "cores is 0: expected 1 to 128"),
            (wrong(|d| d.cores = 100_000), "cores is 100000: expected 1 to 128"),
            (
                wrong(|d| (d.cores, d.threads_per_core) = (100, 2)),
                "100 cores with 2 threads each are 200 CPUs",
            ),
            (wrong(|d| d.nodes = 3), "4 cores cannot be divided evenly over 3 nodes"),
            (wrong(|d| d.queues = 5), "queues is 5, but there are 4 CPUs"),
            (wrong(|d| d.speed = f64::NAN), "speed is NaN: expected 0.05 to 20"),
            (wrong(|d| d.irqs = "0-4".parse().unwrap()), "irqs names CPU 4, but the last one is 3"),
            (wrong(|d| d.rps = vec![CpuSet::new(); 2]), "rps has 2 lists for 4 queues"),
            (
                wrong(|d| {
                    (d.kernel, d.rps, d.io) = ("2.6.32".parse().unwrap(), vec![CpuSet::new()], Io::Shared);
                }),
                "kernel 2.6.32 has no RPS",
            ),
            (wrong(|d| d.kernel = "3.2".parse().unwrap()), "kernel 3.2 has no SO_REUSEPORT"),
            (
                wrong(|d| (d.kernel, d.io) = ("4.4".parse().unwrap(), Io::Percpu)),
                "kernel 4.4 has no selection of sockets by CPU",
            ),
            (wrong(|d| (d.pin, d.io) = (false, Io::Percpu)), "io percpu needs pinned workers"),
            (wrong(|d| d.inflight = 0), "there is no load"),
            (wrong(|d| d.rate = 1e6), "inflight and rate exclude each other"),
            (wrong(|d| d.replies = false), "a service that does not reply needs an open loop"),
            (wrong(|d| d.transport = Transport::Tcp), "set inflight to at most flows"),
            (wrong(|d| (d.link, d.inflight, d.rate) = (Link::Veth, 0, 1.0)), "link veth has a closed loop"),
        ];
        for (error, begin) in cases {
            assert!(error.contains(begin), "{error} ≠ {begin}");
        }
    }
}
