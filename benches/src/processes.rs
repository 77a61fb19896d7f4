//! `show`, `top` and `export` as processes: from the start to the last byte of the first look, and the CPU time of a
//! look.
//!
//! ```text
//!   show     start ─▸ exit                     CPU time: of the whole process
//!   top      start ─▸ first screen             CPU time of a look: see `looking`
//!   export   start ─▸ end of the first answer  CPU time of a look: see `looking`
//! ```
//! On this machine as it is, and while one process has 10,000 sockets. One look per second may cost one per cent of a
//! core, which is 10 ms; for `show`, a look is a process.

mod sys;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::looking::{Terminal, exporting, scrape};
use crate::race::quantile;
use crate::results::Results;
use crate::snapshot::open_sockets;

/// Runs of each; the median counts.
const RUNS: usize = 9;
/// Most CPU time of a look, per cent of one CPU at a look each second.
const MOST: f64 = 1.0;
/// Longest wait for a screen.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let udpath = udpath()?;
    look(results, &udpath, "", "")?;
    let open = open_sockets()?;
    look(results, &udpath, "_crowded", " with 10,000 sockets")?;
    drop(open);
    Ok(())
}

/// All three, on the machine as it is now.
fn look(results: &mut Results, udpath: &str, suffix: &str, on: &str) -> Result<()> {
    let (mut shown, mut used) = (Vec::new(), Vec::new());
    let (mut screen, mut answer) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (took, cpu) = show(udpath)?;
        shown.push(took);
        used.push(cpu);
        screen.push(top(udpath)?);
        answer.push(export(udpath)?);
    }
    for (name, what, times) in [
        ("show", "show, from its start to its last byte", shown),
        ("top", "top, from its start to its first screen", screen),
        ("export", "export, from its start to the end of its first answer", answer),
    ] {
        let id = format!("processes.{name}{suffix}");
        let claim = Claim::new(
            &id,
            format!("{what}{on}"),
            quantile(times.clone(), 0.5),
            Unit::Milliseconds,
            Bound::Shown,
        );
        results.add(&claim.within(quantile(times.clone(), 0.1), quantile(times, 0.9)));
    }
    // Milliseconds in a second, per cent.
    let share = |at: f64| quantile(used.clone(), at) / 10.0;
    let what = format!("show each second{on}, of a CPU");
    let id = format!("processes.show_cpu{suffix}");
    let claim = Claim::new(&id, what, share(0.5), Unit::PerCent, Bound::Below(MOST));
    results.add(&claim.within(share(0.1), share(0.9)));
    Ok(())
}

/// Milliseconds of a whole `show`, and its CPU time.
fn show(udpath: &str) -> Result<(f64, f64)> {
    let before = sys::ended_children();
    let begin = Instant::now();
    let output = Command::new(udpath).arg("show").stdin(Stdio::null()).output();
    let output = output.context("cannot start udpath show")?;
    let took = milliseconds(begin.elapsed());
    let used = milliseconds(sys::ended_children().saturating_sub(before));
    // It exits with 1 if it has findings.
    let done = matches!(output.status.code(), Some(0 | 1)) && !output.stdout.is_empty();
    ensure!(done, "udpath show printed: {}", String::from_utf8_lossy(&output.stderr));
    Ok((took, used))
}

/// Milliseconds until `top` has drawn its first screen.
fn top(udpath: &str) -> Result<f64> {
    let terminal = Terminal { server: format!("udpath-bench-{}", std::process::id()) };
    // The shell is there first, so that only `top` is timed.
    terminal.tmux(&["new-session", "-d", "-x", "120", "-y", "40", "sh"])?;
    let begin = Instant::now();
    terminal.tmux(&["respawn-pane", "-k", &format!("{udpath} top -i 1")])?;
    while !terminal.tmux(&["capture-pane", "-p"])?.contains("UDP/s") {
        ensure!(begin.elapsed() < TIMEOUT, "top has drawn nothing in {} s", TIMEOUT.as_secs());
        thread::sleep(Duration::from_millis(2));
    }
    Ok(milliseconds(begin.elapsed()))
}

/// Milliseconds until `export` has answered its first query.
fn export(udpath: &str) -> Result<f64> {
    let begin = Instant::now();
    let (_child, address) = exporting(udpath)?;
    scrape(&address)?;
    Ok(milliseconds(begin.elapsed()))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
