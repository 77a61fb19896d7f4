//! Which of several sockets on one port receives a datagram: predicted from a snapshot, and sent. Needs root and two
//! CPUs.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::thread::{CpuSet, sched_setaffinity};
use udpath_host::Snapshot;
use udpath_host::process::look_closer;
use udpath_host::receivers::Receivers;
use udpath_host::source::Folder;
use udpath_lab::LabBuilder;
use udpath_steer::Flow;
use udpath_steer::predict::{self, Predictor, Queue, Tables};
use udpath_steer::reuseport::By;

/// Longest wait for a local datagram.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sockets on one port: whether they share it, and each one's incoming CPU.
fn bound(port: u16, share: bool, cpus: &[Option<u32>]) -> Vec<UdpSocket> {
    let open = |cpu: &Option<u32>| {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        match share {
            true => sockopt::set_socket_reuseport(&socket, true).unwrap(),
            false => sockopt::set_socket_reuseaddr(&socket, true).unwrap(),
        }
        if let Some(cpu) = cpu {
            sockopt::set_socket_incoming_cpu(&socket, *cpu).unwrap();
        }
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        let socket = UdpSocket::from(socket);
        socket.set_nonblocking(true).unwrap();
        socket
    };
    cpus.iter().map(open).collect()
}

/// Sends from a CPU, which on the loopback also receives; returns the indices of the sockets that have the datagram.
pub(crate) fn sent(cpu: u32, from: &UdpSocket, to: SocketAddr, among: &[UdpSocket]) -> Vec<usize> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).unwrap();
    from.send_to(b"whose?", to).unwrap();
    let has = |at: &usize| among[*at].recv(&mut [0; 16]).is_ok();
    // Usually it is there when the call returns; a busy kernel processes it later, on the same CPU.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let having: Vec<usize> = (0..among.len()).filter(has).collect();
        if !having.is_empty() || Instant::now() > deadline {
            return having;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_socket_that_is_predicted_has_the_datagram() {
    udpath_lab::needs_root!();
    let lab = LabBuilder::new("t-host-receivers").machine("server").up().unwrap();
    let server = lab.machine("server").unwrap();
    for (port, share, cpus, by) in [
        (5301, true, [Some(0), Some(1)], By::Cpu),
        // The last one gets it, unless others name the CPU; then the last of those.
        (5302, false, [None, None], By::Last),
        (5303, false, [Some(0), None], By::Last),
        (5304, false, [Some(0), Some(1)], By::Last),
        (5305, false, [Some(0), Some(0)], By::Last),
    ] {
        let tried = server.run(|| {
            let sockets = bound(port, share, &cpus);
            let from = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = SocketAddr::from(([127, 0, 0, 1], port));
            let mut snapshot = Snapshot::read(&Folder::live());
            let mut missing = Vec::new();
            look_closer(&mut snapshot.sockets, |socket| socket.local.port() == port, &mut missing);
            assert_eq!(missing, []);
            let flow = Flow::udp(from.local_addr().unwrap(), to).unwrap();
            let receivers = Receivers::new(&snapshot);
            let found = receivers.of(&flow, 1);
            let known = receivers.sockets(&found);
            assert_eq!((known.by, known.cpus.as_slice()), (by, &cpus[..]), "{port}");
            for cpu in [0, 1] {
                let receive = vec![Queue { irq_cpus: Some([cpu].into_iter().collect()), ..Queue::default() }];
                let tables = Tables { queues: Some(1), receive, ..Tables::default() };
                let prepared = predict::Receivers::new(&known);
                let path = Predictor::new(&tables).unwrap().decide_among(&flow, Some(&prepared));
                let predicted = path.socket.value.unwrap_or_else(|| panic!("{port}: {}", path.socket.why));
                assert_eq!(sent(cpu, &from, to, &sockets), [predicted as usize], "port {port}, CPU {cpu}");
            }
        });
        tried.unwrap();
    }
    lab.down().unwrap();
}
