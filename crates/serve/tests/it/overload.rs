//! Ten times the load that the workers can serve, over a link whose counters confirm the result: every datagram is
//! accounted for, over every Io. Needs root.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_serve::{Config, Io, Outcome, Reply, Request, Service, Steer, XdpConfig, xdp};

use crate::support::{TIMEOUT, config, start, stop};

const PORT: u16 = 7000;

/// Requests sent per request answered.
const OVERLOAD: u64 = 10;

/// Minimum number of lost datagrams: several times what all queues hold.
const LOST: u64 = 20_000;

/// Takes 500 us for every answer: 2,000 per second and worker, less than a tenth of what one thread sends.
struct Slow;

impl Service for Slow {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let until = Instant::now() + Duration::from_micros(500);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        reply.write(request.payload())
    }
}

fn lab() -> Lab {
    let builder = LabBuilder::new("sv-over").machine("client").machine("server");
    let lab = builder.link("client", "server", &LinkSpec::with_queues(2)).up().expect("a lab: run as root");
    for machine in lab.machines() {
        // Datagrams that the kernel sends over IPv6 would be in the link's counters as well.
        let silent = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        machine.run(silent).unwrap().unwrap();
    }
    lab
}

/// Frames that arrived at a machine's end of the link, and those dropped there.
fn arrived(lab: &Lab, machine: &str) -> (u64, u64) {
    let counter = |name: &str| -> u64 {
        let path = format!("/sys/class/net/eth0/statistics/{name}");
        let text = lab.machine(machine).unwrap().run(|| std::fs::read_to_string(path)).unwrap().unwrap();
        text.trim().parse().unwrap()
    };
    (counter("rx_packets"), counter("rx_dropped"))
}

fn configs() -> Vec<Config> {
    let bind = "0.0.0.0:7000";
    let xdp = |steer, flow_limit, live_frames, busy_poll: bool| {
        let busy_poll = busy_poll.then(xdp::BusyPoll::default);
        let port = xdp::Config { live_frames, busy_poll, ..xdp::Config::default() };
        Config { xdp: XdpConfig { steer, flow_limit, port, ..XdpConfig::default() }, ..config(Io::Xdp, bind) }
    };
    let mut configs: Vec<_> = Io::KERNEL.into_iter().map(|io| config(io, bind)).collect();
    configs.push(xdp(Steer::Off, false, true, false));
    configs.push(xdp(Steer::Off, false, false, true));
    configs.push(xdp(Steer::To("1".parse().unwrap()), true, true, false));
    configs.push(xdp(Steer::All, false, false, false));
    configs
}

#[test]
fn every_datagram_is_accounted_for_at_ten_times_the_load() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab();
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    // A veth takes live frames only with NAPI.
    let _napi = client.interface("eth0").unwrap().ensure_napi().unwrap();
    let to = (lab.address_of("server", "client").unwrap().ipv4, PORT);
    for config in configs() {
        let what = format!("{:?} {:?}", config.io, config.xdp);
        let running = server.run(|| start(&config, |_| Slow)).unwrap().unwrap();
        // Read after the probe, whose replies leave by the link.
        let before = (arrived(&lab, "server"), arrived(&lab, "client"));
        let sockets = || (0..16).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
        let sockets: Vec<UdpSocket> = client.run(sockets).unwrap();
        let (deadline, mut sent) = (Instant::now() + TIMEOUT, 0);
        loop {
            for socket in &sockets {
                for _ in 0..64 {
                    sent += u64::from(socket.send_to(&[7; 40], to).is_ok());
                }
            }
            let status = running.status();
            let dropped = status.kernel_drops + status.total.dropped.total();
            if dropped > LOST && sent > OVERLOAD * status.total.answered {
                assert!(!status.warnings.is_empty(), "{what}: losses are reported at once");
                break;
            }
            assert!(Instant::now() < deadline, "{what}: no overload: {sent} sent, {:?}", status.total);
        }
        let status = stop(running);
        let now = (arrived(&lab, "server"), arrived(&lab, "client"));
        let (came, left) = (now.0.0 - before.0.0, now.1.0 - before.1.0);
        assert_eq!(came, sent, "{what}: the link loses nothing");
        assert_eq!(status.total.in_flight, 0, "{what}");
        assert_eq!(status.total.received + status.kernel_drops, sent, "{what}: {status:?}");
        assert_eq!(
            status.total.answered + status.total.dropped.total() + status.kernel_drops,
            sent,
            "{what}"
        );
        assert_eq!(status.total.answered, left, "{what}: {status:?}");
        if let Some(xdp) = &status.xdp {
            assert_eq!((xdp.taken, xdp.answered, xdp.in_flight), (sent, left, 0), "{what}: {xdp:?}");
            assert_eq!(status.kernel_drops, now.0.1 - before.0.1, "{what}: {xdp:?}");
        }
    }
    lab.down().unwrap();
}
