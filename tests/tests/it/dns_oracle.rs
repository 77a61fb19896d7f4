//! The answers of `serve dns` are those of NSD and Knot, to 60,000 questions for the names in and around those of a random zone and
//! of others below it. `UDPATH_SEED` makes other zones; `make soak` takes several. Needs root.
//!
//! Where those two differ, either is right. An alias that leads to another zone ends their answers; `serve dns` goes on there
//! (RFC 1034, 4.3.2: to step 1), so its answer is compared with theirs to the question for the target, too. The authority section is compared where there is no answer: NSD fills it otherwise, too. Of a
//! chain that goes through a DNAME record, `serve dns` says what comes up to there (docs/protocols/dns.md).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};

use domain::base::Message;
use domain::rdata::AllRecordData;
use rustix::process::Signal;
use udpath_lab::{LabBuilder, LinkSpec};
use udpath_rig::campaign::{record, rounds};
use udpath_rig::{DnsProgram, DnsServer, DnsSpec, TIMEOUT};

use crate::inside::udpath;

const ORIGIN: &str = "example.org";
/// Zones below it at most.
const NESTED: usize = 40;
/// Subtrees of the zone, each of the same few labels: enough that every pair of neighbours occurs.
const TREES: usize = 48;
const LABELS: [&str; 4] = ["a", "b", "c", "*"];
/// What is asked: also a label that no name has, and types that few names have.
const ASKED: [&str; 5] = ["a", "b", "c", "*", "no"];
const CNAME: u16 = 5;
const TYPES: [(&str, u16); 8] =
    [("A", 1), ("NS", 2), ("CNAME", CNAME), ("MX", 15), ("TXT", 16), ("AAAA", 28), ("DS", 43), ("SOA", 6)];

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
        format!("{name}t{}.{ORIGIN}.", self.below(TREES))
    }

    /// A name of a zone, of at most three labels below its subtree.
    fn below_apex(&mut self, apex: &str) -> String {
        let room = ORIGIN.matches('.').count() + 4 - apex.matches('.').count();
        let labels: Vec<&str> = (0..self.below(room + 1)).map(|_| self.pick(&LABELS)).collect();
        labels.into_iter().map(|label| format!("{label}.")).collect::<String>() + apex + "."
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

/// Zones, and what stands where. Nothing stands below a DNAME record, in no zone: for those, servers refuse a zone, and NSD has one tree for
/// all. No wildcard is delegated: each server answers for those in its own way.
struct Generator {
    random: Random,
    /// Name and text of each zone, the outermost first.
    zones: Vec<(String, String)>,
    /// Owners of any records, and those of DNAME records.
    owners: BTreeSet<String>,
    trees: BTreeSet<String>,
    /// Owners of CNAME records: for NSD, no zone has its apex there.
    aliases: BTreeSet<String>,
}

impl Generator {
    /// A zone, and up to this number of others below it.
    fn zones(seed: u64, nested: usize) -> Vec<(String, String)> {
        let [owners, trees, aliases] = [const { BTreeSet::new() }; 3];
        let mut generator = Self { random: Random(seed), zones: Vec::new(), owners, trees, aliases };
        let names: Vec<String> = (0..TREES * 5).map(|_| generator.random.name(&LABELS)).collect();
        generator.zone(ORIGIN, "@ NS ns\nns A 192.0.2.53\n", names);
        for _ in 0..nested {
            let apex = generator.random.name(&["a", "b", "c"]).trim_end_matches('.').to_owned();
            let known = generator.zones.iter().any(|(other, _)| *other == apex);
            let other = generator.trees.contains(&apex) || generator.aliases.contains(&apex);
            if known || other || generator.is_in_tree(&apex) {
                continue;
            }
            let names: Vec<String> = (0..8).map(|_| generator.random.below_apex(&apex)).collect();
            let server = format!("@ NS {}\n", generator.random.target());
            generator.zone(&apex, &server, names);
        }
        generator.zones
    }

    /// A zone with delegations, aliases, wildcards and names without records.
    fn zone(&mut self, apex: &str, first: &str, mut names: Vec<String>) {
        let minimum = 60 + self.zones.len();
        let mut text =
            format!("$ORIGIN {apex}.\n$TTL 300\n@ SOA ns admin 1 3600 600 86400 {minimum}\n{first}");
        names.sort();
        names.dedup();
        // Those above come first.
        names.sort_by_key(|name| name.matches('.').count());
        for name in names {
            let plain = name.trim_end_matches('.');
            if self.is_in_tree(plain) || self.aliases.contains(plain) {
                continue;
            }
            if plain == apex {
                let _ = writeln!(text, "{name} TXT \"{}\"", self.random.below(100));
                continue;
            }
            self.records(&name, &mut text);
        }
        self.owners.insert(apex.to_owned());
        self.zones.push((apex.to_owned(), text));
    }

    /// Whether it is below a DNAME record.
    fn is_in_tree(&self, name: &str) -> bool {
        self.trees.iter().any(|tree| name.ends_with(&format!(".{tree}")))
    }

    fn records(&mut self, name: &str, text: &mut String) {
        let plain = name.trim_end_matches('.').to_owned();
        let wild = name.contains('*');
        let below = format!(".{plain}");
        let has_below = self.owners.iter().any(|owner| owner.ends_with(&below));
        let random = &mut self.random;
        match random.below(10) {
            0 | 1 if !self.owners.contains(&plain) => {
                let _ = writeln!(text, "{name} CNAME {}", random.target());
                self.aliases.insert(plain.clone());
            }
            2 if !wild && !self.trees.contains(&plain) => {
                let server = if random.below(2) == 0 { format!("ns.{name}") } else { random.target() };
                let _ = writeln!(text, "{name} NS {server}");
                if server.starts_with("ns.") {
                    let _ = writeln!(text, "{server} 60 A 192.0.2.9\n{server} AAAA 2001:db8::9");
                    self.owners.insert(server.trim_end_matches('.').to_owned());
                }
                if random.below(2) == 0 {
                    let _ = writeln!(text, "{name} DS 1 8 2 {:064x}", random.below(1 << 20));
                }
            }
            3 if !has_below && !self.owners.contains(&plain) => {
                let _ = writeln!(text, "{name} DNAME {}", random.target());
                self.trees.insert(plain.clone());
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
        self.owners.insert(plain);
    }
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
    /// The name's CNAME record and its target; not one made of a DNAME record.
    fn alias_of(&self, name: &str) -> Option<(String, String)> {
        let owner = name.trim_end_matches('.');
        let words = self.answer.iter().map(|record| record.split(' ').collect::<Vec<_>>());
        let made =
            words.clone().any(|words| words[2] == "dname" && owner.ends_with(&format!(".{}", words[0])));
        let mut own = words.filter(|words| !made && words[0] == owner && words[2] == "cname");
        own.next().map(|words| (words.join(" "), words[3].to_owned()))
    }

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
    /// The answer to a question whose aliases are asked for one by one, as the server's own search would begin again with each.
    fn follows(&self, number: u16, name: &str, qtype: u16) -> Said {
        let (mut name, mut aliases) = (name.to_owned(), Vec::new());
        loop {
            let mut said = self.says(number, &name, qtype);
            let alias = said.alias_of(&name).filter(|_| qtype != CNAME);
            match alias {
                // Another server's, or one that was there before: the client asks on.
                _ if !aliases.is_empty() && !said.code.ends_with(" aa") => break,
                Some((record, _)) if aliases.contains(&record) => break,
                Some((record, target)) => {
                    aliases.push(record);
                    name = target;
                }
                None if aliases.is_empty() => return said,
                None => {
                    said.answer.extend(aliases);
                    said.answer.sort();
                    return Said { authority: Vec::new(), glue: Vec::new(), ..said };
                }
            }
        }
        aliases.sort();
        Said { code: "NOERROR aa".into(), answer: aliases, authority: Vec::new(), glue: Vec::new() }
    }

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
            let len = match self.socket.recv(&mut reply) {
                Ok(len) => len,
                // Another test's child has ended.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{} for {name}: {error}", self.name),
            };
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
    let first = std::env::var("UDPATH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(33);
    let rounds = rounds(1, 20);
    let (mut questions, mut differ, mut zones) = (0, 0, 0);
    for seed in (first..).take(rounds as usize) {
        let compared = compare(&Generator::zones(seed, NESTED));
        let Compared { count, split, wrong, apexes } = compared;
        assert!(
            wrong.is_empty(),
            "seed {seed}, {} of {count}:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(5)].join("\n")
        );
        assert!(
            count > 40_000 && split < count / 5 && apexes > NESTED / 4,
            "{split} of {count}, {apexes} zones"
        );
        (questions, differ, zones) = (questions + count, differ + split, zones + apexes);
    }
    record(
        "questions to udpath, NSD and Knot with the same zones",
        &format!("{questions}, {zones} zones, NSD and Knot differ: {differ}, udpath from both: 0"),
    );
}

/// What one set of zones gave.
struct Compared {
    count: u32,
    /// How often NSD and Knot differ: 5 to 11 of 100, mostly at the edges between zones.
    split: u32,
    wrong: Vec<String>,
    /// Number of zones.
    apexes: usize,
}

fn compare(zones: &[(String, String)]) -> Compared {
    let machines = ["knotd", "nsd", "udpath"];
    let mut builder = LabBuilder::new("dns-oracle").machine("client");
    for machine in machines {
        builder = builder.machine(machine).link("client", machine, &LinkSpec::with_queues(1));
    }
    let lab = builder.up().unwrap();
    let texts: Vec<(&str, &str)> = zones.iter().map(|(apex, text)| (&apex[..], &text[..])).collect();
    let others = [DnsProgram::Knotd, DnsProgram::Nsd].map(|program| {
        let (machine, asker) = (program.name(), "client");
        DnsServer::start(&lab, &DnsSpec { program, machine, asker, zones: &texts, workers: 1, cpus: None })
    });
    let files: Vec<_> = zones.iter().map(|(_, text)| file(text)).collect();
    let paths: Vec<String> = files.iter().map(|file| file.path().display().to_string()).collect();
    let own: SocketAddr = (lab.address_of("udpath", "client").unwrap().ipv4, 53).into();
    let (bind, off) = (own.to_string(), "--responses-per-second");
    let mut arguments = vec!["serve", "dns", "--strict", "--bind", &bind, off, "off"];
    arguments.extend(paths.iter().flat_map(|path| ["--zone", path]));
    let mut server = udpath(&lab, "udpath", &arguments);
    server.says("ready io=");
    let asked = |name, to: SocketAddr| {
        let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.connect(to).unwrap();
        Asked { name, socket }
    };
    let ours = asked("udpath", own);
    let others_asked = [asked("knotd", others[0].ipv4()), asked("nsd", others[1].ipv4())];

    let mut compared = Compared { count: 0, split: 0, wrong: Vec::new(), apexes: zones.len() };
    for name in names() {
        for (rtype, number) in TYPES {
            compared.count += 1;
            let id = compared.count as u16;
            let own = ours.says(id, &name, number);
            let theirs = others_asked.each_ref().map(|server| server.says(id, &name, number));
            compared.split += u32::from(theirs[0] != theirs[1]);
            let agrees = |other: &Said| own == *other || own.begins(other);
            if theirs.iter().any(agrees) {
                continue;
            }
            let further = others_asked.each_ref().map(|server| server.follows(id, &name, number));
            if !further.iter().any(agrees) {
                let [knotd, nsd] = theirs;
                let lines = format!("{name} {rtype}\n  udpath {own:?}\n  knotd  {knotd:?}\n  nsd    {nsd:?}");
                compared.wrong.push(format!("{lines}\n  knotd, alias by alias {:?}", further[0]));
            }
        }
    }
    server.signal(Signal::TERM);
    let _ = server.finish();
    drop(others);
    lab.down().unwrap();
    compared
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
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
