//! What a server pays for having given up its privileges: the kernel's look at the filter of system calls, at each
//! call.

use anyhow::Result;

use crate::bed::{Bed, udpath};
use crate::claim::{Bound, Claim};
use crate::race::race;
use crate::results::Results;

/// Lowest acceptable rate relative to the same server with all privileges.
const WITHIN: f64 = 0.98;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let bed = Bed::new(true)?;
    let udpath = udpath()?;
    let mut port = 7500;
    // Batch 1 makes most system calls per datagram: two.
    for batch in ["1", "32"] {
        port += 2;
        let (root, confined) = (bed.server(port)?, bed.server(port + 1)?);
        let serve = |bind: &str, more: &[&str]| {
            let fixed =
                ["serve", "echo", "--io", "shared", "--bind", bind, "--workers", "2", "--batch", batch];
            bed.serve(&udpath, &[&fixed, more].concat())
        };
        let _root = serve(&root.to_string(), &["--user", "root"])?;
        let _confined = serve(&confined.to_string(), &[])?;
        let what = format!("without privileges / as root, batch {batch}");
        let ratio =
            race(&what, 0.008, 24, || Ok(bed.loop_tps(root)?.tps), || Ok(bed.loop_tps(confined)?.tps))?;
        results.add(&Claim::ratio(&format!("confine.{batch}"), what, &ratio, Bound::AtLeast(WITHIN)));
    }
    Ok(())
}
