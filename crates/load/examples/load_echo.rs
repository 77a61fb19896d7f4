//! Loads an echo server with requests at a rate, checks every reply, and prints what came back and how late.
//!
//! ```text
//! cargo run --release -p udpath-load --example load_echo -- 10.0.0.2:7 10000 5
//! ```

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::template::{Judgement, Protocol, Template};
use udpath_load::{Engine, run};

/// Bytes of a request: its flow 4, its number 8.
const LEN: usize = 12;

struct Echo;

impl Protocol for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn min_size(&self) -> usize {
        LEN
    }

    fn max_size(&self) -> usize {
        LEN
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(Self)
    }
}

impl Template for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn min_size(&self) -> usize {
        LEN
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        request[..4].copy_from_slice(&flow.to_be_bytes());
        request[4..LEN].copy_from_slice(&seq.to_be_bytes());
        LEN
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let Some((of, seq)) = reply.split_first_chunk::<4>() else { return Judgement::Corrupt };
        let Ok(seq) = <[u8; 8]>::try_from(seq) else { return Judgement::Corrupt };
        if u32::from_be_bytes(*of) == flow {
            Judgement::Valid { seq: u64::from_be_bytes(seq) }
        } else {
            Judgement::WrongFlow
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(rate), Some(seconds)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: load_echo ADDR:PORT RATE SECONDS".into());
    };
    let plan = Plan {
        flows: 16,
        arrivals: Arrivals::Open { rate: rate.parse()?, process: Process::Poisson },
        size: LEN,
        duration: Duration::from_secs_f64(seconds.parse()?),
        ..Plan::new(target.parse()?)
    };
    let result = run(&plan, Engine::Socket, &Echo, &mut |_| (), &AtomicBool::new(false))?;
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
