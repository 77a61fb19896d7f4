//! The path of received UDP datagrams: loader and reader of `bpf/watch.bpf.c`.
//!
//! ```text
//!   queue ─▸ (IRQ's CPU) ─▸ RPS ─▸ packet sockets ─▸ IP, UDP
//!                                   │ a packet socket's filter: counts, and rejects every packet
//!                                   ▾
//!                          ways: flow, queue, hash, CPU ─▸ packets
//! ```
//! Watching changes nothing: the socket receives no packets, ignores sent ones, and both socket and filter are gone
//! when the value is dropped. It costs each received packet a run of the program and a hash table lookup.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use aya::maps::{HashMap, MapData};
use aya::programs::SocketFilter;
use aya::{Ebpf, EbpfLoader};

use crate::attach::{self, object};
use crate::error::Cause;
use crate::shared_array::SharedArray;
use crate::{Error, sys};

const NAME: &str = "watch";
const WAYS: &str = "ways";
/// Words of `struct way`.
const WORDS: usize = 12;

/// A key of the program's table, in words: addresses, ports, queue and version, hash, CPU.
type Key = [u32; WORDS];

/// Counts the paths of datagrams that one interface receives, until dropped.
#[derive(Debug)]
pub struct Watch {
    object: Ebpf,
    over: SharedArray,
    #[cfg_attr(not(test), expect(dead_code, reason = "open as long as it watches"))]
    socket: OwnedFd,
}

/// One path, and how many packets took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// The receive queue, if the driver records it.
    pub queue: Option<u32>,
    /// The packet's hash: the card's, if the driver passes it on; the sender's on a virtual link; else the kernel's, if
    /// RPS computed one.
    pub hash: Option<u32>,
    /// The CPU that processed it in the stack, after RPS.
    pub cpu: u32,
    /// Packets; datagrams coalesced by GRO count as one.
    pub packets: u64,
}

/// Datagrams that were not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// Of paths beyond the first 65,536.
    pub no_room: u64,
    /// IP fragments, of UDP or not.
    pub fragments: u64,
}

impl Watch {
    /// Watches `interface` in the calling thread's network namespace; with `port` only datagrams to that port.
    ///
    /// # Errors
    /// No such interface; no permission (in addition to `CAP_BPF` it needs `CAP_NET_RAW`).
    pub fn open(interface: &str, port: Option<u16>) -> Result<Self, Error> {
        let name = std::ffi::CString::new(interface).ok();
        let no_interface = || Error::NoInterface { program: NAME, interface: interface.replace('\0', " ") };
        let index = name.and_then(|name| sys::interface_index(&name)).ok_or_else(no_interface)?;
        let mut loader = EbpfLoader::new();
        let port = port.unwrap_or(0);
        loader.override_global("port", &port, true);
        let mut object = attach::load_socket_filter(NAME, &mut loader, object!("watch"))?;
        let over = SharedArray::map(&object, NAME, "passed_over", 1, 2)?;
        let refused = |source: std::io::Error| Error::Watch { interface: interface.into(), source };
        let socket = sys::packet_socket().map_err(refused)?;
        let filter: &mut SocketFilter = attach::find(&mut object, NAME)?;
        filter.attach(&socket).map_err(|error| refused(attach::system_error(&error)))?;
        // Bind last: a packet that arrived before the filter was set would stay in the socket.
        sys::bind_packet_socket(&socket, index).map_err(refused)?;
        Ok(Self { object, over, socket })
    }

    /// The paths seen so far, in no particular order.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn ways(&self) -> Result<Vec<Way>, Error> {
        let failed = |source: Cause| Error::Load { program: NAME, source };
        let map = self.object.map(WAYS).ok_or_else(|| failed("the object has no map 'ways'".into()))?;
        let map: HashMap<&MapData, Key, u64> =
            map.try_into().map_err(|error: aya::maps::MapError| failed(attach::cause(&error)))?;
        let read = |way: Result<(Key, u64), aya::maps::MapError>| match way {
            Ok((key, packets)) => Ok(way_of(&key, packets)),
            Err(error) => Err(failed(format!("cannot read its counters: {error}").into())),
        };
        map.iter().map(read).collect()
    }

    /// What was not counted so far.
    #[must_use]
    pub fn passed_over(&self) -> PassedOver {
        let words = self.over.element(0);
        PassedOver { no_room: words[0].load(Relaxed), fragments: words[1].load(Relaxed) }
    }
}

