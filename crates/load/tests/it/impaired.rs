//! Counts and latencies of a load over a path that drops and delays a known share: each within 1 % of the true value,
//! for both engines. The truth is the impairing program's count of the frames it dropped and delayed, and the delay
//! line's record of how long it held each. Needs root.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::result::{Latency, LoadResult};
use udpath_protocols::echo::EchoLoad;
use udpath_rig::{Impair, Impaired, Shares, judged};

use crate::delay_line::DelayLine;
use crate::known::latency::{DELAY, compare};
use crate::known::{Faults, Server};

/// When a request counts as lost: well after the longest delay. The run lasts two of them after its last request.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Flows of the load.
const FLOWS: u32 = 8;
/// Requests in flight of each flow, in the closed loop: most of them wait for a held or a dropped reply.
const IN_FLIGHT: u32 = 64;
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

/// A run over the impaired path: the load's result, the path's own counts, and how long the delay line held each frame.
fn run(engine: Engine, arrivals: Arrivals) -> (LoadResult, Impaired, Vec<u64>) {
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
        flows: FLOWS,
        arrivals,
        duration: Duration::from_secs(4),
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

/// The part of a distribution that the path held: everything from half the delay on.
fn held_part(latency: &Latency) -> Latency {
    let shortest = DELAY.as_nanos() as u64 / 2;
    let long: Vec<_> = latency.histogram.iter().copied().filter(|(value, _)| *value >= shortest).collect();
    let count: u64 = long.iter().map(|(_, n)| n).sum();
    let mean = long.iter().map(|(value, n)| *value as f64 * *n as f64).sum::<f64>() / count as f64;
    let (least, most) = (long[0].0, long[long.len() - 1].0);
    Latency::from_buckets(long, least, most, mean).unwrap()
}

/// The counts and both parts of the distribution. `open` is the number of requests in flight when the window of the
/// latencies ends, which have none; 0 if every reply has a latency.
fn hold_to_truth(result: &LoadResult, impaired: Impaired, held: &[u64], open: u32) {
    let counts = &result.counts;
    counts.check().unwrap();
    assert!(impaired.dropped > 100 && impaired.delayed > 300, "the path did something: {impaired:?}");
    assert_eq!(held.len() as u64, impaired.delayed, "the delay line missed nothing");
    assert_eq!(counts.sent, impaired.seen);
    within_one_percent("lost", (counts.lost + counts.late) as f64, impaired.dropped as f64);
    assert_eq!((counts.duplicate, counts.corrupt, counts.wrong_flow), (0, 0, 0));

    let latency = result.sent_latency.as_ref().unwrap();
    let long = held_part(latency);
    let replies = impaired.seen - impaired.dropped;
    // A held reply is as late as it was held, the others are not late at all.
    let (short, passed) = (latency.count - long.count, replies - impaired.delayed);
    assert!(
        long.count <= impaired.delayed && long.count + u64::from(open) >= impaired.delayed,
        "{} long latencies of {} held replies, with {open} in flight at the end",
        long.count,
        impaired.delayed
    );
    // Before the window opens, replies are answered while the last slots are launched: none of those was held for that
    // short a time.
    let least = if open == 0 { passed } else { passed / 2 };
    assert!((least..=passed).contains(&short), "{short} short latencies of {passed} replies that passed");
    compare("held replies", &long, held);
    // Over all: the median reply was not held, and of the held tenth is p99.
    let nanos = DELAY.as_nanos() as u64;
    assert!(latency.p50 < nanos / 100, "the median is not delayed: {} ns", latency.p50);
    within_one_percent("p99 of all", latency.p99 as f64, nanos as f64);
}

#[test]
fn the_socket_engine_open_loop() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let open = Arrivals::Open { rate: 3000.0, process: Process::Poisson };
    judged("the socket engine on an impaired path", || {
        let (result, impaired, held) = run(Engine::Socket, open);
        hold_to_truth(&result, impaired, &held, 0);
    });
}

#[test]
fn the_kernel_engine_closed_loop() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    judged("the kernel engine on an impaired path", || {
        let (result, impaired, held) = run(Engine::Kernel, Arrivals::Closed { inflight: IN_FLIGHT });
        hold_to_truth(&result, impaired, &held, FLOWS * IN_FLIGHT);
    });
}
