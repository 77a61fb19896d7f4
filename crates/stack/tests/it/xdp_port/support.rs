//! A lab with a client and a server, and a port that echoes.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine, Offloads};
use udpath_stack::frame::Burst;
use udpath_stack::port::Port;
use udpath_stack::port::xdp::{Config, XdpDevice, XdpPort};
use udpath_stack::wire::{Packet, reply};

/// Long enough for any step here on a machine that is busy with other tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// The port served.
pub(crate) const PORT: u16 = 5300;

/// Two machines and a link whose senders compute their checksums, like on a physical link.
pub(crate) fn lab(name: &str, queues: u32) -> Lab {
    let offloads = Offloads { tx_checksum: false, tso: false, ..Offloads::default() };
    let spec = LinkSpec { offloads, ..LinkSpec::with_queues(queues) };
    LabBuilder::new(name).machine("client").machine("server").link("client", "server", &spec).up().unwrap()
}

/// Small rings, so that they fill up.
pub(crate) fn small() -> Config {
    Config { frames: 256, receive: 64, transmit: 64, fill: 64, completion: 64, ..Config::default() }
}

/// The server's device, taking datagrams for [`PORT`] at any address.
pub(crate) fn device(lab: &Lab, config: Config) -> XdpDevice {
    let server = lab.machine("server").unwrap();
    let mut device = server.run(|| XdpDevice::open("eth0", config)).unwrap().unwrap();
    device.bind(SocketAddr::new("0.0.0.0".parse().unwrap(), PORT)).unwrap();
    device.bind(SocketAddr::new("::".parse().unwrap(), PORT)).unwrap();
    device
}

/// A port for each of its queues.
pub(crate) fn ports(lab: &Lab, device: &mut XdpDevice) -> Vec<XdpPort> {
    lab.machine("server").unwrap().run(|| device.ports()).unwrap().unwrap()
}

/// The server's addresses as the client sees them.
pub(crate) fn addresses(lab: &Lab) -> [IpAddr; 2] {
    let there = lab.address_of("server", "client").unwrap();
    [there.ipv4.into(), there.ipv6.into()]
}

/// A socket in `machine`, at any address of the family of `peer`.
pub(crate) fn socket(machine: &Machine, peer: IpAddr) -> UdpSocket {
    let any: IpAddr = if peer.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
    let socket = machine.run(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Output of a program run in a machine; it must succeed.
pub(crate) fn printed(machine: &Machine, program: &str, arguments: &[&str]) -> String {
    let output = machine.command(program).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the server's interface has an XDP program.
pub(crate) fn has_program(lab: &Lab) -> bool {
    printed(lab.machine("server").unwrap(), "ip", &["-d", "link", "show", "eth0"]).contains("xdp")
}

/// Waits until the program is detached. A closed descriptor may live a moment longer in a process that another test
/// is starting: between fork and exec that process has copies of all descriptors.
pub(crate) fn wait_until_gone(lab: &Lab) {
    let end = Instant::now() + TIMEOUT;
    while has_program(lab) {
        assert!(Instant::now() < end, "the program is still attached");
    }
}

/// Waits at most `limit` until `descriptor` is readable. Returns whether it is.
pub(crate) fn readable(descriptor: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut fds, Some(&limit)).unwrap() == 1 && fds[0].revents().contains(PollFlags::IN)
}

/// One poll of a worker that answers every datagram with its own payload. Returns the number of datagrams.
pub(crate) fn echo(port: &mut XdpPort) -> usize {
    let (mut burst, mut replies, mut refused) = (Burst::new(), Burst::new(), Burst::new());
    let came = port.receive(&mut burst);
    for mut frame in burst.drain(..) {
        let request = Packet::parse(frame.bytes()).expect("what is taken can be read");
        request.verify(frame.bytes()).expect("the checksums are right");
        match reply::echo_in_place(frame.bytes_mut(), &request) {
            Ok(reply) if frame.set_len(reply.frame_end()) => replies.push(frame),
            _ => refused.push(frame),
        }
    }
    port.transmit(&mut replies);
    port.recycle(&mut replies);
    port.recycle(&mut refused);
    port.flush();
    came
}

/// Echoes on `ports` until `done`.
pub(crate) fn echo_until(ports: &mut [XdpPort], mut done: impl FnMut(&mut [XdpPort]) -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done(ports) {
        assert!(Instant::now() < end, "no progress: {:?}", ports[0].statistics());
        if ports.iter_mut().map(echo).sum::<usize>() == 0 {
            std::thread::yield_now();
        }
    }
}

/// Polls ports until every frame is returned or in the fill ring.
pub(crate) fn settle(ports: &mut [XdpPort]) {
    echo_until(ports, |ports| ports.iter().all(|port| port.sending() == 0));
    assert!(ports.iter().all(|port| port.outstanding() == 0), "{ports:?}");
}

/// Sends an ICMP echo request to an IPv4 address and waits for its answer.
pub(crate) fn ping(machine: &Machine, to: IpAddr, with_option: bool) {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};
    const ECHO: [u8; 8] = [8, 0, 0xe5, 0xc9, 0x12, 0x34, 0, 2]; // checksum, identifier, number
    let socket = machine.run(|| socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)));
    let socket = socket.unwrap().unwrap();
    if with_option {
        super::sys::add_ip_option(&socket).unwrap();
    }
    sendto(&socket, &ECHO, SendFlags::empty(), &SocketAddr::new(to, 0)).unwrap();
    let end = Instant::now() + TIMEOUT;
    loop {
        assert!(readable(socket.as_fd(), end.saturating_duration_since(Instant::now())), "no answer");
        let mut bytes = [0; 128];
        let (len, _) = recv(&socket, &mut bytes, RecvFlags::empty()).unwrap();
        let header = usize::from(bytes[0] & 15) * 4;
        // An echo reply with our identifier and number.
        if len >= header + 8 && bytes[header] == 0 && bytes[header + 4..header + 8] == ECHO[4..] {
            return;
        }
    }
}
