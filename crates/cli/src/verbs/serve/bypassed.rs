//! Rules of packet filters that do not apply to the datagrams that `serve --io xdp` takes.

use std::fmt::Write as _;

use udpath_host::filters::{Bypassed, Filters, Taken, bypassed};
use udpath_serve::Server;

/// Most rules listed on stderr; `--json` has all. More would push everything else off the screen.
const MAX_RULES: usize = 20;

/// Reads the filters, if frames are taken before them.
pub(super) fn read(server: &Server) -> Filters {
    let on = |interface: String| {
        server.binds().iter().map(move |bind| Taken { interface: interface.clone(), address: *bind })
    };
    let taken: Vec<_> = server.interfaces().into_iter().flat_map(on).collect();
    if taken.is_empty() { Filters::default() } else { bypassed(&taken) }
}

/// Warnings for stderr; empty if no rule is bypassed.
pub(super) fn warnings(filters: &Filters) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for why in &filters.unread {
        let _ = writeln!(text, "warning: {why}; its rules do not apply to frames taken by xdp");
    }
    if filters.bypassed.is_empty() {
        return text;
    }
    let interfaces = distinct(filters.bypassed.iter().map(|found| found.interface.as_str()));
    let _ = writeln!(
        text,
        "warning: packet filters do not apply to frames taken by xdp from {}; bypassed rules:",
        interfaces.join(", "),
    );
    for Bypassed { filter, chain, rule, handle, certain, addresses, .. } in
        filters.bypassed.iter().take(MAX_RULES)
    {
        let handle = handle.map_or(String::new(), |handle| format!(" # handle {handle}"));
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let may = if *certain { "" } else { " (may apply to some packets)" };
        let _ = writeln!(text, "  {filter} {chain}: {rule}{handle}, to {}{may}", addresses.join(", "));
    }
    if let Some(more @ 1..) = filters.bypassed.len().checked_sub(MAX_RULES) {
        let _ = writeln!(text, "  {more} more: see --json");
    }
    text.push_str(
        "  fix: serve with --io reuseport, or filter before this host (on the NIC, the switch, the router)\n",
    );
    text
}

/// Each once, in order.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
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
        assert_eq!(warnings(&Filters::default()), "");
        let bypassed = vec![found("udp dport 53 drop", true), found("ct state invalid drop", false)];
        let text = warnings(&Filters { bypassed, unread: Vec::new() });
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains("from eth0;"), "{text}");
        assert_eq!(lines[1], "  nftables inet filter input: udp dport 53 drop # handle 4, to 10.0.0.2:53");
        assert!(lines[2].ends_with("(may apply to some packets)"), "{text}");
        assert!(lines[3].starts_with("  fix: "), "{text}");
        let many = Filters { bypassed: vec![found("drop", true); 25], unread: vec!["cannot read it".into()] };
        assert!(warnings(&many).contains("  5 more: see --json\n"));
        assert!(warnings(&many).starts_with("warning: cannot read it; "));
    }
}
