//! Conversations with the kernel over netlink, recorded and replayed byte for byte.
//!
//! ```text
//! record:  reader ── socketpair ── proxy ── netlink socket ── kernel     what passes, both ways
//! replay:  reader ── socketpair ── player                                each request must be the recorded one
//! ```
//! [`Answers::read`] is the reader in both: it asks everything that udpath asks of each interface. As text, a
//! conversation is one line per datagram, in hexadecimal: `>` a request, `<` an answer, `#` what was recorded.

#![allow(dead_code, reason = "the recorder and the tests use their own parts")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use udpath_netlink::ethtool::channels::{self, Channels};
use udpath_netlink::ethtool::coalesce::{self, Coalescing};
use udpath_netlink::ethtool::features::{self, Features};
use udpath_netlink::ethtool::rings::{self, Rings};
use udpath_netlink::ethtool::rss::{self, HashFields, Rss};
use udpath_netlink::ethtool::time_stamping::{self, TimeStamping, TimeStampingOffer};
use udpath_netlink::netdev::{self, Device, Napi, Queue, QueueCounters};
use udpath_netlink::rtnetlink::{Link, Qdisc};
use udpath_netlink::{Error, Generic, Protocol, Rtnetlink, Socket};

/// Longest datagram of either side, bytes: as in the crate.
const MAX_DATAGRAM: usize = 64 << 10;

/// How long the reader waits for an answer: of a kernel, as long as the crate does; of a recording, which has them all,
/// only until it is clear that damage removed the last one.
const RECORDING: Duration = Duration::from_secs(10);
const REPLAY: Duration = Duration::from_millis(500);

/// Datagrams in the order in which they passed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Conversation(Vec<Datagram>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Datagram {
    Request(Vec<u8>),
    Answer(Vec<u8>),
}

impl Conversation {
    /// A conversation with the kernel: `read` asks through the socket that it is given.
    pub(crate) fn record<T>(protocol: Protocol, read: impl FnOnce(Socket) -> T) -> io::Result<(T, Self)> {
        let kernel = OwnedFd::from(Socket::open(protocol).map_err(io::Error::other)?);
        let (ours, theirs) = pair(RECORDING)?;
        std::thread::scope(|scope| {
            let proxy = scope.spawn(|| Self::pass(&theirs, &kernel));
            let result = read(Socket::over(ours));
            Ok((result, proxy.join().expect("the proxy does not panic")?))
        })
    }

    /// Passes datagrams on until the reader closes its end.
    fn pass(reader: &OwnedFd, kernel: &OwnedFd) -> io::Result<Self> {
        let mut passed = Self::default();
        loop {
            let mut ends = [PollFd::new(reader, PollFlags::IN), PollFd::new(kernel, PollFlags::IN)];
            poll(&mut ends, None)?;
            let [asked, answered] = ends.map(|end| !end.revents().is_empty());
            if answered {
                let answer = receive(kernel.as_fd())?;
                send(reader, &answer, SendFlags::NOSIGNAL)?;
                passed.0.push(Datagram::Answer(answer));
            } else if asked {
                let request = receive(reader.as_fd())?;
                if request.is_empty() {
                    return Ok(passed);
                }
                send(kernel, &request, SendFlags::empty())?;
                passed.0.push(Datagram::Request(request));
            }
        }
    }

    /// The same conversation again: `read` gets the recorded answers as long as its requests are the recorded ones.
    ///
    /// # Panics
    /// Another request than recorded, or fewer.
    pub(crate) fn replay<T>(&self, read: impl FnOnce(Socket) -> T) -> T {
        let (ours, theirs) = pair(REPLAY).expect("a pair of sockets");
        std::thread::scope(|scope| {
            let player = scope.spawn(move || self.play(&theirs));
            let result = read(Socket::over(ours));
            player
                .join()
                .expect("the player does not panic")
                .unwrap_or_else(|different| panic!("replay: {different}"));
            result
        })
    }

    /// Ends early, which the reader sees as a closed socket, with what differs.
    fn play(&self, reader: &OwnedFd) -> Result<(), String> {
        for (at, datagram) in self.0.iter().enumerate() {
            match datagram {
                Datagram::Answer(answer) => {
                    send(reader, answer, SendFlags::NOSIGNAL)
                        .map_err(|error| format!("datagram {at}: {error}"))?;
                }
                Datagram::Request(request) => {
                    let asked = receive(reader.as_fd()).map_err(|error| format!("datagram {at}: {error}"))?;
                    if asked != *request {
                        return Err(format!("request {at} is {}, not {}", hex(&asked), hex(request)));
                    }
                }
            }
        }
        match receive(reader.as_fd()) {
            Ok(asked) if asked.is_empty() => Ok(()),
            Ok(asked) => Err(format!("one more request than recorded: {}", hex(&asked))),
            Err(error) => Err(error.to_string()),
        }
    }

