//! Debian's servers in their packages' configuration, each under a load that it cannot take: what comes first is what its own threads and
//! sockets say.

use udpath_lab::LinkSpec;
use udpath_rig::{Bed, DaemonProgram, TIMEOUT, awaited};

use super::{HARDLY_HELD_UP, found_first, severe};

/// Names of the DNS servers' zones.
const NAMES: usize = 1000;

/// What comes first, and in the evidence of it.
struct Expected {
    program: DaemonProgram,
    first: &'static str,
    evidence: &'static str,
}

fn first_of(expected: &Expected) {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    found_first(&format!("{} as Debian installs it", expected.program.name()), || wrong(expected));
}

/// What is wrong with the diagnosis of a server under its load; nothing if the first finding is the expected one.
fn wrong(expected: &Expected) -> Option<String> {
    let Expected { program, first, evidence } = expected;
    let bed = Bed::new("debian", &LinkSpec::with_queues(2)).polled();
    let folder = tempfile::tempdir_in("/run").unwrap();
    let command = program.prepare(folder.path(), NAMES).unwrap();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let server = bed.start("server", "nice", &[&HARDLY_HELD_UP[..], &command].concat());
    let port = program.port().to_string();
    let bound = format!(":{:04X} 00000000:0000 07", program.port());
    awaited(&format!("{} on its port", program.name()), TIMEOUT, || {
        let sockets = bed.command("server", "cat").arg("/proc/net/udp").output().unwrap();
        String::from_utf8_lossy(&sockets.stdout).contains(&bound).then_some(())
    });
    let target = bed.target(program.port());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (names, secret, users) = (NAMES.to_string(), path("secret"), path("users"));
    let load = match program {
        DaemonProgram::Freeradius => {
            vec!["radius", &target, "--secret-file", &secret, "--users", &users, "--engine", "socket"]
        }
        DaemonProgram::Chronyd => vec!["ntp", &target, "--engine", "kernel"],
        _ => vec!["dns", &target, "--name", "h{}.example.test", "--names", &names, "--engine", "kernel"],
    };
    let load = bed.load(&[&load[..], &["--flows", "64", "--inflight", "2", "-d", "20s"]].concat());
    std::thread::sleep(std::time::Duration::from_millis(500));
    let ended = bed.diagnose(&[&port, "-d", "2s", "--json"]);
    for one in [load, server] {
        one.signal(rustix::process::Signal::TERM);
        drop(one);
    }
    bed.down();
    let json = udpath_rig::json(&ended.out);
    let found = &json["findings"][0];
    let right = severe(&json).first() == Some(first)
        && found["evidence"].as_str().is_some_and(|said| said.contains(evidence));
    (!right).then(|| format!("{}: not {first} ({evidence}) first, but {json:#}", program.name()))
}

/// A test for each.
macro_rules! servers {
    ($($test:ident: $program:ident, $first:literal, $evidence:literal;)*) => {
        $(#[test]
        fn $test() {
            first_of(&Expected { program: DaemonProgram::$program, first: $first, evidence: $evidence });
        })*
    };
}

servers! {
    nsd_reads_with_one_process: Nsd, "reader-limit", "nsd";
    knotd_has_a_thread_for_each_cpu: Knotd, "reader-limit", "knotd";
    unbound_reads_with_one_thread: Unbound, "reader-limit", "unbound";
    named_has_a_thread_for_each_cpu: Named, "reader-limit", "named";
    freeradius_reads_with_one_thread: Freeradius, "reader-limit", "freeradius";
    chronyd_reads_with_one_thread: Chronyd, "reader-limit", "chronyd";
}
