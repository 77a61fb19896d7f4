//! One way over UDP with a sink's report, TCP in both modes, and large payloads.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use udpath_load::plan::{Arrivals, Mode, Plan, Process, Transport};
use udpath_load::result::{Counts, LoadResult};
use udpath_load::{Engine, Error};
use udpath_protocols::echo::EchoLoad;
use udpath_protocols::sink::{QUESTION, Report, Sink, SinkLoad, Totals};

use crate::known::{Faults, Server, run};

/// A sink that counts what it reads. Its totals contain only received data.
struct CountingSink {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Report, bool)>,
}

impl CountingSink {
    fn start(bind: &str) -> Self {
        let socket = UdpSocket::bind(bind).unwrap();
        let address = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut total = Report::default();
            let mut equal = true;
            let mut buffer = vec![0; 65_536];
            let mut size = None;
            while !flag.load(Ordering::Relaxed) {
                let Ok((n, peer)) = socket.recv_from(&mut buffer) else { continue };
                if buffer[..n] == QUESTION {
                    socket.send_to(&total.encode(), peer).unwrap();
                    continue;
                }
                equal &= *size.get_or_insert(n) == n;
                total.datagrams += 1;
                total.bytes += n as u64;
            }
            (total, equal)
        });
        Self { address, stop, thread }
    }

    fn stop(self) -> (Report, bool) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn one_way(plan: &Plan) -> LoadResult {
    udpath_load::run(plan, Engine::Socket, &SinkLoad, &mut |_| (), &AtomicBool::new(false)).unwrap()
}

fn second(target: SocketAddr) -> Plan {
    Plan { duration: Duration::from_secs(1), timeout: Duration::from_millis(500), ..Plan::new(target) }
}

#[test]
fn a_rate_arrives_and_is_reported() {
    let _turn = udpath_rig::together();
    for (bind, mode) in
        [("127.0.0.1:0", Mode::Stream), ("[::1]:0", Mode::Stream), ("127.0.0.1:0", Mode::Flood)]
    {
        let sink = CountingSink::start(bind);
        let arrivals = Arrivals::Open { rate: 2000.0, process: Process::Constant };
        let plan =
            Plan { mode, arrivals, flows: 2, warmup: Duration::from_millis(300), ..second(sink.address) };
        let result = one_way(&plan);
        let (total, equal) = sink.stop();
        let delivered = result.delivered.expect("the sink answers");
        assert_eq!(result.counts.sent, 2000, "{mode} {bind}");
        // 600 were sent in the warm-up.
        assert_eq!((total.datagrams, total.bytes), (2600, 260_000), "{mode} {bind}");
        assert_eq!((delivered.datagrams, delivered.bytes), (2000, 200_000), "{mode} {bind}");
        assert_eq!((result.counts.ok, result.counts.lost), (2000, 0));
        assert!(equal && result.lateness.is_some());
    }
}

/// At full rate, most is lost on the way to the sink; the report and the counts show how much.
#[test]
fn a_flood_is_counted_at_both_ends() {
    let _turn = udpath_rig::together();
    for (mode, size) in [(Mode::Flood, 18), (Mode::Stream, 100), (Mode::Stream, 1400), (Mode::Stream, 65_507)]
    {
        let sink = CountingSink::start("127.0.0.1:0");
        let plan = Plan { mode, size, flows: 4, threads: 2, ..second(sink.address) };
        let result = one_way(&plan);
        let (total, equal) = sink.stop();
        let c = result.counts;
        let delivered = result.delivered.expect("the sink answers");
        assert!(equal, "{mode} {size}: every datagram has the plan's size, whoever cut it");
        assert_eq!(delivered.datagrams, total.datagrams, "{mode} {size}");
        assert_eq!(delivered.bytes, total.datagrams * size as u64);
        assert!(
            c.sent > 1000 && c.sent == c.ok + c.lost && c.ok == delivered.datagrams,
            "{mode} {size}: {c:?}"
        );
        assert_eq!(c.send_errors, 0);
        assert!(result.warnings.is_empty(), "GSO works on the loopback: {:?}", result.warnings);
    }
}

#[test]
fn without_a_report_deliveries_are_unknown() {
    let _turn = udpath_rig::together();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let plan = Plan {
        mode: Mode::Flood,
        duration: Duration::from_millis(200),
        ..Plan::new(silent.local_addr().unwrap())
    };
    let result = one_way(&plan);
    assert_eq!((result.delivered, result.loss()), (None, None));
    assert!(result.counts.sent > 100 && result.counts.ok == 0 && result.counts.lost == 0);
    assert!(result.warnings[0].contains("received is unknown"), "{:?}", result.warnings);
}

