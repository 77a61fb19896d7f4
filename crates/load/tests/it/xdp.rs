//! The AF_XDP engine against servers with known faults, and in unsupported environments. Needs root.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::{RwLockWriteGuard, mpsc};
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_bpf::Pass;
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::plan::{Arrivals, Mode, Plan, PortRange, Process, Transport};
use udpath_load::result::LoadResult;
use udpath_load::{Engine, Error};
use udpath_protocols::echo::EchoLoad;
use udpath_rig::{beside_each_other, judged};

use crate::known::all_faults::{TIMEOUT, all_faults, compare};
use crate::known::latency::{LONG_TIMEOUT, compare_all, two_delays};
use crate::known::{Faults, Server, run_xdp};

/// No run of these tests may take longer: plan, twice the timeout, and a slow machine.
const MAX_RUN_TIME: Duration = Duration::from_secs(20);

/// Threads that poll, and a server whose record is compared, need the machine exclusively.
struct Bed(
    Lab,
    #[allow(dead_code, reason = "held until the lab is gone")] Option<RwLockWriteGuard<'static, ()>>,
);

impl Bed {
    fn new(name: &str, queues: u32) -> Self {
        let alone = udpath_rig::alone();
        Self(Self::lab(name, queues), Some(alone))
    }

    /// In a turn that the test has already.
    fn in_turn(name: &str, queues: u32) -> Self {
        Self(Self::lab(name, queues), None)
    }

    fn lab(name: &str, queues: u32) -> Lab {
        let lab = LabBuilder::new(name).machine("client").machine("server");
        lab.link("client", "server", &LinkSpec::with_queues(queues)).up().unwrap()
    }

    fn server(&self, ipv6: bool, faults: Faults) -> Server {
        let addresses = self.0.address_of("server", "client").unwrap();
        let bind = if ipv6 { format!("[{}]:0", addresses.ipv6) } else { format!("{}:0", addresses.ipv4) };
        self.0.machine("server").unwrap().run(|| Server::start(&bind, faults)).unwrap()
    }

    fn run(&self, plan: &Plan) -> Result<LoadResult, Error> {
        self.0.machine("client").unwrap().run(|| run_xdp(plan)).unwrap()
    }

    fn ip(&self, machine: &str, arguments: &[&str]) {
        let mut ip = self.0.machine(machine).unwrap().command("ip");
        assert!(ip.args(arguments).status().unwrap().success(), "ip {arguments:?}");
    }
}

fn plan(target: SocketAddr, arrivals: Arrivals) -> Plan {
    Plan { flows: 4, arrivals, duration: Duration::from_secs(2), timeout: TIMEOUT, ..Plan::new(target) }
}

fn open(rate: f64) -> Arrivals {
    Arrivals::Open { rate, process: Process::Constant }
}

#[test]
fn counts_are_the_truth_in_both_loops_and_families() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-counts", 2);
    for ipv6 in [false, true] {
        for arrivals in [
            Arrivals::Open { rate: 4000.0, process: Process::Poisson },
            // Many in flight: a lost request keeps its slot for a timeout.
            Arrivals::Closed { inflight: 400 },
        ] {
            for threads in [1, 2] {
                let server = bed.server(ipv6, all_faults());
                let result = bed.run(&Plan { threads, ..plan(server.address, arrivals) }).unwrap();
                compare(&result, &server.stop());
                assert_eq!(result.engine, "xdp");
                let note = &result.generator.notes[0];
                assert!(note.contains("copy mode (native) on 2 queue(s) of eth0"), "{note}");
                assert!(note.contains(&format!("by {threads} thread(s)")), "{note}");
            }
        }
    }
}

/// Delays that are long and known: every run is within 1 % of the server's own record.
#[test]
fn latencies_are_the_truth() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    // At the same time, each in its own lab: both sleep through the delays, and hardly need a CPU.
    let run = |(name, arrivals): (&str, Arrivals)| {
        let bed = Bed::in_turn(&format!("xdp-latency-{name}"), 1);
        let server = bed.server(false, two_delays());
        let duration = Duration::from_secs(4);
        let plan = Plan { timeout: LONG_TIMEOUT, duration, ..plan(server.address, arrivals) };
        let result = bed.run(&plan).unwrap();
        compare_all(&arrivals.to_string(), &result, &server.stop().delays);
    };
    let runs = [("open", open(500.0)), ("closed", Arrivals::Closed { inflight: 50 })];
    judged("latencies of the xdp engine", || beside_each_other(runs, run));
}

