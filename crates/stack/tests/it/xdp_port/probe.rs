//! Injected test frames.

use std::net::{IpAddr, SocketAddr};

use error_reporter::Report;
use udpath_bpf::Outcome;
use udpath_stack::port::Port;
use udpath_stack::wire::{Flow, LinkHeader, Mac, Tags, UdpChecksum, build};

use super::support::*;

/// A datagram to `to`, from a documentation address and the device's own return_handle.
fn frame(mac: [u8; 6], to: IpAddr) -> Vec<u8> {
    let from: IpAddr = if to.is_ipv4() { "192.0.2.1" } else { "2001:db8::1" }.parse().unwrap();
    let link = LinkHeader { source: Mac(mac), destination: Mac(mac), tags: Tags::NONE };
    let flow = Flow::new(link, SocketAddr::new(from, 9), SocketAddr::new(to, PORT)).unwrap();
    let mut frame = vec![0; 128];
    let headers = build(&mut frame, &flow, b"is anybody there?", UdpChecksum::Computed).unwrap();
    frame.truncate(headers.frame_end());
    frame
}

#[test]
fn an_injected_frame_is_answered_while_the_device_takes_nothing() {
    udpath_lab::needs_root!();
    let lab = lab("x-probe", 2);
    let server = lab.machine("server").unwrap();
    let mut device = device(&lab, small());
    for any in ["0.0.0.0", "::"] {
        device.unbind(SocketAddr::new(any.parse().unwrap(), PORT));
    }
    let mut ports = ports(&lab, &mut device);
    assert!(device.probe(&ports[1]).unwrap().is_none(), "the kernel injects on queue 0 alone");
    let mut probe = device.probe(&ports[0]).unwrap().unwrap();
    for (sent, to) in (1..).zip(addresses(&lab)) {
        let frame = frame(device.mac(), to);
        assert_eq!(probe.passes(&frame).unwrap(), Some("other_port"));
        probe.bind(SocketAddr::new(to, PORT)).unwrap();
        assert_eq!(probe.passes(&frame).unwrap(), None);
        server.run(|| probe.inject(&frame)).unwrap().unwrap();
        echo_until(&mut ports, |ports| ports[0].counts().transmitted == sent);
        // Frames received by the interface at that time go to the kernel.
        assert!(!server.run(|| device.takes(&frame, 0)).unwrap().unwrap());
    }
    settle(&mut ports);
    assert_eq!((ports[0].counts().received, ports[1].counts().received), (2, 0));
    assert_eq!(device.outcomes().of(Outcome::Taken), 0);
    // Without its socket the frame would go to the kernel.
    let left = frame(device.mac(), addresses(&lab)[0]);
    ports.remove(0);
    assert_eq!(probe.passes(&left).unwrap(), Some("no_socket"));
}

#[test]
fn the_attached_program_is_asked_for_each_queue() {
    udpath_lab::needs_root!();
    let lab = lab("x-takes", 2);
    let server = lab.machine("server").unwrap();
    let mut device = device(&lab, small());
    let mut ports = ports(&lab, &mut device);
    let frame = frame(device.mac(), addresses(&lab)[0]);
    for queue in [0, 1] {
        assert!(server.run(|| device.takes(&frame, queue)).unwrap().unwrap(), "queue {queue}");
    }
    device.release(1);
    assert!(!server.run(|| device.takes(&frame, 1)).unwrap().unwrap());
    let refused = server.run(|| device.takes(&frame, 2)).unwrap().unwrap_err();
    let refused = Report::new(refused).to_string();
    assert_eq!(
        refused,
        "cannot run BPF program 'take' on a frame of 59 bytes: Invalid argument (os error 22)"
    );
    // No frames arrived, and probes are not counted.
    settle(&mut ports);
    assert!(ports.iter().all(|port| port.counts().received == 0));
    assert_eq!(device.outcomes().of(Outcome::Taken), 0);
}
