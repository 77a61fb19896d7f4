//! Counts and latencies of a load over a path that drops and delays a known share: each within 1 % of the true value,
//! for both engines. Needs root.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::result::{Latency, LoadResult};
use udpath_protocols::echo::EchoLoad;
use udpath_rig::{Impair, Impaired, Shares};

use crate::delay_line::DelayLine;
use crate::known::{Faults, Server};

/// How long the path holds a frame: so much longer than the rest of the path that 1 % of it exceeds that rest, and
/// longer than a thread waits for its CPU on a busy machine.
const DELAY: Duration = Duration::from_millis(100);
/// When a request counts as lost: well after the longest delay.
const TIMEOUT: Duration = Duration::from_millis(500);
const SHARES: Shares = Shares { drop_ppm: 30_000, delay_ppm: 100_000, delay_ifindex: 0 };

fn lab(engine: Engine) -> Lab {
    LabBuilder::new(format!("impaired-{engine}"))
        .machine("client")
        .machine("server")
        .machine("line")
        .link("client", "server", &LinkSpec::with_queues(2))
        .link("server", "line", &LinkSpec::default())
        .up()
        .unwrap()
}

/// A run over the impaired path: the load's result, the path's own counts, and the number of frames in the delay line.
fn run(engine: Engine, arrivals: Arrivals) -> (LoadResult, Impaired, u64) {
    let lab = lab(engine);
    let [client, server] = ["client", "server"].map(|name| lab.machine(name).unwrap());
    let towards_client = server.towards("client").unwrap();
    let _napi = towards_client.ensure_napi().unwrap();
    let shares = Shares { delay_ifindex: server.towards("line").unwrap().ifindex(), ..SHARES };
    let line = DelayLine::start(&lab, DELAY);
    let address = lab.address_of("server", "client").unwrap().ipv4;
    let echo = server.run(|| Server::start(&format!("{address}:0"), Faults::default())).unwrap();
    let impair = server.run(|| Impair::attach(towards_client.name(), shares).unwrap()).unwrap();

    let plan = Plan {
        flows: 8,
        arrivals,
        duration: Duration::from_secs(3),
        timeout: TIMEOUT,
        ..Plan::new(echo.address)
    };
    let result = client
        .run(|| udpath_load::run(&plan, engine, &EchoLoad::new(7), &mut |_| (), &AtomicBool::new(false)))
        .unwrap()
        .unwrap();
    let impaired = impair.impaired();
    drop(impair);
    let held = line.stop();
    assert_eq!(echo.stop().received, impaired.seen, "the path saw every reply");
    (result, impaired, held)
}

fn within_one_percent(what: &str, measured: f64, truth: f64) {
    assert!((measured - truth).abs() <= 0.01 * truth, "{what}: {measured} measured, {truth} true");
}

/// How many values are at least `ns`.
fn at_least(latency: &Latency, ns: u64) -> u64 {
    latency.histogram.iter().filter(|(value, _)| *value >= ns).map(|(_, n)| n).sum()
}

fn hold_to_truth(result: &LoadResult, impaired: Impaired, held: u64) {
    let counts = &result.counts;
    counts.check().unwrap();
    assert!(impaired.dropped > 100 && impaired.delayed > 300, "the path did something: {impaired:?}");
    assert_eq!(held, impaired.delayed, "the delay line missed nothing");
    assert_eq!(counts.sent, impaired.seen);
    within_one_percent("lost", (counts.lost + counts.late) as f64, impaired.dropped as f64);
    assert_eq!((counts.duplicate, counts.corrupt, counts.wrong_flow), (0, 0, 0));

    let latency = result.sent_latency.as_ref().unwrap();
    let nanos = DELAY.as_nanos() as u64;
    let slow = at_least(latency, nanos * 99 / 100);
    // The window contains nearly the whole run; it leaves out both kinds in equal shares.
    let share = impaired.delayed as f64 / (impaired.seen - impaired.dropped) as f64;
    let measured = slow as f64 / latency.count as f64;
    assert!(
        (measured - share).abs() <= 0.1 * share,
        "{measured} of the latencies are long, {share} should be"
    );
    assert!(latency.p50 < nanos / 4, "the median is not delayed: {} ns", latency.p50);
    within_one_percent("the delay", least_at(latency, nanos * 99 / 100) as f64, nanos as f64);
}

/// The smallest value that is at least `ns`: no frame is released early, and most of them on time.
fn least_at(latency: &Latency, ns: u64) -> u64 {
    latency.histogram.iter().map(|(value, _)| *value).find(|value| *value >= ns).unwrap_or(0)
}

#[test]
fn the_socket_engine_open_loop() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let open = Arrivals::Open { rate: 3000.0, process: Process::Poisson };
    let (result, impaired, held) = run(Engine::Socket, open);
    hold_to_truth(&result, impaired, held);
}

#[test]
fn the_kernel_engine_closed_loop() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let (result, impaired, held) = run(Engine::Kernel, Arrivals::Closed { inflight: 8 });
    hold_to_truth(&result, impaired, held);
}
