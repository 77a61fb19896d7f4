//! `udpath profile` as its users run it: a server under load in a lab, its classes, its files, its page in a browser;
//! its output without privileges; and that nothing is left when it is killed. Needs root.

mod flame_graph;
mod recording;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Ended, Host, Run, Running, TIMEOUT, awaited, one_sentence, program};

const PORT: u16 = 7000;

/// A server with one shared socket under load, until this is dropped.
struct Served {
    load: Running,
    server: Running,
    bed: Bed,
}

impl Served {
    fn start(name: &str) -> Self {
        let bed = Bed::new(name, &LinkSpec::with_queues(2));
        let bind = format!("0.0.0.0:{PORT}");
        let server = bed.serve(&["echo", "--io", "shared", "--workers", "2", "--bind", &bind]);
        let load = bed.load(&["echo", &bed.target(PORT), "--flows", "16", "--inflight", "4", "-d", "90s"]);
        Self { load, server, bed }
    }

    fn end(self) {
        self.load.signal(Signal::TERM);
        self.server.signal(Signal::TERM);
        assert!(self.load.finish().code().is_some());
        assert_eq!(self.server.finish().code(), Some(0));
        self.bed.down();
    }
}

/// One server under load, profiled in three ways; shared by all tests in this module.
struct Profiled {
    json: Value,
    /// Its process, profiled from another network namespace.
    by_pid: Value,
    /// The same, CPU 1 only.
    one_cpu: Value,
    folded: String,
    page: PathBuf,
    pid: u64,
}

fn profiled() -> &'static Profiled {
    static ONE: OnceLock<Profiled> = OnceLock::new();
    ONE.get_or_init(|| {
        let served = Served::start("profile");
        // In target, recreated by the next run: the browser reads it last.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile");
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let (folded, page) = (folder.join("stacks.txt"), folder.join("page.html"));
        let files = [&folded, &page].map(|path| path.display().to_string());
        let port = PORT.to_string();
        let json = served
            .bed
            .profile_json(&["--port", &port, "-d", "2s", "--folded", &files[0], "--report", &files[1]]);
        let pid = served.server.pid().to_string();
        let by_pid = parsed(&profile(&["--pid", &pid, "-d", "500ms", "--json"]));
        let one_cpu = parsed(&profile(&["--pid", &pid, "--cpu", "1", "-d", "500ms", "--json"]));
        let pid = u64::from(served.server.pid());
        served.end();
        Profiled { json, by_pid, one_cpu, folded: fs::read_to_string(folded).unwrap(), page, pid }
    })
}

fn profile(arguments: &[&str]) -> Ended {
    Run::new(&[&["profile"], arguments].concat()).within(TIMEOUT * 2).finish()
}

fn parsed(ended: &Ended) -> Value {
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

fn share_of(json: &Value, class: &str) -> f64 {
    let classes = json["classes"].as_array().unwrap();
    classes.iter().find(|share| share["of"] == class).map_or(0.0, |share| share["share"].as_f64().unwrap())
}

#[test]
fn a_server_under_load_is_classified_correctly() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let Profiled { json, pid, .. } = profiled();
    assert_eq!(json["schema"], "udpath.profile/2");
    for class in ["udp-receive", "udp-send", "socket-read", "socket-enqueue"] {
        assert!(share_of(json, class) > 0.0, "{class} is missing in {}", json["classes"]);
    }
    let all: f64 =
        json["classes"].as_array().unwrap().iter().map(|share| share["share"].as_f64().unwrap()).sum();
    assert!((all - 1.0).abs() < 1e-6, "all classes are {all} of the time");
    // For the server and softirqs; other programs on this machine may run code that no rule classifies.
    let stacks = json["stacks"].as_array().unwrap();
    let ours = stacks.iter().filter(|stack| stack["context"] == "softirq" || stack["process"] == "udpath");
    let (mut unknown, mut known) = (0, 0);
    for stack in ours {
        let ns = stack["ns"].as_u64().unwrap();
        *(if stack["class"] == "unclassified" { &mut unknown } else { &mut known }) += ns;
    }
    assert!(known > 0 && (unknown as f64) < 0.02 * known as f64, "{unknown} of {known} ns are unclassified");
    // The server comes first, and its reads are visible.
    let first = &json["processes"][0];
    assert_eq!((&first["pid"], &json["facts"]["focus"]["port"]), (&(*pid).into(), &7000.into()));
    let readers =
        first["threads"].as_array().unwrap().iter().filter(|thread| thread["reads"] == true).count();
    assert!((1..=2).contains(&readers), "{readers} threads read");
    // Counted in the server's network namespace, not in this program's.
    assert!(json["datagrams"]["received"].as_u64().unwrap() > 1000, "{}", json["datagrams"]);
    let sentence = json["sentence"].as_str().unwrap();
    assert!(sentence.contains(" % of ") && sentence.ends_with('.'), "{sentence}");
}

