//! The path, with every cost but one taken away, is a queue with a closed form: it must agree within 1 %.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

use udpath_model::description::{Io, Times};
use udpath_model::{Costs, Description, Effort, Outcome, predict};

/// The required agreement.
const WITHIN: f64 = 0.01;

/// Costs of nothing.
fn free() -> Costs {
    let mut costs = Costs::default();
    costs.terms = costs.terms.map(|term, value| match term.kind {
        udpath_model::costs::Kind::Ratio => value,
        _ => 0.0,
    });
    costs
}

/// An open loop of `rate` into one socket that `workers` read, each on its CPU.
fn flood(workers: usize, rate: f64, service_ns: f64, service_times: Times) -> Description {
    Description {
        cores: workers,
        io: Io::Shared,
        workers,
        moderation_us: 0.0,
        receive_buffer: 1_000_000_000,
        ring: 65_536,
        replies: false,
        inflight: 0,
        rate,
        service_ns,
        service_times,
        ..Description::default()
    }
}

fn run(description: &Description, costs: &Costs, window_ms: u32) -> Outcome {
    predict(description, costs, &Effort { seed: 3, runs: 1, warm_up_ms: 20, window_ms }).unwrap()
}

#[track_caller]
fn close(what: &str, modelled: f64, closed: f64) {
    let off = modelled / closed - 1.0;
    assert!(
        off.abs() < WITHIN,
        "{what}: modelled {modelled:.4}, closed form {closed:.4}, {:+.2} %",
        off * 100.0
    );
}

#[test]
fn one_reader_with_exponential_times_is_m_m_1() {
    // Service 1 us, half of the time.
    let outcome = run(&flood(1, 0.5e6, 1000.0, Times::Exponential), &free(), 2000);
    close("tps", outcome.tps, 0.5e6);
    close("time in the path, us", outcome.latency_us, 1.0 / (1.0 - 0.5));
    close("workers", outcome.cpu.threads, 0.5);
}

#[test]
fn readers_with_constant_times_are_m_d_c() {
    for (servers, load) in [(1, 0.6), (2, 0.7), (4, 0.8)] {
        let rate = load * servers as f64 * 1e6;
        let outcome = run(&flood(servers, rate, 1000.0, Times::Constant), &free(), 1000);
        close(&format!("M/D/{servers}, us"), outcome.latency_us, m_d_c(servers, load));
    }
}

/// Mean time in M/D/c, in service times (Crommelin 1932): the distribution of the number in the system does not change
/// over one service time, in which exactly those served at its start leave.
fn m_d_c(servers: usize, load: f64) -> f64 {
    const MOST: usize = 400;
    let arrivals = load * servers as f64;
    let mut poisson = vec![(-arrivals).exp()];
    for n in 1..MOST {
        poisson.push(poisson[n - 1] * arrivals / n as f64);
    }
    let mut present = vec![0.0; MOST];
    present[0] = 1.0;
    for _ in 0..2000 {
        let mut next = vec![0.0; MOST];
        for (n, share) in present.iter().enumerate() {
            let left = n.saturating_sub(servers);
            for (arrived, chance) in poisson.iter().enumerate().take(MOST - left) {
                next[left + arrived] += share * chance;
            }
        }
        present = next;
    }
    let number: f64 = present.iter().enumerate().map(|(n, share)| n as f64 * share).sum();
    number / arrivals
}

/// Workers that think for an exponential time, then hold the lock of the one transmit queue for a constant time.
fn locked(workers: usize, think_ns: f64) -> Description {
    Description {
        cores: workers,
        io: Io::Shared,
        workers,
        moderation_us: 0.0,
        xps: false,
        inflight: 4 * workers,
        flows: 4 * workers,
        wire_us: 0.0,
        service_ns: think_ns,
        service_times: Times::Exponential,
        ..Description::default()
    }
}

#[test]
fn a_lock_is_a_queue_of_its_contenders() {
    let mut costs = free();
    costs.terms.device_send = 300.0;
    for (workers, think) in [(1, 900.0), (2, 900.0), (4, 900.0), (8, 900.0), (8, 4000.0)] {
        let outcome = run(&locked(workers, think), &costs, 400);
        close(&format!("{workers} workers, tps"), outcome.tps, finite_source(workers, think, 300.0));
    }
}

/// Rate of M/D/1//N (Takács 1962): N sources that wait an exponential time, one server with a constant time.
fn finite_source(sources: usize, think: f64, hold: f64) -> f64 {
    let (mut sum, mut product, mut choose) = (0.0, 1.0, 1.0);
    for k in 0..sources {
        sum += choose * product;
        let transform = (-((k + 1) as f64) * hold / think).exp();
        product *= (1.0 - transform) / transform;
        choose *= (sources - 1 - k) as f64 / (k + 1) as f64;
    }
    let busy = 1.0 - 1.0 / (1.0 + sources as f64 * hold / think * sum);
    busy / hold * 1e9
}

#[test]
fn a_wanted_lock_passes_at_its_holders_pace() {
    // Nobody thinks: each turn is the work under the lock and the hand-over.
    let mut costs = free();
    (costs.terms.device_send, costs.terms.handover) = (300.0, 120.0);
    for workers in [2, 4, 16] {
        let outcome = run(&locked(workers, 0.0), &costs, 20);
        close(&format!("{workers} workers, tps"), outcome.tps, 1e9 / 420.0);
    }
}
