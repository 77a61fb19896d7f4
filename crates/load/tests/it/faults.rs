//! The load's reports and behaviour when the peer, the network or the machine fails.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use udpath_lab::{LabBuilder, LinkSpec};
use udpath_load::plan::{Arrivals, Mode, Plan, PortRange, Process};
use udpath_load::result::LoadResult;
use udpath_load::template::{Prepared, Protocol, Template};
use udpath_load::{Engine, Error};
use udpath_protocols::echo::EchoLoad;
use udpath_protocols::sink::SinkLoad;

use crate::known::{Faults, Server, run};

/// No run of these tests may take longer: plan, twice the timeout, and a slow machine.
const MAX_RUN_TIME: Duration = Duration::from_secs(20);

/// Runs against socat, of which one must be answered.
const RUNS_OF_SOCAT: u32 = 5;

fn base(target: SocketAddr) -> Plan {
    Plan { duration: Duration::from_secs(1), timeout: Duration::from_millis(100), ..Plan::new(target) }
}

fn try_run(plan: &Plan) -> Result<LoadResult, Error> {
    udpath_load::run(plan, Engine::Socket, &EchoLoad::new(1), &mut |_| (), &AtomicBool::new(false))
}

fn open(rate: f64) -> Arrivals {
    Arrivals::Open { rate, process: Process::Constant }
}

/// An address without a listener: bound, and closed again.
fn nobody() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_closed_port_is_reported_and_the_run_ends() {
    let _turn = udpath_rig::together();
    for arrivals in [open(500.0), Arrivals::Closed { inflight: 4 }] {
        let began = Instant::now();
        let result = run(&Plan { arrivals, ..base(nobody()) });
        assert!(began.elapsed() < MAX_RUN_TIME);
        assert!(result.unanswered() && result.counts.lost == result.counts.sent, "{:?}", result.counts);
        assert!(result.warnings[0].contains("nothing listens"), "{:?}", result.warnings);
    }
}

/// A protocol that asks its targets before the run: its answer is used, its error ends the run.
struct Asking(Option<Box<dyn Fn() -> Prepared + Send + Sync>>);

impl Protocol for Asking {
    fn name(&self) -> &'static str {
        if self.0.is_some() { "asking" } else { "prepared" }
    }

    fn min_size(&self) -> usize {
        EchoLoad::new(1).min_size()
    }

    fn prepare(&self, plan: &Plan, timeout: Duration) -> Prepared {
        assert!(plan.targets.len() == 1 && timeout >= Duration::from_secs(1));
        self.0.as_ref().map_or(Ok(None), |prepare| prepare())
    }

    fn template(&self) -> Box<dyn Template> {
        EchoLoad::new(1).template()
    }
}

#[test]
fn a_protocol_prepares_before_anything_is_sent() {
    let _turn = udpath_rig::together();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let plan = Plan { duration: Duration::from_millis(50), ..base(silent.local_addr().unwrap()) };
    let run = |prepare: Option<Box<dyn Fn() -> Prepared + Send + Sync>>| {
        udpath_load::run(&plan, Engine::Socket, &Asking(prepare), &mut |_| (), &AtomicBool::new(false))
    };
    let error = run(Some(Box::new(|| Err("the target is mute".into())))).unwrap_err();
    assert!(
        matches!(&error, Error::Unprepared { protocol: "asking", source } if source.to_string().contains("mute"))
    );
    assert_eq!(error.to_string(), "cannot prepare a load of asking");
    assert!(silent.recv(&mut [0; 64]).is_err(), "something was sent");
    let prepared = run(Some(Box::new(|| Ok(Some(Box::new(Asking(None))))))).unwrap();
    assert_eq!(prepared.protocol, "prepared");
    assert_eq!(run(None).unwrap().protocol, "prepared", "the same one");
    assert!(silent.recv(&mut [0; 64]).is_ok());
}

