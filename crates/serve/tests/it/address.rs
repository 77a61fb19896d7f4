//! Wildcard binds answer from the address the request was sent to, and services can read that address.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use udpath_lab::{LabBuilder, LinkSpec};
use udpath_serve::{Config, Io, Outcome, Reply, Request, Service};

use crate::support::{TIMEOUT, config, start, stop};

/// Answers with the destination address and the peer's address.
struct WhoAmI;

impl Service for WhoAmI {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        reply.write(format!("{} {}", request.local(), request.peer()).as_bytes())
    }
}

/// Sends to every address from an unconnected socket, which accepts answers from any address.
fn ask_all(io: Io, batch: usize, bind: &str, addresses: &[IpAddr]) {
    let server = start(&Config { batch, ..config(io, bind) }, |_| WhoAmI).unwrap();
    let port = server.binds()[0].port();
    for address in addresses {
        let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let client = UdpSocket::bind(any).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        let asked = SocketAddr::new(*address, port);
        client.send_to(b"who", asked).unwrap();
        let mut buffer = [0; 200];
        let (len, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(from, asked, "{io} batch {batch} {bind}");
        let said = String::from_utf8_lossy(&buffer[..len]);
        let (local, peer) = said.split_once(' ').unwrap();
        assert_eq!(local, asked.to_string(), "{io} batch {batch} {bind}");
        assert!(peer.ends_with(&format!(":{}", client.local_addr().unwrap().port())), "{peer}");
    }
    stop(server);
}

fn combinations() -> impl Iterator<Item = (Io, usize)> {
    Io::KERNEL.into_iter().flat_map(|io| [1, 32].map(|batch| (io, batch)))
}

#[test]
fn ipv4_wildcards_answer_from_the_asked_address() {
    let _turn = udpath_rig::together();
    let addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.8.9.10"].map(|text| text.parse().unwrap());
    for (io, batch) in combinations() {
        ask_all(io, batch, "0.0.0.0:0", &addresses);
    }
}

#[test]
fn wildcards_answer_from_each_address_of_a_machine() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    // In a lab, whose machines have other addresses than the loopback's.
    let lab = LabBuilder::new("serve-address")
        .machine("client")
        .machine("server")
        .link("client", "server", &LinkSpec::with_queues(1))
        .up()
        .unwrap();
    let link = lab.address_of("server", "client").unwrap();
    let everywhere = move || {
        for (io, batch) in combinations() {
            ask_all(io, batch, "[::]:0", &["::1".parse().unwrap(), IpAddr::V6(link.ipv6)]);
            ask_all(io, batch, "0.0.0.0:0", &["127.0.0.1".parse().unwrap(), IpAddr::V4(link.ipv4)]);
        }
    };
    lab.machine("server").unwrap().run(everywhere).unwrap();
    lab.down().unwrap();
}

#[test]
fn an_ipv6_wildcard_leaves_ipv4_to_others() {
    let _turn = udpath_rig::together();
    let six = start(&config(Io::Reuseport, "[::]:0"), |_| WhoAmI).unwrap();
    let four = format!("0.0.0.0:{}", six.binds()[0].port());
    let four = start(&config(Io::Reuseport, &four), |_| WhoAmI).unwrap();
    stop(four);
    stop(six);
}
