//! The sentences that the terminal and the HTML share, built from the figures.

pub(crate) mod compare;
pub(crate) mod duets;
pub(crate) mod experiment;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod machines;
pub(crate) mod running;

use udpath_advise::result::{
    BoostResult, LIVE, LeftOut, Profiles, Ratio, RungDiagnosis, RungResult, Verdict,
};
use udpath_advise::{ProfileResult, Remedy, Severity};
use udpath_host::visible::drives;
use udpath_load::cpu::CpuUse;
use udpath_load::result::Latency;
use udpath_profile::Profile;

use crate::{finding, units};

/// The kept rung: the one named in the result, or else the last one kept, or else the first.
pub(crate) fn best(result: &BoostResult) -> Option<&RungResult> {
    let rungs = || result.rungs.iter();
    rungs()
        .rev()
        .find(|r| r.name == result.best)
        .or_else(|| rungs().rev().find(|r| r.kept))
        .or(result.rungs.first())
}

/// A rung's ratio and interval as one value.
pub(crate) const fn ratio(rung: &RungResult) -> Ratio {
    Ratio { ratio: rung.ratio, low: rung.ratio_low, high: rung.ratio_high }
}

/// A rung's latency, if it was measured.
pub(crate) fn latency(rung: &RungResult, of: impl Fn(&Latency) -> u64) -> String {
    rung.latency.as_ref().map_or_else(|| units::NONE.to_owned(), |latency| units::time(of(latency) as f64))
}

/// A rung's bandwidth, share of 10 GbE, three latencies, loss and CPU time per transaction. A failed one has none.
pub(crate) fn costs(rung: &RungResult) -> [String; 7] {
    if rung.verdict == Verdict::Failed {
        return [units::NONE; 7].map(str::to_owned);
    }
    [
        // Unknown of live traffic.
        if rung.wire_mbits > 0.0 { units::mbits(rung.wire_mbits) } else { units::NONE.to_owned() },
        if rung.wire_mbits > 0.0 { units::share_in_column(rung.line_share) } else { units::NONE.to_owned() },
        latency(rung, |latency| latency.p50),
        latency(rung, |latency| latency.p99),
        latency(rung, |latency| latency.p99_9),
        units::loss(rung.loss),
        units::time(rung.cpu_ns_per_transaction),
    ]
}

/// Was the rung tried and undone?
pub(crate) fn undone(rung: &RungResult) -> bool {
    !rung.kept && rung.verdict != Verdict::Base
}

/// The verdict and the rung's outcome: `better`, `worse, undone`, `failed`.
pub(crate) fn outcome(rung: &RungResult) -> String {
    let word = units::verdict(rung.verdict);
    if undone(rung) && rung.verdict != Verdict::Failed { format!("{word}, undone") } else { word.to_owned() }
}

/// The conclusion of a climb, in one sentence.
pub(crate) fn conclusion(result: &BoostResult) -> String {
    if let Some(running) = &result.running {
        return running::conclusion(result, running);
    }
    let (Some(first), Some(best)) = (result.rungs.first(), best(result)) else {
        return "No rung was run.".to_owned();
    };
    if best.tps <= 0.0 {
        return "No rung completed a transaction.".to_owned();
    }
    let tps = units::tps(best.tps);
    if std::ptr::eq(first, best) {
        return format!(
            "{tps} transactions/s: no rung was shown to be faster than the first, {}.",
            name(first)
        );
    }
    let gain = units::interval(result.gain).replacen(' ', "× ", 1);
    if result.gain.low > 1.0 {
        format!("{tps} transactions/s: {gain} the first rung, with {}.", settings_gained(first, best))
    } else {
        format!("{tps} transactions/s with {}: a gain over the first rung is not shown ({gain}).", name(best))
    }
}

/// The settings in which the best rung differs from the first, in words: `reuseport, XPS, batch 32`.
pub(crate) fn settings_gained(first: &RungResult, best: &RungResult) -> String {
    let differing = best.settings.iter().filter(|setting| !first.settings.contains(setting));
    let words: Vec<String> = differing.map(|(key, value)| setting(key, value)).collect();
    if words.is_empty() { name(best) } else { words.join(", ") }
}

fn setting(key: &str, value: &str) -> String {
    let shown = match key {
        "xps" => "XPS",
        "rps" => "RPS",
        "rfs" => "RFS",
        "rss" => "RSS",
        "gro" => "GRO",
        "gso" => "GSO",
        "steer" => "steering",
        "busy_poll" => "busy polling",
        "pin" => "pinned workers",
        "one_queue" => "one queue",
        "live_frames" => "live frames",
        other => other,
    };
    match (key, value) {
        ("io", io) => io.to_owned(),
        ("pin", "off" | "no" | "false") => "unpinned workers".to_owned(),
        ("one_queue", "off") => "all queues".to_owned(),
        (_, "on" | "yes" | "true") => shown.to_owned(),
        (_, "off" | "no" | "false" | "none") => format!("no {shown}"),
        _ => format!("{shown} {value}"),
    }
}

