//! The answers of `serve dns` are those of NSD and Knot, to 60,000 questions for the names in and around those of a random zone.
//! `UDPATH_SEED` makes another zone. Needs root.
//!
//! Where those two differ, either is right. The authority section is compared where there is no answer: NSD fills it otherwise, too. Of a
//! chain that goes through a DNAME record, `serve dns` says what comes up to there (docs/protocols/dns.md).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};

use domain::base::Message;
use domain::rdata::AllRecordData;
use rustix::process::Signal;
use udpath_lab::{LabBuilder, LinkSpec};
use udpath_rig::{DnsProgram, DnsServer, DnsSpec, TIMEOUT};

use crate::inside::udpath;

/// Subtrees of the zone, each of the same few labels: enough that every pair of neighbours occurs.
const TREES: usize = 48;
const LABELS: [&str; 4] = ["a", "b", "c", "*"];
/// What is asked: also a label that no name has, and types that few names have.
const ASKED: [&str; 5] = ["a", "b", "c", "*", "no"];
const TYPES: [(&str, u16); 8] =
    [("A", 1), ("NS", 2), ("CNAME", 5), ("MX", 15), ("TXT", 16), ("AAAA", 28), ("DS", 43), ("SOA", 6)];

/// The same numbers for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A name of up to three labels below a subtree.
    fn name(&mut self, labels: &[&str]) -> String {
        let depth = self.below(4);
        let mut name = String::new();
        for _ in 0..depth {
            name += self.pick(labels);
            name += ".";
        }
        format!("{name}t{}.example.org.", self.below(TREES))
    }

    /// Where an alias or a server is.
    fn target(&mut self) -> String {
        match self.below(8) {
            0 => "elsewhere.example.net.".into(),
            1 => "example.org.".into(),
            _ => self.name(&["a", "b", "c"]),
        }
    }
}

/// A zone with delegations, aliases, wildcards and names without records. Nothing stands below a DNAME record, and no wildcard is
/// delegated: for those, servers refuse the zone.
fn zone(random: &mut Random) -> String {
    let mut text =
        "$ORIGIN example.org.\n$TTL 300\n@ SOA ns admin 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\n"
            .to_owned();
    let mut aliases = BTreeSet::new();
    let mut trees = BTreeSet::new();
    let mut others = BTreeSet::new();
    let mut names: Vec<String> = (0..TREES * 5).map(|_| random.name(&LABELS)).collect();
    names.sort();
    names.dedup();
    // Those above come first.
    names.sort_by_key(|name| name.matches('.').count());
    for name in names {
        let below_tree =
            trees.iter().any(|tree: &String| name.ends_with(&format!(".{tree}")) || name == *tree);
        if below_tree || aliases.contains(&name) {
            continue;
        }
        let wild = name.contains('*');
        match random.below(10) {
            0 | 1 if !others.contains(&name) => {
                let _ = writeln!(text, "{name} CNAME {}", random.target());
                aliases.insert(name);
                continue;
            }
            2 if !wild => {
                let server = if random.below(2) == 0 { format!("ns.{name}") } else { random.target() };
                let _ = writeln!(text, "{name} NS {server}");
                if server.starts_with("ns.") {
                    let _ = writeln!(text, "{server} 60 A 192.0.2.9\n{server} AAAA 2001:db8::9");
                }
                if random.below(2) == 0 {
                    let _ = writeln!(text, "{name} DS 1 8 2 {:064x}", random.below(1 << 20));
                }
            }
            3 if !wild => {
                let _ = writeln!(text, "{name} DNAME {}", random.target());
                trees.insert(name.clone());
            }
            4 => {
                let _ = writeln!(text, "{name} MX 5 {}\n{name} MX 7 {}", random.target(), random.target());
            }
            5 => {
                let _ = writeln!(text, "{name} TXT \"{}\"", random.below(100));
            }
            6 => {
                let _ = writeln!(text, "{name} AAAA 2001:db8::{}", random.below(100));
            }
            _ => {
                let _ =
                    writeln!(text, "{name} 120 A 192.0.2.{}\n{name} 120 A 192.0.2.{}", random.below(50), 100);
            }
        }
        others.insert(name);
    }
    text
}

/// A server as the client sees it.
struct Asked {
    name: &'static str,
    socket: UdpSocket,
}

/// Code, flags, answer, authority and glue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    code: String,
    answer: Vec<String>,
    authority: Vec<String>,
    glue: Vec<String>,
}

impl Said {
    /// Whether it is the beginning of an answer through a DNAME record.
    fn begins(&self, whole: &Self) -> bool {
        let through = whole.answer.iter().any(|record| record.contains(" dname "));
        through
            && !self.answer.is_empty()
            && self.code == "NOERROR aa"
            && self.answer.iter().all(|record| whole.answer.contains(record))
    }
}