/// Everything due is sent, nothing more, and the warm-up does not count. Threads beyond the number of queues are not
/// used.
#[test]
fn an_open_loop_holds_its_rate_beside_a_warm_up() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-rate", 2);
    for process in [Process::Constant, Process::Burst { len: 50 }] {
        let server = bed.server(false, Faults { duplicate: 0.1, ..Faults::default() });
        let base = plan(server.address, Arrivals::Open { rate: 2000.0, process });
        let (warmup, duration) = (Duration::from_secs(1), Duration::from_secs(1));
        let result = bed.run(&Plan { warmup, duration, flows: 8, threads: 4, ..base }).unwrap();
        let truth = server.stop();
        assert_eq!(truth.received, 4000);
        assert_eq!(result.counts.sent, 2000);
        assert_eq!((result.counts.ok + result.counts.late, result.counts.lost), (2000, 0));
        // One in ten of 2,000, give or take six standard deviations.
        assert!(result.counts.duplicate.abs_diff(200) < 81, "{}", result.counts.duplicate);
        assert!(result.generator.notes[0].contains("by 2 thread(s)"), "{:?}", result.generator.notes);
    }
}

#[test]
fn sources_and_ports_are_those_of_the_plan() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-sources", 2);
    let addresses: Vec<IpAddr> = (0..3u8).map(|i| IpAddr::from([10, 0, 1, i + 1])).collect();
    for address in &addresses {
        bed.ip("client", &["address", "add", &format!("{address}/32"), "dev", "eth0"]);
    }
    bed.ip("server", &["route", "add", "10.0.1.0/24", "dev", "eth0"]);
    let mac = bed.0.machine("client").unwrap().towards("server").unwrap().mac();
    let mac = mac.0.map(|octet| format!("{octet:02x}")).join(":");
    for address in &addresses {
        let address = address.to_string();
        bed.ip("server", &["neighbour", "replace", &address, "lladdr", &mac, "dev", "eth0"]);
    }
    let server = bed.server(false, Faults::default());
    let range = PortRange { first: 5000, last: 5001 };
    let plan = Plan {
        flows: 6,
        sources: addresses.clone(),
        source_ports: Some(range),
        duration: Duration::from_millis(500),
        ..plan(server.address, open(3000.0))
    };
    let result = bed.run(&plan).unwrap();
    let truth = server.stop();
    assert_eq!((result.counts.sent, result.counts.ok, result.counts.lost), (1500, 1500, 0));
    assert_eq!(truth.peers.len(), 6);
    for address in addresses {
        for port in 5000..=5001 {
            assert!(truth.peers.contains(&SocketAddr::new(address, port)), "{address}:{port}");
        }
    }
}

#[test]
fn sizes_from_the_smallest_to_a_full_frame() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-sizes", 1);
    for (ipv6, most) in [(false, 1472), (true, 1452)] {
        let server = bed.server(ipv6, Faults::default());
        let base = Plan {
            duration: Duration::from_millis(100),
            ..plan(server.address, Arrivals::Closed { inflight: 2 })
        };
        for size in [18, 19, 100, 1023, most] {
            let result = bed.run(&Plan { size, ..base.clone() }).unwrap();
            let c = result.counts;
            assert!(c.ok > 50 && c.corrupt == 0 && c.lost == 0, "{size} bytes: {c:?}");
        }
        for (size, words) in [(17, "at least 18 bytes"), (most + 1, "does not fit one frame of eth0")] {
            let error = bed.run(&Plan { size, ..base.clone() }).unwrap_err();
            assert!(matches!(error, Error::Plan(_)) && error.to_string().contains(words), "{error}");
        }
        server.stop();
    }
}

/// An independent server. One request in flight per flow: its pipe joins datagrams.
#[test]
fn socat_is_a_server_like_any_other() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-socat", 2);
    let target = SocketAddr::new(bed.0.address_of("server", "client").unwrap().ipv4.into(), 7);
    let mut socat = bed.0.machine("server").unwrap().command("socat");
    socat.args(["-T", "2", "UDP4-RECVFROM:7,fork", "PIPE"]);
    socat.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut socat = bed.0.spawn(socat).expect("socat is installed by the set-up script");
    let base = Plan { timeout: Duration::from_secs(1), ..plan(target, Arrivals::Closed { inflight: 1 }) };
    let deadline = Instant::now() + MAX_RUN_TIME;
    let result = loop {
        let once = bed.run(&Plan { duration: Duration::from_millis(100), ..base.clone() }).unwrap();
        if !once.unanswered() || Instant::now() > deadline {
            break bed.run(&base).unwrap();
        }
    };
    socat.kill().unwrap();
    socat.wait().unwrap();
    let c = result.counts;
    assert!(c.ok > 10 && c.ok as f64 > 0.9 * c.sent as f64, "{c:?}");
    assert_eq!(c.received, c.ok + c.late, "{c:?}");
}

