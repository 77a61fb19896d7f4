//! The results of a run: printed as they come, counted at the end, and written to `benches/results` after each
//! benchmark.
//!
//! The file is JSON with one figure per line, so that `scripts/figures.sh` can make the tables of the docs from it with
//! the tools of every Debian machine. A benchmark replaces its figures in the machine's newest file, and each figure
//! says what it belongs to:
//!
//! | key | |
//! |---|---|
//! | `commit` | what was checked out; `with local changes` if that is not all that was measured |
//! | `sources`, `paths` | hash and names of the benchmark's own sources and of the crates it measures (sources.rs) |
//! | `kernel`, `rustc`, `profile` | of the machine, and of the build |
//! | `started`, `ended` | when the benchmark ran, UTC |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::claim::{Bound, Claim, Verdict};
use crate::sources::Sources;

/// Version of the file's form.
const SCHEMA: &str = "udpath.bench/2";
/// Where the files are, from the root of the repository.
const FOLDER: &str = "benches/results";

/// What a run has measured so far, and what the machine's newest file had before.
pub(crate) struct Results {
    begin: Instant,
    ticks: Ticks,
    /// CPU time when the running benchmark started.
    since: Ticks,
    /// Names of all benchmarks, in the file's order.
    order: Vec<&'static str>,
    /// Of the running benchmark.
    figures: Vec<Map<String, Value>>,
    file: Contents,
    date: String,
    commit: String,
    any_failed: bool,
}

impl Results {
    /// Begins with what the machine's newest file has.
    ///
    /// # Errors
    /// That file cannot be read.
    pub(crate) fn new(order: &[&'static str]) -> Result<Self> {
        let ticks = Ticks::now();
        let file = newest(&slug(&machine()))?
            .map_or_else(|| Ok(Contents::default()), |path| Contents::read(&path))?;
        Ok(Self {
            begin: Instant::now(),
            ticks,
            since: ticks,
            order: order.to_vec(),
            figures: Vec::new(),
            file,
            date: output("date", &["-u", "+%F"]),
            commit: commit(),
            any_failed: false,
        })
    }

    /// Whether the file has this benchmark's figures of this commit and of this kernel.
    pub(crate) fn has(&self, name: &str, sources: &Sources) -> bool {
        let mut of_bench = self.file.figures.iter().filter(|figure| bench(figure) == Some(name)).peekable();
        let kernel = kernel();
        of_bench.peek().is_some()
            && of_bench.all(|figure| {
                figure["commit"] == self.commit.as_str()
                    && figure["sources"] == sources.hash.as_str()
                    && figure["kernel"] == kernel.as_str()
            })
    }

    /// Runs a benchmark, whose figures replace those that the file has of it. One that fails does not stop the others.
    pub(crate) fn run(&mut self, name: &str, sources: Sources, run: impl FnOnce(&mut Self) -> Result<()>) {
        eprintln!("{name} ...");
        self.since = Ticks::now();
        self.figures.clear();
        let (begin, started) = (Instant::now(), now());
        let failed = run(self).err();
        let seconds = begin.elapsed().as_secs_f64();
        eprintln!("{name}: {seconds:.0} s, {:.1} % stolen by the hypervisor", self.since.stolen());
        let stamp = json!({
            "commit": self.commit,
            "sources": sources.hash,
            "paths": sources.paths,
            "kernel": kernel(),
            "rustc": env!("BENCH_RUSTC"),
            "profile": env!("BENCH_PROFILE"),
            "started": started,
            "ended": now(),
            "steal_percent": rounded(self.since.stolen()),
        });
        let mut ran = Contents {
            figures: std::mem::take(&mut self.figures)
                .into_iter()
                .map(|figure| stamped(figure, &stamp))
                .collect(),
            benches: vec![json!({ "bench": name, "seconds": rounded(seconds) })],
            failed: Vec::new(),
        };
        if let Some(error) = failed {
            eprintln!("{name}: cannot run: {error:#}");
            self.any_failed = true;
            ran.failed.push(json!({ "bench": name, "error": format!("{error:#}") }));
        }
        self.file.replace(name, ran, &self.order);
    }

    /// Prints and keeps a claim.
    pub(crate) fn add(&mut self, claim: &Claim) {
        let verdict = claim.verdict();
        let (measured, required) = (claim.measured(), claim.required());
        println!("{:<66} {measured:<34} {required:<14} {}", claim.what, verdict.word());
        let bound = match claim.bound {
            Bound::AtLeast(least) => json!({ "at_least": least }),
            Bound::Below(most) => json!({ "below": most }),
            Bound::Within(least, most) => json!({ "at_least": least, "at_most": most }),
            Bound::Shown => Value::Null,
        };
        let Value::Object(figure) = json!({
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
        }) else {
            unreachable!("it is an object");
        };
        self.figures.push(figure);
    }

    /// The last line of a run, of all that the file has.
    pub(crate) fn summary(&self) -> String {
        let count = |verdict| self.file.count(verdict);
        let mut text = format!(
            "{} held, {} missed, {} not decided, {} stale",
            count(Verdict::Held),
            count(Verdict::Missed),
            count(Verdict::NotDecided),
            self.file.figures.iter().filter(|figure| is_stale(figure)).count()
        );
        let failed: Vec<_> = self.file.failed.iter().filter_map(bench).collect();
        if !failed.is_empty() {
            text.push_str(&format!("; {} benchmarks could not run: {}", failed.len(), failed.join(", ")));
        }
        text
    }

    pub(crate) const fn any_failed(&self) -> bool {
        self.any_failed
    }

    pub(crate) fn all_held(&self) -> bool {
        self.file.count(Verdict::Missed) + self.file.count(Verdict::NotDecided) == 0
    }

    /// Writes the file of today. Returns its path.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self) -> Result<PathBuf> {
        let path = Path::new(FOLDER).join(format!("{}-{}.json", slug(&machine()), self.date));
        let new = path.with_extension("json.new");
        fs::write(&new, self.text()).with_context(|| format!("cannot write {}", new.display()))?;
        fs::rename(&new, &path).with_context(|| format!("cannot replace {}", path.display()))?;
        Ok(path)
    }