/// Was the server measured under its clients' traffic?
pub(crate) fn is_live(result: &BoostResult) -> bool {
    result.load.engine == LIVE
}

/// What the figures of a climb count.
pub(crate) fn unit(result: &BoostResult) -> &'static str {
    if is_live(result) { "datagrams per second of CPU time" } else { "transactions/s" }
}

/// The load of a climb, in words.
pub(crate) fn load(result: &BoostResult) -> String {
    let l = &result.load;
    if is_live(result) {
        return format!("what clients sent, trials of {}", units::duration(l.trial_seconds));
    }
    let protocol = if l.protocol.is_empty() { String::new() } else { format!("{}, ", l.protocol) };
    format!(
        "{protocol}{} engine, {} {}, {} in flight, {} bytes of payload ({} on the wire), trials of {}",
        l.engine,
        units::count(l.flows.into()),
        plural(l.flows, "flow"),
        units::count(l.inflight.into()),
        units::count(l.size.into()),
        units::count(l.wire_bytes.into()),
        units::duration(l.trial_seconds)
    )
}

/// The machine of a climb, in words.
pub(crate) fn machine(result: &BoostResult) -> String {
    let m = &result.machine;
    format!(
        "{}, Linux {}, {}, {} {}, {} of memory; {}",
        m.hostname,
        m.kernel,
        m.cpu_model,
        m.cpus,
        plural(m.cpus, "CPU"),
        units::memory(m.memory),
        link(result)
    )
}

/// The link of a climb, with its queues unless they are mentioned already.
pub(crate) fn link(result: &BoostResult) -> String {
    let m = &result.machine;
    if m.link.contains("queue") {
        m.link.clone()
    } else {
        format!("{}, {} {} each way", m.link, m.queues, plural(m.queues, "queue"))
    }
}

/// The command that repeats the climb: as given, or built from the result.
pub(crate) fn command(result: &BoostResult) -> String {
    if let Some(given) = &result.command {
        return given.clone();
    }
    let (l, m) = (&result.load, &result.machine);
    let mut command = format!(
        "udpath boost --lab --engine {} --queues {} --flows {} --inflight {} --size {} --duration {}s",
        l.engine,
        m.queues,
        l.flows,
        (l.inflight / l.flows.max(1)).max(1),
        l.size,
        l.trial_seconds
    );
    let values = |key: &str| {
        let settings = result.rungs.iter().flat_map(|rung| &rung.settings);
        distinct(settings.filter(|(name, _)| name == key).map(|(_, value)| value.as_str())).join(",")
    };
    for (option, list) in [("--io", values("io")), ("--workers", values("workers"))] {
        if !list.is_empty() {
            command += &format!(" {option} {list}");
        }
    }
    command + " --report again.html"
}

/// The extent of a profile, in words.
pub(crate) fn sampled(profile: &Profile) -> String {
    let cpus = u32::try_from(profile.cpus.len()).unwrap_or(u32::MAX);
    let used = profile.busy() as f64 / profile.available().max(1.0);
    let samples = profile.samples;
    let lost =
        if samples.lost == 0 { String::new() } else { format!(", {} lost", units::count(samples.lost)) };
    format!(
        "{} of {cpus} {}, {} used; {} samples{lost}, {} a second of each, by {}",
        units::duration(profile.seconds),
        plural(cpus, "CPU"),
        units::share(used),
        units::count(samples.taken),
        units::count(samples.rate.into()),
        profile.clock.name()
    )
}

/// The datagrams of a profile and their cost, in words: a line or two, or none.
pub(crate) fn datagrams(profile: &Profile) -> Vec<String> {
    let Some(counted) = profile.datagrams else { return Vec::new() };
    let dropped = match counted.dropped {
        0 => "none dropped".to_owned(),
        dropped => format!("{} dropped ({})", units::count(dropped), units::loss(counted.loss())),
    };
    let mut lines = vec![format!(
        "{} datagrams received, {} sent, {dropped}",
        units::count(counted.received),
        units::count(counted.sent)
    )];
    if let Some(each) = profile.per_datagram(profile.charged()) {
        let pair = profile.per_transaction(profile.charged());
        let pair = pair.map_or_else(String::new, |ns| format!(", {} per transaction", units::time(ns)));
        let others = profile.others() as f64 / profile.busy().max(1) as f64;
        let others = if others > 0.0 {
            format!("; other programs' {} of the CPU time used is left out", units::share(others))
        } else {
            String::new()
        };
        lines.push(format!("{} of CPU time per datagram{pair}{others}", units::time(each)));
    }
    lines
}

