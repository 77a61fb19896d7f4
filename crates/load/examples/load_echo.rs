//! Loads an echo server with requests at a rate, checks every reply, and prints what came back and how late.
//!
//! ```text
//! cargo run --release -p udpath-load --example load_echo -- 10.0.0.2:7 10000 5
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::{Engine, run};
use udpath_protocols::echo::{EchoLoad, HEADER};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(rate), Some(seconds)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: load_echo ADDR:PORT RATE SECONDS".into());
    };
    let plan = Plan {
        flows: 16,
        arrivals: Arrivals::Open { rate: rate.parse()?, process: Process::Poisson },
        size: HEADER,
        duration: Duration::from_secs_f64(seconds.parse()?),
        ..Plan::new(target.parse()?)
    };
    let result = run(
        &plan,
        Engine::Socket,
        &EchoLoad::new(u64::from(std::process::id())),
        &mut |_| (),
        &AtomicBool::new(false),
    )?;
    for reason in &result.generator.reasons {
        println!("limited by the generator: {reason}");
    }
    let counts = result.counts;
    println!("{} sent, {} ok, {} lost", counts.sent, counts.ok, counts.lost);
    if let Some(latency) = result.intended_latency {
        println!("half within {} us, 99 % within {} us", latency.p50 / 1000, latency.p99 / 1000);
    }
    Ok(())
}
