//! A map as metrics, with node_exporter's naming: base units, `_total`, labels `cpu`, `device`, `queue`; in the
//! OpenMetrics text format, or in Prometheus' older one, the only one that node_exporter's textfile collector and
//! promtool read.
//!
//! ```text
//! map, findings, applied changes ─▸ families (family.rs) ─▸ OpenMetrics, and the older format
//! ```
//! The number of series is bounded by the machine, not by its clients: only the sockets with the most drops are
//! included, ports from [`EPHEMERAL`] on count as one, and queues are left out unless requested.

mod applied;
mod family;

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Registry, Unit};
use udpath_advise::{Finding, MapResult};
use udpath_host::cpus::CpuTicks;
use udpath_host::map::{Map, SocketMap};
use udpath_host::udp::UdpCounters;
use udpath_host::visible;

pub use applied::Applied;
use applied::Counted;
use family::{Family, Kind, Number, Series};

/// The first ephemeral port (`net.ipv4.ip_local_port_range`). From here on, a port does not identify a service, and a
/// client opens thousands.
const EPHEMERAL: u16 = 32_768;

/// What the name of each metric begins with.
const PREFIX: &str = "udpath";

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Number of sockets, those with the most drops first.
    pub sockets: usize,
    /// Include receive queues and their interrupts: a series each.
    pub queues: bool,
}

/// The format of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0, with `# EOF` at its end.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl MetricsFormat {
    /// The HTTP content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The map and its findings as text. Counts must be since boot. `applied`: the applied changes.
#[must_use]
pub fn map_metrics(
    result: &MapResult,
    applied: Applied<'_>,
    options: MetricsOptions,
    format: MetricsFormat,
) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Metrics::new(result, applied, options)));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    match format {
        MetricsFormat::OpenMetrics => text,
        MetricsFormat::Text => older(&text),
    }
}

/// Converts OpenMetrics to Prometheus' older format: there, a family has the name of its samples, and there is no
/// `info` type, no unit and no end marker.
fn older(text: &str) -> String {
    let mut kinds = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kinds.insert(name, kind);
        }
    }
    let renamed = |line: &str, word: &str| -> Option<String> {
        let (name, rest) = line.strip_prefix(word)?.split_once(' ')?;
        let (suffix, kind) = match kinds.get(name).copied() {
            Some("counter") => ("_total", "counter"),
            Some("info") => ("_info", "gauge"),
            other => ("", other.unwrap_or("untyped")),
        };
        let rest = if word == "# TYPE " { kind } else { rest };
        Some(format!("{word}{name}{suffix} {rest}\n"))
    };
    let line = |line: &str| {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            return String::new();
        }
        let head = renamed(line, "# HELP ").or_else(|| renamed(line, "# TYPE "));
        head.unwrap_or_else(|| format!("{line}\n"))
    };
    text.lines().map(line).collect()
}

