//! Programs inside a lab of a client and a server: started, addressed and ended as all tests of protocols do it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Run, Running, TIMEOUT, program};

/// Every Io, and the choice among them.
pub(crate) const IOS: [&str; 5] = ["shared", "reuseport", "percpu", "xdp", "auto"];

/// Starts a command made for a machine of `lab`. `shown`: what failures call it.
pub(crate) fn start(lab: &Lab, command: Command, shown: &str) -> Running {
    Run::of(command, shown).within(TIMEOUT * 3).start_with(|command| lab.spawn(command))
}

/// Starts udpath on a machine.
pub(crate) fn udpath(lab: &Lab, machine: &str, arguments: &[&str]) -> Running {
    let mut inside = lab.machine(machine).unwrap().command(program());
    inside.args(arguments);
    start(lab, inside, &arguments.join(" "))
}

/// Starts `udpath serve` on the machine `server`, and checks the Io that it reports: on a lab's veth `auto` is `xdp`.
pub(crate) fn serve(lab: &Lab, io: &str, arguments: &[&str]) -> Running {
    let mut server = udpath(lab, "server", &[&["serve", "--io", io, "--json"], arguments].concat());
    let ready = server.says_line("ready io=");
    assert_eq!(ready.contains("io=xdp "), ["xdp", "auto"].contains(&io), "{ready}");
    server
}

/// Ends a server; returns its counters.
pub(crate) fn end(server: Running) -> Value {
    server.signal(Signal::TERM);
    let ended = server.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// The server's addresses of both families.
pub(crate) fn addresses(lab: &Lab) -> [IpAddr; 2] {
    let server = lab.address_of("server", "client").unwrap();
    [IpAddr::V4(server.ipv4), IpAddr::V6(server.ipv6)]
}

/// A socket of the client, connected to `target`.
pub(crate) fn connected(lab: &Lab, target: SocketAddr) -> UdpSocket {
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.connect(target).unwrap();
    socket
}
