//! Every supported kernel: each verb, each Io with datagrams from outside the machine, and each load engine.
//!
//! ```text
//!  machine with kernel K                     this test
//!  every verb ─────────────────────────────▸ exit code, output
//!  serve --io IO: step IO-up ──────────────▸ load over the tap of each card
//!       (shared: also profiled)       ◂───── IO-sent
//!  load --engine E ────────────────────────▸ serve echo and ntp on this end
//! ```
//! `make test` boots each kernel once, with few CPUs; `make soak` also with 48 CPUs in 6 nodes, and climbs the ladder
//! there. docs/kernels.md has the results: a cell that says "tested" is a line here.

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

fn verbs(recorded: &Recorded, (cpus, _, queues): Shape) {
    for step in ["version", "show", "completions", "man", "lab-up", "lab-down", "predict", "plan", "report"] {
        let ended = &recorded.steps[step];
        assert!(matches!(ended.code, 0 | 1), "{step}: {}{}", ended.out, ended.err);
    }
    assert_eq!(recorded.fine("lab-exec"), "0\n");
    for (link, card) in ["eth0", "eth1", "eth2"].into_iter().zip(CARDS) {
        let shown = looked(recorded, &format!("show-{link}"));
        assert_eq!(shown["interfaces"][0]["driver"], card, "{shown}");
    }
    for step in ["snapshot", "from-support", "show-json"] {
        let shown = looked(recorded, step);
        assert!(shown["interfaces"].as_array().unwrap().len() >= 3, "{step}: {shown}");
    }
    let top = json(recorded, "top");
    assert_eq!(top["cpus"].as_array().unwrap().len(), cpus as usize, "{top}");
    let metrics = recorded.fine("metrics");
    let series = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("udpath_softnet_processed_total{cpu="), cpus as usize, "{metrics}");
    assert_eq!(series("udpath_queue_interrupts_total{device=\"eth0\","), queues as usize, "{metrics}");
    for step in ["apply", "confirm", "undo", "status-after", "selected"] {
        recorded.fine(step);
    }
    for (rule, change) in [("field", "by-flow -> field:0+4"), ("least-loaded", "field:0+4 -> least-loaded")] {
        let said = recorded.fine(&format!("select-{rule}"));
        assert_eq!(said.matches(change).count(), CARDS.len(), "a group for each address: {said}");
    }
    let [before, applied, after] =
        ["looked-before", "looked-applied", "looked-after"].map(|step| recorded.fine(step));
    assert_eq!(before, after, "undone");
    let said: Vec<&str> = applied.lines().collect();
    assert!(said[0].ends_with('2'), "{applied}");
    assert_eq!((said[1], said.last().copied()), ("4194304", Some("0")), "{applied}");
    assert_ne!(before, applied);
}

/// A server gets what the policy says at its bind, and nothing is left of it afterwards.
fn policy(recorded: &Recorded) {
    let before = recorded.fine("policy-before");
    assert!(before.starts_with("rb") && !before.contains("rb300000"), "{before}");
    let set = recorded.fine("policy-set");
    assert!(set.contains("none -> 300000") && set.contains("none -> 6"), "{set}");
    let bound: Vec<&str> = recorded.fine("policy-bound").lines().collect();
    let (buffer, list) = bound.split_first().unwrap();
    assert_eq!((*buffer, list.len()), ("rb300000", 2), "{bound:?}");
    assert!(list.iter().all(|line| line.ends_with("  in effect")), "{list:?}");
    assert!(!recorded.fine("policy-show").contains("also at"), "there is no other program");
    recorded.fine("policy-remove");
    assert_eq!(recorded.fine("policy-after"), before);
    assert_eq!(recorded.fine("policy-pins"), "");
}

