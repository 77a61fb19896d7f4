//! What tracing costs the service that is looked at: transactions a second of a shared socket under full load, with and
//! without it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use udpath_profile::classes::Rules;
use udpath_profile::symbols::kernel::Kernel;
use udpath_profile::trace::{self, Source};

use crate::Claim;
use crate::bed::{Bed, udpath};
use crate::race::{race, words};

/// At the beginning the kernel counts what tracing costs, which costs as well: 250 ms, which are over when this is.
const METERED: Duration = Duration::from_millis(300);
/// What is traced together, and the least share of transactions that is left.
const SETS: [(&[Source], f64); 4] = [
    (&[Source::Locks, Source::Drops], 0.97),
    (&[Source::Softirqs], 0.95),
    (&[Source::Delays], 0.93),
    (&Source::ALL, 0.88),
];

pub(crate) fn run() -> Result<Vec<Claim>> {
    const PORT: u16 = 7;
    let bed = Bed::new(true)?;
    let target = bed.server(PORT)?;
    let bind = target.to_string();
    let _serving =
        bed.serve(&udpath()?, &["serve", "echo", "--io", "shared", "--bind", &bind, "--workers", "2"])?;
    let kernel = Kernel::running()?;
    let mut claims = Vec::new();
    for (sources, least) in SETS {
        let sources: BTreeSet<Source> = sources.iter().copied().collect();
        let traced = || {
            let running = trace::start(&sources);
            std::thread::sleep(METERED);
            let tps = bed.loop_tps(target)?.tps;
            let traces = running.finish(&kernel, Rules::built_in());
            ensure!(traces.absent.is_empty(), "not all can be traced here: {:?}", traces.absent);
            Ok(tps)
        };
        let ratio = race(0.01, 24, || Ok(bed.loop_tps(target)?.tps), traced)?;
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        claims.push(Claim {
            what: format!("transactions with tracing of {} / without", names.join(", ")),
            measured: words(&ratio),
            bound: format!(">= {least}"),
            holds: ratio.ratio >= least,
        });
    }
    Ok(claims)
}
