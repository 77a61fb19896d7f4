//! What this machine's kernel writes while it serves: a short recording, read back. The fixture
//! `crates/profile/tests/rings/real` comes from the files that this test keeps below `target/tmp`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use udpath_lab::LinkSpec;
use udpath_profile::perf::{Event, Mapped, Record};
use udpath_rig::{Bed, TIMEOUT, awaited, program};

use super::PORT;
use crate::rings::recorded::{RATE, needed, places, profile, summary};

/// Length of the recording: some 300 samples of two busy CPUs, 100 KB.
const LENGTH: Duration = Duration::from_millis(1500);
/// Datagrams after which the load has reached its rate.
const ARRIVED: u64 = 10_000;
/// The program that is recorded: records name its path, which should be the same everywhere.
const FOLDER: &str = "/tmp/udpath-recorded";

/// A server with one socket for four workers, and its load.
#[test]
fn what_this_kernel_writes_is_understood() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    fs::create_dir_all(FOLDER).unwrap();
    let copy = Path::new(FOLDER).join("udpath");
    udpath_rig::copy_program(&program(), &copy);
    let bed = Bed::new("recording", &LinkSpec::with_queues(2));
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let mut event = Event::cpus(&cpus.trim().parse().unwrap(), RATE).unwrap();
    event.start().unwrap();
    let bind = format!("0.0.0.0:{PORT}");
    let serve = ["serve", "echo", "--io", "shared", "--workers", "4", "--no-pin", "--bind", &bind];
    let mut server = bed.start("server", &copy, &serve);
    server.says("ready io=");
    let target = bed.target(PORT);
    let load = bed.start(
        "client",
        &copy,
        &["load", "echo", &target, "--flows", "16", "--inflight", "4", "-d", "90s"],
    );
    let datagrams = || datagrams(server.pid());
    awaited("the load", TIMEOUT, || (datagrams()[0] > ARRIVED).then_some(()));
    let (begin, before) = (now(), datagrams());
    std::thread::sleep(LENGTH);
    let (end, after) = (now(), datagrams());
    event.stop().unwrap();
    let ours = BTreeSet::from([0, server.pid(), load.pid()]);
    drop((load, server));
    bed.down();
    fs::remove_dir_all(FOLDER).unwrap();
    let mut bytes = Vec::new();
    event.drain_bytes(|_, ring| bytes.extend_from_slice(ring));
    let kept = kept(&bytes, &ours, begin..end);
    let functions = fs::read_to_string("/proc/kallsyms").unwrap();
    let few = needed(&kept, &functions);
    let found = profile(&kept, &few);
    let [received, sent] = [0, 1].map(|at| after[at] - before[at]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rings");
    fs::create_dir_all(&folder).unwrap();
    for (name, content) in [
        ("ring", kept.as_slice()),
        ("kallsyms", few.as_bytes()),
        ("datagrams", format!("{received} {sent}\n").as_bytes()),
        ("expected", summary(&found).as_bytes()),
    ] {
        fs::write(folder.join(name), content).unwrap();
    }
    assert_eq!((found.samples.malformed, found.samples.nameless), (0, 0));
    assert!(found.samples.taken > 30, "{} samples", found.samples.taken);
    let own = found.processes.iter().find(|process| ours.contains(&process.pid) && process.name == "udpath");
    assert!(own.is_some_and(|own| own.ns > 0), "{:?}", found.processes);
    for function in ["udp_sendmsg", "udp_recvmsg"] {
        let called = found.stacks.iter().any(|stack| stack.frames.iter().any(|frame| frame == function));
        assert!(called, "no {function} in {:?}", found.stacks);
    }
    // The reduced function list gives the same result as the full one.
    assert_eq!(profile(&kept, &functions), found);
}

/// The records of these processes, and of these times if they are samples; every record is whole and unchanged.
fn kept(bytes: &[u8], pids: &BTreeSet<u32>, times: std::ops::Range<u64>) -> Vec<u8> {
    let wanted = |record: &[u8]| match Record::parse(record).unwrap() {
        Record::Sample(sample) => pids.contains(&sample.pid) && times.contains(&sample.time),
        Record::Comm { pid, .. }
        | Record::Mapped(Mapped { pid, .. })
        | Record::Fork { pid, .. }
        | Record::Exit { pid, .. } => pids.contains(&pid),
        _ => true,
    };
    let records = places(bytes).into_iter().map(|place| &bytes[place]);
    records.filter(|record| wanted(record)).flatten().copied().collect()
}

/// Datagrams received and sent in the namespace of a process.
fn datagrams(pid: u32) -> [u64; 2] {
    let text = fs::read_to_string(format!("/proc/{pid}/net/snmp")).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, counts) = (lines.next().unwrap(), lines.next().unwrap());
    ["InDatagrams", "OutDatagrams"].map(|wanted| {
        let at = names.split(' ').position(|name| name == wanted).unwrap();
        counts.split(' ').nth(at).unwrap().parse().unwrap()
    })
}

/// The samples' clock, nanoseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