#[test]
fn a_peer_that_vanishes_leaves_losses_and_no_peer_at_all_is_reported() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-vanish", 2);
    for arrivals in [open(2000.0), Arrivals::Closed { inflight: 4 }] {
        let server = bed.server(false, Faults { vanish_after: Some(500), ..Faults::default() });
        let target = server.address;
        let base = Plan { timeout: Duration::from_millis(100), ..plan(target, arrivals) };
        let began = Instant::now();
        let result = bed.run(&base).unwrap();
        assert!(began.elapsed() < MAX_RUN_TIME);
        let truth = server.stop();
        let c = result.counts;
        assert_eq!(c.ok + c.late, truth.received - truth.dropped);
        assert!(c.lost > 0 && !result.unanswered(), "{c:?}");
        assert!(result.warnings[0].contains("nothing listens on the port"), "{:?}", result.warnings);
        let result = bed.run(&base).unwrap();
        assert!(result.unanswered() && result.counts.lost == result.counts.sent, "{:?}", result.counts);
        assert!(result.warnings[0].contains("nothing listens on the port"), "{:?}", result.warnings);
    }
}

/// Datagrams to a flow's port that are not from its target are not replies, and are reported.
#[test]
fn strangers_are_not_taken_for_the_server() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-strangers", 1);
    let server = bed.server(false, Faults::default());
    let at = SocketAddr::new(bed.0.address_of("client", "server").unwrap().ipv4.into(), 5000);
    let machine = bed.0.machine("server").unwrap();
    let (stop, result) = (AtomicBool::new(false), std::sync::OnceLock::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stranger = machine.run(|| std::net::UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = stranger.send_to(b"not yours", at);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let ports = Some(PortRange { first: 5000, last: 5000 });
        let plan = Plan { flows: 1, source_ports: ports, ..plan(server.address, open(1000.0)) };
        result.set(bed.run(&plan).unwrap()).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let result = result.get().unwrap();
    let asked = server.address;
    assert_eq!(server.stop().received, result.counts.sent);
    assert_eq!((result.counts.ok, result.counts.corrupt), (2000, 0), "{:?}", result.counts);
    let told = result.warnings.iter().find(|w| w.contains(&format!(" instead of {asked}: ")));
    let count: u64 = told.unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(count > 100, "{count}");
}

/// Either end of the link goes down in the middle of a run.
#[test]
fn a_link_that_goes_down_ends_the_run_and_keeps_the_measurements() {
    udpath_lab::needs_root!();
    for (arrivals, side) in
        [(open(2000.0), "client"), (Arrivals::Closed { inflight: 4 }, "client"), (open(2000.0), "server")]
    {
        let bed = Bed::new("xdp-cut", 2);
        let server = bed.server(false, Faults::default());
        let long = Duration::from_secs(60);
        let base = plan(server.address, arrivals);
        let plan = Plan { duration: long, timeout: Duration::from_millis(100), ..base };
        let began = Instant::now();
        let (sender, flowing) = mpsc::channel();
        let outcome = std::thread::scope(|scope| {
            // From outside: one machine cannot access another.
            let bed = &bed;
            scope.spawn(move || {
                if flowing.recv().is_ok() {
                    bed.ip(side, &["link", "set", "eth0", "down"]);
                }
            });
            let client = bed.0.machine("client").unwrap();
            client.run(move || {
                let mut progress = |p: &udpath_load::Progress| {
                    if p.sent > 100 {
                        let _ = sender.send(());
                    }
                };
                let (echo, stop) = (EchoLoad::new(1), AtomicBool::new(false));
                udpath_load::run(&plan, Engine::Xdp, &echo, &mut progress, &stop)
            })
        });
        assert!(began.elapsed() < MAX_RUN_TIME, "{arrivals} {side}: {:?}", began.elapsed());
        let error = outcome.unwrap().unwrap_err();
        assert!(error.to_string().contains("eth0 sent nothing for"), "{arrivals} {side}: {error}");
        let Error::Cut { result, .. } = error else { panic!("{error}") };
        result.counts.check().unwrap();
        assert!(result.counts.ok > 50 && result.counts.lost > 0, "{arrivals} {side}: {:?}", result.counts);
        server.stop();
    }
}

#[test]
fn unsupported_plans_are_rejected() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-cannot", 1);
    let server = bed.server(false, Faults::default());
    let good = Plan { duration: Duration::from_millis(100), ..plan(server.address, open(1000.0)) };
    let own = SocketAddr::new(bed.0.address_of("client", "server").unwrap().ipv4.into(), 7);
    bed.ip("client", &["link", "set", "lo", "up"]);
    for (spoilt, words) in [
        (Plan { transport: Transport::Tcp, ..good.clone() }, "use the socket engine for TCP"),
        (Plan { mode: Mode::Flood, ..good.clone() }, "use the socket engine for stream and flood"),
        (Plan { targets: vec!["127.0.0.1:7".parse().unwrap()], ..good.clone() }, "the loopback"),
        (Plan { targets: vec![own], ..good.clone() }, "the loopback"),
        (Plan { flows: 5000, ..good.clone() }, "5000 flows exceed its limit of 4096"),
        (Plan { size: 1473, ..good.clone() }, "takes up to 1472 bytes"),
    ] {
        let error = bed.run(&spoilt).unwrap_err();
        assert!(matches!(error, Error::Plan(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    // An address without a host.
    let nobody = SocketAddr::new(IpAddr::from([10, 0, 0, 200]), 7);
    bed.ip("client", &["link", "set", "eth0", "arp", "on"]);
    let error =
        Report::new(bed.run(&Plan { targets: vec![nobody], ..good.clone() }).unwrap_err()).to_string();
    assert!(error.contains("no host answers for 10.0.0.200 on eth0"), "{error}");
    // Does not touch another program on the interface.
    let client = bed.0.machine("client").unwrap();
    let other = client.run(|| Pass::attach("eth0").unwrap()).unwrap();
    let error = Report::new(bed.run(&good).unwrap_err()).to_string();
    assert!(error.contains("another XDP program"), "{error}");
    drop(other);
    assert_eq!(bed.run(&good).unwrap().counts.ok, 100);
    server.stop();
}

/// A TUN device carries IP packets without Ethernet headers.
#[test]
fn an_interface_without_ethernet_is_rejected() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-tun", 1);
    bed.ip("client", &["tuntap", "add", "tun9", "mode", "tun"]);
    bed.ip("client", &["address", "add", "10.9.0.1/24", "dev", "tun9"]);
    bed.ip("client", &["link", "set", "tun9", "up"]);
    let error = bed.run(&plan("10.9.0.2:7".parse().unwrap(), open(100.0))).unwrap_err();
    let error = Report::new(error).to_string();
    assert!(error.contains("cannot find a route to 10.9.0.2"), "{error}");
}

/// With two interfaces, the route to each target decides.
#[test]
fn targets_behind_two_interfaces_are_refused() {
    udpath_lab::needs_root!();
    let lab = LabBuilder::new("xdp-two").machine("client").machine("one").machine("two");
    let spec = LinkSpec::default();
    let lab = lab.link("client", "one", &spec).link("client", "two", &spec).up().unwrap();
    let to = |machine| SocketAddr::new(lab.address_of(machine, "client").unwrap().ipv4.into(), 7);
    let mut plan = plan(to("one"), open(100.0));
    plan.targets.push(to("two"));
    let error = lab.machine("client").unwrap().run(|| run_xdp(&plan)).unwrap().unwrap_err().to_string();
    assert!(error.contains("it sends through one interface"), "{error}");
}

#[test]
fn nothing_stays_attached_after_a_run() {
    udpath_lab::needs_root!();
    let bed = Bed::new("xdp-after", 2);
    let server = bed.server(false, Faults::default());
    for _ in 0..3 {
        let result =
            bed.run(&Plan { duration: Duration::from_millis(50), ..plan(server.address, open(1000.0)) });
        assert_eq!(result.unwrap().counts.ok, 50);
        let mut ip = bed.0.machine("client").unwrap().command("ip");
        let shown = ip.args(["-d", "link", "show", "eth0"]).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        assert!(!shown.contains("prog/xdp"), "{shown}");
    }
    server.stop();
}
