//! Life cycle of ports and programs: refusals, drops, kills, link changes.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_bpf::AttachMode;
use udpath_lab::{LabBuilder, LinkSpec};
use udpath_stack::port::Port;
use udpath_stack::port::xdp::{Attach, Config, Copying, Error, InterfaceChange, XdpDevice, XdpPort};

use super::support::*;

/// Makes a child of this test program hold a port instead of running tests.
const HOLD: &str = "UDPATH_TEST_HOLDS_A_PORT";

#[test]
fn open_errors_name_the_object_and_the_reason() {
    udpath_lab::needs_root!();
    let lab = lab("x-refused", 2);
    let server = lab.machine("server").unwrap();
    let open = |interface: &str, config| server.run(|| XdpDevice::open(interface, config)).unwrap();
    let text = |error: Error| Report::new(error).to_string();
    assert_eq!(text(open("eth7", small()).unwrap_err()), "no interface 'eth7' in this network namespace");
    for odd in ["", "..", "eth0/../eth0", "a\0b", "a name that is much too long for one"] {
        assert!(matches!(open(odd, small()), Err(Error::NoInterface { .. })), "{odd:?}");
    }
    let mut device = open("eth0", small()).unwrap();
    let port = |queue| server.run(|| XdpPort::open("eth0", queue, &small())).unwrap();
    assert_eq!(
        text(server.run(|| device.port(2)).unwrap().unwrap_err()),
        "interface 'eth0' has no receive queue 2: it has 2, counted from 0"
    );
    let first = server.run(|| device.port(1)).unwrap().unwrap();
    assert_eq!(
        text(port(1).unwrap_err()),
        "queue 1 of interface 'eth0' already has an AF_XDP socket; stop the process that holds it (see `ss --xdp \
         --processes`)"
    );
    // Free again as soon as it is dropped.
    drop(first);
    drop(port(1).unwrap());
    let zero_copy = Config { copying: Copying::ZeroCopy, ..small() };
    let refused = text(server.run(|| XdpPort::open("eth0", 0, &zero_copy)).unwrap().unwrap_err());
    assert!(
        refused.starts_with(
            "the driver of interface 'eth0' does not support zero-copy on queue 0 (use copy mode"
        ),
        "{refused}"
    );
    // The error names the program already attached.
    let refused = text(open("eth0", small()).unwrap_err());
    let parts: Vec<&str> = refused.split(" is attached there; ").collect();
    let (before, id) = parts[0].split_once("another XDP program, program ").unwrap_or_default();
    assert_eq!(before, "cannot attach BPF program 'take' to 'eth0': ", "{refused}");
    let id = id.strip_suffix(" (take) in native mode,").unwrap_or_else(|| panic!("{refused}"));
    assert!(
        printed(server, "ip", &["-d", "link", "show", "eth0"]).contains(&format!("prog/xdp id {id} ")),
        "{refused}"
    );
    assert!(parts[1].starts_with("detach it first"), "{refused}");
    // Once it is gone, another one can be attached.
    drop(device);
    wait_until_gone(&lab);
    drop(open("eth0", small()).unwrap());
    // The loopback has no native XDP.
    assert_eq!(
        text(open("lo", small()).unwrap_err()),
        "the driver of interface 'lo' has no native XDP; allow generic mode, which is rarely faster, or use \
         kernel sockets"
    );
    let fallback = open("lo", Config { attach: Attach::NativeOrGeneric, ..small() }).unwrap();
    assert_eq!(fallback.mode(), AttachMode::Generic);
}

#[test]
fn sysfs_of_another_network_namespace_is_noticed() {
    udpath_lab::needs_root!();
    let lab = lab("x-sysfs", 1);
    let server = lab.machine("server").unwrap();
    let path = format!("/run/netns/{}", server.namespace());
    // Only in the machine's network namespace: /sys still shows the host's interfaces.
    let refused = std::thread::spawn(move || {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        let namespace = std::fs::File::open(path).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        XdpDevice::open("eth0", small()).map(|device| device.queues())
    });
    let refused = refused.join().unwrap();
    assert!(matches!(refused, Err(Error::OtherSysfs { .. })), "{refused:?}");
    assert!(!has_program(&lab));
}

#[test]
fn an_mtu_beyond_a_page_is_reported() {
    udpath_lab::needs_root!();
    let spec = LinkSpec { mtu: 9000, ..LinkSpec::default() };
    let builder = LabBuilder::new("x-mtu").machine("client").machine("server");
    let lab = builder.link("client", "server", &spec).up().unwrap();
    let server = lab.machine("server").unwrap();
    let refused = server.run(|| XdpDevice::open("eth0", small())).unwrap().unwrap_err();
    let refused = Report::new(refused).to_string();
    assert_eq!(
        refused,
        "cannot attach BPF program 'take' to 'eth0': its MTU, or its peer's, is too large for XDP; about 3,500 bytes fit"
    );
}

#[test]
fn everything_is_gone_after_a_drop() {
    udpath_lab::needs_root!();
    let lab = lab("x-drop", 2);
    for _ in 0..3 {
        let mut device = device(&lab, small());
        let ports = ports(&lab, &mut device);
        assert!(has_program(&lab));
        // In either order.
        drop(device);
        wait_until_gone(&lab);
        drop(ports);
    }
    let mut device = device(&lab, small());
    drop(ports(&lab, &mut device));
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[0];
    let client = socket(lab.machine("client").unwrap(), to);
    client.send_to(b"still", (to, PORT)).unwrap();
    echo_until(&mut ports, |ports| ports.iter().any(|port| port.counts().transmitted == 1));
    assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);
    settle(&mut ports);
}

