//! GSO replies over a link with a real MTU: replies that the kernel cannot segment still arrive, whole and in order.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::Signal;
use udpath_rig::{Run, client_and_server, program};

/// Runs of equal lengths: more than fit one message, a shorter last one, a full frame, one byte more than that,
/// fragments of two frames, empty datagrams.
const RUNS: [(usize, usize); 8] =
    [(70, 100), (1, 50), (3, 1_472), (3, 1_473), (4, 2_000), (2, 100), (2, 0), (3, 1_452)];

#[test]
fn runs_of_equal_replies_arrive_in_order_whatever_their_length() {
    udpath_lab::needs_root!();
    let lab = client_and_server("segments", 1);
    let addresses = lab.address_of("server", "client").unwrap();
    let lengths: Vec<usize> = RUNS.iter().flat_map(|(count, len)| vec![*len; *count]).collect();
    // The wildcards answer with packet info, the others without.
    for (bind, target) in [
        ("0.0.0.0:7000".to_owned(), IpAddr::V4(addresses.ipv4)),
        ("[::]:7000".to_owned(), IpAddr::V6(addresses.ipv6)),
        (format!("{}:7001", addresses.ipv4), IpAddr::V4(addresses.ipv4)),
        (format!("[{}]:7001", addresses.ipv6), IpAddr::V6(addresses.ipv6)),
    ] {
        let mut command = lab.machine("server").unwrap().command(program());
        let batch = lengths.len().to_string();
        command.args([
            "serve",
            "echo",
            "--io",
            "shared",
            "--workers",
            "1",
            "--batch",
            &batch,
            "--rcvbuf",
            "2000000",
        ]);
        command.args(["--bind", &bind]);
        let mut server = Run::of(command, "serve").start();
        server.says("ready");
        let client = lab
            .machine("client")
            .unwrap()
            .run(|| UdpSocket::bind(if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }))
            .unwrap()
            .unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let port = bind.rsplit(':').next().unwrap().parse().unwrap();
        client.connect(SocketAddr::new(target, port)).unwrap();

        // A stopped server finds all of them at once when it resumes: one burst.
        server.signal(Signal::STOP);
        for (i, len) in lengths.iter().enumerate() {
            client.send(&vec![i as u8; *len]).unwrap();
        }
        server.signal(Signal::CONT);
        let mut room = [0; 65_536];
        for (i, len) in lengths.iter().enumerate() {
            let got =
                client.recv(&mut room).unwrap_or_else(|e| panic!("{bind}: reply {i} of {len} bytes: {e}"));
            assert_eq!(room[..got], vec![i as u8; *len], "{bind}: reply {i}");
        }
        server.signal(Signal::TERM);
        let ended = server.finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
    lab.down().unwrap();
}
