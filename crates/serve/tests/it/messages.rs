//! Messages cut out of a TCP stream by the service: here of a length byte and as many bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use udpath_serve::{Io, Outcome, Reply, Server, StreamService};

use crate::support::{TIMEOUT, config, start_with_tcp, stop, target, wait_until};

/// Returns each message, or as many bytes as its last two bytes say if it begins with `long`.
struct Framed {
    idle_timeout: Option<Duration>,
}

impl StreamService for Framed {
    fn serve(&mut self, _input: &[u8], _reply: &mut Reply<'_>) -> Outcome {
        unreachable!("the runtime calls serve_from");
    }

    fn serve_from(&mut self, peer: SocketAddr, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
        assert!(peer.ip().is_loopback() && peer.port() > 0);
        match input.strip_prefix(b"\x06long") {
            Some([high, low]) => {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                reply.buffer_mut()[..len].fill(b'.');
                reply.set_len(len)
            }
            _ => reply.write(input),
        }
    }

    fn message_len(&self, input: &[u8]) -> Option<usize> {
        let len = match *input.first()? {
            // Longer than a read can be.
            255 => usize::MAX,
            len => 1 + usize::from(len),
        };
        (len <= input.len()).then_some(len)
    }

    fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }
}

fn server(idle_timeout: Option<Duration>) -> Server {
    let mut config = config(Io::Shared, "127.0.0.1:0");
    config.workers = Some(1);
    start_with_tcp(&config, move |_| Framed { idle_timeout }).unwrap()
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(target(server, 0)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

#[test]
fn messages_in_one_write_and_in_many_are_the_same() {
    let _turn = udpath_rig::together();
    let server = server(None);
    let bytes = b"\x03one\x00\x05three\x01x".repeat(50);
    for piece in [bytes.len(), 1, 3, 7] {
        let mut stream = connect(&server);
        for part in bytes.chunks(piece) {
            stream.write_all(part).unwrap();
        }
        let mut answer = vec![0; bytes.len()];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == bytes, "in pieces of {piece}");
    }
    stop(server);
}

/// Replies of 40 MB to one write, to a peer that begins to read only then: all come, in order.
#[test]
fn many_long_replies_wait_for_a_slow_reader() {
    let _turn = udpath_rig::together();
    const MESSAGES: usize = 700;
    let server = server(None);
    let mut stream = connect(&server);
    let message = [&b"\x06long"[..], &60_000_u16.to_be_bytes()].concat();
    stream.write_all(&message.repeat(MESSAGES)).unwrap();
    stream.write_all(b"\x03end").unwrap();
    let mut answer = vec![0; 60_000 * MESSAGES + 4];
    stream.read_exact(&mut answer).unwrap();
    let (long, end) = answer.split_at(60_000 * MESSAGES);
    assert!(long.iter().all(|byte| *byte == b'.') && end == b"\x03end");
    stop(server);
}

#[test]
fn a_message_that_does_not_end_closes_its_connection() {
    let _turn = udpath_rig::together();
    let server = server(None);
    let mut stream = connect(&server);
    stream.write_all(b"\x02ok").unwrap();
    stream.read_exact(&mut [0; 3]).unwrap();
    let _ = stream.write_all(&[255; 40 << 10]);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    wait_until("it is closed", || server.status().tcp.unwrap().open == 0);
    assert_eq!(stop(server).tcp.unwrap().failed, 1);
}

#[test]
fn a_silent_connection_is_closed_and_one_in_use_is_not() {
    let _turn = udpath_rig::together();
    let server = server(Some(Duration::from_secs(3)));
    let (mut silent, mut busy) = (connect(&server), connect(&server));
    silent.write_all(b"\x02ha").unwrap();
    silent.read_exact(&mut [0; 3]).unwrap();
    wait_until("the silent one is closed", || {
        busy.write_all(b"\x01x").unwrap();
        busy.read_exact(&mut [0; 2]).unwrap();
        server.status().tcp.unwrap().open == 1
    });
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    busy.write_all(b"\x01x").unwrap();
    busy.read_exact(&mut [0; 2]).unwrap();
    stop(server);
}