#[test]
fn the_sockets_get_the_plans_options_and_the_result_says_so() {
    let _turn = udpath_rig::together();
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut plan = Plan {
        mode: Mode::Flood,
        duration: Duration::from_millis(100),
        ..Plan::new(sink.local_addr().unwrap())
    };
    plan.sockets.send_buffer = Some(100_000);
    plan.sockets.receive_buffer = Some(50_000);
    let result = one_way(&plan);
    assert_eq!(
        result.generator.notes,
        ["sockets: send buffer 200000 bytes, receive buffer 100000 bytes"],
        "the kernel doubles both"
    );

    let (address, server) = tcp_echo("127.0.0.1:0", 1, usize::MAX);
    let mut plan =
        Plan { transport: Transport::Tcp, duration: Duration::from_millis(100), ..Plan::new(address) };
    plan.sockets.congestion = Some("reno".into());
    let result = run(&plan);
    assert_eq!(result.generator.notes, ["sockets: congestion control reno"]);
    assert_eq!(server.join().unwrap(), (result.counts.sent * 100), "nothing else was sent");
}

#[test]
fn a_congestion_control_that_does_not_exist_is_named_with_those_that_do() {
    let (address, server) = tcp_echo("127.0.0.1:0", 1, 1);
    let mut plan = Plan { transport: Transport::Tcp, ..Plan::new(address) };
    plan.sockets.congestion = Some("made-up".into());
    let stop = AtomicBool::new(false);
    let run = udpath_load::run(&plan, Engine::Socket, &EchoLoad::new(0), &mut |_| (), &stop);
    let error = run.unwrap_err().to_string();
    assert!(error.starts_with("unknown congestion control `made-up`: this kernel has "), "{error}");
    assert!(error.contains("cubic"), "{error}");
    // The echo server still waits for its connection.
    drop(std::net::TcpStream::connect(address).unwrap());
    server.join().unwrap();
}

/// Datagrams of all sizes, the largest in many fragments.
#[test]
fn every_size_comes_back() {
    let _turn = udpath_rig::together();
    let server = Server::start("127.0.0.1:0", Faults::default());
    for size in [18, 19, 100, 1472, 1473, 9000, 65_507] {
        let plan = Plan { size, duration: Duration::from_millis(200), ..second(server.address) };
        let result = run(&Plan { arrivals: Arrivals::Closed { inflight: 2 }, ..plan });
        let c = result.counts;
        assert!(c.ok > 10 && c.ok + c.late == c.sent, "{size} bytes: {c:?}");
    }
    server.stop();
}

/// A TCP echo server that reads little at a time and answers in irregular pieces; ends a connection after `limit`
/// bytes.
fn tcp_echo(bind: &str, connections: usize, limit: usize) -> (SocketAddr, JoinHandle<u64>) {
    let listener = TcpListener::bind(bind).unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let handles: Vec<_> = (0..connections)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 777];
                    let mut total = 0;
                    while total < limit {
                        match stream.read(&mut buffer) {
                            Ok(n) if n > 0 && stream.write_all(&buffer[..n]).is_ok() => total += n,
                            _ => break,
                        }
                    }
                    total as u64
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).sum()
    });
    (address, thread)
}

#[test]
fn tcp_transactions_in_pieces() {
    let _turn = udpath_rig::together();
    for (bind, size, arrivals) in [
        ("127.0.0.1:0", 100, Arrivals::Closed { inflight: 1 }),
        ("127.0.0.1:0", 100, Arrivals::Closed { inflight: 64 }),
        ("[::1]:0", 1000, Arrivals::Open { rate: 1000.0, process: Process::Poisson }),
        ("127.0.0.1:0", 60_000, Arrivals::Closed { inflight: 8 }),
    ] {
        let (address, server) = tcp_echo(bind, 3, usize::MAX);
        let transport = Transport::Tcp;
        let timeout = Duration::from_secs(2);
        let result =
            run(&Plan { transport, size, arrivals, flows: 3, threads: 2, timeout, ..second(address) });
        let c = result.counts;
        let echoed = server.join().unwrap();
        assert!(c.ok > 20 && c.ok + c.late == c.sent && c.corrupt == 0, "{size} {arrivals}: {c:?}");
        assert_eq!(echoed / size as u64, c.sent, "{size} {arrivals}");
        assert!(result.sent_latency.unwrap().count == c.sent);
    }
}

#[test]
fn tcp_connections_that_end_are_reported() {
    let _turn = udpath_rig::together();
    let (address, server) = tcp_echo("127.0.0.1:0", 2, 20_000);
    let plan =
        Plan { transport: Transport::Tcp, flows: 2, duration: Duration::from_secs(60), ..second(address) };
    let stop = AtomicBool::new(false);
    let error = udpath_load::run(&plan, Engine::Socket, &EchoLoad::new(1), &mut |_| (), &stop).unwrap_err();
    assert!(error.to_string().contains("no connection is left"), "{error}");
    let Error::Cut { result, .. } = error else { panic!("{error}") };
    result.counts.check().unwrap();
    // 200 messages on each; whether the last replies are read before the end is seen depends on the kernel.
    assert!((390..=402).contains(&result.counts.ok), "{:?}", result.counts);
    server.join().unwrap();
    let error = udpath_load::run(&plan, Engine::Socket, &EchoLoad::new(1), &mut |_| (), &stop).unwrap_err();
    assert!(
        error.to_string().contains("connect a flow to") && error.to_string().contains("start a server"),
        "{error}"
    );
}