/// The load beside the server is another program: its system calls are not part of the cost per datagram.
#[test]
fn the_load_is_charged_to_no_datagram() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let Profiled { json, pid, .. } = profiled();
    let others: u64 =
        json["classes"].as_array().unwrap().iter().map(|share| share["others"].as_u64().unwrap_or(0)).sum();
    let (mut own, mut theirs, mut shared) = (0, 0, 0);
    for stack in json["stacks"].as_array().unwrap() {
        let ns = stack["ns"].as_u64().unwrap();
        match (stack["context"].as_str().unwrap(), stack["pid"].as_u64()) {
            ("softirq" | "hard-irq", None) => shared += ns,
            (_, Some(whose)) if whose == *pid => own += ns,
            (_, Some(_)) => theirs += ns,
            (context, None) => panic!("a stack in {context} of nobody"),
        }
    }
    assert!(own > 0 && shared > 0 && theirs > 0, "{own} {shared} {theirs}");
    assert_eq!(others, theirs);
}

#[test]
fn a_process_is_looked_at_where_it_is() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let Profiled { by_pid, pid, .. } = profiled();
    assert_eq!(by_pid["facts"]["focus"], serde_json::json!({ "pids": [pid] }));
    // The sockets and datagrams are those of the server's namespace; this program ran in another.
    let local = format!("0.0.0.0:{PORT}");
    let sockets = by_pid["facts"]["sockets"].as_array().unwrap();
    let its: Vec<_> = sockets.iter().filter(|socket| socket["local"] == local.as_str()).collect();
    assert!(its.len() == 1 && its[0]["pids"] == serde_json::json!([pid]), "{sockets:?}");
    assert!(by_pid["datagrams"]["received"].as_u64().unwrap() > 100, "{}", by_pid["datagrams"]);
    // First, even though its load is busier; softirqs are included, whichever task they interrupt.
    assert_eq!(by_pid["processes"][0]["pid"], *pid);
    assert!(by_pid["cpus"].as_array().unwrap().len() > 1);
    assert!(by_pid["contexts"]["softirq"].as_u64().unwrap() > 0, "{}", by_pid["contexts"]);
}

#[test]
fn one_cpu_is_sampled_and_no_other() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let Profiled { one_cpu, by_pid, .. } = profiled();
    let cpus = |of: &Value| -> Vec<u64> {
        of["cpus"].as_array().unwrap().iter().map(|line| line["cpu"].as_u64().unwrap()).collect()
    };
    assert_eq!(cpus(one_cpu), [1]);
    // Samples cannot exceed the CPU's time.
    let sampled = |of: &Value| {
        let contexts = of["contexts"].as_object().unwrap();
        contexts.values().map(|ns| ns.as_u64().unwrap()).sum::<u64>() as f64
    };
    let seconds = one_cpu["seconds"].as_f64().unwrap();
    assert!(sampled(one_cpu) > 0.0 && sampled(one_cpu) < 1.1e9 * seconds, "{}", one_cpu["contexts"]);
    // Datagrams are counted on all CPUs, so there are no figures per datagram.
    let folder = tempfile::tempdir().unwrap();
    let text = |of: &Value| {
        let path = folder.path().join("one.json");
        fs::write(&path, of.to_string()).unwrap();
        Run::new(&["report", &path.display().to_string()]).finish().out
    };
    let said = text(one_cpu);
    let note = format!("1 of {} CPUs were sampled", by_pid["facts"]["online"]);
    assert!(said.contains(&note), "{said}");
    assert!(!said.contains("/datagram") && text(by_pid).contains("/datagram"), "{said}");
}

