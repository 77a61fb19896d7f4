//! The order of a reuseport group, and what selects in it: as the kernel shows it, and by which socket receives. Needs
//! root.

#[path = "../../../tune/tests/it/selection/sys.rs"]
mod sys;

use std::net::{SocketAddr, UdpSocket};

use rustix::net::sockopt;
use udpath_host::Snapshot;
use udpath_host::receivers::Receivers;
use udpath_host::sockets::{GroupOrder, Selector};
use udpath_host::source::{Folder, Recorder};
use udpath_lab::LabBuilder;
use udpath_steer::predict::{self, Predictor, Queue, Tables};
use udpath_steer::reuseport::{By, Group};
use udpath_steer::{CpuSet, Flow};

use crate::receivers::sent;

/// `SKF_AD_OFF` and `SKF_AD_CPU` of linux/filter.h.
const CURRENT_CPU: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
const LOAD_CPU: (u16, u32) = ((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, CURRENT_CPU);
const RETURN: (u16, u32) = ((libc::BPF_RET | libc::BPF_A) as u16, 0);

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// A socket of the group on a port.
fn member(port: u16) -> UdpSocket {
    udpath_rig::member(address(port))
}

fn cookie(socket: &UdpSocket) -> u64 {
    sockopt::socket_cookie(socket).unwrap()
}

/// The order of the one group, and the cookies in it.
fn order(snapshot: &Snapshot) -> (GroupOrder, Vec<u64>) {
    let [group] = &snapshot.sockets.groups[..] else { panic!("{:?}", snapshot.sockets.groups) };
    let order = group.order.as_ref().unwrap_or_else(|| panic!("{:?}", snapshot.missing)).value.clone();
    let cookies =
        order.sockets.iter().map(|place| snapshot.sockets.list[place.socket].cookie.unwrap()).collect();
    (order, cookies)
}

fn in_a_lab(name: &str, work: impl FnOnce() + Send) {
    let lab = LabBuilder::new(name).machine("server").up().unwrap();
    lab.machine("server").unwrap().run(work).unwrap();
    lab.down().unwrap();
}

#[test]
fn the_order_read_is_the_one_in_which_a_program_selects() {
    udpath_lab::needs_root!();
    const PORT: u16 = 5310;
    in_a_lab("t-host-order", || {
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sockets: Vec<UdpSocket> = Vec::new();
        let mut group = Group::new();
        // The sockets that are closed, in the order in which they were bound; none: another one is bound.
        for closed in
            [None, None, None, None, Some(1), None, Some(0), None, None, Some(4), Some(0), None, Some(2)]
        {
            match closed {
                None => {
                    sockets.push(member(PORT));
                    group.bind(cookie(sockets.last().unwrap()), None);
                }
                Some(at) => assert!(group.close(&cookie(&sockets.remove(at)))),
            }
            if sockets.len() < 2 {
                continue;
            }
            // A child of another test has a closed socket until its exec.
            let known = || {
                let snapshot = Snapshot::read(&Folder::live());
                let known = snapshot.sockets.groups.first().is_some_and(|group| group.order.is_some());
                known.then_some(snapshot)
            };
            let (_, cookies) =
                order(&udpath_rig::awaited("the order of the group", udpath_rig::TIMEOUT, known));
            let expected: Vec<u64> = (0..group.len()).map(|at| *group.get(at).unwrap()).collect();
            assert_eq!(cookies, expected);
            for (index, cookie_there) in (0..).zip(cookies) {
                sys::attach_classic(&sockets[0], &[((libc::BPF_RET | libc::BPF_K) as u16, index)]);
                let reached = sent(0, &from, address(PORT), &sockets);
                let reached: Vec<u64> = reached.iter().map(|at| cookie(&sockets[*at])).collect();
                assert_eq!(reached, [cookie_there], "index {index}");
            }
        }
    });
}

#[test]
fn each_selector_is_recognised_and_captured() {
    udpath_lab::needs_root!();
    const PORT: u16 = 5311;
    in_a_lab("t-host-selector", || {
        let sockets = [member(PORT), member(PORT)];
        sockopt::set_socket_incoming_cpu(&sockets[1], 1).unwrap();
        let read = || order(&Snapshot::read(&Folder::live())).0.selector;
        assert_eq!(read(), Selector::Kernel);
        sys::attach_classic(&sockets[0], &[LOAD_CPU, RETURN]);
        assert_eq!(read(), Selector::Cpu { modulus: None });
        sys::attach_classic(&sockets[0], &[((libc::BPF_RET | libc::BPF_K) as u16, 1)]);
        assert_eq!(read(), Selector::Classic { length: 1 });
        sys::attach_extended(&sockets[0]);
        assert!(matches!(read(), Selector::Extended { id } if id > 0));
        let modulo = ((libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16, 2);
        sys::attach_classic(&sockets[0], &[LOAD_CPU, modulo, RETURN]);
        let live = Folder::live();
        let recorder = Recorder::new(&live);
        let snapshot = Snapshot::read(&recorder);
        let (found, _) = order(&snapshot);
        assert_eq!(found.selector, Selector::Cpu { modulus: Some(2) });
        let cpus: Vec<_> = found.sockets.iter().map(|place| place.incoming_cpu).collect();
        assert_eq!(cpus, [None, Some(1)]);
        // A capture has the same; one of an earlier version lacks it.
        let folder = tempfile::tempdir().unwrap();
        recorder.write(folder.path()).unwrap();
        let captured = || Snapshot::read(&Folder::captured(folder.path()));
        assert_eq!(captured().sockets, snapshot.sockets);
        std::fs::remove_file(folder.path().join("udpath/reuseport-groups.json")).unwrap();
        let earlier = captured();
        assert_eq!((earlier.sockets.groups.len(), earlier.sockets.groups[0].order.clone()), (1, None));
        assert_eq!(earlier.missing, snapshot.missing);
    });
}

/// After the first of two sockets was closed and bound again, a program that returns the CPU selects them the other way
/// round.
#[test]
fn a_selection_by_cpu_is_predicted_after_the_order_has_changed() {
    udpath_lab::needs_root!();
    const PORT: u16 = 5312;
    in_a_lab("t-host-reorder", || {
        let mut sockets = vec![member(PORT), member(PORT)];
        sys::attach_classic(&sockets[0], &[LOAD_CPU, RETURN]);
        drop(sockets.remove(0));
        sockets.push(member(PORT));
        sockets.swap(0, 1);
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let flow = Flow::udp(from.local_addr().unwrap(), address(PORT)).unwrap();
        let snapshot = Snapshot::read(&Folder::live());
        let receivers = Receivers::new(&snapshot);
        let found = receivers.of(&flow, 1);
        let known = receivers.sockets(&found);
        assert_eq!(known.by, By::CpuIndex);
        for (cpu, receives) in [(0, 1), (1, 0)] {
            let cpus: CpuSet = [cpu].into_iter().collect();
            let receive = vec![Queue { irq_cpus: Some(cpus), ..Queue::default() }];
            let tables = Tables { queues: Some(1), receive, ..Tables::default() };
            let prepared = predict::Receivers::new(&known);
            let path = Predictor::new(&tables).unwrap().decide_among(&flow, Some(&prepared));
            let predicted = receivers.socket(found[path.socket.value.unwrap() as usize]).cookie;
            assert_eq!(predicted, Some(cookie(&sockets[receives])), "CPU {cpu}: {}", path.socket.why);
            assert_eq!(sent(cpu, &from, address(PORT), &sockets), [receives], "CPU {cpu}");
        }
    });
}
