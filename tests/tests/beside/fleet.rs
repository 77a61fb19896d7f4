//! Loads by a fleet, with a real nats-server: agents on the client of a lab, the caller beside them, the server of the
//! load and of NATS on the server. Sums are compared with the results that each agent keeps in a file.

mod access;
mod callers;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Ended, Run, Running, SecuredNats, campaign, client_and_server, program};

const PORT: u16 = 4222;
/// Longest run of any process here.
const LONG: Duration = Duration::from_secs(180);

/// A fleet's machines, its NATS server, and the server of its loads.
struct Bed {
    lab: Lab,
    nats: Option<Running>,
    _echo: Running,
    target: String,
    server: String,
    folder: tempfile::TempDir,
    nats_arguments: Vec<String>,
    secured: Option<SecuredNats>,
}

impl Bed {
    fn new(name: &str, nats_options: &[&str]) -> Self {
        Self::of(name, |_| (nats_options.iter().map(ToString::to_string).collect(), None))
    }

    /// With a server that has TLS and users, and these further options.
    fn secured(name: &str, nats_options: impl FnOnce(&SecuredNats) -> Vec<String>) -> Self {
        Self::of(name, |address| {
            let secured = SecuredNats::new(address);
            (nats_options(&secured), Some(secured))
        })
    }

    fn of(name: &str, nats_options: impl FnOnce(&str) -> (Vec<String>, Option<SecuredNats>)) -> Self {
        let lab = client_and_server(name, 1);
        let address = lab.address_of("server", "client").unwrap().ipv4;
        let (target, server) = (format!("{address}:7"), format!("nats://{address}:{PORT}"));
        let echo = started(&lab, "server", program(), &["serve", "echo", "--bind", &target]);
        let mut nats_arguments = vec!["-a".to_owned(), address.to_string(), "-p".into(), PORT.to_string()];
        let (options, secured) = nats_options(&address.to_string());
        nats_arguments.extend(options);
        let folder = tempfile::tempdir().unwrap();
        let mut bed = Self { lab, nats: None, _echo: echo, target, server, folder, nats_arguments, secured };
        bed.start_nats();
        bed
    }

    fn start_nats(&mut self) {
        let arguments: Vec<&str> = self.nats_arguments.iter().map(String::as_str).collect();
        let mut nats = started(&self.lab, "server", "nats-server", &arguments);
        nats.says("Server is ready");
        self.nats = Some(nats);
    }

    /// Kills it like a crash does.
    fn kill_nats(&mut self) {
        let nats = self.nats.take().unwrap();
        nats.signal(Signal::KILL);
        let _ = nats.finish();
    }

