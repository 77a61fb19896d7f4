//! Every supported kernel: each verb, each Io with datagrams from outside the machine, and each load engine.
//!
//! ```text
//!  machine with kernel K                     this test
//!  every verb ─────────────────────────────▸ exit code, output
//!  serve --io IO: step IO-up ──────────────▸ load over the tap of each card
//!       (shared: also profiled)       ◂───── IO-sent
//!  load --engine E ────────────────────────▸ serve echo and ntp on this end
//! ```
//! `make test` boots the oldest kernel, with few CPUs; the newest runs the machine of 20 CPUs there. `make soak` boots
//! both, also with 48 CPUs in 6 nodes, and climbs the ladder there. docs/kernels.md has the results: a cell that says
//! "tested" is a line here.

mod checks;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use udpath_lab::Machine;
use udpath_rig::campaign::{record, rounds};
use udpath_rig::{Run, Running, Vm, VmSpec, awaited, program};

use crate::{Recorded, StopOnPanic, steps};

use checks::{engines, multiplied, policy, profiled, services, verbs};

/// Time limit of a machine. Four CPUs took three to six minutes on a host of two CPUs that ran many builds; 48 take
/// several times as long.
const WITHIN: Duration = Duration::from_secs(3000);
/// Time limit of a load on this side, for a machine that emulates 48 CPUs on one.
const LOAD: Duration = Duration::from_secs(300);
/// How often a load is sent at most. A machine that gets no CPU for longer than the timeout of a load (its host runs
/// several beside each other) loses all that is in flight: 8 of 14 once in some 150 loads. One attempt would fail for
/// that; with many, a server that answers now and then would pass.
const ATTEMPTS: usize = 3;
/// The service's port.
const PORT: u16 = 7;
/// The Ios without conditions on the card, and the cards: links 0 to 2.
const IOS: [&str; 3] = ["shared", "reuseport", "percpu"];
const CARDS: [&str; 3] = ["virtio_net", "vmxnet3", "e1000e"];
/// A server that reads with one thread, unpacked by scripts/setup.sh.
const CHRONYD: &str = "/var/cache/udpath/chronyd";
/// The host's services: one that echoes, and one for the kernel engine's other program.
const SERVICES: [(&str, u16); 2] = [("echo", PORT), ("ntp", 123)];
/// The load engines.
const ENGINES: [&str; 3] = ["socket", "kernel", "xdp"];

/// A kernel of Debian 12.
struct DebianKernel {
    /// The start of `uname -r`.
    release: &'static str,
    /// Where scripts/setup.sh unpacks it.
    cache: &'static str,
    /// Whether its vmxnet3 has native XDP (Linux 6.6).
    vmxnet3_xdp: bool,
    /// Whether it has the tracepoints of `profile --trace delays` (Linux 6.3).
    data_ready: bool,
}

const DEBIANS_OWN: DebianKernel = DebianKernel {
    release: "6.1.",
    cache: "/var/cache/udpath/kernel-6.1",
    vmxnet3_xdp: false,
    data_ready: false,
};
const DEBIANS_NEWEST: DebianKernel =
    DebianKernel { release: "6.12.", cache: "/var/cache/udpath/kernel", vmxnet3_xdp: true, data_ready: true };

/// CPUs, nodes, queues.
type Shape = (u32, u32, u32);

/// A machine's steps and what the host's loads said.
struct Passed {
    recorded: Recorded,
    /// Results of `load --json`, by Io and card.
    loads: Vec<(String, Value)>,
    seconds: f64,
}

