//! Debian's servers in their packages' configuration, each under a load that it cannot take: what comes first is what
//! its own threads and sockets say.

use udpath_lab::LinkSpec;
use udpath_rig::{Bed, DaemonProgram, TIMEOUT, awaited};

use super::{HARDLY_HELD_UP, found_first, severe};

/// Names of the DNS servers' zones. NSD answers one client network 200 times a second with one name: fewer, and it
/// takes more requests than it answers.
const NAMES: usize = 10_000;

/// What comes first of what is lost or limited; `None` where threads for all CPUs fill them, and nothing else is to be
/// found. And what the evidence of it says, or else the headline.
struct Expected {
    program: DaemonProgram,
    first: Option<&'static str>,
    says: &'static str,
}

fn first_of(expected: &Expected) {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    found_first(&format!("{} as Debian installs it", expected.program.name()), || wrong(expected));
}

/// What is wrong with the diagnosis of a server under its load; nothing if the first finding is the expected one.
fn wrong(expected: &Expected) -> Option<String> {
    let Expected { program, first, says } = expected;
    let bed = Bed::new("debian", &LinkSpec::with_queues(2)).polled();
    let folder = tempfile::tempdir_in("/run").unwrap();
    let command = program.prepare(folder.path(), NAMES).unwrap();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    // One that fills all CPUs before everything else would leave none to the diagnosis.
    let server = match first {
        Some(_) => bed.start("server", "nice", &[&HARDLY_HELD_UP[..], &command].concat()),
        None => bed.start("server", command[0], &command[1..]),
    };
    let port = program.port().to_string();
    let bound = format!(":{:04X} 00000000:0000 07", program.port());
    awaited(&format!("{} on its port", program.name()), TIMEOUT, || {
        let sockets = bed.command("server", "cat").arg("/proc/net/udp").output().unwrap();
        String::from_utf8_lossy(&sockets.stdout).contains(&bound).then_some(())
    });
    let target = bed.target(program.port());
    if matches!(
        program,
        DaemonProgram::Nsd | DaemonProgram::Knotd | DaemonProgram::Unbound | DaemonProgram::Named
    ) {
        let (address, _) = target.rsplit_once(':').unwrap();
        let dig = [&format!("@{address}"), "-p", &port, "+short", "+time=1", "+tries=1", "h0.example.test"];
        // It may have its port before its zone.
        awaited(&format!("an answer of {}", program.name()), TIMEOUT, || {
            let said = bed.command("client", "dig").args(dig).output().unwrap().stdout;
            (said == b"198.18.0.1\n").then_some(())
        });
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (names, secret, users) = (NAMES.to_string(), path("secret"), path("users"));
    let load = match program {
        DaemonProgram::Freeradius => {
            vec!["radius", &target, "--secret-file", &secret, "--users", &users, "--engine", "xdp"]
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
    let said = if first.is_some() { &json["findings"][0]["evidence"] } else { &json["headline"] };
    // Each of Knot's replies takes an identifier of IP: 2 % of the CPU time, and the finding's bound is that.
    let at_its_bound = |id: &str| *program == DaemonProgram::Knotd && id == "ip-identification";
    let found = severe(&json).into_iter().find(|id| !at_its_bound(id));
    let right = found == *first && said.as_str().is_some_and(|said| said.contains(says));
    (!right).then(|| format!("{}: not {first:?} ({says}) first, but {json:#}", program.name()))
}

/// A test for each.
macro_rules! servers {
    ($($test:ident: $program:ident, $first:expr, $says:literal;)*) => {
        $(#[test]
        fn $test() {
            first_of(&Expected { program: DaemonProgram::$program, first: $first, says: $says });
        })*
    };
}

servers! {
    nsd_reads_with_one_process: Nsd, Some("reader-limit"), "thread of nsd: server 1 (pid";
    knotd_has_a_thread_for_each_cpu: Knotd, None, "is the reader thread";
    unbound_reads_with_one_thread: Unbound, Some("reader-limit"), "thread of unbound (pid";
    named_has_a_thread_for_each_cpu: Named, None, "is the reader thread isc-net";
    freeradius_reads_with_one_thread: Freeradius, None, "freeradius";
    chronyd_reads_with_one_thread: Chronyd, Some("reader-limit"), "thread of chronyd (pid";
}