#[derive(Debug)]
struct Metrics {
    map: Map,
    findings: Vec<Finding>,
    applied: Counted,
    options: MetricsOptions,
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.families().iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Metrics {
    fn new(result: &MapResult, applied: Applied<'_>, options: MetricsOptions) -> Self {
        Self {
            map: result.map.clone(),
            findings: result.findings.clone(),
            applied: Counted::of(applied),
            options,
        }
    }

    /// All families that have series.
    fn families(&self) -> Vec<Family> {
        let mut families = Vec::new();
        self.look(&mut families);
        self.devices(&mut families);
        self.cpus(&mut families);
        self.udp(&mut families);
        self.sockets(&mut families);
        self.applied.families(&mut families);
        self.findings(&mut families);
        families.retain(|family| !family.series.is_empty());
        families
    }

    /// What makes rates of all others inexact.
    fn look(&self, families: &mut Vec<Family>) {
        families.push(Family {
            name: "look",
            help: "How long reading all of this took: a rate is off by up to this time over the interval between scrapes",
            unit: Some(Unit::Seconds),
            kind: Kind::Gauge,
            series: self.map.look_seconds.map(|seconds| (Vec::new(), Number::Float(seconds))).into_iter().collect(),
        });
    }

    fn devices(&self, families: &mut Vec<Family>) {
        let counter = Kind::Counter;
        let of = |count: fn(&udpath_host::map::InterfaceMap) -> Option<u64>| -> Vec<Series> {
            let one = |device| Some((vec![("device", name(device))], count(device)?));
            self.map.interfaces.iter().filter_map(one).collect()
        };
        fn name(device: &udpath_host::map::InterfaceMap) -> String {
            device.name.clone()
        }
        families.push(Family::new("device_receive_packets", "Packets received", counter, &of(|d| d.packets)));
        let missed = "Packets that the device or its driver lost before the kernel saw them";
        families.push(Family::new("device_receive_missed", missed, counter, &of(|d| Some(d.missed))));
        families.push(Family::new(
            "device_receive_dropped",
            "Packets the stack dropped",
            counter,
            &of(|d| Some(d.dropped)),
        ));
        if !self.options.queues {
            return;
        }
        let of = |count: fn(&udpath_host::map::QueueMap) -> Option<u64>| -> Vec<Series> {
            let queues =
                self.map.interfaces.iter().flat_map(|d| d.queues.iter().map(move |queue| (d, queue)));
            let labels =
                |device: &str, queue: u32| vec![("device", device.to_owned()), ("queue", queue.to_string())];
            queues.filter_map(|(d, queue)| Some((labels(&d.name, queue.queue), count(queue)?))).collect()
        };
        families.push(Family::new(
            "queue_receive_packets",
            "Packets received, by queue",
            counter,
            &of(|q| q.packets),
        ));
        families.push(Family::new(
            "queue_receive_drops",
            "Packets lost, by queue",
            counter,
            &of(|q| q.drops),
        ));
        families.push(Family::new(
            "queue_interrupts",
            "Interrupts, by queue",
            counter,
            &of(|q| q.interrupts),
        ));
    }

    fn cpus(&self, families: &mut Vec<Family>) {
        let counter = Kind::Counter;
        let of = |count: fn(&udpath_host::softnet::SoftnetCpu) -> Option<u32>| -> Vec<Series> {
            let one = |cpu: &udpath_host::map::CpuMap| {
                Some((vec![("cpu", cpu.cpu.to_string())], u64::from(count(cpu.softnet.as_ref()?)?)))
            };
            self.map.cpus.iter().filter_map(one).collect()
        };
        families.push(Family::new(
            "softnet_processed",
            "Packets processed",
            counter,
            &of(|s| Some(s.processed)),
        ));
        let dropped = "Packets dropped because the CPU's backlog was full";
        families.push(Family::new("softnet_dropped", dropped, counter, &of(|s| Some(s.dropped))));
        let squeezed = "Times the softirq gave up with work left";
        families.push(Family::new("softnet_squeezed", squeezed, counter, &of(|s| Some(s.time_squeeze))));
        let steered = "Interrupts from other CPUs that steered packets here";
        families.push(Family::new("softnet_received_rps", steered, counter, &of(|s| s.received_rps)));
        families.push(Family::new(
            "softnet_backlog_packets",
            "Packets in the backlog now",
            Kind::Gauge,
            &of(|s| s.backlog),
        ));
        self.cpu_time(families);
    }

    fn cpu_time(&self, families: &mut Vec<Family>) {
        let mut series = Vec::new();
        for (cpu, ticks) in self.map.cpus.iter().filter_map(|cpu| Some((cpu.cpu, cpu.ticks?))) {
            let modes = [
                ("user", ticks.user + ticks.nice),
                ("system", ticks.system),
                ("irq", ticks.irq),
                ("softirq", ticks.softirq),
                ("steal", ticks.steal),
                ("idle", ticks.idle + ticks.iowait),
            ];
            series.extend(modes.map(|(mode, ticks)| {
                let labels = vec![("cpu", cpu.to_string()), ("mode", mode.to_owned())];
                (labels, Number::Float(ticks as f64 / CpuTicks::PER_SECOND as f64))
            }));
        }
        let (name, help, unit) = ("cpu", "How the CPU spent its time", Some(Unit::Seconds));
        families.push(Family { name, help, unit, kind: Kind::Counter, series });
    }

    fn udp(&self, families: &mut Vec<Family>) {
        let versions = [("4", self.map.udp.v4), ("6", self.map.udp.v6)];
        let present: Vec<(&str, UdpCounters)> =
            versions.into_iter().filter_map(|(version, udp)| Some((version, udp?))).collect();
        let labelled =
            |label: &'static str, values: fn(&UdpCounters) -> Vec<(&'static str, u64)>| -> Vec<Series> {
                let of = |(version, udp): &(&str, UdpCounters)| {
                    let version = (*version).to_owned();
                    values(udp)
                        .into_iter()
                        .map(move |(value, count)| {
                            (vec![("ip", version.clone()), (label, value.to_owned())], count)
                        })
                        .collect::<Vec<_>>()
                };
                present.iter().flat_map(of).collect()
            };
        let datagrams =
            labelled("direction", |udp| vec![("in", udp.in_datagrams), ("out", udp.out_datagrams)]);
        let counter = Kind::Counter;
        families.push(Family::new(
            "udp_datagrams",
            "Datagrams delivered to and sent by applications",
            counter,
            &datagrams,
        ));
        let errors = labelled("reason", |udp| {
            let mut reasons = vec![
                ("no_port", udp.no_ports),
                ("receive_buffer", udp.rcvbuf_errors),
                ("send_buffer", udp.sndbuf_errors),
            ];
            reasons.extend(udp.mem_errors.map(|count| ("memory", count)));
            reasons.extend(udp.in_csum_errors.map(|count| ("checksum", count)));
            reasons
        });
        families.push(Family::new(
            "udp_errors",
            "Datagrams not delivered or not sent, by reason",
            counter,
            &errors,
        ));
        let memory: Vec<Series> =
            self.map.udp.memory.iter().map(|memory| (Vec::new(), memory.used)).collect();
        families.push(Family::new(
            "udp_memory_pages",
            "Memory of all UDP sockets, in pages",
            Kind::Gauge,
            &memory,
        ));
    }