fn pass(kernel: &DebianKernel, (cpus, nodes, queues): Shape, whole: bool) -> Passed {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernel-{}{cpus}-cpus", kernel.release));
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    let spec = VmSpec {
        cpus,
        nodes,
        queues,
        share: Some(folder.clone()),
        within: WITHIN,
        kernel: Some(PathBuf::from(kernel.cache)),
        // Buffers of sockets, for ss and udpath.
        modules: &["udp_diag"],
        ..VmSpec::default()
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm/kernels.sh");
    let spec = spec.file(&program()).file(&script).file(Path::new("/usr/bin/ss")).file(Path::new(CHRONYD));
    let begin = Instant::now();
    let extent = if whole { "whole" } else { "cheap" };
    let vm = spec.boot(&["sh".into(), "/files/kernels.sh".into(), extent.into()]).unwrap();
    let host = vm.host().clone();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stop = AtomicBool::new(false);
    let (code, loads) = std::thread::scope(|scope| {
        let done = scope.spawn(|| vm.finish(&mut out, &mut err, &stop));
        let _stopped = StopOnPanic(&stop);
        let ended = |step: &str| {
            let code = folder.join(format!("steps/{step}.code"));
            awaited(&format!("the machine's step {step}"), WITHIN, || {
                (code.exists() || done.is_finished()).then_some(())
            });
        };
        ended("release");
        let _services = SERVICES.map(|(protocol, port)| service(&host, protocol, port));
        let loads = send_to_each(&folder, &host, ended);
        (done.join().unwrap(), loads)
    });
    let said = String::from_utf8_lossy(&err);
    assert_eq!(code.unwrap_or_else(|error| panic!("{error}")), 0, "{said}");
    fs::write(folder.join("loads.json"), serde_json::to_string(&loads).unwrap()).unwrap();
    let recorded = Recorded { steps: steps(&folder.join("steps")), captured: folder };
    Passed { recorded, loads, seconds: begin.elapsed().as_secs_f64() }
}

/// A service on this end, for the machine's load engines.
fn service(host: &Machine, protocol: &str, port: u16) -> Running {
    let bind = format!("10.0.0.1:{port}");
    let mut service = host_run(host, &["serve", protocol, "--bind", &bind, "--io", "shared"], WITHIN).start();
    service.says("ready");
    service
}

fn host_run(host: &Machine, arguments: &[&str], within: Duration) -> Run {
    let mut command = host.command(program());
    command.args(arguments);
    Run::of(command, &arguments.join(" ")).within(within)
}

/// The host's part: loads the machine's services one after the other. `ended` waits for a step of the machine.
fn send_to_each(folder: &Path, host: &Machine, ended: impl Fn(&str)) -> Vec<(String, Value)> {
    let mut loads = Vec::new();
    let ready = |name: &str| {
        ended(&format!("{name}-up"));
        fs::read_to_string(folder.join(format!("steps/{name}-up.out")))
            .is_ok_and(|said| said.contains("ready "))
    };
    let sent = |name: &str| fs::write(folder.join(format!("{name}-sent")), "").unwrap();
    let once = |link: u8, flows: &str, inflight: &str| -> Value {
        let to = format!("{}:{PORT}", Vm::address(link));
        let loop_of = ["--flows", flows, "--inflight", inflight, "-d", "1s", "--timeout", "10s", "--json"];
        let ended = host_run(host, &[&["load", "echo", &to][..], &loop_of].concat(), LOAD).finish();
        serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}{}", ended.out, ended.err))
    };
    let load = |link: u8, flows: &str, inflight: &str| -> Value {
        let mut last = once(link, flows, inflight);
        for _ in 1..ATTEMPTS {
            if last["counts"]["lost"].as_u64() <= last["counts"]["ok"].as_u64() {
                break;
            }
            last = once(link, flows, inflight);
        }
        last
    };
    for io in IOS {
        if !ready(io) {
            sent(io);
            continue;
        }
        for (link, card) in (0..).zip(CARDS) {
            loads.push((format!("{io} {card}"), load(link, "4", "2")));
        }
        // Until the server has ended, for the profile of it. A closed loop would leave the emulated CPUs no time to
        // sample.
        let to = format!("{}:{PORT}", Vm::address(0));
        let until = ["load", "echo", &to, "--flows", "4", "--rate", "1000", "-d", "1000s"];
        let _running = (io == "shared").then(|| host_run(host, &until, WITHIN).start());
        sent(io);
        ended(&format!("{io}-served"));
    }
    for (name, link) in [("xdp", 0), ("xdp-vmxnet3", 1), ("xdp-e1000e", 2), ("auto", 0)] {
        if ready(name) {
            loads.push((name.to_owned(), load(link, "4", "2")));
            // Many at once, for live frames.
            loads.push((format!("{name} in bulk"), load(link, "8", "24")));
        }
        sent(name);
        ended(&format!("{name}-served"));
    }
    loads
}

fn json(recorded: &Recorded, step: &str) -> Value {
    serde_json::from_str(recorded.fine(step)).unwrap_or_else(|error| panic!("{step}: {error}"))
}

/// Exit code 0 or 1: `show` and `status` exit with 1 if they have findings.
#[track_caller]
fn looked(recorded: &Recorded, step: &str) -> Value {
    let ended = &recorded.steps[step];
    assert!(matches!(ended.code, 0 | 1), "{step}: {}{}", ended.out, ended.err);
    udpath_rig::json(&ended.out)
}

fn check(kernel: &DebianKernel, shape: Shape, whole: bool) {
    let passed = pass(kernel, shape, whole);
    let recorded = &passed.recorded;
    assert!(recorded.fine("release").starts_with(kernel.release), "{}", recorded.fine("release"));
    let (cpus, nodes, queues) = shape;
    assert_eq!(recorded.fine("shape"), format!("{cpus}\n{nodes}\n{queues}\n"));
    verbs(recorded, shape);
    policy(recorded);
    multiplied(recorded);
    services(&passed, kernel);
    engines(recorded);
    profiled(recorded, kernel);
    if whole {
        let climbed = json(recorded, "boost");
        assert!(climbed["rungs"].as_array().is_some_and(|rungs| rungs.len() > 3), "{climbed}");
    }
    let name = format!("Linux {}x with {cpus} CPUs in {nodes} nodes, every verb, seconds", kernel.release);
    record(&name, &format!("{:.0}", passed.seconds));
}

/// The machines of `make soak` run one after the other: their seconds are recorded.
static WHOLE: Mutex<()> = Mutex::new(());

fn every_verb_io_and_engine(kernel: &DebianKernel) {
    if rounds(0, 1) == 0 {
        return check(kernel, (4, 2, 4), false);
    }
    let _alone = WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
    check(kernel, (4, 2, 4), false);
    check(kernel, (48, 6, 16), true);
}

#[test]
fn everything_on_debians_own_kernel() {
    udpath_lab::needs_root!();
    every_verb_io_and_engine(&DEBIANS_OWN);
}

#[test]
#[ignore = "in make soak: two minutes alone, seven beside other machines; the largest one has this kernel in make test"]
fn everything_on_debians_newest_kernel() {
    udpath_lab::needs_root!();
    every_verb_io_and_engine(&DEBIANS_NEWEST);
}