    fn results(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    /// The folder of results, for agents that are not root's.
    fn make_results(&self) {
        std::fs::create_dir_all(self.results()).unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(self.folder.path(), 0o755);
        open(&self.results(), 0o777);
    }

    /// The arguments of an agent that may send to the bed's server.
    fn agent_arguments(&self, name: &str) -> Vec<String> {
        let results = self.results().display().to_string();
        let allow = format!("{}/32:7", self.target.split(':').next().unwrap());
        [
            "agent",
            "--nats",
            &self.server,
            "--name",
            name,
            "--allow",
            &allow,
            "--max-rate",
            "5k",
            "--results",
            &results,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn agent(&self, name: &str) -> Running {
        let arguments = self.agent_arguments(name);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut agent = started(&self.lab, "client", program(), &arguments);
        agent.says("ready for loads");
        agent
    }

    fn agents(&self, count: usize) -> BTreeMap<String, Running> {
        self.make_results();
        (0..count).map(|index| format!("a{index:02}")).map(|name| (name.clone(), self.agent(&name))).collect()
    }

    /// A load of the fleet, with further arguments.
    fn load(&self, more: &[&str]) -> Running {
        let fixed =
            ["load", "echo", &self.target, "--fleet", &self.server, "--arrivals", "poisson", "--json"];
        started(&self.lab, "client", program(), &[&fixed, more].concat())
    }

    /// All results that the agents keep.
    fn kept_all(&self) -> Vec<Value> {
        let entries = std::fs::read_dir(self.results()).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| udpath_rig::json(std::fs::read(path).unwrap())).collect()
    }

    /// The results that the agents keep, by name.
    fn kept(&self) -> BTreeMap<String, Value> {
        let read = |path: &Path| -> Value { udpath_rig::json(std::fs::read(path).unwrap()) };
        let entries = std::fs::read_dir(self.results()).unwrap().map(|entry| entry.unwrap().path());
        let name =
            |path: &Path| path.file_stem().unwrap().to_str().unwrap().split('.').next().unwrap().to_owned();
        entries.map(|path| (name(&path), read(&path))).collect()
    }
}

fn started(lab: &Lab, machine: &str, what: impl AsRef<Path>, arguments: &[&str]) -> Running {
    let mut inside: Command = lab.machine(machine).unwrap().command(what.as_ref());
    inside.args(arguments);
    Run::of(inside, &arguments.join(" ")).within(LONG).start_with(|command| lab.spawn(command))
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}{}", ended.out, ended.err))
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// The buckets of a histogram, added to others.
fn add(buckets: &mut BTreeMap<i64, i64>, histogram: &Value) {
    for bucket in histogram.as_array().unwrap() {
        *buckets.entry(number(&bucket[0])).or_default() += number(&bucket[1]);
    }
}

/// The sum is that of these agents' results: every count, and every bucket of every histogram.
fn assert_is_sum(sum: &Value, of: &BTreeMap<String, Value>) {
    for (count, value) in sum["counts"].as_object().unwrap() {
        let total: i64 = of.values().map(|one| number(&one["counts"][count])).sum();
        assert_eq!(number(value), total, "{count}");
    }
    for latency in ["intended_latency", "sent_latency", "lateness"] {
        let (mut merged, mut direct) = (BTreeMap::new(), BTreeMap::new());
        add(&mut merged, &sum[latency]["histogram"]);
        of.values().for_each(|one| add(&mut direct, &one[latency]["histogram"]));
        assert!(!direct.is_empty());
        assert_eq!(merged, direct, "{latency}");
    }
    let rows = sum["segments"]["rows"].as_array().unwrap();
    let named: BTreeSet<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(named, of.keys().map(String::as_str).collect());
}

/// How late the segments started by their own clocks, microseconds: median and largest.
fn skews(sum: &Value) -> (i64, i64) {
    let rows = sum["segments"]["rows"].as_array().unwrap();
    let mut skews: Vec<i64> = rows.iter().map(|row| number(&row["start"]["skew_ns"]) / 1000).collect();
    skews.sort_unstable();
    (skews[skews.len() / 2], skews[skews.len() - 1])
}

/// The figure of a campaign, beside its bound: half of the segments start less than a millisecond after their time.
fn start(sum: &Value) -> String {
    let (median, most) = skews(sum);
    let held = if median < 1000 { "held" } else { "missed" };
    // On a busy machine all start late, but still together.
    assert!(
        (-1000..1_000_000).contains(&median),
        "none starts before its time, nor a second after: {median} us"
    );
    format!("median {median} us, largest {most} us; asked for a median below 1000 us: {held}")
}

#[test]
fn eight_agents_send_one_load_together() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-eight", &[]);
    let agents = bed.agents(8);
    let load = ["--agents", "8", "--flows", "16", "--rate", "4k", "-d", "2s", "--warmup", "200ms"];
    let ended = bed.load(&load).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let sum = json(&ended);
    assert_eq!((number(&sum["flows"]), sum["offered"].as_f64()), (16, Some(4000.0)));
    assert_eq!(sum["segments"]["missing"].as_array().unwrap().len(), 0);
    let kept = bed.kept();
    assert_is_sum(&sum, &kept);
    let sent = number(&sum["counts"]["sent"]);
    assert!((7400..8600).contains(&sent), "{sent} of about 8000");
    campaign::record("fleet of 8, start skew", &start(&sum));
    // They are ready for another one.
    let again = bed.load(&["--agents", "8", "--flows", "8", "--rate", "800", "-d", "300ms"]).finish();
    assert_eq!(again.code(), Some(0), "{}", again.err);
    drop(agents);
}

#[test]
fn the_dead_of_sixty_four_are_named_and_the_others_count() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-dead", &[]);
    let mut agents = bed.agents(64);
    let mut load = bed.load(&[
        "--agents", "64", "--flows", "64", "--rate", "3200", "-d", "20s", "--gather", "30s", "--lead", "8s",
    ]);
    let victims: Vec<String> = agents.keys().step_by(13).cloned().collect();
    for victim in &victims {
        let agent = agents.get_mut(victim).unwrap();
        agent.says("segment ");
    }
    // Some seconds into the load. Where other programs have the CPUs, orders arrive late: it has seconds left then,
    // too.
    std::thread::sleep(Duration::from_secs(11));
    assert!(!load.has_ended(), "in the middle of the load");
    for victim in &victims {
        let agent = agents.remove(victim).unwrap();
        agent.signal(Signal::KILL);
        let _ = agent.finish();
    }
    let ended = load.finish();
    assert_eq!((victims.len(), ended.code()), (5, Some(1)), "{}", ended.err);
    let sum = json(&ended);
    let kept = bed.kept();
    assert_eq!(kept.len(), 59);
    assert_is_sum(&sum, &kept);
    assert_eq!(sum["segments"]["missing"].as_array().unwrap().len(), 5);
    for victim in &victims {
        assert!(ended.err.contains(&format!("agent {victim} was lost: nothing was heard")), "{}", ended.err);
        let named = sum["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|warning| warning.as_str().unwrap().contains(victim));
        assert!(named, "{}", sum["warnings"]);
    }
    campaign::record("fleet of 64, start skew", &start(&sum));
}

#[test]
fn a_nats_server_that_is_killed_and_started_again_costs_no_result() {
    udpath_lab::needs_root!();
    let mut bed = Bed::new("fleet-nats", &[]);
    let mut agents = bed.agents(4);
    let mut load = bed.load(&["--agents", "4", "--flows", "4", "--rate", "400", "-d", "3s", "--lead", "1s"]);
    for agent in agents.values_mut() {
        agent.says("segment ");
    }
    std::thread::sleep(Duration::from_secs(2));
    bed.kill_nats();
    load.says("the connection to the NATS server is lost");
    // The load ends at its own time.
    for agent in agents.values_mut() {
        agent.says("ended: ");
    }
    assert!(!load.has_ended());
    bed.start_nats();
    let ended = load.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(ended.err.contains("is back"), "{}", ended.err);
    let sum = json(&ended);
    assert_is_sum(&sum, &bed.kept());
    assert_eq!(sum["segments"]["rows"].as_array().unwrap().len(), 4);
    for agent in agents.values_mut() {
        agent.says("the caller has the result");
    }
}

/// An agent whose clock is five seconds ahead starts with the others, and the difference is in the sum.
#[test]
fn a_wrong_clock_is_measured_and_taken_into_account() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-clock", &[]);
    let agents = bed.agents(2);
    let arguments = bed.agent_arguments("wrong");
    let program = program().display().to_string();
    let fixed = ["--exclude-monotonic", "-f", "+5s", &program];
    let arguments: Vec<&str> = fixed.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let mut wrong = started(&bed.lab, "client", "faketime", &arguments);
    wrong.says("ready for loads");
    let ended = bed.load(&["--agents", "3", "--flows", "3", "--rate", "300", "-d", "1s"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let sum = json(&ended);
    for row in sum["segments"]["rows"].as_array().unwrap() {
        let (offset, skew) = (number(&row["start"]["offset_ns"]), number(&row["start"]["skew_ns"]));
        let ahead = if row["name"] == "wrong" { 5_000_000_000 } else { 0 };
        assert!((offset - ahead).abs() < 500_000_000, "{row}");
        assert!(skew.abs() < 1_000_000_000, "it starts with the others: {row}");
    }
    drop(agents);
}

#[test]
fn a_load_is_ended_when_asked() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-stop", &[]);
    let mut agents = bed.agents(2);
    let load = bed.load(&["--agents", "2", "--flows", "2", "--rate", "200", "-d", "50s", "--lead", "500ms"]);
    for agent in agents.values_mut() {
        agent.says("segment ");
    }
    std::thread::sleep(Duration::from_millis(2500));
    load.signal(Signal::INT);
    let ended = load.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let sum = json(&ended);
    assert_is_sum(&sum, &bed.kept());
    assert!(sum["seconds"].as_f64().unwrap() < 30.0, "{}", sum["seconds"]);
}
