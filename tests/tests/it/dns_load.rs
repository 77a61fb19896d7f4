//! The load of DNS against knotd and nsd: every reply of theirs is valid, over every engine, and what they refuse
//! counts as refused. Needs root.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{DnsProgram, DnsServer, DnsSpec, Ended, Run, TIMEOUT, client_and_server, program};

const ENGINES: [&str; 3] = ["socket", "xdp", "xdp-rings"];
/// Names `h0` to `h999` of the zone.
const NAMES: usize = 1000;

/// A zone with addresses of [`NAMES`] names, a wildcard, an alias, a delegation with glue, and records longer than a
/// reply without EDNS.
fn zone() -> String {
    let mut zone = String::from(
        "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n@ MX 10 h1\n\
         *.wild TXT \"anything\"\nalias CNAME h2\nbelow NS ns.below\nns.below A 192.0.2.54\n",
    );
    for number in 0..NAMES {
        let (high, low) = (number / 256, number % 256);
        writeln!(zone, "h{number} A 198.18.{high}.{low}\nh{number} AAAA 2001:db8::{number:x}").unwrap();
    }
    for number in 0..10 {
        writeln!(zone, "long TXT \"{number}{}\"", "x".repeat(200)).unwrap();
    }
    zone
}

fn start(lab: &Lab, which: DnsProgram) -> DnsServer {
    let (machine, asker, zone) = ("server", "client", zone());
    let spec =
        DnsSpec { program: which, machine, asker, zones: &[("example.test", &zone)], workers: 2, cpus: None };
    DnsServer::start(lab, &spec)
}

/// `udpath load dns` on the client.
fn load(lab: &Lab, target: SocketAddr, more: &[&str]) -> Ended {
    let mut inside: Command = lab.machine("client").unwrap().command(program());
    inside.args([
        "load",
        "dns",
        &target.to_string(),
        "--flows",
        "4",
        "--inflight",
        "4",
        "-d",
        "400ms",
        "--json",
    ]);
    inside.args(more);
    Run::of(inside, &more.join(" ")).within(TIMEOUT * 2).start_with(|command| lab.spawn(command)).finish()
}

