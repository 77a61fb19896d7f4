//! The load of docs/tutorial.md: asks for squares, and checks every one.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::template::{Judgement, Protocol, Template};
use udpath_load::{Engine, run};

/// Bytes of a request and of a reply: flow 4, sequence number 8, number or square 8.
const LEN: usize = 20;

struct Squares;

impl Protocol for Squares {
    fn name(&self) -> &'static str {
        "squares"
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

/// The number that a transaction asks for.
fn number(flow: u32, seq: u64) -> u64 {
    seq.wrapping_mul(2_654_435_761) ^ u64::from(flow)
}

impl Template for Squares {
    fn name(&self) -> &'static str {
        "squares"
    }

    fn min_size(&self) -> usize {
        LEN
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        request[..4].copy_from_slice(&flow.to_be_bytes());
        request[4..12].copy_from_slice(&seq.to_be_bytes());
        request[12..LEN].copy_from_slice(&number(flow, seq).to_be_bytes());
        LEN
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let Ok(reply) = <&[u8; LEN]>::try_from(reply) else { return Judgement::Corrupt };
        let [f0, f1, f2, f3, s0, s1, s2, s3, s4, s5, s6, s7, square @ ..] = *reply;
        let named = u32::from_be_bytes([f0, f1, f2, f3]);
        let seq = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let number = number(named, seq);
        if u64::from_be_bytes(square) != number.wrapping_mul(number) {
            return Judgement::Corrupt;
        }
        if named == flow { Judgement::Valid { seq } } else { Judgement::WrongFlow }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(rate), Some(seconds)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: squares_load ADDR:PORT RATE SECONDS".into());
    };
    let rate: f64 = rate.parse()?;
    let plan = Plan {
        flows: 16,
        arrivals: match rate {
            // As fast as it answers, with 8 requests of each flow in flight.
            0.0 => Arrivals::Closed { inflight: 8 },
            rate => Arrivals::Open { rate, process: Process::Poisson },
        },
        size: LEN,
        duration: Duration::from_secs_f64(seconds.parse()?),
        ..Plan::new(target.parse()?)
    };
    let result = run(&plan, Engine::Socket, &Squares, &mut |_| (), &AtomicBool::new(false))?;
    for reason in &result.generator.reasons {
        println!("limited by the generator: {reason}");
    }
    let counts = result.counts;
    println!("{:.0} squares/s: {} sent, {} ok, {} wrong", result.tps, counts.sent, counts.ok, counts.corrupt);
    if let Some(latency) = result.intended_latency {
        println!("half within {} us, 99 % within {} us", latency.p50 / 1000, latency.p99 / 1000);
    }
    Ok(())
}
