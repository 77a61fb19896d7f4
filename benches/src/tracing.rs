//! The cost of tracing for the observed service: transactions per second of a shared socket under full load, with and
//! without tracing.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use udpath_profile::classes::Rules;
use udpath_profile::symbols::kernel::Kernel;
use udpath_profile::trace::{self, Source};

use crate::claim::{Bound, Claim};
use crate::race::race;
use crate::results::Results;
use crate::steady::Steady;

/// At the start, the kernel counts the cost of tracing for 250 ms, which also has a cost; this is longer.
const METERED: Duration = Duration::from_millis(300);
/// Length of alternating periods with and without tracing.
const MOMENT: Duration = Duration::from_millis(300);
/// Sufficient half-width of the interval, and most blocks of four periods.
const WIDTH: f64 = 0.005;
const BLOCKS: usize = 40;
/// Sources traced together, and the lowest acceptable share of transactions. The first set is the default. The others
/// have a cost per packet, and at this packet rate about half of their work shows.
const SETS: [(&[Source], f64); 4] = [
    (&[Source::Locks, Source::Drops], 0.97),
    (&[Source::Softirqs], 0.87),
    (&[Source::Delays], 0.91),
    (&Source::ALL, 0.8),
];

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let steady = Steady::start(7)?;
    let kernel = Kernel::running()?;
    let moment = || {
        steady.tps_while(|| {
            thread::sleep(MOMENT);
            Ok(())
        })
    };
    for (sources, least) in SETS {
        let sources: BTreeSet<Source> = sources.iter().copied().collect();
        let traced = || {
            let running = trace::start(&sources);
            thread::sleep(METERED);
            let tps = moment()?;
            let traces = running.finish(&kernel, Rules::built_in());
            ensure!(traces.absent.is_empty(), "not all can be traced here: {:?}", traces.absent);
            Ok(tps)
        };
        let plain = || {
            thread::sleep(METERED);
            moment()
        };
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        let what = format!("transactions with tracing of {} / without", names.join(", "));
        let ratio = race(&what, WIDTH, BLOCKS, plain, traced)?;
        let id = format!("tracing.{}", names.join("-"));
        results.add(&Claim::ratio(&id, what, &ratio, Bound::AtLeast(least)));
    }
    Ok(())
}