/// The result of a load of which every reply is valid.
fn valid(lab: &Lab, target: SocketAddr, more: &[&str]) -> Value {
    let ended = load(lab, target, more);
    assert_eq!(ended.code(), Some(0), "{more:?}: {}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = &result["counts"];
    assert!(counts["ok"].as_u64().unwrap() > 50, "{target} {more:?}: {counts}");
    for wrong in ["refused", "corrupt", "duplicate", "wrong_flow"] {
        assert_eq!(counts[wrong], 0, "{target} {more:?}: {counts}");
    }
    result
}

#[test]
fn knotd_and_nsd_answer_generated_names_over_every_engine() {
    udpath_lab::needs_root!();
    for which in DnsProgram::ALL {
        let lab = client_and_server("dns-load", 2);
        let server = start(&lab, which);
        for target in server.addresses() {
            for engine in ENGINES {
                let names = ["--engine", engine, "--name", "H{}.eXample.test", "--names", "1000", "--verify"];
                valid(&lab, target, &names);
                let mixed = ["--types", "A:60,AAAA:30,MX:10", "--missing", "20", "--edns", "50", "--dnssec"];
                let result = valid(&lab, target, &[&names[..], &mixed].concat());
                // A header, a name of up to 19 bytes, type and class, an OPT record in every second.
                let size = result["size"].as_u64().unwrap();
                assert!((35..55).contains(&size), "{size}");
                // A fifth of the names is missing; all the others have an answer or none of the type.
                let count = |code: &str| {
                    let kind = result["kinds"].as_array().unwrap().iter().find(|kind| kind["name"] == code);
                    kind.unwrap_or_else(|| panic!("{code}: {}", result["kinds"]))["count"].as_f64().unwrap()
                };
                let (found, missing) = (count("NOERROR"), count("NXDOMAIN"));
                assert_eq!(found + missing, result["counts"]["received"].as_f64().unwrap());
                let share = missing / (found + missing);
                // Four standard deviations of so many queries, or of the 1000 names that they are for.
                let deviation = (0.2 * 0.8 / (found + missing).min(1000.0)).sqrt();
                assert!((share - 0.2).abs() < 4.0 * deviation, "{share} of {}", found + missing);
            }
        }
        drop(server);
        lab.down().unwrap();
    }
}

/// The number of queries in flight that completes most, and how much that is.
#[test]
fn the_kernel_engine_searches_for_the_number_in_flight() {
    udpath_lab::needs_root!();
    let lab = client_and_server("dns-search", 1);
    let server = start(&lab, DnsProgram::Nsd);
    let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
    let target = server.ipv4().to_string();
    let names = ["load", "dns", &target, "--name", "H{}.eXample.test", "--names", "1000", "--flows", "4"];
    let search = ["--engine", "kernel", "--find-max", "--loss", "5%", "-d", "200ms", "--json"];
    let mut inside = lab.machine("client").unwrap().command(program());
    inside.args(names).args(search);
    let ended =
        Run::of(inside, "the search").within(TIMEOUT * 3).start_with(|command| lab.spawn(command)).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    let probes = found["probes"].as_array().unwrap();
    let inflight: Vec<u64> = probes.iter().map(|probe| probe["inflight"].as_u64().unwrap()).collect();
    assert!(inflight[0] == 1 && inflight.is_sorted() && inflight.len() >= 6, "{inflight:?}");
    let best = &found["best"];
    assert_eq!(best["engine"], "kernel");
    let at = |wanted: &Value| -> Vec<f64> {
        let of = probes.iter().filter(|probe| probe["inflight"] == *wanted);
        of.map(|probe| probe["tps"].as_f64().unwrap()).collect()
    };
    assert!(at(&found["inflight"]).contains(&found["max_rate"].as_f64().unwrap()), "{probes:?}");
    drop((napi, server));
    lab.down().unwrap();
}

/// The kernel engine judges every reply by its header, and a sample completely: question, records and all.
#[test]
fn knotd_and_nsd_answer_the_kernel_engine() {
    udpath_lab::needs_root!();
    for which in DnsProgram::ALL {
        let lab = client_and_server("dns-kernel", 2);
        let server = start(&lab, which);
        // A veth hands frames of XDP only to an end with NAPI.
        let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
        for target in server.addresses() {
            let names = ["--engine", "kernel", "--name", "H{}.eXample.test", "--names", "1000", "--verify"];
            for more in [&[][..], &["--types", "A:60,AAAA:40", "--missing", "20", "--edns", "50", "--dnssec"]]
            {
                let result = valid(&lab, target, &[&names[..], more].concat());
                assert_eq!(result["engine"], "kernel");
                let note = result["generator"]["notes"][0].as_str().unwrap();
                let checked =
                    note.split_once(" of ").and_then(|(checked, _)| checked.replace(',', "").parse().ok());
                let checked: u64 = checked.unwrap_or_else(|| panic!("{note}"));
                let kinds = result["kinds"].as_array().unwrap();
                let counted: u64 = kinds.iter().map(|kind| kind["count"].as_u64().unwrap()).sum();
                assert!(checked > 10 && counted == checked, "{which:?} {target} {more:?}: {note} {kinds:?}");
                let missing = more.contains(&"--missing");
                assert_eq!(kinds.iter().any(|kind| kind["name"] == "NXDOMAIN"), missing, "{kinds:?}");
                let warnings = result["warnings"].to_string();
                assert!(!warnings.contains("checked completely"), "{which:?} {target} {more:?}: {warnings}");
            }
        }
        drop(napi);
        drop(server);
        lab.down().unwrap();
    }
}

/// Whatever a zone holds is asked for from a file: aliases, wildcards, delegations, and what does not fit.
#[test]
fn knotd_and_nsd_answer_a_file_over_every_engine() {
    udpath_lab::needs_root!();
    let file = tempfile::NamedTempFile::new().unwrap();
    let queries = "; one of each kind\nexample.test SOA\nexample.test. NS\nlong.example.test TXT\n# truncated without EDNS\n\
                   A.wild.example.test TXT\nalias.example.test A\nhost.below.example.test A\nh7.example.test ANY\n\
                   nothing.example.test TYPE65280\nh8.example.test CAA ; no data\n";
    std::fs::write(&file, queries).unwrap();
    let file = file.path().display().to_string();
    for which in DnsProgram::ALL {
        let lab = client_and_server("dns-file", 2);
        let server = start(&lab, which);
        for engine in ENGINES {
            for edns in
                [&[][..], &["--bufsize", "512"], &["--bufsize", "1232", "--dnssec"], &["--bufsize", "4096"]]
            {
                // A reply of 2,100 bytes is fragmented at 1,500, and fragments go to the kernel.
                if engine != "socket" && edns.contains(&"4096") {
                    continue;
                }
                let more = [&["--engine", engine, "--queries", &file, "--verify"][..], edns].concat();
                valid(&lab, server.ipv4(), &more);
            }
        }
        drop(server);
        lab.down().unwrap();
    }
}

/// Names of a zone that the server does not have.
#[test]
fn another_zone_is_refused() {
    udpath_lab::needs_root!();
    for which in DnsProgram::ALL {
        let lab = client_and_server("dns-refused", 2);
        let server = start(&lab, which);
        for engine in ENGINES {
            let more = ["--engine", engine, "--name", "h{}.example.org", "--names", "100", "--verify"];
            let ended = load(&lab, server.ipv4(), &more);
            let result: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.err));
            let counts = &result["counts"];
            assert!(counts["refused"].as_u64().unwrap() > 50, "{engine}: {counts}");
            assert_eq!(counts["refused"], counts["received"], "{engine}: {counts}");
            let refused = serde_json::json!([{ "name": "REFUSED", "count": counts["received"], "refused": counts["received"] }]);
            assert_eq!(result["kinds"], refused, "{engine}");
            assert_eq!((&counts["ok"], &counts["corrupt"]), (&0.into(), &0.into()), "{engine}: {counts}");
        }
        drop(server);
        lab.down().unwrap();
    }
}