/// The other process of [`nothing_is_left_of_a_killed_process`]: holds a port until it is killed, at most a minute.
#[test]
#[ignore = "a part of nothing_is_left_of_a_killed_process, which starts it in a lab"]
fn holds_a_port_when_asked() {
    assert!(std::env::var_os(HOLD).is_some(), "only nothing_is_left_of_a_killed_process may start it");
    let mut device = XdpDevice::open("eth0", small()).unwrap();
    let _ports = device.ports().unwrap();
    println!("\nholding");
    std::thread::sleep(Duration::from_secs(60));
}

/// Killed on drop, even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Nothing can be done about a failure: it has exited then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_is_left_of_a_killed_process() {
    udpath_lab::needs_root!();
    let lab = lab("x-kill", 2);
    let server = lab.machine("server").unwrap();
    let mut command = server.command(std::env::current_exe().unwrap());
    command.args(["--exact", "xdp_port::removal::holds_a_port_when_asked", "--ignored", "--nocapture"]);
    let mut child = Killed(command.env(HOLD, "1").stdout(Stdio::piped()).spawn().unwrap());
    let said = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let held = said.map_while(Result::ok).any(|line| line == "holding");
    assert!(held, "the child ended without a port");
    assert!(has_program(&lab));
    let refused = server.run(|| XdpPort::open("eth0", 1, &small())).unwrap();
    assert!(matches!(refused, Err(Error::QueueBusy { queue: 1, .. })), "{refused:?}");
    drop(child); // SIGKILL
    wait_until_gone(&lab);
    let mut device = device(&lab, small());
    drop(ports(&lab, &mut device));
}

/// Waits until the kernel's own sockets are reachable again after the link was down.
fn eventually(client: &UdpSocket, to: std::net::IpAddr, ports: &mut [XdpPort]) {
    let end = Instant::now() + TIMEOUT;
    client.set_nonblocking(true).unwrap();
    let mut bytes = [0; 16];
    loop {
        assert!(Instant::now() < end, "nothing came back: {:?}", ports[0].statistics());
        // Fails while the other end of the link is down.
        let _ = client.send_to(b"again", (to, PORT));
        for port in &mut *ports {
            echo(port);
        }
        if client.recv(&mut bytes).is_ok_and(|len| bytes[..len] == *b"again") {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    client.set_nonblocking(false).unwrap();
}

#[test]
fn a_port_survives_its_link_going_down() {
    udpath_lab::needs_root!();
    let lab = lab("x-down", 1);
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let mut device = device(&lab, small());
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[0];
    let sender = socket(client, to);
    eventually(&sender, to, &mut ports);
    // A datagram is received before the link goes down, and answered afterwards.
    sender.send_to(b"late", (to, PORT)).unwrap();
    printed(server, "ip", &["link", "set", "eth0", "down"]);
    assert_eq!(echo(&mut ports[0]), 1);
    let counted = ports[0].statistics();
    assert!(counted.link_down >= 1 && ports[0].sending() > 0, "{counted:?}");
    printed(server, "ip", &["link", "set", "eth0", "up"]);
    eventually(&sender, to, &mut ports);
    settle(&mut ports);
    assert_eq!(device.changed(), None);
    lab.down().unwrap();
}

#[test]
fn interface_changes_are_reported() {
    udpath_lab::needs_root!();
    let lab = lab("x-change", 2);
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let mut device = device(&lab, small());
    let mut ports = ports(&lab, &mut device);
    let to = addresses(&lab)[0];
    let sender = socket(client, to);
    assert_eq!(device.changed(), None);
    printed(server, "ip", &["link", "set", "eth0", "mtu", "1400"]);
    assert_eq!(device.changed(), Some(InterfaceChange::Mtu { before: 1500, now: 1400 }));
    device.refresh().unwrap();
    assert_eq!(device.changed(), None);
    eventually(&sender, to, &mut ports);
    // The kernel receives its datagrams until the port follows the new address.
    printed(server, "ip", &["link", "set", "eth0", "address", "02:00:00:00:00:77"]);
    assert_eq!(device.changed(), Some(InterfaceChange::Mac));
    device.refresh().unwrap();
    printed(
        client,
        "ip",
        &["neigh", "replace", &to.to_string(), "lladdr", "02:00:00:00:00:77", "dev", "eth0"],
    );
    eventually(&sender, to, &mut ports);
    settle(&mut ports);
    // The kernel does not remove a queue that has a socket, nor one that the peer's transmit queues need.
    drop(ports);
    printed(client, "ethtool", &["-L", "eth0", "tx", "1"]);
    let end = Instant::now() + TIMEOUT;
    let mut fewer = server.command("ethtool");
    fewer.args(["-L", "eth0", "rx", "1"]).stderr(Stdio::null());
    // A kernel worker releases the queue of a closed socket a moment later.
    while !fewer.status().unwrap().success() {
        assert!(Instant::now() < end, "the queue is not let go");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(device.changed(), Some(InterfaceChange::Queues { before: 2, now: 1 }));
    lab.down().unwrap();
    assert_eq!(device.changed(), Some(InterfaceChange::Gone));
    assert!(device.refresh().is_err());
}
