//! Do the rates of `load` agree with those of the generators that others use: sockperf's ping-pong, iperf3's streams?
//!
//! ```text
//!   client, CPU 0: load echo | sockperf ping-pong  ══ veth ══▸  server, CPU 1: the same echo for both, by socket and thread
//!   client, CPU 0: load sink | iperf3 -c           ══ veth ══▸  server, CPU 1: serve sink, iperf3 -s
//! ```
//! One flow, one request in flight (netperf's UDP_RR and TCP_RR), in interleaved trials A B B A. netperf is not in
//! Debian. sockperf accepts a reply only if one bit of the request is cleared in it, so its echo clears that bit, and
//! otherwise runs the same code as load's. An iperf3 client needs an iperf3 server.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use udpath_advise::result::Ratio;
use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine};

use crate::bed::{Running, serve, udpath};
use crate::claim::{Bound, Claim};
use crate::race::{pin, race};
use crate::results::Results;

/// How near the rates must be: 5 % either way.
const AGREE: (f64, f64) = (0.95, 1.05);
/// Sufficient half-width of a ratio, and most blocks. A trial with one request in flight waits for two CPUs to wake up
/// each time, which differs by 10 % from trial to trial. Fewer blocks: an interval wider than the bound. More: minutes.
const WIDTH: f64 = 0.025;
const BLOCKS: usize = 50;
/// Seconds of a trial.
const SECONDS: &str = "1";
/// Bytes of a request; of a write to a stream; of a datagram of the flood.
const SIZE: usize = 100;
const WRITE: &str = "65000";
const DATAGRAM: &str = "1400";
/// Ports of the echo servers, for load and for sockperf; of both sinks.
const LOAD_PORT: u16 = 7300;
const SOCKPERF_PORT: u16 = 7301;
const SINK_PORT: u16 = 7302;
const IPERF_PORT: u16 = 7303;
/// Where sockperf's header has the bit that a reply must not have: the low byte of its flags (message.h).
const FLAGS: usize = 9;
const FROM_CLIENT: u8 = 1;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let lab = LabBuilder::new("bench-agreement").machine("client").machine("server");
    let lab = lab.link("client", "server", &LinkSpec::default()).up()?;
    let ip = IpAddr::V4(lab.address_of("server", "client")?.ipv4);
    let program = udpath()?;
    for (port, clears) in [(LOAD_PORT, 0), (SOCKPERF_PORT, FROM_CLIENT)] {
        let at = SocketAddr::new(ip, port);
        let (udp, tcp) = lab
            .machine("server")?
            .run(|| Ok::<_, std::io::Error>((UdpSocket::bind(at)?, TcpListener::bind(at)?)))??;
        // They end with the benchmark: the last peers of a lab that is gone.
        thread::spawn(move || pin(1).map(|()| echo_datagrams(&udp, clears)));
        thread::spawn(move || pin(1).map(|()| echo_connections(&tcp, clears)));
    }
    let sink = SocketAddr::new(ip, SINK_PORT).to_string();
    let _sink = serve(
        &lab,
        "server",
        &program,
        &["serve", "sink", "--tcp", "--workers", "1", "--cpus", "1", "--bind", &sink],
    )?;
    let _iperf = iperf_server(&lab)?;

    let client = lab.machine("client")?;
    for (name, tcp) in [("UDP_RR", false), ("TCP_RR", true)] {
        let what = format!("{name}: load echo / sockperf ping-pong, transactions/s, one in flight");
        let at = |port| SocketAddr::new(ip, port);
        let ratio = race(
            &what,
            WIDTH,
            BLOCKS,
            || sockperf(client, at(SOCKPERF_PORT), tcp),
            || load_echo(client, &program, at(LOAD_PORT), tcp),
        )?;
        let id = format!("agreement.{}", name.to_lowercase());
        let why = "sockperf blocks in recvfrom; load waits in epoll for any of its flows, then receives: a system call more";
        results.add(&agreed(&id, what, &ratio, why));
    }
    for (name, tcp) in [("TCP stream", true), ("UDP flood", false)] {
        let what = format!(
            "{name}: load sink / iperf3, {}",
            if tcp { "bit/s received" } else { "datagrams/s sent" }
        );
        let ratio = race(
            &what,
            WIDTH,
            BLOCKS,
            || iperf(client, ip, tcp),
            || load_sink(client, &program, SocketAddr::new(ip, SINK_PORT), tcp),
        )?;
        let (id, why) = match tcp {
            true => ("agreement.tcp_stream", "iperf3 calls pselect6 before each read"),
            false => ("agreement.udp_flood", "load sends 32 datagrams per sendmmsg, iperf3 one per write"),
        };
        results.add(&agreed(id, what, &ratio, why));
    }
    lab.down()?;
    Ok(())
}

/// A claim that two rates agree, which an interval wider than the bound cannot show.
fn agreed(id: &str, what: String, ratio: &Ratio, why: &str) -> Claim {
    let claim = Claim::ratio(id, what, ratio, Bound::Within(AGREE.0, AGREE.1)).with(why);
    claim.only_if(ratio.high - ratio.low <= AGREE.1 - AGREE.0, || {
        "the interval is wider than the bound".into()
    })
}

