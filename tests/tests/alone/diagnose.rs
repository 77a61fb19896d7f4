//! `udpath diagnose` on causes that are arranged for real, each beside a healthy twin: the finding of the cause comes
//! first among what is lost or limited, and the twin has none. Needs root.

mod addresses;
mod bound;
mod causes;
mod debian;
mod looks_up;
mod pairs;
mod readers;
mod shared;
mod singles;
mod tun;
mod unread;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Accounting, Bed, Ended, Running, campaign, judged, not_judged, program, undisturbed};

use causes::{CAUSES, Cause, Load, SATURATED, Served};

const PORT: u16 = 7000;
/// Arguments of `nice`: other programs on its CPU take a hundredth of the time from such a server. In real time, one
/// that never sleeps would not let its generator end.
const HARDLY_HELD_UP: [&str; 2] = ["-n", "-20"];
/// A file of this folder.
fn file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alone/diagnose").join(name).display().to_string()
}

/// The diagnosis of a server on its port under a load, which another machine of the lab or its own runs; ends all of
/// them.
fn diagnosed_under(bed: Bed, server: Running, machine: &str, load: &[&str]) -> Value {
    let load = bed.start(machine, program(), load);
    std::thread::sleep(Duration::from_secs(1));
    let ended = bed.diagnose(&[&PORT.to_string(), "-d", "2s", "--json"]);
    for one in [load, server] {
        one.signal(Signal::TERM);
        drop(one);
    }
    bed.down();
    udpath_rig::json(&ended.out)
}

/// A machine under load.
struct Scene {
    bed: Bed,
    server: Running,
    load: Option<Running>,
    /// Other programs that a cause needs.
    others: Vec<Running>,
    /// Filters of the server's control group.
    accounting: Option<Accounting>,
}

impl Scene {
    fn new(name: &str, served: &Served, first: bool) -> Self {
        let bed = Bed::new(name, &LinkSpec::with_queues(2)).polled();
        // Before all other programs on the machine, so that a compiler beside it is not what is found.
        let bed = if first { bed.first("server") } else { bed };
        let bind = format!("0.0.0.0:{PORT}");
        let server = match served {
            Served::Udpath(arguments) => bed.serve(&[*arguments, &["--bind", &bind]].concat()),
            Served::OverIpv6(arguments) => {
                bed.serve(&[*arguments, &["--bind", &format!("[::]:{PORT}")]].concat())
            }
            Served::Python { busy_us, buffer, workers } => {
                let arguments = [busy_us, buffer, workers].map(ToString::to_string);
                python(&bed, &arguments.each_ref().map(String::as_str))
            }
            Served::Single => {
                let (script, port) = (file("server.py"), PORT.to_string());
                let python = ["python3", &*script, &*port, "0", "8000000", "1"];
                let mut server = bed.start("server", "nice", &[&HARDLY_HELD_UP[..], &python].concat());
                server.says("ready");
                server
            }
            Served::Logging => python(&bed, &["0", "0", "2", "log"]),
            Served::ByCpu { restarted } => {
                python(&bed, &["0", "0", "2", if *restarted { "restarted" } else { "by-cpu" }])
            }
        };
        Self { bed, server, load: None, others: Vec::new(), accounting: None }
    }

    fn load(&mut self, load: &Load) {
        let target = self.bed.target(PORT);
        let address = target.split(':').next().unwrap();
        self.load = Some(match load {
            Load::Udpath(arguments) => self.bed.load(&[&["echo", &target, "-d", "20s"], *arguments].concat()),
            Load::OverIpv6(arguments) => {
                let target = self.bed.target_over_ipv6(PORT);
                self.bed.load(&[&["echo", &target, "-d", "20s"], *arguments].concat())
            }
            Load::Python(arguments) => {
                let script = file("sender.py");
                let arguments =
                    arguments.iter().map(|argument| if *argument == "ADDRESS" { address } else { argument });
                // Away from the server's first worker.
                let arguments: Vec<&str> =
                    ["-c", "1", "python3", &script].into_iter().chain(arguments).collect();
                let mut sender = self.bed.start("client", "taskset", &arguments);
                sender.says("ready");
                sender
            }
        });
        // Past the first burst.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Runs a command on the server's machine, which must succeed.
    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.bed.command("server", program).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
    }

    fn diagnose(&self) -> (Ended, Value) {
        self.diagnose_for("2s")
    }

    fn diagnose_for(&self, duration: &str) -> (Ended, Value) {
        let ended = self.bed.diagnose(&[&PORT.to_string(), "-d", duration, "--json"]);
        let json = serde_json::from_str(&ended.out).unwrap_or_else(|why| panic!("{why}: {}", ended.err));
        (ended, json)
    }

    fn end(self) {
        let Self { bed, server, load, others, accounting: _accounting } = self;
        for one in others.into_iter().chain(load).chain([server]) {
            one.signal(Signal::TERM);
            one.signal(Signal::CONT);
            drop(one);
        }
        bed.down();
        // There is none unless the server was limited.
        let _ = std::fs::remove_dir(causes::group());
    }
}

