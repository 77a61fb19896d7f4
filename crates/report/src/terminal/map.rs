//! The path of a datagram through a machine: a line per stage, with `!` before those that have a finding; the findings
//! below.

mod columns;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use udpath_advise::{Finding, Location, MapResult, Severity};
use udpath_host::map::{CpuMap, InterfaceMap, Map, QueueMap, SocketMap};
use udpath_host::sockets::{Selector, SocketOptions};

use super::table::{Cell, Table};
use super::{Paint, Style};
use crate::{finding, units};
use columns::{COLUMNS, CPU_COLUMNS, NONE, about};

/// How much of a map is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// What fits on a screen or two: the marked or busiest queues, CPUs and sockets.
    #[default]
    Most,
    /// Every line.
    All,
}

/// Most lines of a table unless all are requested.
const LINES: usize = 24;
/// The same for sockets, of which a machine may have thousands.
const SOCKETS: usize = 12;
/// Indentation of a finding's text from its second line on.
const FIX: usize = 7;
/// An unknown value.
const UNKNOWN: &str = "?";

/// The path of a datagram through a machine: a line per hop, findings below.
#[must_use]
pub fn text(result: &MapResult, extent: Extent, style: &Style) -> String {
    let (MapResult { map, findings, .. }, style) = (result, *style);
    let severe = findings.iter().filter(|finding| finding.severity < Severity::Note);
    let marked: BTreeSet<&Location> = severe.flat_map(|finding| &finding.locations).collect();
    let page = Page { map, findings, extent, style, marked };
    let mut out = page.headline();
    for interface in &map.interfaces {
        out.push('\n');
        out += &page.interface(interface);
    }
    for part in [page.cpus(), page.udp(), page.sockets(), page.findings(), page.missing()] {
        if !part.is_empty() {
            out.push('\n');
            out += &part;
        }
    }
    out
}

struct Page<'a> {
    map: &'a Map,
    findings: &'a [Finding],
    extent: Extent,
    style: Style,
    marked: BTreeSet<&'a Location>,
}

