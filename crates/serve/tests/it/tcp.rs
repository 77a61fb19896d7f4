//! The same addresses over TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use udpath_serve::{DropReason, Io, Outcome, Reply, Server, Status, StreamService};

use crate::support::{Echo, TIMEOUT, client, config, payload, receive, start_with_tcp, target, wait_until};

impl StreamService for Echo {
    fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
        reply.write(input)
    }
}

pub(crate) fn connect(server: &Server, index: usize) -> TcpStream {
    let stream = TcpStream::connect(target(server, index)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn echo_server(io: Io, binds: &[&str]) -> Server {
    let mut config = config(io, binds[0]);
    config.binds = binds.iter().map(|bind| bind.parse().unwrap()).collect();
    start_with_tcp(&config, |_| Echo).unwrap()
}

fn stop(server: Server) -> Status {
    let status = crate::support::stop(server);
    assert_eq!(status.tcp.as_ref().unwrap().open, 0);
    status
}

#[test]
fn tcp_and_udp_answer_at_the_same_address() {
    let _turn = udpath_rig::together();
    for io in Io::KERNEL {
        let server = echo_server(io, &["127.0.0.1:0", "[::1]:0", "[::]:0"]);
        for index in 0..3 {
            let udp = client(target(&server, index));
            let mut tcp = connect(&server, index);
            for size in [1, 100, 30_000] {
                udp.send(&payload(size)).unwrap();
                assert!(receive(&udp) == payload(size));
                tcp.write_all(&payload(size)).unwrap();
                let mut answer = vec![0; size];
                tcp.read_exact(&mut answer).unwrap();
                assert!(answer == payload(size));
            }
        }
        let status = stop(server);
        let tcp = status.tcp.unwrap();
        assert_eq!((tcp.accepted, tcp.failed, tcp.refused), (3, 0, 0));
        assert_eq!((tcp.received_bytes, tcp.answered_bytes), (3 * 30_101, 3 * 30_101));
        assert_eq!(status.total.answered, 9);
    }
}

#[test]
fn a_peer_that_does_not_read_is_not_read_from() {
    let _turn = udpath_rig::together();
    const MOST: usize = 64 << 20;
    let server = echo_server(Io::Shared, &["127.0.0.1:0"]);
    let mut lazy = connect(&server, 0);
    lazy.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let block = payload(64 << 10);
    let mut sent = 0;
    while let Ok(more) = lazy.write(&block[sent % block.len()..]) {
        sent += more;
        assert!(sent < MOST, "the server buffers without limit");
    }
    // Other connections are still served.
    let mut other = connect(&server, 0);
    other.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
    // Once it reads, it receives everything, in order.
    let reader = thread::spawn(move || {
        lazy.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        lazy.read_to_end(&mut all).unwrap();
        all
    });
    let all = reader.join().unwrap();
    assert_eq!(all.len(), sent);
    assert!(all.iter().eq(block.iter().cycle().take(sent)));
    drop(other);
    stop(server);
}

#[test]
fn many_connections_come_and_go() {
    let _turn = udpath_rig::together();
    let server = echo_server(Io::Reuseport, &["127.0.0.1:0"]);
    for _ in 0..20 {
        let mut streams: Vec<_> = (0..20).map(|_| connect(&server, 0)).collect();
        for stream in &mut streams {
            stream.write_all(b"x").unwrap();
        }
        for stream in &mut streams {
            stream.read_exact(&mut [0]).unwrap();
        }
    }
    wait_until("all are closed", || server.status().tcp.unwrap().open == 0);
    assert_eq!(stop(server).tcp.unwrap().accepted, 400);
}

#[test]
fn stopping_answers_what_has_arrived() {
    let _turn = udpath_rig::together();
    let server = echo_server(Io::Shared, &["127.0.0.1:0"]);
    let mut streams: Vec<_> = (0..10).map(|_| connect(&server, 0)).collect();
    for stream in &mut streams {
        stream.write_all(b"a").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"last words").unwrap();
    }
    stop(server);
    for mut stream in streams {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "last words");
    }
}

#[test]
fn a_sink_takes_everything_and_answers_nothing() {
    let _turn = udpath_rig::together();
    struct Sink;
    impl StreamService for Sink {
        fn serve(&mut self, _input: &[u8], _reply: &mut Reply<'_>) -> Outcome {
            Outcome::Drop(DropReason::Consumed)
        }
    }
    let config = config(Io::Shared, "[::1]:0");
    let server = start_with_tcp(&config, |_| Sink).unwrap();
    let mut stream = connect(&server, 0);
    stream.write_all(&payload(5 << 20)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(stop(server).tcp.unwrap().received_bytes, 5 << 20);
}

#[test]
fn a_panic_closes_its_connection_alone() {
    let _turn = udpath_rig::together();
    struct Fragile;
    impl StreamService for Fragile {
        fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
            assert_ne!(input, b"boom", "expected by the test");
            reply.write(input)
        }
    }
    let mut config = config(Io::Shared, "127.0.0.1:0");
    config.workers = Some(1);
    let server = start_with_tcp(&config, |_| Fragile).unwrap();
    let (mut healthy, mut lost) = (connect(&server, 0), connect(&server, 0));
    lost.write_all(b"boom").unwrap();
    assert_eq!(lost.read(&mut [0]).unwrap_or(0), 0, "closed without a reply");
    healthy.write_all(b"x").unwrap();
    healthy.read_exact(&mut [0]).unwrap();
    assert!(!server.is_impaired());
    drop(healthy);
    let tcp = stop(server).tcp.unwrap();
    assert_eq!((tcp.accepted, tcp.failed), (2, 1));
}