/// `server.py`, ready, with these arguments after the port.
fn python(bed: &Bed, arguments: &[&str]) -> Running {
    let (script, port) = (file("server.py"), PORT.to_string());
    let mut server = bed.start("server", "python3", &[&[script.as_str(), port.as_str()], arguments].concat());
    server.says("ready");
    server
}

/// Repeats a check while others take the CPUs; returns what is wrong.
fn right(what: &str, check: impl FnMut() -> Option<String>) -> Option<String> {
    let outcome = undisturbed(check);
    REPEATED.fetch_add(outcome.repeated, Ordering::Relaxed);
    let Some(taken) = outcome.not_judged else { return outcome.wrong };
    not_judged(what, taken);
    outcome.wrong.filter(|_| campaign::is_whole())
}

/// Checks that were repeated because others took CPU time.
static REPEATED: AtomicU32 = AtomicU32::new(0);

/// How many were repeated since it was last asked, for the figure of a campaign.
fn repeats() -> String {
    match REPEATED.swap(0, Ordering::Relaxed) {
        0 => String::new(),
        n => format!(", {n} disturbed by others and repeated"),
    }
}

/// The cause comes first, in 19 of 20 runs; `check` arranges it, and says what is wrong.
fn found_first(cause: &str, mut check: impl FnMut() -> Option<String>) {
    let rounds = campaign::rounds(1, 20);
    let wrong: Vec<String> = (0..rounds).filter_map(|_| right(cause, &mut check)).collect();
    campaign::record(
        &format!("diagnosed first, {cause}"),
        &format!("{} of {rounds}{}", rounds as usize - wrong.len(), repeats()),
    );
    assert!(wrong.len() * 20 <= rounds as usize, "{} of {rounds}: {}", wrong.len(), wrong.concat());
}

/// Its twin has no such finding.
fn silent(cause: &str, mut check: impl FnMut() -> Option<String>) {
    let rounds = campaign::rounds(1, 20);
    let twin = format!("the healthy twin of {cause}");
    let wrong: Vec<String> = (0..rounds).filter_map(|_| right(&twin, &mut check)).collect();
    campaign::record(
        &format!("findings of {twin}"),
        &format!("{} in {rounds} runs{}", wrong.len(), repeats()),
    );
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

/// What is wrong with a diagnosis whose first severe finding is to be this one; `None`: there is to be none.
fn first_is(json: &Value, first: Option<&str>) -> Option<String> {
    (severe(json).first().copied() != first).then(|| format!("{:#}", json["findings"]))
}

/// What is lost or limited, by id, in order.
fn severe(diagnosis: &Value) -> Vec<&str> {
    let findings = diagnosis["findings"].as_array().unwrap().iter();
    findings.filter(|found| found["severity"] != "note").map(|found| found["id"].as_str().unwrap()).collect()
}

/// What is wrong with the diagnosis of a cause; nothing if the cause comes first.
fn arranged(cause: &Cause) -> Option<String> {
    let mut scene = Scene::new("cause", &cause.served, cause.first);
    (cause.before)(&mut scene);
    scene.load(&cause.load);
    (cause.during)(&mut scene);
    let (ended, json) = scene.diagnose_for(cause.watched);
    scene.end();
    let found = severe(&json);
    let right =
        found.first() == Some(&cause.id) && ended.code() == Some(1) && json["schema"] == "udpath.diagnosis/1";
    (!right).then(|| {
        let (name, id, code) = (cause.name, cause.id, ended.code());
        format!("{name}: not {id} first, but {found:?}, exit {code:?}: {json:#}")
    })
}

/// The same of its healthy twin, in which nothing is lost or limited.
fn healthy(cause: &Cause) -> Option<String> {
    // Its load is light: it may always run first.
    let mut scene = Scene::new("twin", &cause.healthy.0, true);
    scene.load(&cause.healthy.1);
    let (ended, json) = scene.diagnose();
    scene.end();
    let found = severe(&json);
    let nothing =
        json["headline"].as_str().is_some_and(|headline| headline.starts_with("Nothing saturated: "));
    let right = found.is_empty() && nothing && ended.code() == Some(0);
    (!right).then(|| format!("{}: {found:?}, exit {:?}: {json:#}", cause.name, ended.code()))
}

/// A test for each cause: it comes first, and its twin has no findings.
macro_rules! causes {
    ($($test:ident: $id:literal;)*) => {
        $(#[test]
        fn $test() {
            udpath_lab::needs_root!();
            udpath_rig::needs_cpus!(2);
            let _turn = udpath_rig::alone();
            let cause = CAUSES.iter().find(|cause| cause.id == $id).unwrap();
            found_first(cause.name, || arranged(cause));
            // Many causes share a twin.
            let same = |other: &&Cause| other.healthy == cause.healthy;
            if CAUSES.iter().find(same).is_some_and(|first| first.id == cause.id) {
                silent(cause.name, || healthy(cause));
            }
        })*

        /// The ids that have a test.
        const TESTED: &[&str] = &[$($id),*];
    };
}

causes! {
    one_shared_socket: "shared-socket";
    one_reader_at_its_limit: "reader-limit";
    all_flows_on_one_socket: "group-uneven";
    a_restarted_worker: "group-order";
    bursts_longer_than_the_buffer: "receive-buffer-small";
    a_reader_slower_than_the_load: "reader-slow";
    hosts_that_do_not_answer: "neighbours-unresolved";
    a_stopped_worker: "reader-blocked";
    a_limited_control_group: "cpu-limit";
    wrong_checksums: "checksum-errors";
    fragmented_datagrams: "fragments";
    no_listener: "no-listener";
    a_full_transmit_queue: "transmit-queue-full";
    a_packet_tap: "packet-sockets";
    connection_tracking: "netfilter";
    a_filter_that_drops: "dropped-before-socket";
    first_fragments_alone: "fragments-lost";
    more_flows_than_are_tracked: "conntrack-full";
    one_queueing_discipline: "one-qdisc";
    filters_of_a_control_group: "cgroup-filters";
    sources_validated: "source-validation";
    rps_to_one_cpu: "rps-one-cpu";
    gro_in_vain: "gro";
    a_log_of_every_query: "logging";
    a_generator_at_its_limit: "generator-limit";
}

/// What is wrong with the diagnosis of a saturated server: it names one of these causes, which are not there.
fn named(served: &Served, load: &Load, causes: &[&str]) -> Option<String> {
    let mut scene = Scene::new("saturated", served, false);
    scene.load(load);
    let (_, json) = scene.diagnose();
    scene.end();
    let findings = json["findings"].as_array().unwrap().iter();
    let found: Vec<_> = findings.filter(|found| causes.iter().any(|id| found["id"] == *id)).collect();
    (!found.is_empty()).then(|| format!("{found:#?}"))
}

#[test]
fn a_server_at_its_limit_has_no_cause_that_is_not_there() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    for (served, load, causes) in SATURATED {
        let what = format!("a saturated server without {}", causes.join(", "));
        let rounds = campaign::rounds(1, 20);
        let wrong: Vec<String> =
            (0..rounds).filter_map(|_| right(&what, || named(served, load, causes))).collect();
        campaign::record(
            &format!("findings of {what}"),
            &format!("{} in {rounds} runs{}", wrong.len(), repeats()),
        );
        assert!(wrong.is_empty(), "{what}: {}", wrong.concat());
    }
}

