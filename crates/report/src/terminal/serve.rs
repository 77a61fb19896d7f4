//! A server as text: how it starts, and its counters at the end.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

use udpath_host::filters::{Bypassed, Filters};
use udpath_serve::{Counts, Status};

use super::Style;
use super::table::{Cell, Table};
use crate::{units, words};

/// Most rules listed as text; the JSON has all. More would push everything else off the screen.
const MAX_RULES: usize = 20;

/// The status of live frames where they are sent; anything else is why not.
const SENT: &str = "yes";

/// How a server starts, for scripts and for the reader.
#[derive(Debug)]
pub struct Started<'a> {
    /// Its first status.
    pub status: &'a Status,
    /// The addresses served, with the ports obtained.
    pub binds: &'a [SocketAddr],
    /// The CPUs of its workers; `None` without pinning.
    pub pinned_to: Option<&'a [u32]>,
    /// The configuration of its AF_XDP ports, in words.
    pub ports: String,
    /// Rules of packet filters that do not apply to frames taken by xdp.
    pub filters: &'a Filters,
}

/// The Ios that `auto` rejected and why, the AF_XDP ports, bypassed filters; then the ready line for scripts.
#[must_use]
pub fn started(started: &Started<'_>) -> String {
    let Started { status, binds, pinned_to, ports, filters } = started;
    let mut text = String::new();
    // Writing to a string cannot fail.
    for rejected in &status.rejected {
        let _ = writeln!(text, "not {}: {}", rejected.io, rejected.reason);
    }
    if let Some(xdp) = &status.xdp {
        for port in &xdp.ports {
            let hash = port.rx_hash.as_ref().map_or_else(String::new, |hash| format!(", rx hash: {hash}"));
            let _ = writeln!(
                text,
                "{}: {} mode, probe {}{hash}, live frames: {}",
                port.name,
                port.mode,
                port.probe,
                if port.live_frames == SENT { "yes" } else { "no" }
            );
        }
        // Once, however many queues there are.
        let reasons: BTreeSet<&str> = xdp.ports.iter().map(|port| port.live_frames.as_str()).collect();
        for reason in reasons.iter().filter(|reason| **reason != SENT) {
            let _ = writeln!(text, "no live frames: {reason}");
        }
        let _ = writeln!(text, "{ports}");
    }
    text += &bypassed(filters);
    let pin = pinned_to.map_or_else(|| "off".to_owned(), |cpus| list(cpus.iter(), ","));
    let _ = writeln!(
        text,
        "ready io={} workers={} batch={} bind={} pin={pin}",
        status.io,
        status.workers.len(),
        status.batch,
        list(binds.iter(), ","),
    );
    text
}

fn list<T: ToString>(values: impl Iterator<Item = T>, separator: &str) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(separator)
}

/// Warnings of bypassed rules; empty if there are none.
fn bypassed(filters: &Filters) -> String {
    let mut text = String::new();
    for why in &filters.unread {
        let _ = writeln!(text, "warning: {why}; its rules do not apply to frames taken by xdp");
    }
    if filters.bypassed.is_empty() {
        return text;
    }
    let interfaces = words::distinct(filters.bypassed.iter().map(|found| found.interface.as_str()));
    let _ = writeln!(
        text,
        "warning: packet filters do not apply to frames taken by xdp from {}; bypassed rules:",
        interfaces.join(", "),
    );
    for Bypassed { filter, chain, rule, handle, certain, addresses, .. } in
        filters.bypassed.iter().take(MAX_RULES)
    {
        let handle = handle.map_or(String::new(), |handle| format!(" # handle {handle}"));
        let may = if *certain { "" } else { " (may apply to some packets)" };
        let to = list(addresses.iter(), ", ");
        let _ = writeln!(text, "  {filter} {chain}: {rule}{handle}, to {to}{may}");
    }
    if let Some(more @ 1..) = filters.bypassed.len().checked_sub(MAX_RULES) {
        let _ = writeln!(text, "  {more} more: see --json");
    }
    text + "  fix: serve with --io reuseport, or filter before this host (on the NIC, the switch, the router)\n"
}