impl Asked {
    fn says(&self, number: u16, name: &str, qtype: u16) -> Said {
        let mut query = [&number.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 1]].concat();
        for label in name.trim_end_matches('.').split('.') {
            query.push(label.len() as u8);
            query.extend(label.as_bytes());
        }
        query.extend([&[0], &qtype.to_be_bytes()[..], &[0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]].concat());
        self.socket.send(&query).unwrap();
        let mut reply = [0; 1500];
        loop {
            let len = self
                .socket
                .recv(&mut reply)
                .unwrap_or_else(|error| panic!("{} for {name}: {error}", self.name));
            if reply[..2] == query[..2] {
                return said(&reply[..len]);
            }
        }
    }
}

fn said(reply: &[u8]) -> Said {
    let message = Message::from_octets(reply).unwrap();
    let header = message.header();
    let [answer, authority, glue] =
        [message.answer().unwrap(), message.authority().unwrap(), message.additional().unwrap()].map(
            |section| {
                let mut records: Vec<String> = section
                    .map(|record| record.unwrap().into_record::<AllRecordData<_, _>>().unwrap().unwrap())
                    .filter(|record| record.rtype().to_int() != 41)
                    .map(|record| {
                        let (ttl, rtype) = (record.ttl().as_secs(), record.rtype());
                        format!("{} {ttl} {rtype} {}", record.owner(), record.data()).to_lowercase()
                    })
                    .collect();
                records.sort();
                records
            },
        );
    let code = format!(
        "{}{}{}",
        header.rcode(),
        if header.aa() { " aa" } else { "" },
        if header.tc() { " tc" } else { "" }
    );
    // A referral's glue is needed; other additional records are a favour.
    let referral = answer.is_empty() && !header.aa();
    let (authority, glue) = match (answer.is_empty(), referral) {
        (true, true) => (authority, glue),
        (true, false) => (authority, Vec::new()),
        (false, _) => (Vec::new(), Vec::new()),
    };
    Said { code, answer, authority, glue }
}

#[test]
fn answers_are_those_of_nsd_or_knot() {
    udpath_lab::needs_root!();
    let seed = std::env::var("UDPATH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(33);
    let zone = zone(&mut Random(seed));
    let machines = ["knotd", "nsd", "udpath"];
    let mut builder = LabBuilder::new("dns-oracle").machine("client");
    for machine in machines {
        builder = builder.machine(machine).link("client", machine, &LinkSpec::with_queues(1));
    }
    let lab = builder.up().unwrap();
    let others = [DnsProgram::Knotd, DnsProgram::Nsd].map(|program| {
        let spec = DnsSpec {
            program,
            machine: program.name(),
            asker: "client",
            origin: "example.org",
            zone: &zone,
            workers: 1,
            cpus: None,
        };
        DnsServer::start(&lab, &spec)
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &zone).unwrap();
    let path = file.path().display().to_string();
    let own: SocketAddr = (lab.address_of("udpath", "client").unwrap().ipv4, 53).into();
    let (bind, off) = (own.to_string(), "--responses-per-second");
    let mut server =
        udpath(&lab, "udpath", &["serve", "dns", "--strict", "--bind", &bind, "--zone", &path, off, "off"]);
    server.says("ready io=");
    let asked = |name, to: SocketAddr| {
        let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.connect(to).unwrap();
        Asked { name, socket }
    };
    let ours = asked("udpath", own);
    let [knot, nsd] = [asked("knotd", others[0].ipv4()), asked("nsd", others[1].ipv4())];

    let (mut count, mut split, mut wrong) = (0_u32, 0_u32, Vec::new());
    for name in names() {
        for (rtype, number) in TYPES {
            count += 1;
            let id = count as u16;
            let (own, [one, other]) =
                (ours.says(id, &name, number), [&knot, &nsd].map(|server| server.says(id, &name, number)));
            split += u32::from(one != other);
            let agrees = |other: &Said| own == *other || own.begins(other);
            if !agrees(&one) && !agrees(&other) {
                wrong.push(format!("{name} {rtype}\n  udpath {own:?}\n  knotd  {one:?}\n  nsd    {other:?}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "seed {seed}, {} of {count}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
    assert!(count > 40_000 && split < count / 10, "{split} of {count}");
    server.signal(Signal::TERM);
    let _ = server.finish();
    drop(others);
    lab.down().unwrap();
}

/// All names of up to three labels in every subtree, and the zone's own.
fn names() -> Vec<String> {
    let mut below = vec![String::new()];
    for _ in 0..3 {
        let longer: Vec<String> =
            below.iter().flat_map(|name| ASKED.map(|label| format!("{label}.{name}"))).collect();
        below.extend(longer);
        below.sort();
        below.dedup();
    }
    let mut names: Vec<String> = (0..TREES)
        .flat_map(|tree| below.iter().map(move |name| format!("{name}t{tree}.example.org.")))
        .collect();
    names.extend(
        ["example.org.", "ns.example.org.", "no.example.org.", "a.b.c.d.e.example.org.", "org."]
            .map(String::from),
    );
    names
}