#[test]
fn every_cause_is_tested() {
    assert_eq!(CAUSES.iter().map(|cause| cause.id).collect::<Vec<_>>(), TESTED);
}

#[test]
fn the_page_of_findings_names_what_is_tested_here() {
    let page = include_str!("../../../docs/findings.md");
    let (_, after) = page.split_once("produced on a running kernel").unwrap();
    let (in_a_lab, _) = after.split_once("in an emulated machine").unwrap();
    assert_eq!(in_a_lab.split('`').skip(1).step_by(2).collect::<Vec<_>>(), TESTED);
}

#[test]
fn a_loaded_server_in_text_with_what_it_carries() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    judged("the text of a loaded server's diagnosis", || {
        let mut scene = Scene::new("text", &causes::REUSEPORT, true);
        scene.load(&Load::Udpath(&["--rate", "5k", "--flows", "32"]));
        let ended = scene.bed.diagnose(&[&PORT.to_string(), "-d", "2s"]);
        assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.err);
        assert!(ended.out.starts_with("Nothing saturated: "), "{}", ended.out);
        assert!(ended.out.contains("Carries ") && ended.out.contains("transactions/s"), "{}", ended.out);
        for link in ["softirq", "backlog", "receive queue", "reader thread", "transmit queue"] {
            assert!(ended.out.contains(link), "{link}: {}", ended.out);
        }
        // Without samples, all but the rate to expect.
        let ended = scene.bed.diagnose(&[&PORT.to_string(), "-d", "500ms", "--no-profile"]);
        assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.err);
        assert!(ended.out.contains("unknown without a profile: --no-profile was given"), "{}", ended.out);
        scene.end();
    });
}

#[test]
fn watching_prints_changes_until_interrupted() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let mut scene = Scene::new("watch", &causes::REUSEPORT, true);
    scene.load(&Load::Udpath(&["--rate", "5k", "--flows", "32"]));
    let arguments = ["diagnose", &PORT.to_string(), "-d", "500ms", "--no-profile", "--watch", "--json"];
    let watch = scene.bed.start("server", program(), &arguments);
    std::thread::sleep(Duration::from_millis(1500));
    scene.run("ip", &["link", "set", "eth0", "txqueuelen", "1"]);
    scene.run(
        "tc",
        &["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1mbit", "burst", "5k", "limit", "10k"],
    );
    std::thread::sleep(Duration::from_millis(1500));
    watch.signal(Signal::INT);
    let ended = watch.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let lines: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["change"], "headline", "{}", ended.out);
    let appeared =
        |line: &&Value| line["change"] == "appeared" && line["finding"]["id"] == "transmit-queue-full";
    assert_eq!(lines.iter().filter(appeared).count(), 1, "{}", ended.out);
    scene.end();
}