/// Sends every datagram back, with some bits of the flags cleared.
fn echo_datagrams(socket: &UdpSocket, clears: u8) -> Result<()> {
    let mut buffer = [0; 2048];
    loop {
        let (len, peer) = socket.recv_from(&mut buffer)?;
        buffer[FLAGS] &= !clears;
        socket.send_to(&buffer[..len], peer)?;
    }
}

/// Serves one connection after the other in the same way: messages of [`SIZE`].
fn echo_connections(listener: &TcpListener, clears: u8) -> Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        // Ends with the client.
        let _ = echo_messages(stream, clears);
    }
}

fn echo_messages(mut stream: TcpStream, clears: u8) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut message = [0; SIZE];
    loop {
        stream.read_exact(&mut message)?;
        message[FLAGS] &= !clears;
        stream.write_all(&message)?;
    }
}

/// Runs a program on CPU 0 of the client and returns what it printed to stdout.
fn output(client: &Machine, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = client.command("taskset");
    command.args(["-c", "0", program]).args(arguments);
    output_of(command.stdin(Stdio::null())).with_context(|| format!("{program} {}", arguments.join(" ")))
}

fn output_of(command: &mut Command) -> Result<String> {
    let done = command.output().context("cannot run it")?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        bail!("it failed ({}): {text}{}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    Ok(text)
}

fn load_echo(client: &Machine, program: &str, at: SocketAddr, tcp: bool) -> Result<f64> {
    let (at, size) = (at.to_string(), SIZE.to_string());
    let mut arguments =
        vec!["load", "echo", &at, "--inflight", "1", "--size", &size, "-d", SECONDS, "--json"];
    arguments.extend(tcp.then_some("--tcp"));
    let result = output(client, program, &arguments)?;
    let result: serde_json::Value = serde_json::from_str(&result)?;
    let tps = result["tps"].as_f64().context("load printed no rate")?;
    ensure!(result["counts"]["lost"].as_u64() == Some(0), "load lost requests: {}", result["counts"]);
    Ok(tps)
}

fn sockperf(client: &Machine, at: SocketAddr, tcp: bool) -> Result<f64> {
    let (ip, port, size) = (at.ip().to_string(), at.port().to_string(), SIZE.to_string());
    let mut arguments = vec!["ping-pong", "-i", &ip, "-p", &port, "-m", &size, "-t", SECONDS];
    arguments.extend(tcp.then_some("--tcp"));
    let text = output(client, "sockperf", &arguments)?;
    round_trips(&text).with_context(|| format!("sockperf printed no valid duration: {text}"))
}

/// Round trips per second, from `[Valid Duration] RunTime=0.450 sec; SentMessages=9; ReceivedMessages=9`.
fn round_trips(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("[Valid Duration]"))?;
    let figure = |name: &str| {
        let rest = &line[line.find(name)? + name.len()..];
        rest.split(|c: char| !(c.is_ascii_digit() || c == '.')).next()?.parse::<f64>().ok()
    };
    let (seconds, received) = (figure("RunTime=")?, figure("ReceivedMessages=")?);
    (seconds > 0.0 && received > 0.0).then(|| received / seconds)
}

fn load_sink(client: &Machine, program: &str, at: SocketAddr, tcp: bool) -> Result<f64> {
    let at = at.to_string();
    let kind: &[&str] = if tcp {
        &["--tcp", "--mode", "stream", "--size", WRITE]
    } else {
        &["--mode", "flood", "--size", DATAGRAM]
    };
    let arguments = [&["load", "sink", &at, "-d", SECONDS, "--json"], kind].concat();
    let result: serde_json::Value = serde_json::from_str(&output(client, program, &arguments)?)?;
    let figure = if tcp { &result["delivered"]["mbits"] } else { &result["tps"] };
    Ok(figure.as_f64().context("load printed no rate")? * if tcp { 1e6 } else { 1.0 })
}

fn iperf_server(lab: &Lab) -> Result<Running> {
    let mut command = lab.machine("server")?.command("taskset");
    command.args(["-c", "1", "iperf3", "-s", "-p", &IPERF_PORT.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Running::new(lab.spawn(command).context("cannot start iperf3")?))
}

fn iperf(client: &Machine, ip: IpAddr, tcp: bool) -> Result<f64> {
    let (ip, port) = (ip.to_string(), IPERF_PORT.to_string());
    let kind: &[&str] = if tcp { &["-l", WRITE] } else { &["-u", "-b", "0", "-l", DATAGRAM] };
    let arguments = [&["-c", &ip, "-p", &port, "-t", SECONDS, "-J"], kind].concat();
    let result: serde_json::Value = serde_json::from_str(&output(client, "iperf3", &arguments)?)?;
    let end = &result["end"];
    let rate = if tcp {
        end["sum_received"]["bits_per_second"].as_f64()
    } else {
        let sum = &end["sum"];
        sum["packets"].as_f64().zip(sum["seconds"].as_f64()).map(|(packets, seconds)| packets / seconds)
    };
    rate.with_context(|| format!("iperf3 printed no rate: {end}"))
}
