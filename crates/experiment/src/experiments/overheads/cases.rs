//! The cases: each is one command line of `udpath load sink --lab`.

use std::time::Duration;

/// Message of a TCP stream, bytes: iperf's default is 128 KiB of writes; this is what a write of the load joins anyway.
const MESSAGE: &str = "16k";
/// Payload of a datagram that fits the MTU of Ethernet.
const DATAGRAM: &str = "1400";

/// One configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Its id in the description.
    pub(super) id: &'static str,
    pub(super) tcp: bool,
    pub(super) pattern: &'static str,
    /// Hosts on each side of several; none of `single`.
    pub(super) hosts: Option<u32>,
    /// What else the command line has.
    pub(super) options: &'static [&'static str],
    /// Whether it is profiled.
    pub(super) profiled: bool,
}

impl Case {
    const fn tcp(id: &'static str, pattern: &'static str, hosts: u32, profiled: bool) -> Self {
        Self { id, tcp: true, pattern, hosts: Some(hosts), options: &[], profiled }
    }

    const fn udp(id: &'static str, pattern: &'static str, hosts: u32, profiled: bool) -> Self {
        Self { tcp: false, ..Self::tcp(id, pattern, hosts, profiled) }
    }

    /// One TCP flow with other options.
    const fn single(id: &'static str, options: &'static [&'static str], profiled: bool) -> Self {
        Self { id, tcp: true, pattern: "single", hosts: None, options, profiled }
    }

    /// Flows of the whole lab.
    pub(super) fn flows(&self) -> u32 {
        match (self.pattern, self.hosts.unwrap_or(1)) {
            ("all-to-all", hosts) => hosts * hosts,
            (_, hosts) => hosts,
        }
    }

    /// The arguments of `udpath load` for a run of this length.
    pub(super) fn arguments(&self, duration: Duration) -> Vec<String> {
        self.arguments_of("stream", duration)
    }

    /// The same in another mode than `stream`.
    pub(super) fn arguments_of(&self, mode: &str, duration: Duration) -> Vec<String> {
        let transport =
            if self.tcp { ["--tcp", "--size", MESSAGE] } else { ["--transport=udp", "--size", DATAGRAM] };
        let mut words: Vec<String> = ["sink", "--mode", mode].map(Into::into).to_vec();
        words.extend(transport.map(Into::into));
        words.extend(["--lab", "--pattern", self.pattern].map(Into::into));
        words.extend(self.hosts.into_iter().flat_map(|hosts| ["--hosts".to_owned(), hosts.to_string()]));
        words.extend(self.options.iter().map(|word| (*word).to_owned()));
        words.extend(["-d".to_owned(), format!("{}ms", duration.as_millis())]);
        words
    }
}

/// Patterns and flow counts; the ablations of one flow. Those whose ratio is published are neighbours: they drift
/// least.
pub(super) const CASES: [Case; 19] = [
    Case::single("no-offloads", &["--offloads", "none"], true),
    Case::single("gso-gro", &["--offloads", "gso,gro"], true),
    Case::single("jumbo", &["--offloads", "gso,gro", "--mtu", "9000"], true),
    Case::single("rfs", &["--offloads", "gso,gro", "--mtu", "9000", "--rfs"], true),
    Case::single("single", &[], true),
    Case::tcp("one-to-one-8", "one-to-one", 8, false),
    Case::tcp("one-to-one-24", "one-to-one", 24, true),
    Case::tcp("incast-8", "incast", 8, false),
    Case::tcp("incast-24", "incast", 24, true),
    Case::tcp("outcast-8", "outcast", 8, false),
    Case::tcp("outcast-24", "outcast", 24, true),
    Case::tcp("all-to-all-16", "all-to-all", 4, true),
    Case { tcp: false, ..Case::single("udp-single", &[], true) },
    Case::udp("udp-one-to-one-24", "one-to-one", 24, false),
    Case::udp("udp-incast-24", "incast", 24, true),
    Case::udp("udp-outcast-24", "outcast", 24, false),
    Case::udp("udp-all-to-all-16", "all-to-all", 4, false),
    Case::single("reno", &["--congestion", "reno"], false),
    Case::single("bbr", &["--congestion", "bbr"], false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_a_command_line() {
        let line = |id: &str| {
            let case = CASES.iter().find(|case| case.id == id).unwrap();
            case.arguments(Duration::from_millis(500)).join(" ")
        };
        assert_eq!(
            line("one-to-one-24"),
            "sink --mode stream --tcp --size 16k --lab --pattern one-to-one --hosts 24 -d 500ms"
        );
        assert_eq!(
            line("jumbo"),
            "sink --mode stream --tcp --size 16k --lab --pattern single --offloads gso,gro --mtu 9000 -d 500ms"
        );
        assert_eq!(
            line("udp-single"),
            "sink --mode stream --transport=udp --size 1400 --lab --pattern single -d 500ms"
        );
    }

    #[test]
    fn no_pattern_has_more_flows_than_the_document() {
        assert!(CASES.iter().all(|case| (1..=24).contains(&case.flows())));
    }
}
