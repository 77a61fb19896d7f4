//! Workers on in-process rings, and requests for them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use udpath_stack::counters::Snapshot;
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::frame::Burst;
use udpath_stack::groups::Groups;
use udpath_stack::handler::{Datagram, Handler, Outcome};
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::Port;
use udpath_stack::port::memory::{End, pair};
use udpath_stack::steering::Steering;
use udpath_stack::wire::{Flow, LinkHeader, Mac, Tags, UdpChecksum, build};
use udpath_stack::worker::{Parts, Worker};
use udpath_steer::CpuSet;
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

pub(crate) const SERVER: [&str; 2] = ["192.0.2.1:7", "[2001:db8::1]:7"];
pub(crate) const FRAMES: usize = 256;

pub(crate) fn echo(datagram: Datagram<'_>, room: &mut [u8]) -> Outcome {
    room[..datagram.payload.len()].copy_from_slice(datagram.payload);
    Outcome::Reply(datagram.payload.len())
}

/// Workers, the first with a port, and the other end of its link.
pub(crate) fn workers<H: Handler>(
    count: u16,
    backlog: usize,
    handler: impl FnMut(u16) -> H,
    steering: impl FnMut() -> Option<Steering>,
) -> (End, Vec<Worker<End, H>>) {
    workers_on(count, backlog, handler, steering, |near| near)
}

/// The same with a port made of the near end.
pub(crate) fn workers_on<P: Port, H: Handler>(
    count: u16,
    backlog: usize,
    mut handler: impl FnMut(u16) -> H,
    mut steering: impl FnMut() -> Option<Steering>,
    port: impl FnOnce(End) -> P,
) -> (End, Vec<Worker<P, H>>) {
    let domain = Domain::new(count.into(), 8);
    let binds: Vec<SocketAddr> = SERVER.iter().map(|bind| bind.parse().unwrap()).collect();
    let groups = Arc::new(Table::new(&domain, Groups::new(&binds, []).unwrap()));
    let (far, near) = pair(FRAMES).unwrap();
    let mut near = Some(port(near));
    let rings = mesh(count, mesh::Config { backlog, frames: FRAMES }).unwrap();
    let workers = rings
        .into_iter()
        .map(|rings| {
            let reader = domain.register(format!("worker {}", rings.index())).unwrap();
            let handler = handler(rings.index());
            let port = near.take();
            let steering = if port.is_some() { steering() } else { None };
            Worker::new(Parts { port, handler, reader, groups: Arc::clone(&groups), rings, steering })
        })
        .collect();
    (far, workers)
}

pub(crate) fn spread(workers: &str) -> Steering {
    let map = RpsMap::new(&workers.parse::<CpuSet>().unwrap(), None);
    Steering::new(Key::microsoft(), map)
}

pub(crate) fn request(tags: Tags, from: u16, to: &str, payload: &[u8]) -> Vec<u8> {
    let to: SocketAddr = to.parse().unwrap();
    let host: IpAddr = if to.is_ipv4() { [192, 0, 2, 9].into() } else { "2001:db8::9".parse().unwrap() };
    let link = LinkHeader { source: Mac([2, 0, 0, 0, 0, 9]), destination: Mac([2, 0, 0, 0, 0, 1]), tags };
    let flow = Flow::new(link, SocketAddr::new(host, from), to).unwrap();
    let mut frame = vec![0; 2048];
    let end = build(&mut frame, &flow, payload, UdpChecksum::Computed).unwrap().frame_end();
    frame.truncate(end);
    frame
}

pub(crate) fn send(far: &mut End, frames: &[Vec<u8>]) {
    for frames in frames.chunks(64) {
        let mut burst = Burst::new();
        far.supply(&mut burst, frames.len());
        assert_eq!(burst.len(), frames.len(), "memory for requests");
        for (frame, bytes) in burst.iter_mut().zip(frames) {
            assert!(frame.set_len(bytes.len()));
            frame.bytes_mut().copy_from_slice(bytes);
        }
        far.transmit(&mut burst);
        assert!(burst.is_empty());
    }
}

pub(crate) fn receive(far: &mut End) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut burst = Burst::new();
    while far.receive(&mut burst) > 0 {
        all.extend(burst.iter().map(|frame| frame.bytes().to_vec()));
        far.recycle(&mut burst);
    }
    all
}

pub(crate) fn sum<P: Port, H: Handler>(workers: &[Worker<P, H>]) -> Snapshot {
    let mut sum = Snapshot::default();
    workers.iter().for_each(|worker| sum.add(&worker.counters().snapshot()));
    sum
}

/// Polls all workers until they are idle.
pub(crate) fn run_until_idle<P: Port, H: Handler>(workers: &mut [Worker<P, H>]) {
    for _ in 0..10_000 {
        if workers.iter_mut().map(Worker::poll).sum::<usize>() == 0 {
            return;
        }
    }
    panic!("the workers never come to rest");
}