/// Both instances of a server answer on its port, and nothing is left of them.
fn multiplied(recorded: &Recorded) {
    let up = recorded.fine("multiply-up");
    assert!(up.contains("ready: 2 instances at 127.0.0.1:1123"), "{up}");
    answered("multiply", &json(recorded, "multiply-load"));
    let status = json(recorded, "multiply-status");
    let instances = status["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 2, "{status}");
    for instance in instances {
        assert_eq!((&instance["state"], &instance["restarts"]), (&"serving".into(), &0.into()), "{status}");
        assert!(instance["datagrams"].as_u64().unwrap() > 0, "{status}");
    }
    for step in ["multiply-stop", "multiply-code"] {
        recorded.fine(step);
    }
    assert_eq!(recorded.fine("multiply-left"), "");
}

/// Requests were answered, and no answer was wrong. A machine that waits for its host may lose some packets, on any Io.
#[track_caller]
fn answered(name: &str, load: &Value) {
    let counts = &load["counts"];
    let [sent, ok, lost, corrupt, wrong] =
        ["sent", "ok", "lost", "corrupt", "wrong_flow"].map(|key| counts[key].as_u64().unwrap());
    let right = ok > 0 && ok + lost <= sent && lost <= sent / 2 && corrupt + wrong == 0;
    assert!(right, "{name}: {ok} of {sent} are right: {counts}");
}

fn services(passed: &Passed, kernel: &DebianKernel) {
    let Passed { recorded, loads, .. } = passed;
    for (name, load) in loads {
        answered(name, load);
    }
    let served = |name: &str| {
        let said = json(recorded, &format!("{name}-served"));
        let sent = loads.iter().filter(|(load, _)| load.split(' ').next() == Some(name));
        let ok: u64 = sent.map(|(_, load)| load["counts"]["ok"].as_u64().unwrap()).sum();
        let total = &said["total"];
        assert!(ok > 0 && total["answered"].as_u64().unwrap() >= ok, "{name}: {ok} of {total}");
        said
    };
    let refused = |name: &str, part: &str| {
        let up = recorded.fine(&format!("{name}-up"));
        udpath_rig::one_sentence(name, up);
        assert!(up.contains(part), "{name}: {up}");
        assert_eq!(recorded.steps[&format!("{name}-served")].code, 3, "{name}: {up}");
    };
    for io in IOS {
        assert_eq!(served(io)["io"], io);
        assert_eq!(loads.iter().filter(|(name, _)| name.starts_with(&format!("{io} "))).count(), CARDS.len());
    }
    let native: &[&str] = if kernel.vmxnet3_xdp { &["xdp", "xdp-vmxnet3"] } else { &["xdp"] };
    for name in native {
        let said = served(name);
        let xdp = &said["xdp"];
        assert!(xdp["taken"].as_u64().unwrap() > 0, "{name}: {xdp}");
        for port in xdp["ports"].as_array().unwrap() {
            assert_eq!(port["live_frames"], "yes", "{name}: {port}");
        }
    }
    for name in ["xdp-vmxnet3", "xdp-e1000e"].into_iter().filter(|name| !native.contains(name)) {
        refused(name, "has no native XDP");
    }
    served("auto");
    // What a verifier writes is for developers.
    for (name, step) in &recorded.steps {
        let said = format!("{}{}", step.out, step.err);
        assert!(!said.contains("processed ") || !said.contains(" insns"), "{name}: {said}");
    }
}

fn engines(recorded: &Recorded) {
    let others = ["ntp", "mix"].map(|protocol| (format!("load-{protocol}"), "kernel"));
    for (step, engine) in ENGINES.map(|engine| (format!("load-{engine}"), engine)).into_iter().chain(others) {
        let load = udpath_rig::json(&recorded.steps[&step].out);
        assert_eq!(load["engine"], engine, "{load}");
        answered(&step, &load);
    }
    let said = &recorded.steps["load-snmp"].err;
    assert!(said.contains("10.0.0.1:161 answered none of"), "{said}");
}

/// The rules know this kernel's functions, and its tracepoints are read.
fn profiled(recorded: &Recorded, kernel: &DebianKernel) {
    let profile = json(recorded, "profile");
    let classes = profile["classes"].as_array().unwrap();
    let share = |name: &str| {
        classes.iter().find(|class| class["of"] == name).map_or(0.0, |class| class["share"].as_f64().unwrap())
    };
    assert!(share("unclassified") < 0.05, "{classes:?}");
    let seen: BTreeSet<&str> = classes.iter().filter_map(|class| class["of"].as_str()).collect();
    // Where a datagram comes in, is read, and leaves; a few hundred samples of thousands of datagrams have some of
    // each.
    for part in [
        ["udp-receive", "ip", "napi-gro"],
        ["socket-read", "copy", "skb"],
        ["udp-send", "transmit", "nic-driver"],
    ] {
        assert!(part.iter().any(|class| seen.contains(class)), "none of {part:?} is in {seen:?}");
    }
    assert!(profile["datagrams"]["received"].as_u64().unwrap() > 0, "{}", profile["datagrams"]);
    for trace in ["locks", "drops", "softirqs"] {
        assert!(profile["traces"][trace].is_object(), "{trace}: {}", profile["traces"]);
    }
    let delays = &profile["traces"]["delays"];
    assert_eq!(delays.is_object(), kernel.data_ready, "{delays}");
    if !kernel.data_ready {
        let absent = profile["traces"]["absent"][0]["reason"].as_str().unwrap();
        assert!(
            absent.ends_with("this kernel has no such tracepoint (Linux 6.3 and later have it)"),
            "{absent}"
        );
    }
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
fn everything_on_debians_newest_kernel() {
    udpath_lab::needs_root!();
    every_verb_io_and_engine(&DEBIANS_NEWEST);
}
