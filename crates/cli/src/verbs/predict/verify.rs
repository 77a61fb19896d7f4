//! Compares predictions with the packets that the interface receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use udpath_bpf::{Watch, Way};
use udpath_steer::Flow;
use udpath_steer::predict::{Observed, Predictor, StepAccuracy, Verification};

use super::Args;
use super::flows::Flows;
use super::input::Known;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Interval at which the end is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Shortest and longest time to watch, seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Seconds to watch.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.trim_end_matches('s').parse() {
        Ok(seconds) if SECONDS.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("give {} to {} seconds", SECONDS.start(), SECONDS.end())),
    }
}

/// The observed packets, and their comparison.
pub(super) struct Verified {
    pub(super) verification: Verification,
    ways: Vec<Observed>,
    interface: String,
    watched: Duration,
}

/// Watches for the requested time, if any, or until it is stopped. `wanted` are the flows to compare.
pub(super) fn watch(
    args: &Args,
    known: &Known,
    predictor: &Predictor,
    wanted: impl Fn(&Flow) -> bool,
) -> Result<Option<Verified>, Failure> {
    let (Some(duration), Some(interface)) = (args.verify, &args.interface) else { return Ok(None) };
    let stop = Arc::new(AtomicBool::new(false));
    terminal::stop_on_signals(&stop)?;
    let port = args.to.as_ref().and_then(super::To::port);
    let started = Instant::now();
    let seen = args.place.look(|_| {
        let watch = Watch::open(interface, port)?;
        eprintln!("watching what {interface} receives for {} s", duration.as_secs_f64());
        while started.elapsed() < duration && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL.min(duration));
        }
        Ok::<_, udpath_bpf::Error>((watch.ways()?, watch.passed_over()))
    })?;
    let (ways, over) = seen.map_err(|error| Failure::Cannot(anyhow!("unverified: {error}")))?;
    if over.no_room > 0 {
        eprintln!("{} packets of more flows than can be watched at once are not compared", over.no_room);
    }
    if over.fragments > 0 {
        eprintln!("{} fragments are not compared: they have no ports", over.fragments);
    }
    let mut verification = Verification::default();
    // A virtual link leaves the sender's queue number in a packet.
    let recorded = known.tables.senders_queue != Some(true);
    let ways: Vec<Observed> = ways
        .iter()
        .filter_map(|way| observed(way, recorded))
        .filter(|observed| wanted(&observed.flow))
        .collect();
    ways.iter().for_each(|observed| verification.add(predictor, observed));
    let (interface, watched) = (interface.clone(), started.elapsed());
    Ok(Some(Verified { verification, ways, interface, watched }))
}

/// `recorded`: does the driver record the packet's receive queue?
fn observed(way: &Way, recorded: bool) -> Option<Observed> {
    // Both addresses are from one header.
    let flow = Flow::udp(way.source, way.destination).ok()?;
    Some(Observed {
        flow,
        packets: way.packets,
        hash: way.hash,
        queue: way.queue.filter(|_| recorded),
        cpu: way.cpu,
    })
}

impl Verified {
    /// The observed flows.
    pub(super) fn flows(&self) -> Result<Flows, anyhow::Error> {
        let mut flows = Flows::default();
        self.ways.iter().try_for_each(|way| flows.add(way.flow, way.packets))?;
        Ok(flows)
    }

    /// Prints the comparison on stdout unless the JSON document contains it, and fails if the prediction was wrong.
    pub(super) fn end(&self, recorded: bool) -> Done {
        let all = &self.verification;
        if all.packets == 0 {
            return Err(Failure::Cannot(anyhow!(
                "unverified: none of these datagrams came by {} in {:.1} s; send some meanwhile, or watch longer with \
                 --verify=30",
                self.interface,
                self.watched.as_secs_f64()
            )));
        }
        let steps: Vec<String> = all.steps().iter().map(|(name, judged)| sentence(name, judged)).collect();
        let steps = steps.join(", ");
        let amount = format!("{} packets of {} flows", all.packets, all.flows);
        if !all.is_compared() {
            return Err(Failure::Cannot(anyhow!(
                "unverified: {amount} came, and there was nothing to compare: {steps}"
            )));
        }
        if !recorded {
            terminal::print(&format!("verified on {amount}: {steps}"))?;
        }
        let Some((step, judged)) = all.wrong() else { return Ok(()) };
        // Always present here, because a prediction was wrong.
        let Some(differs) = judged.differs else { return Ok(()) };
        let value = |value: u32| match step {
            "hash" => format!("0x{value:08x}"),
            _ => value.to_string(),
        };
        Err(Failure::Findings(format!(
            "{} of {} packets differ from the prediction; most of flow {}: {step} predicted {}, observed {}",
            judged.wrong,
            judged.compared(),
            differs.flow,
            value(differs.predicted),
            value(differs.observed)
        )))
    }
}

/// `queue right in 100 %`, or why there is nothing to compare.
fn sentence(name: &str, judged: &StepAccuracy) -> String {
    match judged.compared() {
        0 => match judged.why {
            Some(why) => format!("{name} not compared ({why})"),
            None => format!("{name} not compared (the driver does not report it)"),
        },
        compared => {
            // Only all of them are 100 %.
            let thousandths = u128::from(judged.right) * 1000 / u128::from(compared);
            let share = match thousandths % 10 {
                0 => format!("{}", thousandths / 10),
                rest => format!("{}.{rest}", thousandths / 10),
            };
            let less = judged.not_predicted + judged.not_observed;
            let part = if less > 0 { format!(" of {compared} packets") } else { String::new() };
            format!("{name} right in {share} %{part}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_never_rounded_up_to_all() {
        let of = |right, wrong| sentence("queue", &StepAccuracy { right, wrong, ..StepAccuracy::default() });
        assert_eq!(of(7, 0), "queue right in 100 %");
        assert_eq!(of(99_999, 1), "queue right in 99.9 %");
        assert_eq!(of(0, 3), "queue right in 0 %");
        assert_eq!(
            sentence("queue", &StepAccuracy { right: 3, not_observed: 1, ..StepAccuracy::default() }),
            "queue right in 100 % of 3 packets"
        );
        assert_eq!(
            sentence("hash", &StepAccuracy { not_observed: 1, ..StepAccuracy::default() }),
            "hash not compared (the driver does not report it)"
        );
    }

    #[test]
    fn the_time_to_watch_has_bounds() {
        assert_eq!(seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(seconds("0.5s"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "x", "1e9"] {
            assert!(seconds(text).unwrap_err().contains("0.1 to 86400 seconds"), "{text}");
        }
    }
}