    fn text(&self) -> String {
        let lines = |values: &[Value]| -> String {
            values.iter().map(|value| format!("    {value}")).collect::<Vec<_>>().join(",\n")
        };
        let head = [
            ("schema", json!(SCHEMA)),
            ("commit", json!(self.commit)),
            ("ended", json!(now())),
            ("seconds", json!(self.begin.elapsed().as_secs())),
            ("machine", json!(machine())),
            ("kernel", json!(kernel())),
            ("steal_percent", json!(rounded(self.ticks.stolen()))),
            ("held", json!(self.file.count(Verdict::Held))),
            ("missed", json!(self.file.count(Verdict::Missed))),
            ("not_decided", json!(self.file.count(Verdict::NotDecided))),
        ];
        let head: String = head.iter().map(|(key, value)| format!("  \"{key}\": {value},\n")).collect();
        format!(
            "{{\n{head}  \"figures\": [\n{}\n  ],\n  \"benches\": [\n{}\n  ],\n  \"failed\": [\n{}\n  ]\n}}\n",
            lines(&self.file.figures),
            lines(&self.file.benches),
            lines(&self.file.failed)
        )
    }
}

/// A figure with what it belongs to.
fn stamped(mut figure: Map<String, Value>, stamp: &Value) -> Value {
    figure.extend(stamp.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    Value::Object(figure)
}

/// Whether a figure's sources have changed since, or nobody knows.
fn is_stale(figure: &Value) -> bool {
    let clean = figure["commit"].as_str().is_some_and(|commit| !commit.contains(' '));
    let now = figure["paths"].as_str().and_then(|paths| Sources::of_paths(paths).ok());
    !clean || now.is_none_or(|now| figure["sources"] != now.hash.as_str())
}

/// The lists of a file: a figure, a benchmark's time and a failure per line.
#[derive(Default)]
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

    /// Replaces what there is of a benchmark. Sorts by benchmark, in the order given.
    fn replace(&mut self, name: &str, ran: Self, order: &[&str]) {
        let lists = [
            (&mut self.figures, ran.figures),
            (&mut self.benches, ran.benches),
            (&mut self.failed, ran.failed),
        ];
        for (all, ran) in lists {
            all.retain(|value| bench(value) != Some(name));
            all.extend(ran);
            all.sort_by_key(|value| order.iter().position(|known| bench(value) == Some(known)));
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        let word = verdict.word().to_lowercase();
        self.figures.iter().filter(|figure| figure["verdict"] == word.as_str()).count()
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

/// The commit that is measured. The figures of the benchmark before are no change of what runs.
fn commit() -> String {
    let same = Command::new("git")
        .args(["diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)benches/results"])
        .status();
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

/// `Linux 6.18.44`
fn kernel() -> String {
    output("uname", &["-sr"])
}

/// The time, UTC.
fn now() -> String {
    output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| "unknown".into(), |done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
