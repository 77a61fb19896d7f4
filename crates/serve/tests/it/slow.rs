//! Slow clients over TCP: those that ask nothing, send half a message, or do not read their replies keep nobody out.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use udpath_serve::{DropReason, Io, Outcome, Reply, Server, StreamService, TcpCounts, TcpLimits};

use crate::support::{Echo, TIMEOUT, config, start_with_tcp, stop, target, wait_until};
use crate::tcp::connect;

/// A message has two bytes: the length of its reply in KiB, and the byte that the reply repeats. One that begins with
/// [`ENDLESS`] has as many as fit.
struct Blocks;

const ENDLESS: u8 = 255;

impl StreamService for Blocks {
    fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
        let &[kib, byte] = input else { return Outcome::Drop(DropReason::Malformed) };
        let len = usize::from(kib) * 1024;
        reply.buffer_mut()[..len].fill(byte);
        reply.set_len(len)
    }

    fn message_len(&self, input: &[u8]) -> Option<usize> {
        (input.len() >= 2 && input[0] != ENDLESS).then_some(2)
    }
}

/// Receive buffers, in bytes, of clients that read at once and of those that do not.
const WIDE: usize = 256 << 10;
const NARROW: usize = 4096;

/// Limits that no test waits for.
fn patient() -> TcpLimits {
    let long = Duration::from_secs(600);
    TcpLimits { message_timeout: long, idle_timeout: long, drain_period: long, ..TcpLimits::default() }
}

fn block_server(limits: TcpLimits) -> Server {
    let mut config = config(Io::Shared, "127.0.0.1:0");
    (config.workers, config.tcp) = (Some(1), limits);
    start_with_tcp(&config, |_| Blocks).unwrap()
}

fn counts(server: &Server) -> TcpCounts {
    server.status().tcp.unwrap()
}

