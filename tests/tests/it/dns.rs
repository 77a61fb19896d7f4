//! DNS: dig, kdig, dnsperf and kxdpgun accept the service over every Io, also truncated and over TCP; it reloads its
//! zones without losing a query. Needs root.

mod floods;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use udpath_lab::Lab;
use udpath_rig::{Ended, Run, Running, TIMEOUT, campaign, client_and_server, program};

use crate::inside::{self, IOS, addresses, end, start};

/// Every way to serve, as typed by a user.
/// Addresses of a name whose answer fits no datagram.
const MANY: usize = 200;
/// Without a rate limit: one client asks as many do.
const UNLIMITED: [&str; 2] = ["--responses-per-second", "off"];
/// How long the load runs while the zones are loaded again and again.
const LOAD_TIME: Duration = Duration::from_secs(4);

/// A folder with the zone `example.org`, whose serial number is `serial`.
struct Zone {
    folder: TempDir,
}

impl Zone {
    fn new() -> Self {
        let zone = Self { folder: tempfile::tempdir().unwrap() };
        zone.write(1, "");
        zone
    }

    fn write(&self, serial: usize, more: &str) {
        let many: String = (0..MANY).map(|n| format!("many A 10.0.0.{n}\n")).collect();
        let text = format!(
            "$ORIGIN example.org.\n$TTL 300\n@ SOA ns admin {serial} 2 3 4 60\n@ NS ns\n@ A 192.0.2.1\nns A 192.0.2.53\n\
             www A 192.0.2.80\nwww AAAA 2001:db8::80\nalias CNAME www\n*.wild TXT \"a wildcard\"\nsub NS ns.sub\n\
             ns.sub A 192.0.2.99\n{many}{more}"
        );
        // As an editor does it: never half a file.
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("example.org.zone")
    }
}

fn run(lab: &Lab, machine: &str, command: &str, arguments: &[&str]) -> Running {
    let mut inside = lab.machine(machine).unwrap().command(command);
    inside.args(arguments);
    start(lab, inside, &format!("{command} {}", arguments.join(" ")))
}

fn finished(lab: &Lab, command: &str, arguments: &[&str]) -> Ended {
    let ended = run(lab, "client", command, arguments).finish();
    assert_eq!(ended.code(), Some(0), "{command} {arguments:?}: {}{}", ended.out, ended.err);
    ended
}

/// `udpath serve dns` on the lab's server, at the port of DNS.
fn serve(lab: &Lab, zone: &Zone, io: &str, more: &[&str]) -> Running {
    let path = zone.path().display().to_string();
    let fixed = ["dns", "--zone", &path, "--bind", "0.0.0.0:53", "--bind", "[::]:53"];
    inside::serve(lab, io, &[&fixed[..], more].concat())
}

/// The answer that dig or kdig prints to these words.
fn dig(lab: &Lab, tool: &str, server: IpAddr, words: &[&str]) -> String {
    let at = format!("@{server}");
    let fixed: &[&str] = match tool {
        // With internationalized names, which a locale may switch on, it asks in lower case.
        "kdig" => &[&at, "+retry=0", "+time=20", "+noidn"],
        _ => &[&at, "+tries=1", "+time=20"],
    };
    finished(lab, tool, &[fixed, words].concat()).out
}

#[test]
fn dig_and_kdig_accept_it_over_every_io() {
    udpath_lab::needs_root!();
    let zone = Zone::new();
    for io in IOS {
        let lab = client_and_server("dns-peers", 2);
        let server = serve(&lab, &zone, io, &["--tcp"]);
        for (address, tool) in addresses(&lab).into_iter().zip(["dig", "kdig"]) {
            let says = |words: &[&str], expected: &[&str]| {
                let said = dig(&lab, tool, address, words);
                for part in expected {
                    assert!(said.contains(part), "{io} {tool} {words:?}: no {part:?} in\n{said}");
                }
                said
            };
            says(&["wWw.example.org", "A"], &["wWw.example.org.", "192.0.2.80", "NOERROR", " aa"]);
            says(&["alias.example.org", "AAAA"], &["www.example.org.", "2001:db8::80"]);
            says(&["x.wild.example.org", "TXT"], &["x.wild.example.org.", "\"a wildcard\""]);
            says(&["missing.example.org", "A"], &["NXDOMAIN", "SOA"]);
            says(&["www.example.org", "MX"], &["NOERROR", "SOA"]);
            says(&["a.sub.example.org", "A"], &["ns.sub.example.org.", "192.0.2.99"]);
            says(&["www.example.org", "ANY", "+notcp"], &["HINFO", "RFC8482"]);
            says(&["www.example.com", "A"], &["REFUSED"]);
            // kdig exits with 1.
            let at = format!("@{address}");
            let transfer = run(&lab, "client", tool, &[&at, "example.org", "AXFR"]).finish();
            let refusal = if tool == "dig" { "Transfer failed" } else { "REFUSED" };
            let said = transfer.out + &transfer.err;
            assert!(said.contains(refusal), "{io} {tool}: {said}");
            says(&["version.bind", "CH", "TXT"], &["\"udpath\""]);
            // dig asks again in the version that the server names.
            let expected = if tool == "dig" { "192.0.2.80" } else { "BADVERS" };
            says(&["www.example.org", "A", "+edns=1"], &[expected]);
            // 200 addresses: truncated over UDP, and asked for again over TCP.
            for words in [&["many.example.org", "A", "+bufsize=4096"][..], &["many.example.org", "A", "+tcp"]]
            {
                let said = says(words, &["10.0.0.199"]);
                assert_eq!(said.matches("IN\tA\t10.0.0.").count(), MANY, "{io} {tool}: {said}");
            }
            let truncated = says(&["many.example.org", "A", "+ignore"], &[" tc"]);
            assert!(!truncated.contains("10.0.0.1"), "{io} {tool}: {truncated}");
            says(&["www.example.org", "A", "+cookie"], &["COOKIE: "]);
            if tool == "dig" {
                says(&["www.example.org", "A", "+cookie"], &["(good)"]);
                says(&["www.example.org", "A", "+cookie", "+tcp"], &["(good)"]);
            }
        }
        let counts = end(server);
        let total = &counts["total"];
        assert_eq!(total["received"], total["answered"], "{io}: {total}");
        assert!(counts["tcp"]["accepted"].as_u64().unwrap() >= 6, "{io}: {counts}");
        lab.down().unwrap();
    }
}