    /// As text, below a comment.
    pub(crate) fn text(&self, comment: &str) -> String {
        let mut text = format!("# {comment}\n");
        for datagram in &self.0 {
            let (mark, bytes) = match datagram {
                Datagram::Request(bytes) => ('>', bytes),
                Datagram::Answer(bytes) => ('<', bytes),
            };
            let _ = writeln!(text, "{mark}{}", hex(bytes));
        }
        text
    }

    /// From text.
    ///
    /// # Panics
    /// It is not a conversation.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let datagram = |line: &str| match line.split_at(1) {
            (">", digits) => Datagram::Request(bytes(digits)),
            ("<", digits) => Datagram::Answer(bytes(digits)),
            _ => panic!("neither a request nor an answer: {line}"),
        };
        Self(lines.map(datagram).collect())
    }

    /// Its answers, to be damaged.
    pub(crate) fn answers_mut(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        self.0.iter_mut().filter_map(|datagram| match datagram {
            Datagram::Answer(bytes) => Some(bytes),
            Datagram::Request(_) => None,
        })
    }
}

/// The reader's end, which waits for an answer for so long, and the other one.
fn pair(timeout: Duration) -> io::Result<(OwnedFd, OwnedFd)> {
    // Keeps datagrams apart, and an end that is closed is seen at the other one.
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(timeout))?;
    Ok((ours, theirs))
}

/// One datagram; empty if the other end is closed.
fn receive(from: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; MAX_DATAGRAM];
    let (_, length) = rustix::io::retry_on_intr(|| recv(from, &mut buffer[..], RecvFlags::TRUNC))?;
    if length > buffer.len() {
        return Err(io::Error::other(format!("a datagram of {length} bytes, over {MAX_DATAGRAM}")));
    }
    buffer.truncate(length);
    Ok(buffer)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let (pairs, odd) = hex.as_bytes().as_chunks::<2>();
    assert!(odd.is_empty(), "an odd number of digits: {hex}");
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16);
    pairs.iter().map(|pair| byte(pair).expect("hexadecimal digits")).collect()
}

/// Every answer about one interface.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) channels: Result<Channels, Error>,
    pub(crate) rings: Result<Rings, Error>,
    pub(crate) coalescing: Result<Coalescing, Error>,
    pub(crate) features: Result<Features, Error>,
    pub(crate) rss: Result<Rss, Error>,
    pub(crate) hash_fields: Result<Option<HashFields>, Error>,
    pub(crate) offer: Result<TimeStampingOffer, Error>,
    pub(crate) time_stamping: Result<TimeStamping, Error>,
}

/// Every answer of the generic families: netdev's of the machine, ethtool's of each interface.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) devices: Result<Vec<Device>, Error>,
    pub(crate) queues: Result<Vec<Queue>, Error>,
    pub(crate) napis: Result<Vec<Napi>, Error>,
    pub(crate) counters: Result<Vec<QueueCounters>, Error>,
    pub(crate) interfaces: BTreeMap<String, Interface>,
}

impl Answers {
    /// Asks everything, always in the same order.
    pub(crate) fn read(socket: Socket, interfaces: &[&str]) -> Self {
        let generic = &mut Generic::over(socket);
        Self {
            devices: netdev::devices(generic),
            queues: netdev::queues(generic),
            napis: netdev::napis(generic),
            counters: netdev::queue_counters(generic),
            interfaces: interfaces
                .iter()
                .map(|name| {
                    let interface = Interface {
                        channels: channels::read(generic, name),
                        rings: rings::read(generic, name),
                        coalescing: coalesce::read(generic, name),
                        features: features::read(generic, name),
                        rss: rss::read(generic, name),
                        hash_fields: rss::read_hash_fields(generic, name),
                        offer: time_stamping::read_offer(generic, name),
                        time_stamping: time_stamping::read(generic, name),
                    };
                    ((*name).to_owned(), interface)
                })
                .collect(),
        }
    }
}

/// Links and queueing disciplines.
pub(crate) fn read_route(socket: Socket) -> (Result<Vec<Link>, Error>, Result<Vec<Qdisc>, Error>) {
    let mut route = Rtnetlink::over(socket);
    (route.links(), route.qdiscs())
}
