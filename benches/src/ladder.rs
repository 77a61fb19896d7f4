//! The main claim: the best kernel-socket rung against the shared socket, and AF_XDP against both.
//!
//! ```text
//! link           XPS on both ends, which stands for a card's RSS; interrupts moderated by 0 and by 75 us, one after the other
//! kernel rungs   one climb: every kernel-socket rung against the best before it
//! races          A B B A:  kernel  best kernel-socket rung / shared
//!                          batch   shared, 32 datagrams per call / shared         gso   the same with UDP_SEGMENT / without
//!                          xdp     AF_XDP / shared, AF_XDP / best kernel-socket rung, with live frames and without
//! ```
//! Each claim is judged under each condition. Kernel sockets send no live frames, so their claim has two.

pub(crate) mod climbing;

use anyhow::Result;
use udpath_advise::ladder::{Settings, Step, ladder};
use udpath_serve::Io;

use self::climbing::{Effort, FLOWS, INFLIGHT, QUEUES, TRIAL, WORKERS, climb, race};
use crate::claim::{Bound, Claim, Unit, Verdict};
use crate::results::Results;

/// Interrupt moderation of the links, microseconds: none, and that of `udpath boost`, which is what 10 Gbit/s NICs
/// have.
const MODERATION: [u32; 2] = [0, 75];
/// Best kernel-socket rung over the shared socket.
const KERNEL_OVER_SHARED: f64 = 1.45;
/// AF_XDP over the shared socket, and over the best kernel-socket rung.
const XDP_OVER_SHARED: f64 = 3.5;
const XDP_OVER_KERNEL: f64 = 2.5;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let shared = Settings::base(WORKERS, FLOWS * INFLIGHT);
    let mut held = Held::default();
    for moderation in MODERATION {
        rungs(results, &mut held, moderation, shared)?;
    }
    held.print();
    Ok(())
}

/// Everything at one moderation.
fn rungs(results: &mut Results, held: &mut Held, moderation: u32, shared: Settings) -> Result<()> {
    let rungs = ladder(&Io::KERNEL, QUEUES);
    eprintln!("  kernel sockets, moderation {moderation} us");
    let climbed = climb(rungs.clone(), moderation, &Effort::usual(TRIAL))?;
    let mut best = shared;
    for rung in climbed.rungs.iter().filter(|rung| rung.kept) {
        // The first of them is `one-queue`, which later rungs do not build upon.
        if let Some(known) = rungs.iter().find(|known| known.name == rung.name) {
            best = known.step.apply(&best, WORKERS);
        }
    }
    let best = Settings { one_queue: false, ..best };
    for rung in climbed.rungs.iter().skip(1) {
        let against = rung.against.as_deref().unwrap_or("nothing");
        let ratio = climbing::ratio(rung);
        let what = format!("ladder, {moderation} us: {} / {against}", rung.name);
        let id = format!("ladder.rung.{}.{moderation}", rung.name);
        results.add(&Claim::ratio(&id, what, &ratio, Bound::Shown).moderated(moderation));
    }
    let named =
        format!("best kernel-socket rung ({})", if best == shared { "shared" } else { &climbed.best });
    if best == shared {
        // Nothing won: the ratio is 1 and needs no race.
        let bound = Bound::AtLeast(KERNEL_OVER_SHARED);
        let what = format!("{named} / shared, {moderation} us");
        let claim = Claim::new(&format!("ladder.kernel.{moderation}"), what, 1.0, Unit::Ratio, bound);
        let claim = claim.moderated(moderation);
        results.add(&claim);
        held.note("kernel", moderation, &claim);
    }
    let mut compare = |id: &str, what: String, bound: Bound, one: Settings, other: Settings| -> Result<()> {
        let ratio = race(one, other, moderation)?;
        let claim =
            Claim::ratio(&format!("ladder.{id}.{moderation}"), what, &ratio, bound).moderated(moderation);
        results.add(&claim);
        held.note(id, moderation, &claim);
        Ok(())
    };
    let batched = Step::Batch(32).apply(&shared, WORKERS);
    compare("batch", format!("batch 32 / shared, {moderation} us"), Bound::Shown, shared, batched)?;
    let segmented = Step::Gso.apply(&batched, WORKERS);
    compare("gso", format!("GSO / batch 32 without it, {moderation} us"), Bound::Shown, batched, segmented)?;
    if best != shared {
        let bound = Bound::AtLeast(KERNEL_OVER_SHARED);
        compare("kernel", format!("{named} / shared, {moderation} us"), bound, shared, best)?;
    }
    for live in [true, false] {
        let xdp = Settings { live_frames: live, ..Step::Io(Io::Xdp).apply(&shared, WORKERS) };
        let frames = if live { "live frames" } else { "no live frames" };
        let mode = if live { "live" } else { "rings" };
        let condition = format!("{moderation} us, {frames}");
        let bound = Bound::AtLeast(XDP_OVER_SHARED);
        compare(&format!("xdp_shared.{mode}"), format!("xdp / shared, {condition}"), bound, shared, xdp)?;
        let bound = Bound::AtLeast(XDP_OVER_KERNEL);
        compare(&format!("xdp_kernel.{mode}"), format!("xdp / {named}, {condition}"), bound, best, xdp)?;
    }
    Ok(())
}

/// Which required ratio holds under which conditions.
#[derive(Default)]
struct Held {
    of: Vec<(String, String, bool)>,
}

impl Held {
    fn note(&mut self, id: &str, moderation: u32, claim: &Claim) {
        let verdict = claim.verdict();
        if verdict == Verdict::Shown {
            return;
        }
        let (ratio, mode) = id.split_once('.').unwrap_or((id, ""));
        let frames = match mode {
            "live" => ", live frames",
            "rings" => ", no live frames",
            _ => "",
        };
        self.of.push((ratio.to_owned(), format!("{moderation} us{frames}"), verdict == Verdict::Held));
    }

    fn print(&self) {
        for (ratio, what) in [
            ("kernel", "best kernel-socket rung >= 1.45 x shared"),
            ("xdp_shared", "xdp >= 3.5 x shared"),
            ("xdp_kernel", "xdp >= 2.5 x best kernel-socket rung"),
        ] {
            let under = |held: bool| {
                let those = self.of.iter().filter(|(of, _, holds)| of == ratio && *holds == held);
                let names: Vec<_> = those.map(|(_, condition, _)| condition.as_str()).collect();
                if names.is_empty() { "no condition".to_owned() } else { names.join("; ") }
            };
            println!("{what}: holds under {}; missed under {}", under(true), under(false));
        }
    }
}
