//! The line that shows how far a long operation is.

use udpath_advise::result::{Ratio, RungResult, Verdict};
use udpath_load::Progress;
use udpath_load::search::Probe;
use udpath_serve::Status;

use crate::{units, words};

/// Columns of a rung's name: the longest of the ladder fits, so that the numbers behind it are aligned.
const RUNG_NAME: usize = 13;

/// A load: time, rate, and the fate of its requests so far.
#[must_use]
pub fn load_line(p: &Progress) -> String {
    format!(
        "{:.1} of {:.1} s: {} tps, {} sent, {} ok, {} lost",
        p.elapsed.as_secs_f64(),
        p.total.as_secs_f64(),
        units::tps(p.tps),
        units::count(p.sent),
        units::count(p.ok),
        units::count(p.lost)
    )
}

/// A run of a search.
#[must_use]
pub fn probe_line(probe: &Probe) -> String {
    let (rate, verdict) = (units::tps(probe.rate), super::search::verdict(probe.verdict));
    let inflight = probe.inflight.map_or_else(String::new, |inflight| format!("{inflight:>5} in flight "));
    format!("{inflight}{rate:>8}/s  {verdict}: {}", probe.reason)
}

/// A trial of a climb, within `blocks` (done, most) of four trials. `live`: of what clients send.
#[must_use]
pub fn trial_line(tps: f64, blocks: (usize, usize), interval: Option<Ratio>, live: bool) -> String {
    let unit = unit(live);
    let ratio = interval.map_or_else(String::new, |ratio| format!("  × {}", units::interval(ratio)));
    format!("{:>7} {unit}  block {} of at most {}{ratio}", units::tps(tps), blocks.0 + 1, blocks.1)
}

/// What a climb's figures count, in little room.
pub(crate) const fn unit(live: bool) -> &'static str {
    if live { "per CPU s" } else { "tps" }
}

/// A rung of a climb that is done. `live`: of what clients send.
#[must_use]
pub fn rung_line(rung: &RungResult, live: bool) -> String {
    let unit = unit(live);
    let kept = if rung.verdict == Verdict::Better { ", kept" } else { "" };
    let (name, tps) = (words::name(rung), units::tps(rung.tps));
    format!("{name:<RUNG_NAME$} {tps:>7} {unit}  {}{kept}", words::outcome(rung))
}

/// A rung of a climb that is being profiled.
#[must_use]
pub fn profiling_line(name: &str) -> String {
    format!("{name:<RUNG_NAME$} profiling")
}

/// A server: rates since `before`, the shares of its workers, and what was dropped.
#[must_use]
pub fn server_line(before: Option<&Status>, now: &Status) -> String {
    let since = |of: fn(&Status) -> u64| of(now).saturating_sub(before.map_or(0, of)) as f64;
    let seconds = (now.seconds - before.map_or(0.0, |before| before.seconds)).max(1e-3);
    let mut line = format!(
        "{} tps, {} received/s",
        units::tps(since(|status| status.total.answered) / seconds),
        units::tps(since(|status| status.total.received) / seconds)
    );
    let of_worker = |at: usize| {
        let received = |status: &Status| status.workers.get(at).map_or(0, |worker| worker.counts.received);
        received(now).saturating_sub(before.map_or(0, received))
    };
    let window: Vec<u64> = (0..now.workers.len()).map(of_worker).collect();
    let total: u64 = window.iter().sum();
    if total > 0 {
        // No more shares than fit on the line.
        let shares = window.iter().take(16).map(|n| format!("{:.0}", *n as f64 * 100.0 / total as f64));
        line += &format!(", workers {} %", shares.collect::<Vec<_>>().join("/"));
    }
    line += &format!(
        ", dropped {}, by the kernel {}",
        units::count(now.total.dropped.total()),
        units::count(now.kernel_drops)
    );
    match now.warnings.len() {
        0 => line,
        1 => line + " [1 warning]",
        several => line + &format!(" [{several} warnings]"),
    }
}

#[cfg(test)]
mod tests {
    use udpath_advise::ladder::ladder;
    use udpath_serve::Io;

    use super::*;

    #[test]
    fn every_name_of_the_ladder_fits_its_column() {
        let ladder = ladder(&Io::ALL, 8);
        let longest = ladder.iter().map(|rung| rung.name.len()).max();
        assert_eq!(longest, Some(RUNG_NAME));
        for rung in ladder {
            assert_eq!(profiling_line(&rung.name).find("profiling"), Some(RUNG_NAME + 1), "{}", rung.name);
        }
    }
}
