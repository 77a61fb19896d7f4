//! Flows that follow their readers: RFS between workers.

use std::sync::Arc;

use proptest::prelude::*;
use udpath_stack::handler::Handler;
use udpath_stack::socket::{FlowRecorder, ReaderLocation, UdpSocket, Wait};
use udpath_stack::steering::Steering;
use udpath_stack::wire::Tags;
use udpath_steer::rfs::SockFlowTable;
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use super::bed::{TestBed, bed};
use super::support::*;

/// Workers of which the first one steers: to itself, unless a reader is elsewhere.
fn following(workers: usize, entries: u32) -> (TestBed<impl Handler>, Arc<SockFlowTable>) {
    let wanted = Arc::new(SockFlowTable::new(256, workers as u16));
    let map = RpsMap::new(&"0".parse().unwrap(), None);
    let steering = Steering::new(Key::microsoft(), map).following(Arc::clone(&wanted), entries);
    let mut all = vec![Some(steering)];
    all.resize_with(workers, || None);
    (bed(&SERVER, 1 << 20, 64, all, || echo), wanted)
}

fn near(wanted: &Arc<SockFlowTable>, worker: u16) -> Option<FlowRecorder> {
    Some(FlowRecorder { wanted: Arc::clone(wanted), location: ReaderLocation::Worker(worker) })
}

fn numbered(flow: u8, number: u8) -> Vec<u8> {
    request(Tags::NONE, 6000 + u16::from(flow), SERVER[usize::from(flow % 2)], &[flow, number])
}

/// Reads everything queued: flows and numbers.
fn read(socket: &mut UdpSocket) -> Vec<(u8, u8)> {
    let mut all = Vec::new();
    loop {
        let mut batch = socket.recv_batch(Wait::No).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter_mut().map(|datagram| {
            let [flow, number] = *datagram.payload() else { panic!("two bytes") };
            (flow, number)
        }));
    }
}

#[test]
fn a_flow_moves_to_the_worker_near_its_reader_and_back() {
    let (mut bed, wanted) = following(3, 64);
    let mut socket = bed.open(SERVER[0], 1 << 18);
    bed.deliver_to(&[&socket]);
    let mut steered = Vec::new();
    for (number, reader) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 0), (5, 0), (6, 0)] {
        send(&mut bed.fars[0], &[numbered(0, number)]);
        run_until_idle(&mut bed.workers);
        socket.set_flow_recorder(near(&wanted, reader));
        assert_eq!(read(&mut socket), [(0, number)]);
        let delivered = |worker: usize| bed.workers[worker].counters().snapshot().delivered;
        steered.push([delivered(0), delivered(1), delivered(2)]);
    }
    let expected = [[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 2, 1], [1, 2, 2], [2, 2, 2], [3, 2, 2]];
    assert_eq!(steered, expected, "a datagram goes where the one before it was read");
    drop(socket);
    bed.assert_all_returned();
}

#[test]
fn a_flow_stays_while_the_old_backlog_holds_its_frames() {
    let (mut bed, wanted) = following(2, 64);
    let mut socket = bed.open(SERVER[0], 1 << 18);
    bed.deliver_to(&[&socket]);
    let mut next = 0;
    let mut send_one = |bed: &mut TestBed<_>| {
        send(&mut bed.fars[0], &[numbered(0, next)]);
        next += 1;
        bed.workers[0].poll();
    };
    let steered = |bed: &TestBed<_>| sum(&bed.workers).steered;
    send_one(&mut bed);
    socket.set_flow_recorder(near(&wanted, 1));
    assert_eq!(read(&mut socket), [(0, 0)]);
    send_one(&mut bed);
    run_until_idle(&mut bed.workers);
    // Worker 1 has put the second one into the socket; the third waits in worker 1's backlog.
    send_one(&mut bed);
    assert_eq!(steered(&bed), 2);
    // The reader moves to worker 0.
    socket.set_flow_recorder(near(&wanted, 0));
    assert_eq!(read(&mut socket), [(0, 1)]);
    send_one(&mut bed);
    assert_eq!(steered(&bed), 3, "behind those that wait");
    assert_eq!(read(&mut socket), []);
    bed.workers[1].poll();
    send_one(&mut bed);
    assert_eq!(steered(&bed), 3, "nothing waits there any more");
    assert_eq!(read(&mut socket), [(0, 2), (0, 3), (0, 4)]);
    drop(socket);
    bed.assert_all_returned();
}

