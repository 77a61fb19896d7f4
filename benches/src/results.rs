//! The results of a run: printed as they come, counted at the end, and written to `benches/results`.
//!
//! The file is JSON with one figure per line, so that `scripts/figures.sh` can make the tables of the docs from it
//! with the tools of every Debian machine. A run of some benchmarks replaces their figures in the machine's newest file;
//! each figure says when and at which commit it was measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::claim::{Bound, Claim, Verdict};

/// Version of the file's form.
const SCHEMA: &str = "udpath.bench/1";
/// Where the files are, from the root of the repository.
const FOLDER: &str = "benches/results";

/// What a run has measured so far.
pub(crate) struct Results {
    started: String,
    begin: Instant,
    ticks: Ticks,
    /// CPU time when the running benchmark started.
    since: Ticks,
    figures: Vec<Value>,
    seconds: Vec<(String, f64)>,
    failed: Vec<(String, String)>,
    held: usize,
    missed: usize,
    commit: String,
}

impl Results {
    pub(crate) fn new() -> Self {
        let ticks = Ticks::now();
        Self {
            commit: commit(),
            started: output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            begin: Instant::now(),
            ticks,
            since: ticks,
            figures: Vec::new(),
            seconds: Vec::new(),
            failed: Vec::new(),
            held: 0,
            missed: 0,
        }
    }

    /// A benchmark begins; its result is recorded when `run` has ended. One that fails does not stop the others.
    pub(crate) fn run(&mut self, name: &str, run: impl FnOnce(&mut Self) -> Result<()>) {
        eprintln!("{name} ...");
        self.since = Ticks::now();
        let begin = Instant::now();
        if let Err(error) = run(self) {
            eprintln!("{name}: cannot run: {error:#}");
            self.failed.push((name.to_owned(), format!("{error:#}")));
        }
        let seconds = begin.elapsed().as_secs_f64();
        eprintln!("{name}: {seconds:.0} s, {:.1} % stolen by the hypervisor", self.since.stolen());
        self.seconds.push((name.to_owned(), seconds));
    }

    /// Prints and keeps a claim.
    pub(crate) fn add(&mut self, claim: &Claim) {
        let verdict = claim.verdict();
        match verdict {
            Verdict::Held => self.held += 1,
            Verdict::Missed => self.missed += 1,
            Verdict::Shown => {}
        }
        let (measured, required) = (claim.measured(), claim.required());
        println!("{:<66} {measured:<34} {required:<14} {}", claim.what, verdict.word());
        let bound = match claim.bound {
            Bound::AtLeast(least) => json!({ "at_least": least }),
            Bound::Below(most) => json!({ "below": most }),
            Bound::Within(least, most) => json!({ "at_least": least, "at_most": most }),
            Bound::Shown => Value::Null,
        };
        self.figures.push(json!({
            "id": claim.id,
            "claim": claim.what,
            "measured": measured,
            "required": required,
            "verdict": verdict.word().to_lowercase(),
            "value": claim.value,
            "low": claim.interval.map(|(low, _)| low),
            "high": claim.interval.map(|(_, high)| high),
            "unit": claim.unit.symbol().trim(),
            "bound": bound,
            "unmet": claim.unmet,
            "moderation_us": claim.moderation,
            "commit": self.commit,
            "started": self.started,
            "steal_percent": rounded(self.since.stolen()),
        }));
    }