/// The rungs of a climb that were profiled, the first and then the best, by name.
pub(crate) fn profiled(result: &BoostResult) -> Vec<(&str, &ProfileResult)> {
    let Some(profiles) = &result.profiles else { return Vec::new() };
    let first = result.rungs.first().map(|rung| rung.name.as_str()).zip(profiles.first.as_deref());
    let best = best(result).map(|rung| rung.name.as_str()).zip(profiles.best.as_deref());
    first.into_iter().chain(best).collect()
}

/// Findings shown of the first rung. More: the first screen is full of them.
const FINDINGS: usize = 3;

/// What limited the first rung, what was wrong with it, and what limited the best; commands in this form.
pub(crate) fn limits(result: &BoostResult, command: fn(&str) -> String) -> Vec<String> {
    let mut out = Vec::new();
    for (at, RungDiagnosis { rung, diagnosis }) in result.diagnoses.iter().enumerate() {
        let name = shortened(&one_line(rung), 24);
        out.push(format!("{name}: {}", diagnosis.headline));
        let wrong = diagnosis
            .findings
            .iter()
            .filter(|found| found.finding.severity != Severity::Note && found.explained_by.is_none());
        let wrong = wrong.take(if at == 0 { FINDINGS } else { 0 });
        for found in wrong {
            out.push(format!("{name}: {}", finding::text(&found.finding)));
            let told = found.finding.remedies.iter().find(|remedy| matches!(remedy, Remedy::Command { .. }));
            out.extend(told.map(|remedy| format!("{name}: fix: {}", finding::on_one_line(remedy, command))));
        }
    }
    out
}

/// A rung that was left out, and the reason, as one line.
pub(crate) fn left_out(rung: &LeftOut) -> String {
    format!("{}: left out: {}", shortened(&one_line(&rung.name), 24), rung.reason)
}

/// Why a profile of a climb is missing, if one is.
pub(crate) fn not_profiled(profiles: &Profiles) -> Option<String> {
    let reason = profiles.absent.as_ref()?;
    Some(format!("No profile of {reason}."))
}

/// Mean over CPUs, as if they were one. `None` without CPUs.
pub(crate) fn mean_cpu(cpus: &[CpuUse]) -> Option<CpuUse> {
    if cpus.is_empty() {
        return None;
    }
    let mean = |of: fn(&CpuUse) -> f64| cpus.iter().map(of).sum::<f64>() / cpus.len() as f64;
    Some(CpuUse {
        cpu: 0,
        usr: mean(|c| c.usr),
        sys: mean(|c| c.sys),
        soft: mean(|c| c.soft),
        irq: mean(|c| c.irq),
        steal: mean(|c| c.steal),
        idle: mean(|c| c.idle),
        seconds: mean(|c| c.seconds),
    })
}

pub(crate) fn plural(number: u32, word: &str) -> String {
    if number == 1 { word.to_owned() } else { format!("{word}s") }
}

/// A rung's name as part of a sentence or a table: one line, not long.
pub(crate) fn name(rung: &RungResult) -> String {
    shortened(&one_line(&rung.name), 24)
}

/// Each once, in the order of first appearance.
pub(crate) fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut once: Vec<&str> = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// Capitalised, for the beginning of a sentence.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Makes external text fit for one line of a terminal or a page: control characters become spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if drives(c) { ' ' } else { c }).collect()
}

/// At most `most` characters, the last of them an ellipsis if some were cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_like_words() {
        let say = |k: &str, v: &str| setting(k, v);
        assert_eq!(say("io", "reuseport"), "reuseport");
        assert_eq!(say("xps", "on"), "XPS");
        assert_eq!(say("xps", "off"), "no XPS");
        assert_eq!(
            (say("one_queue", "on"), say("one_queue", "off")),
            ("one queue".into(), "all queues".into())
        );
        assert_eq!(say("batch", "32"), "batch 32");
        assert_eq!(
            (say("pin", "on"), say("pin", "off")),
            ("pinned workers".into(), "unpinned workers".into())
        );
    }

    #[test]
    fn sentences_begin_large() {
        assert_eq!(
            [capital("tracing took"), capital("7 drops"), capital("")],
            ["Tracing took", "7 drops", ""]
        );
    }

    #[test]
    fn text_from_outside_cannot_drive_a_terminal() {
        assert_eq!(one_line("a\x1b[2Jb\r\n\u{202e}c"), "a [2Jb   c");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
    }
}