/// The number that a tool prints behind a name.
fn number(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name}: {text}"));
    let digits: String = line.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name}: {line}"))
}

fn queries(zone: &Zone) -> String {
    let path = zone.folder.path().join("queries");
    let names = ["www A", "www AAAA", "alias A", "missing A", "x.wild TXT", "a.sub A", "www TXT"];
    let text: String = names.iter().map(|query| query.replacen(' ', ".example.org ", 1) + "\n").collect();
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn dnsperf_gets_every_reply_over_every_io() {
    udpath_lab::needs_root!();
    let (zone, lab) = (Zone::new(), client_and_server("dns-perf", 2));
    let queries = queries(&zone);
    for io in IOS {
        let server = serve(&lab, &zone, io, &UNLIMITED);
        let [address, _] = addresses(&lab);
        let address = address.to_string();
        // Few enough in flight for every receive buffer, and time enough on a busy machine.
        let words = ["-s", &address, "-d", &queries, "-n", "700", "-c", "8", "-q", "32", "-t", "30"];
        let said = finished(&lab, "dnsperf", &words).out;
        let sent = number(&said, "Queries sent:");
        assert_eq!((sent, number(&said, "Queries completed:")), (4900, 4900), "{io}: {said}");
        let codes = said.lines().find(|line| line.contains("Response codes:")).unwrap();
        assert!(codes.contains("NOERROR 4200") && codes.contains("NXDOMAIN 700"), "{io}: {said}");
        let counts = end(server);
        assert_eq!(counts["total"]["answered"], sent, "{io}: {counts}");
    }
    lab.down().unwrap();
}

#[test]
fn kxdpgun_is_answered_on_the_xdp_io() {
    udpath_lab::needs_root!();
    let (zone, lab) = (Zone::new(), client_and_server("dns-kxdpgun", 1));
    let queries = queries(&zone);
    let server = serve(&lab, &zone, "xdp", &UNLIMITED);
    let [address, _] = addresses(&lab);
    let words = ["-t", "1", "-Q", "2000", "-b", "1", "-i", &queries, "-p", "53", &address.to_string()];
    let said = finished(&lab, "kxdpgun", &words).out;
    let (asked, replies) = (number(&said, "total queries:"), number(&said, "total replies:"));
    assert!(asked > 1900 && replies <= asked && replies * 100 >= asked * 99, "{said}");
    let counts = end(server);
    assert!(counts["total"]["answered"].as_u64().unwrap() >= asked, "{counts}\n{said}");
    lab.down().unwrap();
}

/// Asks for the serial number until it is this one.
fn await_serial(lab: &Lab, server: IpAddr, serial: usize) {
    let wanted = format!("admin.example.org. {serial} ");
    udpath_rig::awaited(&format!("serial {serial}"), TIMEOUT, || {
        dig(lab, "kdig", server, &["example.org", "SOA"]).contains(&wanted).then_some(())
    });
}

#[test]
fn a_reload_under_load_loses_nothing() {
    udpath_lab::needs_root!();
    let (zone, lab) = (Zone::new(), client_and_server("dns-reload", 2));
    for io in ["shared", "reuseport", "xdp"] {
        zone.write(1, "");
        let server = serve(&lab, &zone, io, &UNLIMITED);
        let [address, _] = addresses(&lab);
        let (target, seconds) = (format!("{address}:53"), format!("{}s", LOAD_TIME.as_secs()));
        let words = [
            "load",
            "dns",
            &target,
            "--name",
            "www.example.org",
            "--rate",
            "2000",
            "-d",
            &seconds,
            "--timeout",
            "5s",
            "--json",
        ];
        let mut load = run(&lab, "client", &program().display().to_string(), &words);
        let mut serial = 1;
        while !load.has_ended() {
            serial += 1;
            zone.write(serial, "");
            server.signal(Signal::HUP);
            await_serial(&lab, address, serial);
        }
        assert!(serial > 2, "{io}: no reload under load");
        let ended = load.finish();
        assert_eq!(ended.code(), Some(0), "{io}: {}", ended.err);
        let result: Value = serde_json::from_str(&ended.out).unwrap();
        let counts = &result["counts"];
        assert_eq!(counts["sent"].as_u64(), counts["ok"].as_u64(), "{io}: {counts}");
        assert!(counts["ok"].as_u64().unwrap() > 1000, "{io}: {counts}");
        let counts = end(server);
        assert_eq!(counts["total"]["received"], counts["total"]["answered"], "{io}: {counts}");
    }
    lab.down().unwrap();
}

#[test]
fn a_wrong_file_is_named_and_the_old_zone_is_served_on() {
    udpath_lab::needs_root!();
    let (zone, lab) = (Zone::new(), client_and_server("dns-wrong", 1));
    let mut server = serve(&lab, &zone, "shared", &[]);
    let [address, _] = addresses(&lab);
    zone.write(2, "new A 192.0.2.300\n");
    server.signal(Signal::HUP);
    let said = server.says("not reloaded");
    assert!(said.contains(&format!("{}:{}:", zone.path().display(), MANY + 13)), "{said}");
    await_serial(&lab, address, 1);
    zone.write(3, "new A 192.0.2.200\n");
    server.signal(Signal::HUP);
    server.says("reloaded: zones 1, ");
    await_serial(&lab, address, 3);
    end(server);
    lab.down().unwrap();
}

#[test]
fn wrong_options_are_named() {
    let zone = Zone::new();
    let path = zone.path().display().to_string();
    fs::write(zone.path(), "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\na A nonsense\n").unwrap();
    for (options, said) in [
        (&["--zone", &path, "--strict"][..], format!("{path}:3:")),
        (&["--zone", "/nothing/there"], "cannot read /nothing/there: No such file".into()),
        (&["--responses-per-second", "0"], "invalid --responses-per-second 0: expected 1 to 1000".into()),
        (&["--responses-per-second", "none"], "expected 1 to 1000, or off".into()),
        (&["--cookie-secret", &path], format!("{path}:1: expected 32 hexadecimal digits")),
    ] {
        let arguments = [&["serve", "dns", "--bind", "127.0.0.1:0"][..], options].concat();
        let ended = Run::new(&arguments).finish();
        assert_eq!(ended.code(), Some(2), "{}", ended.err);
        assert!(ended.err.contains(&said), "{options:?}: {}", ended.err);
    }
}

/// A record and a zone with faults are left out and named; the rest is served, as `--strict` would not have it.
#[test]
fn what_has_faults_is_left_out_and_the_rest_is_served() {
    udpath_lab::needs_root!();
    let (zone, lab) = (Zone::new(), client_and_server("dns-faults", 1));
    zone.write(1, "new A 192.0.2.300\nother A 192.0.2.200\n");
    let broken = Zone::new();
    fs::write(broken.path(), "$ORIGIN broken.org.\n@ 1 SOA . . 1 1 1 1 1\n$FROB\na A 192.0.2.1\n").unwrap();
    let path = broken.path().display().to_string();
    let mut server = serve(&lab, &zone, "shared", &["--zone", &path]);
    server.says("warning: left out: 1 record and 1 zone");
    server.says(&format!("{}:{}: A: expected IPv4 address", zone.path().display(), MANY + 13));
    server.says(&format!("{path}:3: unknown directive $FROB"));
    let [address, _] = addresses(&lab);
    for (name, parts) in [
        ("other.example.org", ["NOERROR", "192.0.2.200"]),
        ("new.example.org", ["NXDOMAIN", "SOA"]),
        ("a.broken.org", ["SERVFAIL", "ANSWER: 0"]),
    ] {
        let said = dig(&lab, "dig", address, &[name, "A"]);
        assert!(parts.iter().all(|part| said.contains(part)), "{name}: {said}");
    }
    // Once they are mended, nothing is left out.
    zone.write(2, "new A 192.0.2.30\n");
    fs::write(broken.path(), "$ORIGIN broken.org.\n@ 1 SOA . . 1 1 1 1 1\na A 192.0.2.1\n").unwrap();
    server.signal(Signal::HUP);
    server.says("reloaded: zones 2, ");
    let said = dig(&lab, "dig", address, &["a.broken.org", "A"]);
    assert!(said.contains("NOERROR") && said.contains("192.0.2.1"), "{said}");
    end(server);
    lab.down().unwrap();
}
