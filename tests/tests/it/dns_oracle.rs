//! The answers of `serve dns` are those of NSD and Knot, to 60,000 questions for the names in and around those of a
//! random zone and of others below it, and to as many for the same zones signed ([`signed`]), with all that proves
//! them. `UDPATH_SEED` makes other zones; `make soak` takes several. Needs root.
//!
//! Where those two differ, either is right. An alias that leads to another zone ends their answers; `serve dns` goes on
//! there (RFC 1034, 4.3.2: to step 1), so its answer is compared with theirs to the question for the target, too. The
//! authority section is compared where there is no answer, and what it says of names that do not exist always: NSD
//! fills it otherwise, too. Of a chain that goes through a DNAME record, `serve dns` says what comes up to there
//! (docs/protocols/dns.md).

use std::net::{SocketAddr, TcpStream, UdpSocket};

use rustix::process::Signal;
use udpath_lab::{LabBuilder, LinkSpec};
use udpath_rig::campaign::{record, rounds};
use udpath_rig::{DnsProgram, DnsServer, DnsSpec, TIMEOUT};

use self::asked::{Asked, Said};
use self::zones::{Generator, NESTED, names};
use crate::inside::udpath;

mod asked;
mod signed;
mod validated;
mod zones;

/// What is asked for: types that many names have, and some that few have.
const TYPES: [(&str, u16); 8] =
    [("A", 1), ("NS", 2), ("CNAME", 5), ("MX", 15), ("TXT", 16), ("AAAA", 28), ("DS", 43), ("SOA", 6)];

#[test]
fn answers_are_those_of_nsd_or_knot() {
    udpath_lab::needs_root!();
    let first = std::env::var("UDPATH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(33);
    let rounds = rounds(1, 20);
    let (mut questions, mut differ, mut zones) = (0, 0, 0);
    for seed in (first..).take(rounds as usize) {
        let compared = compare("dns-oracle", &Generator::zones(seed, NESTED), &names(), &TYPES, false);
        let Compared { count, split, wrong, apexes, .. } = compared;
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
    /// Where both are wrong in the same known way.
    alone: u32,
    /// Number of zones.
    apexes: usize,
}

/// Asks three servers of the same zones for all types of these names; `secure`: with signatures.
fn compare(
    lab: &str,
    zones: &[(String, String)],
    names: &[String],
    types: &[(&str, u16)],
    secure: bool,
) -> Compared {
    let machines = ["knotd", "nsd", "udpath"];
    let mut builder = LabBuilder::new(lab).machine("client");
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
    let mut arguments = vec!["serve", "dns", "--strict", "--tcp", "--bind", &bind, off, "off"];
    arguments.extend(paths.iter().flat_map(|path| ["--zone", path]));
    let mut server = udpath(&lab, "udpath", &arguments);
    server.says("ready io=");
    let connect =
        |to: SocketAddr| lab.machine("client").unwrap().run(|| TcpStream::connect(to)).unwrap().unwrap();
    let asked = |name, to: SocketAddr| {
        let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.connect(to).unwrap();
        Asked::new(name, socket, &connect, secure)
    };
    let ours = asked("udpath", own);
    let others_asked = [asked("knotd", others[0].ipv4()), asked("nsd", others[1].ipv4())];

    let mut compared = Compared { count: 0, split: 0, wrong: Vec::new(), alone: 0, apexes: zones.len() };
    for name in names {
        for (rtype, number) in types {
            compared.count += 1;
            let id = compared.count as u16;
            let own = ours.says(id, name, *number);
            let theirs = others_asked.each_ref().map(|server| server.says(id, name, *number));
            compared.split += u32::from(theirs[0] != theirs[1]);
            let agrees = |other: &Said| own.is(other) || own.begins(other);
            if theirs.iter().any(agrees) {
                continue;
            }
            // A question for a name that begins with `*` and does not exist, but another wildcard above stands for it:
            // NSD says that it does not exist, or leaves out the closest encloser; Knot proves less (RFC 4035, 3.1.3.3;
            // RFC 4592, 2.2.1; RFC 5155, 7.2.5).
            let denied = theirs[1].is_no_name() && !own.is_no_name();
            let denied = denied || theirs.iter().any(|other| own.proves_more_than(other));
            let denied = name.starts_with("*.") && denied;
            // The signatures and NSEC records of a wildcard: NSD says that there are none, and Knot leaves some out or
            // does not prove the name's absence (RFC 4592, 4.7: they are answers as others).
            let explicit = own.has_answer() && [46, 47].contains(number);
            // A name below one that is there for delegations that opt-out leaves out: Knot fails, and NSD proves it
            // from a closest encloser of which there is no record (RFC 5155, 7.2.1).
            let left_out = theirs[0].has_failed() && own.is_no_name();
            if secure && own.proves() && (denied || explicit || left_out) {
                compared.alone += 1;
                continue;
            }
            let further = others_asked.each_ref().map(|server| server.follows(id, name, *number));
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
