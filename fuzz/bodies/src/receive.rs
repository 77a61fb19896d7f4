mod answering;
mod frames;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use udpath_stack::counters::{DropReason, Snapshot};
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::frame::{BURST, Burst, Offloads};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::Port;
use udpath_stack::port::memory::{End, pair};
use udpath_stack::steering::Steering;
use udpath_stack::wire::{Headers, Packet, Refusal, vlan};
use udpath_stack::worker::{Parts, Worker};
use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::rfs::SockFlowTable;
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use answering::{Answer, Answering, Request, answer};
use frames::{Input, LOCALS, MAX_PAYLOAD, address, built};

/// Frames of each end of a link: more than a burst, but soon exhausted.
const FRAMES: usize = 2 * BURST;

/// Most frames of one run, so that a long input is not slow.
const MOST: usize = 1024;

/// Buckets of the flow limit: few, so that flows collide.
const LIMITED: u32 = 64;

/// The possible bound addresses, one bit of a byte each.
const BINDS: [&str; 8] = [
    "192.0.2.1:7",
    "0.0.0.0:7",
    "192.0.2.2:53",
    "0.0.0.0:53",
    "[2001:db8::1]:7",
    "[::]:7",
    "[2001:db8::2]:53",
    "[::]:53",
];

/// The whole path through up to three workers: six bytes of settings, then steps of a few bytes each: a frame, either
/// built and damaged or of raw bytes; a burst sent; a worker's turn; a flow's reader moved to another CPU.
///
/// When idle, every frame is counted in exactly one counter, the right one; all memory is returned; and every reply is
/// correct, goes to a requester, on the link of its request, and in order.
pub fn receive(data: &[u8]) {
    let Some((settings, steps)) = data.split_first_chunk::<6>() else { return };
    let mut run = Run::new(settings);
    let mut input = Input::of(steps);
    while run.sent < MOST && run.step(&mut input).is_some() {}
    run.settle();
    run.judge();
}

/// A datagram on one link: the bytes before IP, source, destination and payload.
type Message = (Vec<u8>, SocketAddr, SocketAddr, Vec<u8>);

fn message(frame: &[u8], headers: &Headers, payload: Vec<u8>) -> Message {
    (frame[..headers.l3()].to_vec(), headers.source(), headers.destination(), payload)
}

/// The message that answers this one with `payload`.
fn turned((link, source, destination, _): &Message, payload: Vec<u8>) -> Message {
    ([&link[6..12], &link[..6], &link[12..]].concat(), *destination, *source, payload)
}

struct Run {
    workers: Vec<Worker<End, Answering>>,
    /// The other ends of the workers' links.
    far: Vec<End>,
    binds: Vec<SocketAddr>,
    locals: Vec<IpAddr>,
    wanted: Arc<SockFlowTable>,
    follows: bool,
    /// The fields that the NIC hashes; `None` without hashes.
    hashes: Option<u8>,
    served: Rc<RefCell<Vec<Request>>>,
    /// Frames to send on one link, in one burst.
    staged: Vec<(usize, Vec<u8>)>,
    sent: usize,
    expected: Expected,
    replies: Vec<Vec<Message>>,
}

/// The expected results.
#[derive(Default)]
struct Expected {
    refused: HashMap<Refusal, u64>,
    unbound: u64,
    not_local: u64,
    declined: u64,
    too_long: u64,
    /// Requests that reach a handler, and the replies of each link, in the order they were sent.
    requests: Vec<Request>,
    replies: Vec<Vec<Message>>,
}

impl Run {
    fn new(&[shape, backlog, binds, locals, steering, hashes]: &[u8; 6]) -> Self {
        let workers = u16::from(shape % 3) + 1;
        let ports = 1 + usize::from(shape / 3) % usize::from(workers);
        let chosen = |bits: u8| move |at: &usize| bits >> at & 1 == 1;
        let binds: Vec<SocketAddr> =
            (0..BINDS.len()).filter(chosen(binds)).map(|at| BINDS[at].parse().expect("an address")).collect();
        let locals: Vec<IpAddr> = (0..8)
            .filter(chosen(locals))
            .map(|at| address(at >= LOCALS.len(), LOCALS.start + (at % LOCALS.len()) as u8))
            .collect();
        let wanted = Arc::new(SockFlowTable::new(64, workers));
        let (spreads, follows, limits) = (steering & 1 != 0, steering & 2 != 0, steering & 4 != 0);
        let steering = || {
            if !spreads {
                return None;
            }
            let over = (0..u32::from(workers)).filter(|worker| steering >> 4 & 1 << worker != 0);
            let mut rules = Steering::new(Key::microsoft(), RpsMap::new(&over.collect(), None));
            if follows {
                rules = rules.following(Arc::clone(&wanted), 16);
            }
            if limits {
                rules = rules.limiting(FlowLimit::new(LIMITED));
            }
            Some(rules)
        };
        let domain = Domain::new(workers.into(), 8);
        let groups = Groups::new(&binds, locals.iter().copied()).expect("none is there twice");
        let groups = Arc::new(Table::new(&domain, groups));
        let backlog = 4 << (backlog % 5);
        let rings = mesh(workers, mesh::Config { backlog, frames: FRAMES }).expect("a mesh");
        let served = Rc::default();
        let (mut far, mut made) = (Vec::new(), Vec::new());
        for rings in rings {
            let port = (far.len() < ports).then(|| {
                let (end, near) = pair(FRAMES).expect("a link");
                far.push(end);
                near
            });
            let reader = domain.register(format!("worker {}", rings.index())).expect("a reader");
            let handler = Answering::new(&served);
            let steering = if port.is_some() { steering() } else { None };
            made.push(Worker::new(Parts {
                port,
                handler,
                reader,
                groups: Arc::clone(&groups),
                rings,
                steering,
            }));
        }
        let links = || (0..ports).map(|_| Vec::new()).collect();
        Self {
            workers: made,
            far,
            binds,
            locals,
            follows: spreads && follows,
            wanted,
            hashes: (hashes & 1 == 1).then_some(hashes),
            served,
            staged: Vec::new(),
            sent: 0,
            expected: Expected { replies: links(), ..Expected::default() },
            replies: links(),
        }
    }

