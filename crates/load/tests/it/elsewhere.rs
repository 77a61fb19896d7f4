//! Servers that answer from another address, or from another port, than was asked: no client takes that. Every engine
//! counts such requests as lost and names who answered. Needs root.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use udpath_lab::Lab;
use udpath_load::plan::{Arrivals, Plan};
use udpath_load::{Engine, Error};
use udpath_protocols::echo::EchoLoad;

use crate::kernel::Bed;

/// The server's second addresses: the client has a route to them.
const SECOND: [&str; 2] = ["198.18.7.2", "2001:db8:7::2"];

/// Echoes what comes to any address of the machine: from `from`, else from the socket that received it, for which the
/// kernel chooses the address of the route.
struct Wrong {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Wrong {
    fn start(lab: &Lab, ipv6: bool, from: Option<IpAddr>) -> Self {
        let any = if ipv6 { "[::]:0" } else { "0.0.0.0:0" };
        let bind = || {
            let receiver = UdpSocket::bind(any).unwrap();
            (receiver, from.map(|from| UdpSocket::bind((from, 0)).unwrap()))
        };
        let (receiver, sender) = lab.machine("server").unwrap().run(bind).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = spawn(move || {
            let mut bytes = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, client)) = receiver.recv_from(&mut bytes) else { continue };
                // A client that has no socket for it says "port unreachable" to the next one.
                let _ = sender.as_ref().unwrap_or(&receiver).send_to(&bytes[..len], client);
            }
        });
        Self { port, stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn ip(lab: &Lab, machine: &str, arguments: &[&str]) {
    let mut ip = lab.machine(machine).unwrap().command("ip");
    assert!(ip.args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

/// A client and a server with a second address of each family.
fn bed(name: &str) -> Bed {
    let bed = Bed::in_order(name);
    for (family, second, len) in [("-4", SECOND[0], "32"), ("-6", SECOND[1], "128")] {
        let second = format!("{second}/{len}");
        let mut add = vec![family, "addr", "add", &second, "dev", "eth0"];
        add.extend((family == "-6").then_some("nodad"));
        ip(&bed.lab, "server", &add);
        ip(&bed.lab, "client", &[family, "route", "add", &second, "dev", "eth0"]);
    }
    bed
}

fn plan(target: SocketAddr) -> Plan {
    Plan {
        flows: 4,
        arrivals: Arrivals::Closed { inflight: 2 },
        duration: Duration::from_millis(300),
        timeout: Duration::from_millis(100),
        ..Plan::new(target)
    }
}

/// What the run says, warnings or the error, and how many requests it counted as answered.
fn said(bed: &Bed, engine: Engine, plan: &Plan) -> (String, u64) {
    let never = AtomicBool::new(false);
    let load = || udpath_load::run(plan, engine, &EchoLoad::new(7), &mut |_| (), &never);
    match bed.lab.machine("client").unwrap().run(load).unwrap() {
        Ok(result) => {
            result.counts.check().unwrap();
            (result.warnings.join("\n"), result.counts.ok)
        }
        Err(error @ Error::NoAnswer { .. }) => (error.to_string(), 0),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_engine_names_who_answered_instead() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let bed = bed("load-elsewhere");
    let own = bed.lab.address_of("server", "client").unwrap();
    for ipv6 in [false, true] {
        let second: IpAddr = SECOND[usize::from(ipv6)].parse().unwrap();
        let first = if ipv6 { IpAddr::from(own.ipv6) } else { IpAddr::from(own.ipv4) };
        // From the address of the route, and from the right address with another port.
        for from in [None, Some(second)] {
            let server = Wrong::start(&bed.lab, ipv6, from);
            let asked = SocketAddr::new(second, server.port);
            let answerer = match from {
                None => SocketAddr::new(first, server.port).to_string(),
                // Its port is not known here.
                Some(second) => SocketAddr::new(second, 0).to_string().trim_end_matches('0').to_owned(),
            };
            for engine in Engine::ALL {
                let (said, ok) = said(&bed, engine, &plan(asked));
                assert_eq!(ok, 0, "{engine}: {said}");
                let named = [format!("from {answerer}"), format!("{answerer} answered"), answerer.clone()];
                assert!(
                    named.iter().any(|named| said.contains(named.as_str()))
                        && said.contains(&format!("instead of {asked}")),
                    "{engine}, {answerer}: {said}"
                );
            }
            server.stop();
        }
    }
}

#[test]
fn of_two_targets_the_wrong_one_is_named() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let bed = bed("load-elsewhere-two");
    let first = IpAddr::from(bed.lab.address_of("server", "client").unwrap().ipv4);
    let server = Wrong::start(&bed.lab, false, None);
    let [right, wrong] = [first, SECOND[0].parse().unwrap()].map(|ip| SocketAddr::new(ip, server.port));
    for engine in [Engine::Kernel, Engine::Xdp, Engine::XdpRings] {
        let (said, ok) = said(&bed, engine, &Plan { targets: vec![right, wrong], ..plan(right) });
        assert!(ok > 0, "{engine}: {said}");
        assert!(said.contains(&format!("from {right} instead of {wrong}")), "{engine}: {said}");
    }
    server.stop();
}

#[test]
fn a_server_that_answers_as_it_should_is_not_suspected() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let bed = bed("load-elsewhere-not");
    let server = Wrong::start(&bed.lab, false, None);
    let right = SocketAddr::new(bed.lab.address_of("server", "client").unwrap().ipv4.into(), server.port);
    for engine in Engine::ALL {
        let (said, ok) = said(&bed, engine, &plan(right));
        assert!(ok > 0 && !said.contains("instead of"), "{engine}: {said}");
    }
    server.stop();
}