#[test]
fn a_reader_is_where_its_cpu_is() {
    let (mut bed, wanted) = following(2, 64);
    let mut socket = bed.open(SERVER[0], 1 << 18);
    bed.deliver_to(&[&socket]);
    let by_cpu = |workers: Vec<u16>| {
        Some(FlowRecorder { wanted: Arc::clone(&wanted), location: ReaderLocation::ByCpu(workers.into()) })
    };
    // Whatever CPU this is, worker 1 is the nearest; then, no CPU has a worker.
    for (number, near, steered) in
        [(0, vec![1; 1024], 0), (1, vec![], 1), (2, vec![0; 1024], 2), (3, vec![], 2)]
    {
        send(&mut bed.fars[0], &[numbered(0, number)]);
        run_until_idle(&mut bed.workers);
        assert_eq!(sum(&bed.workers).steered, steered);
        socket.set_flow_recorder(by_cpu(near));
        assert_eq!(read(&mut socket), [(0, number)]);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send { flow: u8, count: u8 },
    Poll(u8),
    Read { socket: u8, near: u16 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..6_u8, 1..6_u8).prop_map(|(flow, count)| Step::Send { flow, count }),
        4 => (0..3_u8).prop_map(Step::Poll),
        2 => (0..2_u8, 0..3_u16).prop_map(|(socket, near)| Step::Read { socket, near }),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// In any order of polls and reads, wherever the readers are, and however many flows share an entry.
    #[test]
    fn every_flow_keeps_its_order(steps in steps(), entries in 1_u32..8) {
        let (mut bed, wanted) = following(3, entries);
        let mut sockets = [bed.open(SERVER[0], 1 << 20), bed.open(SERVER[1], 1 << 20)];
        bed.deliver_to(&sockets.each_ref());
        let (mut sent, mut got) = ([0_u8; 6], [0_u8; 6]);
        let mut check = |all: Vec<(u8, u8)>| {
            for (flow, number) in all {
                let next = &mut got[usize::from(flow)];
                prop_assert_eq!(number, *next, "flow {}", flow);
                *next += 1;
            }
            Ok(())
        };
        let mut under_way = 0;
        for step in steps {
            match step {
                Step::Send { flow, count } => {
                    let count = count.min(255 - sent[usize::from(flow)]);
                    // No more than the backlogs and ports have room for.
                    if under_way + usize::from(count) > 60 {
                        continue;
                    }
                    let first = sent[usize::from(flow)];
                    let frames: Vec<_> = (first..first + count).map(|number| numbered(flow, number)).collect();
                    send(&mut bed.fars[0], &frames);
                    sent[usize::from(flow)] += count;
                    under_way += usize::from(count);
                }
                Step::Poll(worker) => {
                    bed.workers[usize::from(worker)].poll();
                }
                Step::Read { socket, near: worker } => {
                    let socket = &mut sockets[usize::from(socket)];
                    socket.set_flow_recorder(near(&wanted, worker));
                    let all = read(socket);
                    under_way -= all.len();
                    check(all)?;
                }
            }
        }
        run_until_idle(&mut bed.workers);
        for socket in &mut sockets {
            check(read(socket))?;
        }
        prop_assert_eq!(got, sent);
        prop_assert_eq!(sum(&bed.workers).dropped_total(), 0);
        drop(sockets);
        bed.assert_all_returned();
    }
}