    fn sockets(&self, families: &mut Vec<Family>) {
        // Already sorted by drops. Sockets with the same labels are summed.
        let mut sums = BTreeMap::<Vec<(&'static str, String)>, [u64; 3]>::new();
        for socket in self.map.sockets.iter().take(self.options.sockets) {
            let sum = sums.entry(self.labels(socket)).or_default();
            sum[0] += socket.drops;
            sum[1] += u64::from(socket.queued);
            sum[2] += 1;
        }
        let of = |at: usize| -> Vec<Series> {
            sums.iter().map(|(labels, sum)| (labels.clone(), sum[at])).collect()
        };
        families.push(Family::new("socket_drops", "Datagrams dropped at sockets", Kind::Counter, &of(0)));
        let queued = "Bytes that wait to be received, by the kernel's accounting";
        families.push(Family::new("socket_queued_bytes", queued, Kind::Gauge, &of(1)));
        families.push(Family::new("sockets", "Sockets", Kind::Gauge, &of(2)));
    }

    fn labels(&self, socket: &SocketMap) -> Vec<(&'static str, String)> {
        let process =
            socket.pids.first().and_then(|pid| self.map.processes.iter().find(|process| process.pid == *pid));
        let port = if socket.local.port() < EPHEMERAL { socket.local.port() } else { 0 };
        vec![
            ("address", socket.local.ip().to_string()),
            ("port", port.to_string()),
            // Made visible before the sums: two names that look alike afterwards are one series.
            ("process", process.map_or_else(String::new, |process| visible::line(&process.name))),
        ]
    }

    /// By the names used in dashboards: a finding's id is a `rule`, its severity a `weight`.
    fn findings(&self, families: &mut Vec<Family>) {
        let mut counts = BTreeMap::<(&str, &str), u64>::new();
        for finding in &self.findings {
            *counts.entry((&finding.id, finding.severity.name())).or_default() += 1;
        }
        let labels =
            |id: &str, severity: &str| vec![("id", id.to_owned()), ("severity", severity.to_owned())];
        let series: Vec<Series> =
            counts.into_iter().map(|((id, severity), count)| (labels(id, severity), count)).collect();
        families.push(Family::new("findings", "Findings of `udpath show`, by id", Kind::Gauge, &series));
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        families.push(Family::new("build", "The program", Kind::Info, &[(version, 1)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_families_as_their_samples() {
        let text = "# HELP a_x What it is\n# TYPE a_x counter\n# UNIT a_x seconds\na_x_total{cpu=\"0\"} 1.5\n\
                    # HELP b Now\n# TYPE b gauge\nb 2\n# HELP c The program\n# TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n";
        let older = older(text);
        assert_eq!(
            older,
            "# HELP a_x_total What it is\n# TYPE a_x_total counter\na_x_total{cpu=\"0\"} 1.5\n\
             # HELP b Now\n# TYPE b gauge\nb 2\n# HELP c_info The program\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n"
        );
    }
}
