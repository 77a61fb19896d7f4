//! An application with a `UdpSocket` on the workers of an AF_XDP device, and a UDP client on kernel sockets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_stack::counters::Snapshot;
use udpath_stack::epoch::{Domain, Table};
use udpath_stack::groups::Groups;
use udpath_stack::handler::{Datagram, Outcome};
use udpath_stack::mesh::{self, mesh};
use udpath_stack::socket::{self, Egress, Paths, UdpSocket, Wait};
use udpath_stack::tables::Mirror;
use udpath_stack::worker::{Parts, Worker};

use super::support::*;

/// Answers in capitals until it is stopped.
fn shout(mut socket: UdpSocket, stop: &AtomicBool) -> UdpSocket {
    while !stop.load(Ordering::Relaxed) {
        let mut batch = socket.recv_batch(Wait::Sleep(Some(Duration::from_millis(20)))).unwrap();
        for mut datagram in batch.iter_mut() {
            let len = datagram.payload().len();
            let shouted = datagram.reply_with(|room| {
                room[..len].make_ascii_uppercase();
                len
            });
            shouted.unwrap();
        }
    }
    socket
}

#[test]
fn a_kernel_client_is_answered_by_sockets_and_sent_to_first() {
    udpath_lab::needs_root!();
    let lab = lab("x-sockets", 2);
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let mut device = device(&lab, small());
    let ports = ports(&lab, &mut device);
    let there = addresses(&lab);
    let binds = there.map(|ip| SocketAddr::new(ip, PORT));

    let domain = Domain::new(5, 64);
    let groups = Arc::new(Table::new(&domain, Groups::new(&binds, []).unwrap()));
    let mut rings = mesh(2, mesh::Config { backlog: 64, frames: 256 }).unwrap();
    let config = socket::Config { frames: 256, free_frames: 16, pool: 1 << 20 };
    let sockets = socket::join(&mut rings, config).unwrap();
    let mut open: Vec<UdpSocket> = binds.iter().map(|bind| sockets.open(*bind, 1 << 18).unwrap()).collect();
    let handles: Vec<_> = open.iter().map(UdpSocket::handle).collect();
    let delivering = Groups::new(&binds, []).unwrap().delivering(&binds, &handles).unwrap();
    assert!(groups.publish(delivering).is_ok());

    let mirror = server.run(|| Mirror::start(&domain)).unwrap().unwrap();
    let interface = mirror_interface(&domain, &mirror);
    let exits = [0, 1].map(|worker| Egress { interface, worker });
    for socket in &mut open {
        let reader = domain.register("sender").unwrap();
        socket.set_paths(Paths::new(mirror.tables(), reader, Some(mirror.resolver()), exits));
    }

    let workers: Vec<_> = ports
        .into_iter()
        .zip(rings)
        .map(|(port, rings)| {
            Worker::new(Parts {
                port: Some(port),
                handler: |_: Datagram<'_>, _: &mut [u8]| Outcome::Declined,
                reader: domain.register(format!("worker {}", rings.index())).unwrap(),
                groups: Arc::clone(&groups),
                rings,
                steering: None,
            })
        })
        .collect();
    let counters: Vec<_> = workers.iter().map(Worker::counters).collect();
    let (stop, end_workers) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut workers, ended) = std::thread::scope(|scope| {
        let workers: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let stop = &end_workers;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if worker.poll() == 0 {
                            worker.wait(Duration::from_millis(20), None).unwrap();
                        }
                    }
                    worker
                })
            })
            .collect();

        // The sockets send first, to a client they have received nothing from; its neighbour entry is requested.
        let mut bytes = [0; 64];
        for (own, server_address) in open.iter_mut().zip(there) {
            let first = socket(client, server_address);
            let client_address = lab.address_of("client", "server").unwrap();
            let ip: IpAddr = if server_address.is_ipv4() {
                client_address.ipv4.into()
            } else {
                client_address.ipv6.into()
            };
            let to = SocketAddr::new(ip, first.local_addr().unwrap().port());
            let deadline = Instant::now() + TIMEOUT;
            while let Err(error) = own.send_to(b"hello", to) {
                assert!(Instant::now() < deadline, "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            let (len, from) = first.recv_from(&mut bytes).unwrap();
            assert_eq!((&bytes[..len], from), (&b"hello"[..], own.local_addr()));
        }

        let readers: Vec<_> = open.into_iter().map(|socket| scope.spawn(|| shout(socket, &stop))).collect();
        for to in there {
            let clients: Vec<_> = (0..32).map(|_| socket(client, to)).collect();
            for round in 0..8 {
                for (number, client) in clients.iter().enumerate() {
                    client.send_to(format!("round {round} of {number}").as_bytes(), (to, PORT)).unwrap();
                }
                for (number, client) in clients.iter().enumerate() {
                    let (len, from) = client.recv_from(&mut bytes).unwrap();
                    assert_eq!(bytes[..len], *format!("ROUND {round} OF {number}").as_bytes());
                    assert_eq!(from, SocketAddr::new(to, PORT));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let ended: Vec<UdpSocket> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        end_workers.store(true, Ordering::Relaxed);
        (workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>(), ended)
    });
    for socket in &ended {
        let counts = socket.counts();
        assert_eq!((counts.enqueued, counts.received, counts.sent), (256, 256, 257), "one was sent first");
        assert_eq!((counts.refused.total(), counts.orphaned), (0, 0));
    }
    drop(ended);
    let deadline = Instant::now() + TIMEOUT;
    while workers.iter_mut().map(Worker::poll).sum::<usize>() > 0
        || workers.iter().any(|worker| worker.port().unwrap().sending() > 0)
    {
        assert!(Instant::now() < deadline, "frames do not come back");
    }
    let mut sum = Snapshot::default();
    counters.iter().for_each(|counters| sum.add(&counters.snapshot()));
    assert_eq!((sum.received, sum.delivered, sum.sent, sum.unsent), (512, 512, 514, 0));
    assert!(counters.iter().all(|counters| counters.snapshot().delivered > 0), "both queues");
    // All frames are returned, except for the free ones that workers keep ready.
    assert!(workers.iter().all(|worker| worker.port().unwrap().outstanding() == 16));
    assert_eq!(sockets.memory(), 0);
    lab.down().unwrap();
}

/// The index of the server's device.
fn mirror_interface(domain: &Domain, mirror: &Mirror) -> u32 {
    let tables = mirror.tables();
    let mut reader = domain.register("opener").unwrap();
    let guard = reader.pin();
    let view = tables.load(&guard);
    let own = view.addresses.all().iter().find(|local| !local.address.is_loopback()).unwrap();
    own.interface
}