/// A connection from 127.0.`network`.1; `buffer`: its receive buffer, in bytes.
fn connect_from(network: u8, buffer: usize, server: &Server) -> TcpStream {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, buffer).unwrap();
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, network, 1), 0));
    rustix::net::bind(&socket, &from).unwrap();
    rustix::net::connect(&socket, &target(server, 0)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Asks for a block, and checks it.
fn ask(stream: &mut TcpStream, kib: u8) -> io::Result<()> {
    stream.write_all(&[kib, b'x'])?;
    let mut block = vec![0; usize::from(kib) * 1024];
    stream.read_exact(&mut block)?;
    assert!(block.iter().all(|byte| *byte == b'x'));
    Ok(())
}

/// What a slow connection does.
#[derive(Clone, Copy)]
enum Slow {
    /// Nothing.
    Silent,
    /// Sends half a message, and goes on with one byte now and then.
    Sends,
    /// Asks for 120 MB of replies, more than any send buffer holds, and takes one byte now and then.
    Reads,
}

impl Slow {
    const ALL: [Self; 3] = [Self::Silent, Self::Sends, Self::Reads];

    fn begin(self, stream: &mut TcpStream) {
        // The server may have closed it already.
        let _ = match self {
            Self::Silent => Ok(()),
            Self::Sends => stream.write_all(&[ENDLESS]),
            Self::Reads => stream.write_all(&[60; 4000]),
        };
    }

    /// One byte more, unless the server has closed it.
    fn go_on(self, stream: &mut TcpStream) {
        let _ = match self {
            Self::Silent => Ok(0),
            Self::Sends => stream.write(&[0]),
            Self::Reads => stream.read(&mut [0]),
        };
    }
}

/// Says that the test has ended.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// As many slow connections as there are places, and more whenever one is closed, keep out no new client. From one
/// network they do not displace one that was there before either.
#[test]
fn slow_connections_keep_nobody_out() {
    let _turn = udpath_rig::together();
    const PLACES: usize = 120;
    for networks in [1, 200] {
        let server = block_server(TcpLimits { connections: PLACES, per_network: 8, ..patient() });
        let mut regular = connect_from(250, WIDE, &server);
        ask(&mut regular, 1).unwrap();
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            // Also when this panics.
            let _end = Ends(&ended);
            scope.spawn(|| {
                let mut connections: Vec<(Slow, TcpStream)> = Vec::new();
                let mut made = 0;
                while !ended.load(Relaxed) {
                    // All places at first; then a few connections more each time.
                    for kind in Slow::ALL.into_iter().cycle().take(if made == 0 { PLACES } else { 3 }) {
                        let mut stream = connect_from(1 + (made % networks) as u8, NARROW, &server);
                        made += 1;
                        kind.begin(&mut stream);
                        connections.push((kind, stream));
                    }
                    // Those that the server has closed are the oldest.
                    let excess = connections.len().saturating_sub(PLACES + Slow::ALL.len());
                    connections.drain(..excess);
                    for (kind, stream) in &mut connections {
                        kind.go_on(stream);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            wait_until("all places are taken", || counts(&server).evicted > 0);
            for _ in 0..30 {
                let asked = ask(&mut regular, 1);
                if networks > 1 && asked.is_err() {
                    // Nobody has more than its share, and this one had asked nothing for the longest time.
                    regular = connect_from(250, WIDE, &server);
                } else {
                    asked.unwrap();
                }
                ask(&mut connect_from(251, WIDE, &server), 40).unwrap();
            }
        });
        let tcp = counts(&server);
        assert!(tcp.open <= PLACES as u64, "{tcp:?}");
        assert_eq!((tcp.refused, tcp.slow, tcp.idle), (0, 0, 0), "{networks}: {tcp:?}");
        drop(regular);
        stop(server);
    }
}

#[test]
fn a_connection_that_asks_nothing_is_closed() {
    let _turn = udpath_rig::together();
    let mut config = config(Io::Shared, "127.0.0.1:0");
    config.tcp = TcpLimits { idle_timeout: Duration::from_millis(100), ..patient() };
    let server = start_with_tcp(&config, |_| Echo).unwrap();
    let (mut silent, mut once) = (connect(&server, 0), connect(&server, 0));
    once.write_all(b"x").unwrap();
    once.read_exact(&mut [0]).unwrap();
    assert_eq!((silent.read(&mut [0]).unwrap(), once.read(&mut [0]).unwrap()), (0, 0));
    wait_until("both are counted", || counts(&server).idle == 2);
    stop(server);
}

/// The deadline of a message begins with its first byte, and bytes that come later do not move it.
#[test]
fn a_message_that_does_not_end_is_cut_off() {
    let _turn = udpath_rig::together();
    /// A message ends with a newline.
    struct Lines;
    impl StreamService for Lines {
        fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
            reply.write(input)
        }

        fn message_len(&self, input: &[u8]) -> Option<usize> {
            input.iter().position(|byte| *byte == b'\n').map(|end| end + 1)
        }
    }
    let mut config = config(Io::Shared, "127.0.0.1:0");
    config.tcp = TcpLimits { message_timeout: Duration::from_millis(200), ..patient() };
    let server = start_with_tcp(&config, |_| Lines).unwrap();
    let (mut slow, mut fast) = (connect(&server, 0), connect(&server, 0));
    wait_until("the slow one is closed", || {
        let _ = slow.write_all(b"x");
        thread::sleep(Duration::from_millis(10));
        counts(&server).slow == 1
    });
    // Whole messages may come as slowly as they like.
    fast.write_all(b"a\n").unwrap();
    fast.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(counts(&server).idle, 0);
    stop(server);
}

#[test]
fn replies_that_are_not_read_in_time_are_cut_off() {
    let _turn = udpath_rig::together();
    let drain_period = Duration::from_millis(200);
    let server = block_server(TcpLimits { drain_period, drain_rate: 1 << 20, ..patient() });
    let mut slow = connect_from(1, NARROW, &server);
    Slow::Reads.begin(&mut slow);
    wait_until("it is closed", || {
        Slow::Reads.go_on(&mut slow);
        // Its reason is counted first.
        let tcp = counts(&server);
        tcp.slow == 1 && tcp.open == 0
    });
    let tcp = counts(&server);
    assert_eq!((tcp.idle, tcp.evicted), (0, 0), "{tcp:?}");
    // One that reads is not, however long its replies are.
    let mut fast = connect_from(1, WIDE, &server);
    for _ in 0..10 {
        ask(&mut fast, 60).unwrap();
    }
    drop(fast);
    stop(server);
}

/// Hundreds of messages in one segment: each has its reply, in order, and others are served in between.
#[test]
fn many_messages_at_once_hold_up_nobody() {
    let _turn = udpath_rig::together();
    const MESSAGES: usize = 500;
    let server = block_server(patient());
    let mut many = connect(&server, 0);
    let asked: Vec<u8> = (0..MESSAGES).flat_map(|number| [32, number as u8]).collect();
    many.write_all(&asked).unwrap();
    ask(&mut connect(&server, 0), 1).unwrap();
    let mut block = vec![0; 32 * 1024];
    for number in 0..MESSAGES {
        many.read_exact(&mut block).unwrap();
        assert!(block.iter().all(|byte| *byte == number as u8), "reply {number}");
    }
    drop(many);
    let tcp = stop(server).tcp.unwrap();
    assert_eq!((tcp.failed, tcp.received_bytes), (0, 2 * MESSAGES as u64 + 2), "{tcp:?}");
}