/// The summary at the end.
#[must_use]
pub fn summary(status: &Status, style: &Style) -> String {
    let mut text = format!("{} for {}, batch {}\n", status.io, units::duration(status.seconds), status.batch);
    let head = ["worker", "cpu", "received", "answered", "dropped", "deferred", "per burst"];
    let mut table = Table::with(head.map(Cell::right).into());
    let mut row = |name: String, cpu: String, counts: &Counts| {
        let figures = [counts.received, counts.answered, counts.dropped.total(), counts.deferred];
        let mut cells = vec![Cell::right(name), Cell::right(cpu)];
        cells.extend(figures.map(|count| Cell::right(units::count(count))));
        cells.push(Cell::right(format!("{:.1}", counts.received as f64 / counts.bursts.max(1) as f64)));
        table.row(cells);
    };
    for worker in &status.workers {
        let cpu = worker.cpu.map_or("any".into(), |cpu| cpu.to_string());
        row(worker.worker.to_string(), cpu, &worker.counts);
    }
    row("all".into(), String::new(), &status.total);
    text += &table.text(*style);
    if status.total.received > 0 {
        let received = status.total.received as f64;
        let _ = writeln!(
            text,
            "{} datagrams/s, {} of CPU time each",
            units::tps(received / status.seconds.max(f64::MIN_POSITIVE)),
            units::time(status.cpu_seconds * 1e9 / received)
        );
    }
    for (reason, count) in status.total.dropped.occurred() {
        let _ = writeln!(text, "dropped as {reason}: {}", units::count(count));
    }
    for socket in status.sockets.iter().filter(|socket| socket.kernel_drops > 0) {
        let worker = socket.worker.map_or(String::new(), |worker| format!(" of worker {worker}"));
        let (drops, buffer) = (units::count(socket.kernel_drops), socket.receive_buffer_bytes as u64);
        let _ = writeln!(
            text,
            "dropped by the kernel at {}{worker}: {drops} (receive buffer {})",
            socket.bind,
            units::memory(buffer)
        );
    }
    if let Some(xdp) = &status.xdp {
        let [taken, received, answered, steered] =
            [xdp.taken, xdp.received, xdp.answered, xdp.steered].map(units::count);
        let _ = writeln!(
            text,
            "frames: {taken} taken, {received} received, {answered} answered, {steered} steered to another worker"
        );
        for (worker, port) in xdp.ports.iter().enumerate() {
            for (reason, count) in &port.dropped {
                let (name, count) = (&port.name, units::count(*count));
                let _ =
                    writeln!(text, "dropped by the kernel at {name} of worker {worker}: {count} ({reason})");
            }
        }
        for (reason, count) in &xdp.dropped {
            let _ = writeln!(text, "frames dropped as {reason}: {}", units::count(*count));
        }
    }
    if let Some(tcp) = &status.tcp {
        let [accepted, refused, failed, received, answered] =
            [tcp.accepted, tcp.refused, tcp.failed, tcp.received_bytes, tcp.answered_bytes].map(units::count);
        let _ = writeln!(
            text,
            "tcp: {accepted} connections ({refused} refused, {failed} failed), {received} bytes received, \
             {answered} answered"
        );
        if tcp.evicted + tcp.idle + tcp.slow + tcp.accept_errors > 0 {
            let [evicted, idle, slow, errors] =
                [tcp.evicted, tcp.idle, tcp.slow, tcp.accept_errors].map(units::count);
            let _ = writeln!(
                text,
                "tcp: closed {evicted} connections to make room, {idle} idle ones, {slow} slow ones; {errors} accept errors"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: &str, certain: bool) -> Bypassed {
        Bypassed {
            filter: "nftables",
            chain: "inet filter input".into(),
            rule: rule.into(),
            handle: Some(4),
            certain,
            interface: "eth0".into(),
            addresses: vec!["10.0.0.2:53".parse().unwrap()],
        }
    }

    #[test]
    fn every_rule_has_a_line_up_to_a_screenful() {
        assert_eq!(bypassed(&Filters::default()), "");
        let rules = vec![found("udp dport 53 drop", true), found("ct state invalid drop", false)];
        let text = bypassed(&Filters { bypassed: rules, unread: Vec::new() });
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains("from eth0;"), "{text}");
        assert_eq!(lines[1], "  nftables inet filter input: udp dport 53 drop # handle 4, to 10.0.0.2:53");
        assert!(lines[2].ends_with("(may apply to some packets)"), "{text}");
        assert!(lines[3].starts_with("  fix: "), "{text}");
        let many = Filters { bypassed: vec![found("drop", true); 25], unread: vec!["cannot read it".into()] };
        assert!(bypassed(&many).contains("  5 more: see --json\n"));
        assert!(bypassed(&many).starts_with("warning: cannot read it; "));
    }
}
