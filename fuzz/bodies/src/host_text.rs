use udpath_host::{
    Malformed, UnitName, container, cpus, irqs, kernel, limits, netfilter, sockets, softnet, udp,
};

use crate::presentable;

/// Files of procfs: each parser accepts any text, and reports errors in one line without control characters.
pub fn host_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lines = text.lines().count();
    if let Some(cpus) = shown(cpus::ticks(text), text) {
        assert!(cpus.len() <= lines);
    }
    if let Some(found) = shown(irqs::interrupts(text), text) {
        assert!(found.irqs.len() + found.processor.len() < lines.max(1));
        assert!(found.irqs.iter().all(|irq| !irq.chip.is_empty()), "{found:?}");
    }
    if let Some(rows) = shown(softnet::rows(text), text) {
        assert_eq!(rows.len(), lines);
    }
    if let Some(found) = shown(sockets::table::parse(text), text) {
        assert!(found.len() <= lines.saturating_sub(1));
    }
    shown(irqs::softirq_table(text), text);
    shown(udp::snmp(text), text);
    shown(udp::snmp6(text), text);
    shown(netfilter::conntrack_rows(text), text);
    for membership in shown(limits::memberships(text), text).unwrap_or_default() {
        // The only text of a group that becomes a command or the name of a file.
        if let Some(unit) = UnitName::of_cgroup(&membership.path) {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
            assert!(unit.bytes().all(plain) && !unit.starts_with(['-', '.']) && unit.ends_with(".service"));
        }
    }
    let _ = limits::Mounts::parse(text);
    let _ = kernel::boot_time(text);
    assert!(kernel::parameters(text).len() <= text.split_ascii_whitespace().count());
    assert!(container::container(text).is_none_or(|found| !found.id.is_empty()));
}

/// The parsed value; an error must be printable, and name an existing line.
fn shown<T>(read: Result<T, Malformed>, text: &str) -> Option<T> {
    if let Err(error) = &read {
        presentable(error, text.len());
        assert!((1..=text.lines().count().max(1)).contains(&error.line), "{error}");
    }
    read.ok()
}