#[test]
fn a_tcp_stream_arrives_whole() {
    let _turn = udpath_rig::together();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut total = 0u64;
        while let Ok(n) = stream.read(&mut buffer)
            && n > 0
        {
            total += n as u64;
        }
        total
    });
    let plan = Plan { transport: Transport::Tcp, mode: Mode::Stream, size: 1400, ..second(address) };
    let result = one_way(&plan);
    let total = reader.join().unwrap();
    assert!(result.counts.sent > 1000, "{:?}", result.counts);
    // A message counts when its last byte is read; part of one more may be in flight.
    assert_eq!(total / 1400, result.counts.sent);
    // It does not report what it received.
    assert_eq!((result.delivered, result.loss()), (None, None));
    assert!(result.warnings[0].contains("received is unknown"), "{:?}", result.warnings);
    assert!(result.per_core.sender.is_some() && result.per_core.receiver.is_none());
}

/// udpath's own sink, over TCP and UDP.
fn serve_sink() -> udpath_serve::Server {
    let totals = Totals::new(2);
    let config = udpath_serve::Config {
        workers: Some(2),
        ..udpath_serve::Config::new(["127.0.0.1:0".parse().unwrap()])
    };
    let datagrams = Arc::clone(&totals);
    udpath_serve::Server::start_with_tcp(
        &config,
        move |worker| Sink::new(&datagrams, worker),
        move |worker| Sink::new(&totals, worker),
    )
    .unwrap()
}

/// Every byte that TCP accepted arrives, and the sink reports it; slowly or at full rate.
#[test]
fn a_sink_reports_the_bytes_of_a_tcp_stream() {
    let _turn = udpath_rig::together();
    for arrivals in
        [Arrivals::Closed { inflight: 1 }, Arrivals::Open { rate: 2000.0, process: Process::Constant }]
    {
        let server = serve_sink();
        let address = server.binds()[0];
        let plan = Plan {
            transport: Transport::Tcp,
            mode: Mode::Stream,
            size: 1400,
            flows: 3,
            threads: 2,
            arrivals,
            warmup: Duration::from_millis(200),
            ..second(address)
        };
        let result = one_way(&plan);
        let delivered = result.delivered.expect("the sink answers");
        let Counts { sent, ok, lost, .. } = result.counts;
        assert!(sent >= 1990 && (ok, lost) == (sent, 0), "{arrivals}: {:?}", result.counts);
        assert_eq!(delivered.datagrams, sent, "{arrivals}");
        // On each connection, part of one more message may have been accepted.
        let bytes = delivered.bytes - sent * 1400;
        assert!(bytes < 3 * 1400, "{arrivals}: {bytes} more than the messages");
        assert!(
            delivered.mbits > 0.0 && delivered.mbits <= delivered.bytes as f64 * 8.0 / 1e6 / result.seconds
        );
        assert!((delivered.per_second - delivered.mbits * 1e6 / 8.0 / 1400.0).abs() < 1.0);
        assert!(result.warnings.is_empty(), "{:?}", result.warnings);
        server.stop().unwrap();
    }
}

/// For udpath's own sink, the CPU time of both ends is known; their sum cannot exceed that of the CPUs.
#[test]
fn throughput_per_core_is_of_each_end_apart() {
    let _turn = udpath_rig::together();
    let server = serve_sink();
    let address = server.binds()[0];
    for (transport, mode) in
        [(Transport::Udp, Mode::Flood), (Transport::Udp, Mode::Stream), (Transport::Tcp, Mode::Stream)]
    {
        let result = one_way(&Plan { transport, mode, flows: 2, size: 1000, ..second(address) });
        let (sender, receiver) = (result.per_core.sender.unwrap(), result.per_core.receiver.unwrap());
        let delivered = result.delivered.unwrap();
        // The sender has one thread; the sink is in this process, and its CPU time includes the sender's.
        assert!(sender.cpu_seconds <= result.seconds * 1.05, "{mode}: {sender:?}");
        assert!(receiver.cpu_seconds >= sender.cpu_seconds * 0.9, "{mode}: {sender:?} {receiver:?}");
        let sent = sender.per_second * sender.cpu_seconds;
        assert!((sent - result.counts.sent as f64).abs() < 1.0, "{mode}: {sender:?}");
        let got = receiver.mbits * receiver.cpu_seconds * 1e6 / 8.0;
        assert!((got - delivered.bytes as f64).abs() < 1.0, "{mode}: {receiver:?}");
    }
    server.stop().unwrap();
}
