//! The limit of one core: a worker on a link whose frames come back to it, so that no device and no kernel is involved.
//!
//! Each reply is the next request: the service is bound to the same port at every address, so each poll moves a whole
//! burst through parse, both checksums, the lookup under the epoch, the echo service and the reply's headers and
//! checksums. `hash` adds Toeplitz and the RPS decision (to the worker itself). The baseline is the same link with
//! nothing done.
//!
//! To a socket: the same worker puts the burst into a socket's queue, a reader on the same thread answers each datagram
//! in its frame, and the worker takes the frames back and sends them. The baseline is the echo service run to
//! completion at the same binding: the difference is what two queues and two hand-overs cost, without the wait for
//! another core's cache lines. The ratio of the two is the claim.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::frame::Burst;
use udpath_stack::groups::Groups;
use udpath_stack::handler::{Datagram, Handler, Outcome};
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::Port;
use udpath_stack::port::memory::{End, looped};
use udpath_stack::socket::{self, UdpSocket, Wait, join};
use udpath_stack::steering::Steering;
use udpath_stack::wire::{Flow, LinkHeader, Mac, Tags, UdpChecksum, build};
use udpath_stack::worker::{Parts, Worker};
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

/// Frames in the link: what fits a burst.
const FRAMES: usize = 64;
/// Payload of a 64-byte frame (60 without its check sequence).
const PAYLOAD: [u8; 18] = [7; 18];
const PORT: u16 = 7;

fn echo(datagram: Datagram<'_>, room: &mut [u8]) -> Outcome {
    let len = datagram.payload.len();
    room[..len].copy_from_slice(datagram.payload);
    Outcome::Reply(len)
}

/// A link full of requests: `FRAMES` clients, each at an address of its own.
fn link() -> (End, Vec<SocketAddr>) {
    let mut end = looped(FRAMES).unwrap();
    let mut binds = vec![SocketAddr::from(([192, 0, 2, 1], PORT))];
    let mut burst = Burst::new();
    end.supply(&mut burst, FRAMES);
    for (i, frame) in burst.iter_mut().enumerate() {
        let client = SocketAddr::from(([198, 51, 100, 1 + i as u8], PORT));
        let link = LinkHeader {
            source: Mac([2, 0, 0, 0, 0, 9]),
            destination: Mac([2, 0, 0, 0, 0, 1]),
            tags: Tags::NONE,
        };
        let flow = Flow::new(link, client, binds[0]).unwrap();
        assert!(frame.set_len(60));
        build(frame.bytes_mut(), &flow, &PAYLOAD, UdpChecksum::Computed).unwrap();
        binds.push(client);
    }
    end.transmit(&mut burst);
    (end, binds)
}

/// A worker whose clients' addresses are one binding, and a socket for it if `delivering`.
fn at_a_wildcard(delivering: bool) -> (Worker<End, impl Handler>, UdpSocket) {
    let (port, locals) = link();
    let binds = [SocketAddr::from(([0, 0, 0, 0], PORT))];
    let domain = Domain::new(1, 8);
    let mut rings = mesh(1, mesh::Config { backlog: 64, frames: FRAMES }).unwrap();
    let sockets = join(&mut rings, socket::Config { frames: FRAMES, free_frames: 1, pool: 1 << 20 }).unwrap();
    let socket = sockets.open(binds[0], 1 << 20).unwrap();
    let mut groups = Groups::new(&binds, locals.iter().map(SocketAddr::ip)).unwrap();
    if delivering {
        groups = groups.delivering(&binds, &[socket.handle()]).unwrap();
    }
    let groups = Arc::new(Table::new(&domain, groups));
    let reader = domain.register("worker 0").unwrap();
    let rings = rings.remove(0);
    (Worker::new(Parts { port: Some(port), handler: echo, reader, groups, rings, steering: None }), socket)
}

fn to_a_socket(c: &mut Criterion) {
    let mut group = c.benchmark_group("run to completion or to a socket");
    group.throughput(Throughput::Elements(FRAMES as u64));
    let (mut served, _socket) = at_a_wildcard(false);
    group.bench_function("run to completion", |b| b.iter(|| assert_eq!(served.poll(), FRAMES)));
    let (mut worker, mut socket) = at_a_wildcard(true);
    group.bench_function("to a socket and back", |b| {
        b.iter(|| {
            assert_eq!(worker.poll(), FRAMES, "received and delivered");
            let mut batch = socket.recv_batch(Wait::No).unwrap();
            for mut datagram in batch.iter_mut() {
                let len = datagram.payload().len();
                datagram.reply_with(|room| black_box(&room[..len]).len()).unwrap();
            }
            drop(batch);
            assert_eq!(worker.poll(), FRAMES, "returned and sent");
        });
    });
    group.finish();
}

fn worker(steering: Option<Steering>) -> Worker<End, impl FnMut(Datagram<'_>, &mut [u8]) -> Outcome> {
    let (port, binds) = link();
    let domain = Domain::new(1, 8);
    let groups = Arc::new(Table::new(&domain, Groups::new(&binds, []).unwrap()));
    let rings = mesh(1, mesh::Config { backlog: 64, frames: FRAMES }).unwrap().remove(0);
    let reader = domain.register("worker 0").unwrap();
    Worker::new(Parts { port: Some(port), handler: echo, reader, groups, rings, steering })
}

fn one_core(c: &mut Criterion) {
    let mut group = c.benchmark_group("one core, 64-byte frames");
    group.throughput(Throughput::Elements(FRAMES as u64));
    let (mut bare, _) = link();
    let mut burst = Burst::new();
    group.bench_function("link alone", |b| {
        b.iter(|| {
            bare.receive(&mut burst);
            bare.transmit(black_box(&mut burst));
        });
    });
    let mut plain = worker(None);
    group.bench_function("served", |b| b.iter(|| assert_eq!(plain.poll(), FRAMES)));
    let map = RpsMap::new(&"0".parse().unwrap(), None);
    let mut hashed = worker(Some(Steering::new(Key::microsoft(), map)));
    group.bench_function("hashed and served", |b| b.iter(|| assert_eq!(hashed.poll(), FRAMES)));
    group.finish();
}

criterion_group!(benches, one_core, to_a_socket);
criterion_main!(benches);
