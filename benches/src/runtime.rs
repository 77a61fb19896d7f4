//! The runtime against a bare C loop with the same system calls: the cost of the abstraction.

use anyhow::Result;

use crate::bed::{self, Bed, udpath};
use crate::claim::{Bound, Claim};
use crate::race::race;
use crate::results::Results;

/// Receive buffer of both, bytes: room for every request in flight in one socket, at slightly more than a page each.
const RECEIVE_BUFFER: &str = "2400000";
/// Lowest acceptable rate of the runtime relative to the bare loop.
const WITHIN: f64 = 0.97;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let bed = Bed::new(true)?;
    let udpath = udpath()?;
    let mut port = 7100;
    for (io, batch) in [("shared", 1), ("shared", 32), ("reuseport", 1), ("reuseport", 32)] {
        port += 2;
        let (bare, ours) = (bed.server(port)?, bed.server(port + 1)?);
        let batch = batch.to_string();
        let _bare: bed::Running = bed.serve(
            env!("BARE_ECHO"),
            &[io, &bare.ip().to_string(), &bare.port().to_string(), "2", &batch, "no-pin", RECEIVE_BUFFER],
        )?;
        let _ours = bed.serve(
            &udpath,
            &[
                "serve",
                "echo",
                "--io",
                io,
                "--bind",
                &ours.to_string(),
                "--workers",
                "2",
                "--batch",
                &batch,
                "--no-gso",
                "--no-pin",
                "--rcvbuf",
                RECEIVE_BUFFER,
            ],
        )?;
        let what = format!("runtime / bare C loop, {io}, batch {batch}");
        let ratio = race(&what, 0.015, 16, || Ok(bed.loop_tps(bare)?.tps), || Ok(bed.loop_tps(ours)?.tps))?;
        results.add(&Claim::ratio(&format!("runtime.{io}-{batch}"), what, &ratio, Bound::AtLeast(WITHIN)));
    }
    Ok(())
}