#[test]
fn a_peer_that_vanishes_leaves_losses() {
    let _turn = udpath_rig::together();
    for arrivals in [open(2000.0), Arrivals::Closed { inflight: 4 }] {
        let server = Server::start("127.0.0.1:0", Faults { vanish_after: Some(500), ..Faults::default() });
        let began = Instant::now();
        let result = run(&Plan { arrivals, flows: 2, ..base(server.address) });
        assert!(began.elapsed() < MAX_RUN_TIME);
        let truth = server.stop();
        let c = result.counts;
        assert_eq!(c.ok + c.late, truth.received - truth.dropped);
        assert!(c.lost > 0 && !result.unanswered(), "{c:?}");
        assert!(result.warnings.iter().any(|w| w.contains("nothing listens")), "{:?}", result.warnings);
    }
}

#[test]
fn a_silent_peer_is_unanswered() {
    let _turn = udpath_rig::together();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let result = run(&base(silent.local_addr().unwrap()));
    assert!(result.unanswered() && result.warnings.is_empty(), "{:?}", result.warnings);
    // One in flight, given up after 100 to 113 ms each.
    assert!((5..=10).contains(&result.counts.sent), "{:?}", result.counts);
}

#[test]
fn a_stop_keeps_the_measurements() {
    let _turn = udpath_rig::together();
    let server = Server::start("127.0.0.1:0", Faults::default());
    let plan = Plan { duration: Duration::from_secs(3600), arrivals: open(1000.0), ..base(server.address) };
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let mut reports = 0;
    let result = udpath_load::run(
        &plan,
        Engine::Socket,
        &EchoLoad::new(1),
        &mut |p| {
            reports += 1;
            if p.ok > 200 {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        },
        &stop,
    )
    .unwrap();
    assert!(began.elapsed() < MAX_RUN_TIME && reports > 0);
    result.counts.check().unwrap();
    assert!(result.counts.ok > 200 && result.seconds < 20.0, "{:?}", result.counts);
    // Requests that were not due yet are not missing.
    assert!((result.counts.sent as f64 / result.seconds / 1000.0 - 1.0).abs() < 0.5, "{result:?}");
    server.stop();
}

#[test]
fn sources_and_ports_are_those_of_the_plan() {
    let _turn = udpath_rig::together();
    let server = Server::start("127.0.0.1:0", Faults::default());
    // 4001 is in use on one of the addresses: the next ports are used.
    let taken = UdpSocket::bind("127.0.0.2:0").unwrap();
    let first = taken.local_addr().unwrap().port();
    let range = PortRange { first, last: first + 8 };
    let result = run(&Plan {
        flows: 8,
        sources: vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()],
        source_ports: Some(range),
        arrivals: open(1000.0),
        ..base(server.address)
    });
    let truth = server.stop();
    assert_eq!(result.counts.lost, 0);
    assert_eq!(truth.peers.len(), 8);
    for peer in &truth.peers {
        assert!((range.first..=range.last).contains(&peer.port()), "{peer}");
        assert_ne!(*peer, taken.local_addr().unwrap());
    }
    for source in ["127.0.0.2", "127.0.0.3"] {
        assert_eq!(truth.peers.iter().filter(|p| p.ip().to_string() == source).count(), 4);
    }
}

#[test]
fn ports_that_run_out_and_invalid_sources_are_reported() {
    let _turn = udpath_rig::together();
    let server = Server::start("127.0.0.1:0", Faults::default());
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ports = Some(PortRange { first: port, last: port });
    let local = vec!["127.0.0.1".parse().unwrap()];
    let error = try_run(&Plan { sources: local, source_ports: ports, ..base(server.address) }).unwrap_err();
    assert!(error.to_string().contains("only 0 of 1 flows found a free source port"), "{error}");
    let far = vec!["192.0.2.77".parse().unwrap()];
    let error = try_run(&Plan { sources: far, ..base(server.address) }).unwrap_err();
    assert!(
        error.to_string().contains("192.0.2.77:0") && error.to_string().contains("not an address"),
        "{error}"
    );
    let error = try_run(&Plan { size: 17, ..base(server.address) }).unwrap_err();
    assert!(matches!(error, Error::Plan(_)) && error.to_string().contains("at least 18 bytes"), "{error}");
    server.stop();
}