/// More requests than identifiers in flight: the newest request of an identifier is meant, and none is mistaken for
/// another.
#[test]
fn identifiers_are_used_again_and_again() {
    udpath_lab::needs_root!();
    let lab = client_and_server("dns-ids", 2);
    let server = start(&lab, DnsProgram::Knotd);
    let mut inside = lab.machine("client").unwrap().command(program());
    let names = ["--name", "h{}.example.test", "--names", "1000"];
    inside
        .args(["load", "dns", &server.ipv4().to_string(), "--inflight", "8", "-d", "6s", "--json"])
        .args(names);
    let ended = Run::of(inside, "load").within(TIMEOUT * 2).start_with(|command| lab.spawn(command)).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = &result["counts"];
    assert!(counts["ok"].as_u64().unwrap() > 65_536, "too few for the identifiers of one flow: {counts}");
    for wrong in ["refused", "corrupt", "duplicate", "wrong_flow"] {
        assert_eq!(counts[wrong], 0, "{counts}");
    }
    drop(server);
    lab.down().unwrap();
}

#[test]
fn wrong_options_are_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "a.example A\nb.example\n").unwrap();
    let file = file.path().display().to_string();
    let bad_file = format!("invalid --queries {file}: line 2: no type behind the name");
    for (options, said) in [
        (&["--queries", &file][..], &*bad_file),
        (&["--queries", "/nonexistent/q"], "invalid --queries /nonexistent/q: No such file"),
        (&["--names", "7"], "invalid --names 7: --name has no {} for the number"),
        (&["--types", "A,AXFR"], "invalid --types A,AXFR: expected types such as"),
        (&["--bufsize", "100"], "invalid --bufsize 100: expected 512 to 65535 bytes"),
        (&["--size", "100"], "invalid --size 100: the requests of dns have their own lengths: remove it"),
        (&["--inflight", "65537"], "dns has 65536 identifiers"),
    ] {
        let arguments = [&["load", "dns", "127.0.0.1:9"][..], options].concat();
        let ended = Run::new(&arguments).finish();
        assert_eq!(ended.code(), Some(2), "{}", ended.err);
        udpath_rig::one_sentence(&arguments.join(" "), &ended.err);
        assert!(ended.err.contains(said), "{}", ended.err);
    }
    let ended = Run::new(&["load", "echo", "127.0.0.1:9", "--names", "3"]).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    assert!(ended.err.contains("--names is an option of dns, not of echo: remove it"), "{}", ended.err);
}