fn way_of(key: &Key, packets: u64) -> Way {
    let [a, b, c, d, e, f, g, h, ports, queue, hash, cpu] = *key;
    // Pairs of 16-bit fields are in memory in the order of the program's source.
    let halves = |word: u32| {
        let [a, b, c, d] = word.to_ne_bytes();
        (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]))
    };
    let (source_port, destination_port) = halves(ports);
    let (queue, version) = halves(queue);
    let address = |words: [u32; 4]| match version {
        4 => IpAddr::V4(Ipv4Addr::from(words[0].to_ne_bytes())),
        _ => {
            let bytes: [[u8; 4]; 4] = words.map(u32::to_ne_bytes);
            let mut all = [0; 16];
            all.copy_from_slice(bytes.as_flattened());
            IpAddr::V6(Ipv6Addr::from(all))
        }
    };
    Way {
        source: SocketAddr::new(address([a, b, c, d]), source_port),
        destination: SocketAddr::new(address([e, f, g, h]), destination_port),
        queue: queue.checked_sub(1).map(u32::from),
        hash: (hash != 0).then_some(hash),
        cpu,
        packets,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// The loopback delivers within the send call, so there is nothing to wait for.
    #[test]
    fn what_the_loopback_receives_is_counted_by_flow() {
        udpath_lab::needs_root!();
        for host in ["127.0.0.1", "[::1]"] {
            let server = UdpSocket::bind(format!("{host}:0")).unwrap();
            let to = server.local_addr().unwrap();
            let other = UdpSocket::bind(format!("{host}:0")).unwrap();
            let watch = Watch::open("lo", Some(to.port())).expect("needs CAP_BPF and CAP_NET_RAW");
            let clients: Vec<UdpSocket> =
                (0..3).map(|_| UdpSocket::bind(format!("{host}:0")).unwrap()).collect();
            for (client, packets) in clients.iter().zip([1, 2, 30]) {
                for _ in 0..packets {
                    client.send_to(b"way", to).unwrap();
                }
                client.send_to(b"not for it", other.local_addr().unwrap()).unwrap();
            }
            let ways = watch.ways().unwrap();
            assert!(ways.iter().all(|way| way.destination == to), "{ways:?}");
            for (client, packets) in clients.iter().zip([1, 2, 30]) {
                let from = client.local_addr().unwrap();
                let of = ways.iter().filter(|way| way.source == from).map(|way| way.packets);
                assert_eq!(of.sum::<u64>(), packets, "{ways:?}");
            }
            assert_eq!(watch.passed_over().no_room, 0);
            // It saw them, and accepted none.
            let taken = rustix::net::recv(&watch.socket, &mut [0; 64], rustix::net::RecvFlags::DONTWAIT);
            assert_eq!(taken.unwrap_err(), rustix::io::Errno::AGAIN);
        }
    }

    #[test]
    fn a_way_is_read_as_the_program_writes_it() {
        let ports = |a: u16, b: u16| {
            let ([a, b], [c, d]) = (a.to_ne_bytes(), b.to_ne_bytes());
            u32::from_ne_bytes([a, b, c, d])
        };
        let address = u32::from_ne_bytes([192, 0, 2, 7]);
        let mut key = [0; WORDS];
        (key[0], key[4], key[8], key[9], key[10], key[11]) =
            (address, address, ports(4000, 53), ports(4, 4), 9, 2);
        let way = way_of(&key, 5);
        assert_eq!((way.source.to_string().as_str(), way.destination.port()), ("192.0.2.7:4000", 53));
        assert_eq!((way.queue, way.hash, way.cpu, way.packets), (Some(3), Some(9), 2, 5));
        (key[9], key[10]) = (ports(0, 6), 0);
        let way = way_of(&key, 5);
        assert_eq!((way.queue, way.hash, way.source.is_ipv6()), (None, None, true));
    }

    #[test]
    fn a_missing_interface_is_named() {
        for name in ["nowhere0", "zero\0byte"] {
            let error = Watch::open(name, None).unwrap_err();
            assert!(matches!(error, Error::NoInterface { .. }), "{error}");
        }
    }
}