impl Page<'_> {
    fn headline(&self) -> String {
        let map = self.map;
        let nodes = if map.nodes > 1 { format!(" in {} nodes", map.nodes) } else { String::new() };
        let under = map.hypervisor.as_ref().map_or_else(String::new, |name| format!(", hypervisor: {name}"));
        let counts = map.seconds.map_or_else(
            || "since boot".to_owned(),
            |seconds| {
                format!("of the last {}{}", units::duration(seconds), units::rate_error(map.rate_error))
            },
        );
        let text = format!(
            "Linux {}, {} CPUs{nodes}{under}; counts are those {counts}",
            map.kernel, map.cpus_online
        );
        self.style.wrapped(Paint::Dim, &text, 2)
    }

    /// `!` before an item that has a finding.
    fn flag(&self, location: &Location) -> Cell {
        if self.marked.contains(location) { Cell::new("!").painted(Paint::Bad) } else { Cell::new("") }
    }

    fn interface(&self, interface: &InterfaceMap) -> String {
        let flag = if self.marked.contains(&Location::Interface(interface.name.clone())) { "! " } else { "" };
        let mut out = self.style.wrapped(Paint::Bold, &format!("{flag}{}", about(interface)), 2);
        let shown = self.chosen(&interface.queues, LINES, |queue| {
            let marked = self.marked.contains(&Location::Queue(interface.name.clone(), queue.queue));
            (marked, queue.packets.or(queue.interrupts).unwrap_or(0))
        });
        let any = |has: fn(&QueueMap) -> bool| shown.iter().any(|queue| has(queue));
        let columns: Vec<_> = COLUMNS.iter().filter(|column| any(column.says)).collect();
        if columns.is_empty() {
            return out;
        }
        let headings = ["", "queue"].into_iter().map(Cell::new);
        let mut table =
            Table::with(headings.chain(columns.iter().map(|column| Cell::right(column.name))).collect());
        for queue in &shown {
            let mut cells = vec![self.flag(&Location::Queue(interface.name.clone(), queue.queue))];
            cells.push(Cell::new(format!("rx-{}{}", queue.queue, if queue.xsk { " xsk" } else { "" })));
            cells.extend(columns.iter().map(|column| Cell::right((column.text)(queue))));
            table.row(cells);
        }
        out += &table.text(self.style);
        out + &self.rest(interface.queues.len() - shown.len(), "queue")
    }

    fn cpus(&self) -> String {
        let busy = |cpu: &&CpuMap| cpu.softnet.is_some_and(|s| s.processed > 0) || !cpu.queues.is_empty();
        let cpus: Vec<&CpuMap> = self.map.cpus.iter().filter(busy).collect();
        if cpus.is_empty() {
            return String::new();
        }
        let shown = self.chosen(&cpus, LINES, |cpu| {
            let marked = self.marked.contains(&Location::Cpu(cpu.cpu));
            (marked, cpu.softnet.map_or(0, |softnet| softnet.processed.into()))
        });
        let columns: Vec<_> =
            CPU_COLUMNS.iter().filter(|column| shown.iter().any(|cpu| (column.says)(cpu))).collect();
        let mut cells = vec![Cell::new(""), Cell::right("CPU")];
        cells.extend(columns.iter().map(|column| Cell::right(column.name)));
        cells.push(Cell::new("interrupts of"));
        let mut table = Table::with(cells);
        for cpu in &shown {
            let mut cells = vec![self.flag(&Location::Cpu(cpu.cpu)), Cell::right(cpu.cpu.to_string())];
            cells.extend(columns.iter().map(|column| Cell::right((column.text)(cpu))));
            cells.push(Cell::new(cpu.queues.join(" ")));
            table.row(cells);
        }
        table.text(self.style) + &self.rest(cpus.len() - shown.len(), "CPU")
    }

    fn udp(&self) -> String {
        let headings = ["received", "no port", "full buffer", "no memory", "checksum", "sent", "not sent"];
        let mut cells = vec![Cell::new(""), Cell::new("UDP")];
        cells.extend(headings.map(Cell::right));
        let mut table = Table::with(cells);
        let families = [("IPv4", self.map.udp.v4), ("IPv6", self.map.udp.v6)];
        for (family, udp) in families.into_iter().filter_map(|(family, udp)| Some((family, udp?))) {
            let known = |count: Option<u64>| count.map_or_else(|| UNKNOWN.to_owned(), units::count);
            let mut cells = vec![self.flag(&Location::Udp), Cell::new(family)];
            cells.extend(
                [
                    units::count(udp.in_datagrams),
                    units::count(udp.no_ports),
                    units::count(udp.rcvbuf_errors),
                    known(udp.mem_errors),
                    known(udp.in_csum_errors),
                    units::count(udp.out_datagrams),
                    units::count(udp.sndbuf_errors),
                ]
                .map(Cell::right),
            );
            table.row(cells);
        }
        table.text(self.style)
    }

    fn sockets(&self) -> String {
        if self.map.sockets.is_empty() {
            return String::new();
        }
        let shown = self.chosen(&self.map.sockets, SOCKETS, |socket| {
            (self.marked.contains(&Location::Socket(socket.inode)), socket.drops + u64::from(socket.queued))
        });
        let mut cells = vec![Cell::new(""), Cell::new("socket")];
        cells.extend(["shared by", "queued", "buffer", "full", "dropped"].map(Cell::right));
        cells.push(Cell::new("process"));
        let mut table = Table::with(cells);
        for socket in &shown {
            let peer = socket.peer.map_or_else(String::new, |peer| format!(" to {peer}"));
            let mut cells = vec![
                self.flag(&Location::Socket(socket.inode)),
                Cell::new(format!("{}{peer}", socket.local)),
            ];
            let group = if socket.group > 1 { socket.group.to_string() } else { NONE.into() };
            cells.extend(
                [
                    group,
                    units::count(socket.queued.into()),
                    socket.buffer.map_or_else(|| UNKNOWN.into(), |size| units::count(size.into())),
                    socket.fill().map_or_else(|| UNKNOWN.into(), units::share),
                    units::count(socket.drops),
                ]
                .map(Cell::right),
            );
            cells.push(Cell::new(self.owner(socket)));
            table.row(cells);
        }
        let rest = self.rest(self.map.sockets.len() - shown.len(), "socket");
        table.text(self.style) + &rest + &self.selectors(&shown) + &self.options(&shown)
    }

    /// What selects in the groups of the sockets shown, where it is a program.
    fn selectors(&self, shown: &[&SocketMap]) -> String {
        let line = |socket: &&SocketMap| {
            let selector = socket.place?.selector;
            let line = format!("   {} sockets of {}: selected {selector}", socket.group, socket.local);
            (selector != Selector::Kernel).then_some((socket.local, line))
        };
        // One of each group.
        let lines: BTreeMap<SocketAddr, String> = shown.iter().filter_map(line).collect();
        lines.values().map(|line| self.style.wrapped(Paint::Dim, line, 7)).collect()
    }

    /// Options that programs have set on the sockets shown, equal ones on one line.
    fn options(&self, shown: &[&SocketMap]) -> String {
        let mut of: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for socket in shown {
            let words = socket.options.as_ref().map(SocketOptions::words).filter(|words| !words.is_empty());
            if let Some(words) = words {
                *of.entry(words.join(", ")).or_default().entry(socket.local.to_string()).or_default() += 1;
            }
        }
        let line = |(words, sockets): (&String, &BTreeMap<String, usize>)| {
            let named: Vec<String> = sockets
                .iter()
                .map(|(local, count)| if *count > 1 { format!("{count} of {local}") } else { local.clone() })
                .collect();
            self.style.wrapped(Paint::Dim, &format!("   set {}: {words}", named.join(", ")), 7)
        };
        of.iter().map(line).collect()
    }

    /// `nsd 900 (nsd.service), 4 threads on CPUs 0-3`.
    fn owner(&self, socket: &SocketMap) -> String {
        let Some(pid) = socket.pids.first() else { return UNKNOWN.into() };
        let Some(process) = self.map.processes.iter().find(|process| process.pid == *pid) else {
            return pid.to_string();
        };
        let more = socket.pids.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let threads = match process.threads {
            0 | 1 => String::new(),
            n => format!(", {n} threads"),
        };
        let place = process.container.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
        format!("{} {pid}{more}{threads}{place}", process.name)
    }

    fn findings(&self) -> String {
        self.findings.iter().map(|finding| self.finding(finding)).collect()
    }

    fn finding(&self, finding: &Finding) -> String {
        let paint = match finding.severity {
            Severity::Loss => Paint::Bad,
            Severity::Limit => Paint::Warn,
            Severity::Note => Paint::Dim,
        };
        let text = format!("{:<6} {} [{}]", finding.severity.name(), finding::text(finding), finding.id);
        self.style.wrapped(paint, &text, FIX) + &self.fixes(finding)
    }

    /// The remedies, below the finding and with the same indentation.
    fn fixes(&self, finding: &Finding) -> String {
        let Some(fixes) = finding::fixes_to_wrap(finding) else { return String::new() };
        let style = Style { width: self.style.width.saturating_sub(FIX), ..self.style };
        let margin = " ".repeat(FIX);
        style.wrapped(Paint::Plain, &fixes, 2).lines().map(|line| format!("{margin}{line}\n")).collect()
    }

    fn missing(&self) -> String {
        const NAMED: usize = 4;
        let named = if self.extent == Extent::All { usize::MAX } else { NAMED };
        let missing = &self.map.missing;
        let mut out: String = missing
            .iter()
            .take(named)
            .map(|what| self.style.wrapped(Paint::Dim, &format!("unknown: {what}"), 2))
            .collect();
        out += &self.rest(missing.len().saturating_sub(named), "unknown thing");
        out
    }

    /// The items to show, in their order: all, or the first few when ranked by `rank`.
    fn chosen<'b, T>(&self, all: &'b [T], most: usize, rank: impl Fn(&T) -> (bool, u64)) -> Vec<&'b T> {
        let mut ranked: Vec<(usize, &T)> = all.iter().enumerate().collect();
        if self.extent == Extent::Most && all.len() > most {
            ranked.sort_by_key(|(_, item)| std::cmp::Reverse(rank(item)));
            ranked.truncate(most);
            ranked.sort_by_key(|(at, _)| *at);
        }
        ranked.into_iter().map(|(_, item)| item).collect()
    }

    /// A line that counts what was left out.
    fn rest(&self, left: usize, what: &str) -> String {
        match left {
            0 => String::new(),
            1 => self.style.wrapped(Paint::Dim, &format!("  and 1 more {what}: --all shows it"), 2),
            n => self.style.wrapped(Paint::Dim, &format!("  and {n} more {what}s: --all shows them"), 2),
        }
    }
}
