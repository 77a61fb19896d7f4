//! The MTU changes while a server takes frames: replies longer than a frame leave by the kernel socket, those that fit
//! leave as frames. Needs root.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use udpath_lab::Lab;
use udpath_serve::{Config, Io, Outcome, Reply, Request, Server, Service, Steer};

use crate::support::{TIMEOUT, config, ip, link, payload, start_in, stop, wait_until};

/// Answers with as many bytes as the first two bytes of the request say.
struct AsLongAsAsked;

impl Service for AsLongAsAsked {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let Some(len) = request.payload().first_chunk() else { return reply.write(b"") };
        reply.write(&payload(usize::from(u16::from_be_bytes(*len))))
    }
}

/// Sets the MTU of both ends of the link.
fn set_mtu(lab: &Lab, mtu: usize) {
    for machine in ["server", "client"] {
        ip(lab, machine, &["link", "set", "eth0", "mtu", &mtu.to_string()]);
    }
}

/// Requests a reply of `len` bytes; returns whether it came.
fn asked(client: &UdpSocket, len: usize) -> bool {
    client.send(&(len as u16).to_be_bytes()).unwrap();
    let mut buffer = [0; 65_536];
    while let Ok(got) = client.recv(&mut buffer) {
        assert!(buffer[..got] == payload(got), "{got} bytes were changed");
        // Anything else is a late reply to an earlier request.
        if got == len {
            return true;
        }
    }
    false
}

/// Requests that arrived as frames, and replies that left as frames, once none is in flight.
fn frames(server: &Server) -> (u64, u64) {
    let mut counts = (0, 0);
    wait_until("nothing is in flight", || {
        let xdp = server.status().xdp.unwrap();
        counts = (xdp.received, xdp.answered);
        xdp.received == xdp.answered + xdp.declined
    });
    counts
}

/// Requests a reply of `len` bytes; returns whether it came as a frame, or `None` if it did not come.
fn came_as_frame(server: &Server, client: &UdpSocket, len: usize) -> Option<bool> {
    let before = frames(server);
    if !asked(client, len) {
        return None;
    }
    // The reply may be here before it is counted there.
    wait_until("the request is counted", || frames(server).0 > before.0);
    Some(frames(server).1 > before.1)
}

#[test]
fn replies_follow_the_mtu_down_and_up() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    for steer in [Steer::Off, Steer::All] {
        let lab = link("serve-mtu", 2);
        let there = lab.address_of("server", "client").unwrap();
        let mut config = Config { workers: Some(2), ..config(Io::Xdp, "0.0.0.0:7000") };
        config.binds.push("[::]:7000".parse().unwrap());
        config.xdp.steer = steer;
        let server = start_in(&lab, &config, |_| AsLongAsAsked);
        // Headers of IP and UDP: 28 bytes, 48 with IPv6.
        for (to, headers) in [(there.ipv4.into(), 28), (there.ipv6.into(), 48)] {
            let any = if headers == 28 { "0.0.0.0:0" } else { "[::]:0" };
            let client = lab.machine("client").unwrap().run(|| UdpSocket::bind(any)).unwrap().unwrap();
            client.connect(SocketAddr::new(to, 7000)).unwrap();
            for mtu in [1500, 1300, 1400, 1500] {
                set_mtu(&lab, mtu);
                // Frames in flight, and those sent before the server notices the change, may be lost; later none are.
                client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                let fits = mtu - headers;
                wait_until("replies are as long as the MTU says", || {
                    came_as_frame(&server, &client, fits) == Some(true)
                        && came_as_frame(&server, &client, fits + 1) == Some(false)
                });
                client.set_read_timeout(Some(TIMEOUT)).unwrap();
                for len in [0, 100, fits, fits + 1, fits + 8, 1501, 65_000] {
                    let as_frame = came_as_frame(&server, &client, len);
                    assert_eq!(as_frame, Some(len <= fits), "{len} bytes with an MTU of {mtu}");
                }
            }
        }
        stop(server);
        lab.down().unwrap();
    }
}