#[test]
fn folded_stacks_are_as_other_tools_read_them() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let Profiled { folded, json, .. } = profiled();
    let mut sum = 0;
    for line in folded.lines() {
        let (frames, weight) = line.rsplit_once(' ').expect("frames and a weight");
        sum += weight.parse::<u64>().unwrap_or_else(|_| panic!("no weight in {line}"));
        assert!(frames.split(';').all(|frame| !frame.is_empty()), "{line}");
    }
    let busy: u64 =
        json["stacks"].as_array().unwrap().iter().map(|stack| stack["ns"].as_u64().unwrap()).sum();
    // In microseconds: every line is rounded down.
    assert!(sum * 1000 <= busy && sum as f64 * 1000.0 > 0.99 * busy as f64, "{sum} µs of {busy} ns");
    assert!(
        folded.lines().any(|line| line.starts_with("softirq;") && line.contains(";net_rx_action;")),
        "{folded}"
    );
    assert!(folded.lines().any(|line| line.starts_with("syscall;udpath;")));
}

#[test]
fn two_results_are_compared() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let Profiled { json, .. } = profiled();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (a, b, page) = (path("a.json"), path("b.json"), path("page.html"));
    fs::write(&a, json.to_string()).unwrap();
    let mut without = json.clone();
    let stacks = without["stacks"].as_array_mut().unwrap();
    stacks.retain(|stack| !stack["frames"].as_array().unwrap().iter().any(|frame| frame == "udp_sendmsg"));
    without["classes"].as_array_mut().unwrap().retain(|share| share["of"] != "udp-send");
    fs::write(&b, without.to_string()).unwrap();
    let ended = profile(&["--diff", &a, &b, "--report", &page]);
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let line = ended.out.lines().find(|line| line.starts_with("UDP send ")).expect("the class that is gone");
    assert!(line.contains("0 ns") && line.trim_end().ends_with("0×"), "{line}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Only in A") && html.contains("<th scope=\"row\">udp_sendmsg</th>"));
    // Compared with itself: no change.
    let same = profile(&["--diff", &a, &a, "--json"]);
    let same: Value = serde_json::from_str(&same.out).unwrap();
    assert!(same["classes"].as_array().unwrap().iter().all(|pair| pair["a"] == pair["b"]), "{same}");
    // `report` shows it as well.
    let text = Run::new(&["report", &a]).finish();
    assert_eq!(text.code(), Some(0), "{}", text.err);
    assert!(text.out.starts_with(&json["sentence"].as_str().unwrap()[..20]), "{}", text.out);
}