    /// Executes the next step. `None` at the end of the input.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let kind = input.byte()?;
        let link = usize::from(kind >> 4) % self.far.len();
        match kind % 8 {
            0 | 1 => self.staged.push((link, built(input)?)),
            2 => {
                let len = (usize::from(input.byte()?) * 8).min(MAX_PAYLOAD);
                self.staged.push((link, input.bytes(len).to_vec()));
            }
            3 => {
                let again = self.staged.last()?.clone();
                self.staged.extend(std::iter::repeat_n(again, usize::from(input.byte()? % 32)));
            }
            4 => self.send(),
            5 => {
                let worker = usize::from(input.byte()?) % self.workers.len();
                self.workers[worker].poll();
            }
            6 => {
                let [hash, worker] = [input.byte()?, input.byte()?];
                let workers = self.workers.len() as u16;
                self.wanted.record(u32::from(hash), u16::from(worker) % workers);
            }
            _ => self.collect(),
        }
        if self.staged.len() >= BURST {
            self.send();
        }
        Some(())
    }

    /// Sends the staged frames, as far as there is memory for them.
    fn send(&mut self) {
        for (link, bytes) in std::mem::take(&mut self.staged) {
            let mut burst = Burst::new();
            self.far[link].supply(&mut burst, 1);
            let Some(frame) = burst.first_mut() else { continue };
            assert!(frame.set_len(bytes.len()), "{} bytes are within a frame", bytes.len());
            frame.bytes_mut().copy_from_slice(&bytes);
            let offloads = self.offloads(&bytes);
            frame.set_offloads(offloads);
            self.far[link].transmit(&mut burst);
            assert!(burst.is_empty(), "a link takes all frames there are");
            self.sent += 1;
            self.expect(link, &bytes);
        }
    }

    /// The offload results of a NIC: the same hash for all packets of a flow, and valid checksums marked as such.
    fn offloads(&self, bytes: &[u8]) -> Offloads {
        let (Some(seed), Ok(headers)) = (self.hashes, Packet::parse(bytes)) else {
            return Offloads::default();
        };
        let hash = u32::from(headers.source_port()) ^ u32::from(seed >> 1);
        Offloads { hash: Some(hash), checksums: seed & 2 != 0 && headers.verify(bytes).is_ok() }
    }

    /// Records the expected result of a frame, computed the simple way.
    fn expect(&mut self, link: usize, bytes: &[u8]) {
        let expected = &mut self.expected;
        let headers = match Packet::parse(bytes).and_then(|headers| headers.verify(bytes).map(|()| headers)) {
            Ok(headers) => headers,
            Err(refusal) => return *expected.refused.entry(refusal).or_default() += 1,
        };
        let to = headers.destination();
        let wildcard = self.binds.iter().any(|bind| {
            bind.ip().is_unspecified() && bind.is_ipv4() == to.is_ipv4() && bind.port() == to.port()
        });
        if !self.binds.contains(&to) {
            if !wildcard {
                return expected.unbound += 1;
            }
            if !self.locals.contains(&to.ip()) {
                return expected.not_local += 1;
            }
        }
        let request = message(bytes, &headers, headers.payload(bytes).to_vec());
        expected.requests.push((request.1, request.2, request.3.clone()));
        // The longest frame has the maximum number of tags.
        let longest = self.far[link].properties().max_frame_len - (vlan::MAX - headers.tags()) * vlan::LEN;
        match answer(&request.3) {
            Answer::Reply(reply) if headers.payload_offset() + reply.len() <= longest => {
                expected.replies[link].push(turned(&request, reply));
            }
            Answer::Reply(_) | Answer::Huge(false) => expected.too_long += 1,
            Answer::Declined | Answer::Huge(true) => expected.declined += 1,
        }
    }

    /// Collects the replies.
    fn collect(&mut self) {
        for (far, replies) in self.far.iter_mut().zip(&mut self.replies) {
            let mut burst = Burst::new();
            while far.receive(&mut burst) > 0 {
                for frame in &burst {
                    let bytes = frame.bytes();
                    let headers = Packet::parse(bytes).expect("a reply is a datagram");
                    headers.verify(bytes).expect("its checksums are right");
                    assert_eq!(headers.frame_end(), bytes.len(), "nothing is behind a reply");
                    replies.push(message(bytes, &headers, headers.payload(bytes).to_vec()));
                }
                far.recycle(&mut burst);
            }
        }
    }

    fn settle(&mut self) {
        self.send();
        // A turn takes at most a burst from each source.
        for _ in 0..=4 * MOST {
            if self.workers.iter_mut().map(Worker::poll).sum::<usize>() == 0 {
                self.collect();
                // A frame waiting in a ring on its way back would keep its region mapped forever.
                for far in &mut self.far {
                    let mut burst = Burst::new();
                    far.supply(&mut burst, FRAMES + 1);
                    far.recycle(&mut burst);
                }
                return;
            }
        }
        panic!("the workers never come to rest");
    }

    fn judge(&self) {
        let mut sum = Snapshot::default();
        self.workers.iter().for_each(|worker| sum.add(&worker.counters().snapshot()));
        let Expected { refused, unbound, not_local, declined, too_long, requests, replies } = &self.expected;
        assert_eq!((sum.received, sum.under_way()), (self.sent as u64, 0), "{sum:?}");
        assert!(sum.steered <= sum.received && (self.workers.len() > 1 || sum.steered == 0), "{sum:?}");
        for refusal in Refusal::ALL {
            let expected = refused.get(refusal).copied().unwrap_or(0);
            assert_eq!(sum.dropped(DropReason::Refused(*refusal)), expected, "{refusal}");
        }
        // Frames dropped in favour of others would have been in one of the remaining counters.
        let lost = [DropReason::BacklogFull, DropReason::FlowLimit]
            .map(|reason| sum.dropped(reason))
            .iter()
            .sum::<u64>();
        assert_eq!(sum.dropped(DropReason::TransmitFull), 0, "a link takes all frames there are");
        let answers: u64 = replies.iter().map(|replies| replies.len() as u64).sum();
        let rest = [
            (*unbound, sum.dropped(DropReason::Unbound)),
            (*not_local, sum.dropped(DropReason::NotLocal)),
            (*too_long, sum.dropped(DropReason::ReplyTooLong)),
            (*declined, sum.declined),
            (answers, sum.answered),
        ];
        for (at, (expected, counted)) in rest.iter().enumerate() {
            assert!(counted <= expected && expected - counted <= lost, "{at}: {rest:?}, {lost} lost");
        }
        assert_eq!(rest.iter().map(|(expected, counted)| expected - counted).sum::<u64>(), lost);
        let got: u64 = self.replies.iter().map(|replies| replies.len() as u64).sum();
        assert_eq!(got, sum.answered, "what was answered came");
        for (got, expected) in self.replies.iter().zip(replies) {
            among(got, expected, |message| (message.1, message.2), !self.follows);
        }
        // Even if flows move, they are served in order. There is no order between links.
        let served = self.served.borrow();
        among(&served, requests, |(source, destination, _)| (*source, *destination), self.far.len() == 1);
        assert!(self.far.iter().all(|far| far.outstanding() == 0), "memory of the clients is lost");
        let ports = self.workers.iter().filter_map(Worker::port);
        assert!(ports.map(End::outstanding).all(|outstanding| outstanding == 0), "memory of a port is lost");
    }
}

/// Checks that each of `got` is in `expected`, which contains each of them once; those of one flow in the same order if
/// `ordered`.
fn among<T: PartialEq + std::fmt::Debug>(
    got: &[T],
    expected: &[T],
    flow: impl Fn(&T) -> (SocketAddr, SocketAddr),
    ordered: bool,
) {
    let mut left: HashMap<_, Vec<Option<&T>>> = HashMap::new();
    for message in expected.iter().rev() {
        left.entry(flow(message)).or_default().push(Some(message));
    }
    for message in got {
        let left = left.get_mut(&flow(message)).unwrap_or_else(|| panic!("{message:?}: nobody asked"));
        // The next one is the last in the list.
        let at = left.iter().rposition(|left| *left == Some(message));
        let at = at.unwrap_or_else(|| panic!("{message:?}: not asked, answered twice or overtaken"));
        if ordered {
            left.truncate(at);
        } else {
            left[at] = None;
        }
    }
}