    /// The last line of a run.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!("{} bounds held, {} missed", self.held, self.missed);
        if !self.failed.is_empty() {
            let names: Vec<_> = self.failed.iter().map(|(name, _)| name.as_str()).collect();
            text.push_str(&format!(", {} benchmarks could not run: {}", names.len(), names.join(", ")));
        }
        text
    }

    pub(crate) fn any_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    pub(crate) fn any_missed(&self) -> bool {
        self.missed > 0
    }

    /// Writes a file with the figures of `all` benchmarks: those that did not run keep what the machine's newest file says, if
    /// it has one. Returns its path.
    pub(crate) fn write(&self, all: &[&str]) -> Result<PathBuf> {
        let date = self.started.split('T').next().unwrap_or_default();
        let slug = slug(&machine());
        let path = Path::new(FOLDER).join(format!("{slug}-{date}.json"));
        let mut file =
            Contents { figures: self.figures.clone(), benches: self.benches(), failed: self.failures() };
        if let Some(before) = newest(&slug)?.filter(|_| self.seconds.len() < all.len()) {
            let ran = |value: &Value| self.seconds.iter().any(|(name, _)| bench(value) == Some(name));
            file.merge(Contents::read(&before)?, ran, all);
        }
        fs::write(&path, self.text(&file)).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn benches(&self) -> Vec<Value> {
        let times = self.seconds.iter();
        times.map(|(name, took)| json!({ "bench": name, "seconds": rounded(*took) })).collect()
    }

    fn failures(&self) -> Vec<Value> {
        self.failed.iter().map(|(name, error)| json!({ "bench": name, "error": error })).collect()
    }

    fn text(&self, file: &Contents) -> String {
        let lines = |values: &[Value]| -> String {
            values.iter().map(|value| format!("    {value}")).collect::<Vec<_>>().join(",\n")
        };
        let verdicts = |verdict: Verdict| {
            let word = verdict.word().to_lowercase();
            file.figures.iter().filter(|figure| figure["verdict"] == word.as_str()).count()
        };
        let head = [
            ("schema", json!(SCHEMA)),
            ("commit", json!(self.commit)),
            ("started", json!(self.started)),
            ("seconds", json!(self.begin.elapsed().as_secs())),
            ("machine", json!(machine())),
            ("kernel", json!(output("uname", &["-sr"]))),
            ("steal_percent", json!(rounded(self.ticks.stolen()))),
            ("held", json!(verdicts(Verdict::Held))),
            ("missed", json!(verdicts(Verdict::Missed))),
        ];
        let head: String = head.iter().map(|(key, value)| format!("  \"{key}\": {value},\n")).collect();
        format!(
            "{{\n{head}  \"figures\": [\n{}\n  ],\n  \"benches\": [\n{}\n  ],\n  \"failed\": [\n{}\n  ]\n}}\n",
            lines(&file.figures),
            lines(&file.benches),
            lines(&file.failed)
        )
    }
}

/// The lists of a file: a figure, a benchmark's time and a failure per line.
struct Contents {
    figures: Vec<Value>,
    benches: Vec<Value>,
    failed: Vec<Value>,
}

impl Contents {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut whole: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        let mut list = |key: &str| match whole[key].take() {
            Value::Array(values) => Ok(values),
            _ => bail!("{} has no list '{key}'", path.display()),
        };
        Ok(Self { figures: list("figures")?, benches: list("benches")?, failed: list("failed")? })
    }

    /// Takes from `before` what benchmarks that did not run had measured. Sorts by benchmark, in the order of `all`.
    fn merge(&mut self, before: Self, ran: impl Fn(&Value) -> bool, all: &[&str]) {
        let lists = [
            (&mut self.figures, before.figures),
            (&mut self.benches, before.benches),
            (&mut self.failed, before.failed),
        ];
        for (now, before) in lists {
            let kept: Vec<Value> = before.into_iter().filter(|value| !ran(value)).collect();
            now.splice(0..0, kept);
            now.sort_by_key(|value| all.iter().position(|name| bench(value) == Some(name)));
        }
    }
}

/// The benchmark that a line belongs to; a figure's id begins with its name.
fn bench(line: &Value) -> Option<&str> {
    line["bench"].as_str().or_else(|| line["id"].as_str()?.split('.').next())
}

/// This machine's newest file.
fn newest(slug: &str) -> Result<Option<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(FOLDER).with_context(|| format!("cannot list {FOLDER}"))? {
        let path = entry.with_context(|| format!("cannot list {FOLDER}"))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_prefix(slug).is_some_and(|rest| rest.starts_with('-') && rest.ends_with(".json")) {
            files.push(path);
        }
    }
    // The dates of one machine sort by name.
    Ok(files.into_iter().max())
}

/// The commit that is measured.
fn commit() -> String {
    let same = Command::new("git").args(["diff", "--quiet", "HEAD"]).status();
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
    if same.is_ok_and(|status| status.success()) { commit } else { format!("{commit} with local changes") }
}

/// CPU time of the whole machine, in ticks: all, and what the hypervisor took (`/proc/stat`, proc(5)).
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let numbers: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; the guests' times are part of the first two.
        Self { all: numbers.iter().take(8).sum(), stolen: numbers.get(7).copied().unwrap_or(0) }
    }

    /// Per cent of the time since then.
    fn stolen(self) -> f64 {
        let now = Self::now();
        let all = now.all.saturating_sub(self.all).max(1);
        100.0 * now.stolen.saturating_sub(self.stolen) as f64 / all as f64
    }
}

/// The CPU's name and how many there are, without the host name.
fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cpus = text.lines().filter(|line| line.starts_with("processor")).count();
    format!("{}, {cpus} CPUs", name.map_or("unknown CPU", |(_, name)| name.trim()))
}

/// `amd-epyc-2-cpus`
fn slug(text: &str) -> String {
    let plain = text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| "unknown".into(), |done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
