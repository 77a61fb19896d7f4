//! Compares predictions with the packets that the interface receives.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use udpath_bpf::{Watch, Way};
use udpath_report::{accuracy, compared, mismatch};
use udpath_steer::Flow;
use udpath_steer::predict::{Observed, Predictor, Verification};

use super::flows::Flows;
use super::input::Known;
use crate::args::predict::{Args, To};
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal;
use crate::verbs::machine;

/// Interval at which the end is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
    let stop = signals::watch(Left::Nothing)?.flag();
    let port = args.to.as_ref().and_then(To::port);
    let started = Instant::now();
    let seen = machine::look(&args.place, |_| {
        let watch = Watch::open(interface, port)?;
        stderrln!("watching what {interface} receives for {} s", duration.as_secs_f64());
        while started.elapsed() < duration && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL.min(duration));
        }
        Ok::<_, udpath_bpf::Error>((watch.ways()?, watch.passed_over()))
    })?;
    let (ways, over) = seen.context("unverified")?;
    if over.no_room > 0 {
        stderrln!("{} packets not compared: more flows than can be watched at once", over.no_room);
    }
    if over.fragments > 0 {
        stderrln!("{} fragments not compared: they have no ports", over.fragments);
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
                "unverified: {} received none of these datagrams in {:.1} s; send some during that time, or watch longer with \
                 --verify=30s",
                self.interface,
                self.watched.as_secs_f64()
            )));
        }
        let (steps, amount) = (accuracy(all), compared(all));
        if !all.is_compared() {
            return Err(Failure::Cannot(anyhow!(
                "unverified: {amount} received, but nothing could be compared: {steps}"
            )));
        }
        if !recorded {
            terminal::print(&format!("verified on {amount}: {steps}"))?;
        }
        mismatch(all).map_or(Ok(()), |what| Err(Failure::Findings(what)))
    }
}