#[test]
fn invalid_input_gives_one_sentence() {
    let _turn = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.json").display().to_string();
    fs::write(&other, "{\"schema\":\"udpath.map/1\"}").unwrap();
    for (arguments, code, told) in [
        (&["--port", "1"][..], 2, "--port 1: no UDP socket is bound to this port"),
        (&["--port", "0"], 2, "--port"),
        (&["--pid", "4194304"], 2, "--pid 4194304: no such process"),
        (&["--pid", "1", "--port", "1"], 2, "cannot be used with"),
        (&["--cpus", "4000"], 2, "--cpus 4000: the online CPUs are 0"),
        (&["--cpu", "x"], 2, "--cpu"),
        (&["-d", "1ms"], 2, "expected 100ms to 1h"),
        (&["-d", "soon"], 2, "expected a value such as"),
        (&["--rate", "0"], 2, "expected 1 to 20000 per second"),
        (&["--rate", "1000000"], 2, "expected 1 to 20000 per second"),
        (&["--netns", "no-such-one"], 2, "there is no network namespace no-such-one"),
        (&["--report", "/nowhere/x.html"], 3, "cannot write /nowhere/x.html"),
        (&["--folded", "/proc"], 2, "--folded: "),
        (&["--diff", "/dev/null", "/dev/null"], 3, "/dev/null is empty: expected"),
        (&["--diff", &other, &other], 3, "udpath report does not render this kind of result"),
        (&["--diff", "x.json"], 2, "2 values required"),
        (&["--diff", "x", "y", "-d", "1s"], 2, "cannot be used with"),
    ] {
        let ended = profile(arguments);
        assert_eq!(ended.code(), Some(code), "{arguments:?}: {}", ended.err);
        one_sentence(&format!("{arguments:?}"), &ended.err);
        assert!(ended.err.contains(told), "{arguments:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{arguments:?}");
    }
}

#[test]
fn without_rights_it_says_what_is_missing() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("udpath");
    udpath_rig::copy_program(&program(), &copy);
    let machine = Run::unprivileged(&copy, &["profile", "-d", "1s"]).finish();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let paranoid: i32 = paranoid.trim().parse().unwrap();
    if paranoid <= 0 {
        // This machine allows it to all users: then kernel functions have no names, and the output says so.
        assert_eq!(machine.code(), Some(0), "{}", machine.err);
        assert!(machine.out.contains("kernel functions have no names"), "{}", machine.out);
        return;
    }
    assert_eq!(machine.code(), Some(3), "{}", machine.out);
    one_sentence("machine", &machine.err);
    let told = format!("perf_event_paranoid is {paranoid}; run as root, or with CAP_PERFMON");
    assert!(machine.err.contains(&told), "{}", machine.err);
}

/// Descriptors of perf events that a process has open.
fn perf_descriptors(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
}

/// BPF programs of all tracers.
const PROGRAMS: usize = 14;

/// IDs of the BPF programs that a process has descriptors of.
fn programs_of(pid: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect()
}

/// Processes with descriptors of perf events, other than `pid`.
fn others_with_events(pid: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|other| *other != pid && perf_descriptors(*other) > 0).collect()
}

/// Killed while it samples and traces: the kernel frees all its BPF programs, none of them pinned, and no other process
/// has its perf events.
#[test]
fn killed_it_leaves_nothing_attached() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let host = Host::now();
    let running = Run::new(&["profile", "-d", "60s", "--trace", "all"]).start();
    let pid = running.pid();
    let before = others_with_events(pid);
    awaited("its events and programs", TIMEOUT, || {
        (perf_descriptors(pid) > 0 && programs_of(pid).len() >= PROGRAMS).then_some(())
    });
    running.signal(Signal::KILL);
    let ended = running.finish();
    assert_eq!(ended.code(), None, "{}", ended.err);
    host.is_as_before(&[pid]);
    let heirs: Vec<_> = others_with_events(pid).difference(&before).copied().collect();
    assert_eq!(heirs, [0; 0], "processes that have perf events since then");
}

#[test]
fn an_interrupt_ends_it_with_partial_results() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let running = Run::new(&["profile", "-d", "60s", "--json"]).start();
    let pid = running.pid();
    // It sleeps only between two reads of the samples, not earlier.
    let sleeps = || fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("nanosleep"));
    awaited("its sampling", TIMEOUT, || sleeps().then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::INT);
    let ended = running.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let json: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(json["seconds"].as_f64().unwrap() < 60.0 && json["samples"]["taken"].as_u64().unwrap() > 0);
}