/// The client's end of the link is removed in the middle of a run.
#[test]
fn a_link_removed_under_load_ends_the_run_and_keeps_the_measurements() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = LabBuilder::new("load-cut")
        .machine("client")
        .machine("server")
        .link("client", "server", &LinkSpec::default())
        .up()
        .unwrap();
    let to = SocketAddr::new(lab.address_of("server", "client").unwrap().ipv4.into(), 7);
    for (arrivals, mode) in [
        (open(2000.0), Mode::Rr),
        (Arrivals::Closed { inflight: 4 }, Mode::Rr),
        (Arrivals::Closed { inflight: 1 }, Mode::Flood),
    ] {
        // To be called inside the machine.
        let link = |state: &str| {
            assert!(Command::new("ip").args(["link", "set", "eth0", state]).status().unwrap().success());
        };
        let client = lab.machine("client").unwrap();
        client.run(|| link("up")).unwrap();
        let bind = to.to_string();
        let server = lab.machine("server").unwrap().run(|| Server::start(&bind, Faults::default())).unwrap();
        let plan = Plan { arrivals, mode, duration: Duration::from_secs(60), ..base(to) };
        let began = Instant::now();
        let outcome = client.run(|| {
            let stop = AtomicBool::new(false);
            let mut cut = false;
            let mut progress = |p: &udpath_load::Progress| {
                if p.sent > 100 && !cut {
                    cut = true;
                    link("down");
                }
            };
            match mode {
                Mode::Rr => udpath_load::run(&plan, Engine::Socket, &EchoLoad::new(1), &mut progress, &stop),
                _ => udpath_load::run(&plan, Engine::Socket, &SinkLoad, &mut progress, &stop),
            }
        });
        assert!(began.elapsed() < MAX_RUN_TIME, "{arrivals} {mode}: {:?}", began.elapsed());
        let error = outcome.unwrap().unwrap_err();
        assert!(error.to_string().contains("the kernel refused every request"), "{arrivals} {mode}: {error}");
        let Error::Cut { result, .. } = error else { panic!("{error}") };
        assert!(result.counts.sent > 100 && result.counts.send_errors > 0, "{:?}", result.counts);
        if mode == Mode::Rr {
            result.counts.check().unwrap();
            assert!(result.counts.ok > 50, "{:?}", result.counts);
        }
        server.stop();
    }
    lab.down().unwrap();
}

/// An independent echo server. One request in flight per flow: its pipe joins datagrams. One flow if it takes over a
/// peer's socket from the first datagram on, since it may then receive another peer's.
#[test]
fn socat_is_a_server_like_any_other() {
    let _turn = udpath_rig::together();
    for (bind, mode, flows) in [
        ("127.0.0.1:0", "UDP4-RECVFROM", 3),
        ("[::1]:0", "UDP6-RECVFROM", 3),
        ("127.0.0.1:0", "UDP4-LISTEN", 1),
    ] {
        let target = UdpSocket::bind(bind).unwrap().local_addr().unwrap();
        let ip = bind.rsplit_once(':').unwrap().0;
        let mut socat = Command::new("socat")
            .args(["-b", "65536", &format!("{mode}:{},bind={ip},fork,reuseaddr", target.port()), "PIPE"])
            // It forks for every peer: the whole process group is killed, so that none of them keeps this test's output
            // open.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("socat is installed by the set-up script");
        let result = {
            let plan = Plan { flows, size: 1000, timeout: Duration::from_secs(1), ..base(target) };
            let deadline = Instant::now() + MAX_RUN_TIME;
            loop {
                let once = run(&Plan { duration: Duration::from_millis(100), ..plan.clone() });
                if !once.unanswered() || Instant::now() > deadline {
                    break;
                }
            }
            // It drops some while it forks, on a busy machine more than a tenth.
            let mut result = run(&plan);
            for _ in 1..RUNS_OF_SOCAT {
                if result.counts.ok as f64 > 0.9 * result.counts.sent as f64 {
                    break;
                }
                result = run(&plan);
            }
            result
        };
        let group = Pid::from_raw(i32::try_from(socat.id()).unwrap()).unwrap();
        kill_process_group(group, Signal::KILL).unwrap();
        socat.wait().unwrap();
        let c = result.counts;
        // Its answers must be intact, and in order.
        assert!(c.ok > 10 && c.ok as f64 > 0.9 * c.sent as f64, "{mode} {bind}: {c:?}");
        assert_eq!(c.received, c.ok + c.late, "{mode} {bind}: {c:?}");
    }
}
