//! Needs root. Traffic is on loopback.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use udpath_rig::member;
use udpath_steer::CpuSet;

use super::*;

/// Instances that leave at once: each wait for a grace period serves all of them.
const TOGETHER: u32 = 16;
/// 960 sockets are closed. Without those that are kept, one close of some hundred loses a datagram while a CPU sends as
/// fast as it can; fewer rounds would miss that by chance.
const ROUNDS: u32 = 60;
/// Bytes for what arrives in a round, which is read at its end.
const BUFFER: usize = 64 << 20;

/// How long the last datagrams are waited for: they arrive while they are sent, unless the CPU is busy.
const ARRIVES: Duration = Duration::from_secs(2);

fn bound(socket: &UdpSocket, local: SocketAddr) -> Bound {
    let cookie = sockopt::socket_cookie(socket).unwrap();
    let inode = u32::try_from(rustix::fs::fstat(socket).unwrap().st_ino).unwrap();
    Bound { id: SocketId { inode, cookie }, pid: std::process::id(), local, queued: 0, drops: 0 }
}

fn read(socket: &UdpSocket) -> u64 {
    let mut room = [0; 64];
    (0..).take_while(|_| socket.recv(&mut room).is_ok()).count() as u64
}

/// Sends to `address` as fast as it can until `ended`; returns how many datagrams.
fn send(address: SocketAddr, ended: &AtomicBool) -> u64 {
    let flow = UdpSocket::bind((address.ip(), 0)).unwrap();
    flow.connect(address).unwrap();
    (0..).take_while(|_| !ended.load(Ordering::Relaxed) && flow.send(b"datagram").is_ok()).count() as u64
}

/// Instances come and leave beside one that stays, while another CPU sends; returns how many datagrams were sent, and
/// how many the one that stays has got.
fn sent_and_received(host: &str) -> (u64, u64) {
    let address = UdpSocket::bind((host, 0)).unwrap().local_addr().unwrap();
    let online = udpath_lab::online_cpus().unwrap();
    let cpus: Vec<CpuSet> = online.iter().map(|cpu| [cpu].into_iter().collect()).collect();
    let stays = member(address);
    sockopt::set_socket_recv_buffer_size_force(&stays, BUFFER).unwrap();
    let mut shares = Shares::new(Rule::Hash, TOGETHER + 1);
    shares.share([address]);
    shares.hold(0, &[bound(&stays, address)], None).unwrap();
    shares.admit(0).unwrap();
    let ended = AtomicBool::new(false);
    let mut received = 0;
    let sent = thread::scope(|scope| {
        let sender = scope.spawn(|| udpath_lab::confined(&cpus[1], || send(address, &ended)).unwrap());
        let rounds = || {
            for _ in 0..ROUNDS {
                let started = Instant::now();
                let sockets: Vec<UdpSocket> = (0..TOGETHER).map(|_| member(address)).collect();
                for (slot, socket) in (1..).zip(&sockets) {
                    shares.hold(slot, &[bound(socket, address)], None).unwrap();
                }
                shares.close_passed(started);
                for slot in 1..=TOGETHER {
                    shares.keep_open(slot, started, Instant::now()).unwrap();
                }
                // Their processes end, the one that bound last first.
                sockets.into_iter().rev().for_each(drop);
                (1..=TOGETHER).for_each(|slot| shares.empty(slot).unwrap());
                received += read(&stays);
            }
        };
        udpath_lab::confined(&cpus[0], rounds).unwrap();
        ended.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    let end = Instant::now() + ARRIVES;
    while received < sent && Instant::now() < end {
        received += read(&stays);
    }
    (sent, received)
}

#[test]
fn sockets_of_instances_that_leave_take_nothing_from_the_others() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    for host in ["127.0.0.1", "::1"] {
        let (sent, received) = sent_and_received(host);
        assert!(sent > 10_000, "{host}: {sent}");
        assert_eq!(received, sent, "{host}");
    }
}
