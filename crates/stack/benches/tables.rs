//! What the tables cost per lookup, beside another way to do the same on the same entries in the same run.
//!
//! ```text
//! routes      longest prefix among 1, 10 and 10,000 routes   beside: a hash table per prefix length, the longest first
//! neighbours  (interface, IP) -> MAC among 10 and 5,000      beside: std's HashMap
//! addresses   is it local, among 4 and 256                   beside: one after the other
//! path        from a destination to everything a frame needs
//! make        what a change costs the mirror's thread: a table of 10,000 routes, of 5,000 neighbours
//! ```
//! Destinations differ from lookup to lookup, and nothing depends on the lookup before, as in a burst. Throughput is in
//! lookups.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use udpath_stack::tables::{
    Hop, Interface, Interfaces, LocalAddress, LocalAddresses, Neighbour, Neighbours, Route, Routes, View,
};
use udpath_stack::wire::Mac;

/// Destinations looked up in a row, a power of two: more than a branch predictor learns by heart.
const DESTINATIONS: usize = 4096;

/// A fixed sequence that looks random.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16 ^ self.0 << 32
    }
}

/// The cheapest hasher there is, so that the contender is not slow for its hash: a multiplication per word.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64((word >> 64) as u64);
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

type ByMultiply<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// The contender: per prefix length in use a hash table of the addresses' upper bits, the longest asked first.
struct PerLength {
    v4: Vec<(u32, ByMultiply<u32, Route>)>,
    v6: Vec<(u32, ByMultiply<u128, Route>)>,
}

impl PerLength {
    fn new(routes: &[(IpAddr, u8, Route)]) -> Self {
        let mut table = Self { v4: Vec::new(), v6: Vec::new() };
        for len in (0..=128).rev() {
            let (mut v4, mut v6) = (ByMultiply::default(), ByMultiply::default());
            for (address, _, route) in routes.iter().filter(|(_, prefix, _)| *prefix == len) {
                match address {
                    IpAddr::V4(address) => v4.insert(upper_v4(address.to_bits(), len.into()), *route),
                    IpAddr::V6(address) => v6.insert(upper_v6(address.to_bits(), len.into()), *route),
                };
            }
            if !v4.is_empty() {
                table.v4.push((len.into(), v4));
            }
            if !v6.is_empty() {
                table.v6.push((len.into(), v6));
            }
        }
        table
    }

    fn get(&self, destination: IpAddr) -> Option<&Route> {
        match destination {
            IpAddr::V4(address) => {
                self.v4.iter().find_map(|(len, table)| table.get(&upper_v4(address.to_bits(), *len)))
            }
            IpAddr::V6(address) => {
                self.v6.iter().find_map(|(len, table)| table.get(&upper_v6(address.to_bits(), *len)))
            }
        }
    }
}

fn upper_v4(bits: u32, len: u32) -> u32 {
    bits & !u32::MAX.checked_shr(len).unwrap_or(0)
}

fn upper_v6(bits: u128, len: u32) -> u128 {
    bits & !u128::MAX.checked_shr(len).unwrap_or(0)
}

fn hop(interface: u32) -> Route {
    Route::Hop(Hop { interface, gateway: None, source: None, mtu: None })
}

/// A default route, and `count - 1` others with the lengths that the Internet's tables have, most of them the longest.
fn routes(v6: bool, count: usize, sequence: &mut Sequence) -> Vec<(IpAddr, u8, Route)> {
    let mut routes = vec![if v6 {
        (Ipv6Addr::UNSPECIFIED.into(), 0, hop(1))
    } else {
        (Ipv4Addr::UNSPECIFIED.into(), 0, hop(1))
    }];
    while routes.len() < count {
        let random = sequence.next();
        let route = hop(2 + (random % 16) as u32);
        let short = random >> 8 & 3 == 0;
        let spread = (random >> 10 & 7) as u8;
        routes.push(if v6 {
            let address =
                0x2000 << 112 | u128::from(sequence.next() >> 4) << 61 | u128::from(sequence.next());
            (Ipv6Addr::from(address).into(), if short { 32 + 2 * spread } else { 48 }, route)
        } else {
            let address = sequence.next() as u32;
            (Ipv4Addr::from(address).into(), if short { 16 + spread } else { 24 }, route)
        });
    }
    routes
}

/// Half of them covered by one of the routes, half anywhere.
fn destinations(routes: &[(IpAddr, u8, Route)], sequence: &mut Sequence) -> Vec<IpAddr> {
    (0..DESTINATIONS)
        .map(|number| {
            let random = sequence.next();
            let (address, ..) = routes[random as usize % routes.len()];
            match address {
                IpAddr::V4(_) if number % 2 == 0 => Ipv4Addr::from(random as u32).into(),
                IpAddr::V4(address) => Ipv4Addr::from(address.to_bits() | random as u32 >> 26).into(),
                IpAddr::V6(_) if number % 2 == 0 => {
                    Ipv6Addr::from(0x2000 << 112 | u128::from(random) << 60).into()
                }
                IpAddr::V6(address) => Ipv6Addr::from(address.to_bits() | u128::from(random >> 2)).into(),
            }
        })
        .collect()
}

fn each<T: Copy, R>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    inputs: &[T],
    mut look: impl FnMut(T) -> R,
) {
    group.throughput(Throughput::Elements(inputs.len() as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for input in inputs {
                black_box(look(*input));
            }
        });
    });
}

fn longest_prefix(criterion: &mut Criterion) {
    for (family, v6) in [("IPv4", false), ("IPv6", true)] {
        for count in [1, 10, 10_000] {
            let mut sequence = Sequence(7);
            let routes = routes(v6, count, &mut sequence);
            let destinations = destinations(&routes, &mut sequence);
            let (table, contender) = (Routes::new(routes.clone()), PerLength::new(&routes));
            for destination in &destinations {
                assert_eq!(table.get(*destination), contender.get(*destination), "{destination}");
            }
            let mut group = criterion.benchmark_group(format!("routes/{family}/{count}"));
            each(&mut group, "udpath", &destinations, |destination| table.get(destination));
            each(&mut group, "hash per length", &destinations, |destination| contender.get(destination));
        }
    }
}

fn neighbours(criterion: &mut Criterion) {
    for count in [10_u32, 5_000] {
        for v6 in [false, true] {
            let address = |host: u32| -> IpAddr {
                if v6 {
                    Ipv6Addr::from(0xfd00 << 112 | u128::from(host)).into()
                } else {
                    Ipv4Addr::from(0x0a00_0000 | host).into()
                }
            };
            let entries: Vec<_> = (0..count)
                .map(|host| {
                    (2, address(host), Neighbour::Usable(Mac([2, 0, 0, 0, (host >> 8) as u8, host as u8])))
                })
                .collect();
            let table = Neighbours::new(entries.clone());
            let contender: HashMap<_, _> = entries
                .iter()
                .map(|(interface, address, neighbour)| ((*interface, *address), *neighbour))
                .collect();
            let mut sequence = Sequence(9);
            let peers: Vec<_> = (0..DESTINATIONS).map(|_| address(sequence.next() as u32 % count)).collect();
            let family = if v6 { "IPv6" } else { "IPv4" };
            let mut group = criterion.benchmark_group(format!("neighbours/{family}/{count}"));
            each(&mut group, "udpath", &peers, |peer| table.get(2, peer));
            each(&mut group, "std HashMap", &peers, |peer| contender.get(&(2, peer)).copied());
        }
    }
}

fn addresses(criterion: &mut Criterion) {
    for count in [4_u32, 256] {
        let all: Vec<IpAddr> = (0..count).map(|host| Ipv4Addr::from(0x0a00_0001 + host).into()).collect();
        let table = LocalAddresses::new(all.iter().map(|address| LocalAddress::new(2, *address, 24)), []);
        let mut sequence = Sequence(11);
        // A server's traffic: all of it for one of its addresses.
        let wanted: Vec<_> =
            (0..DESTINATIONS).map(|_| all[(sequence.next() % u64::from(count)) as usize]).collect();
        let mut group = criterion.benchmark_group(format!("addresses/{count}"));
        each(&mut group, "udpath", &wanted, |address| table.is_local(2, address));
        each(&mut group, "one after the other", &wanted, |address| all.contains(&address));
    }
}

fn path(criterion: &mut Criterion) {
    let eth0 = Interface {
        index: 2,
        name: "eth0".to_owned(),
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        mtu: 1500,
        up: true,
        running: true,
        rx_queues: 1,
        tx_queues: 1,
        vlan: None,
    };
    let own = Ipv4Addr::new(10, 0, 0, 1).into();
    let via = Route::Hop(Hop { interface: 2, gateway: None, source: Some(own), mtu: None });
    let peers: Vec<IpAddr> = (0..1_000_u32).map(|host| Ipv4Addr::from(0x0a00_0100 + host).into()).collect();
    let interfaces = Interfaces::new([eth0], 1);
    let addresses = LocalAddresses::new([LocalAddress::new(2, own, 16)], []);
    let neighbour = Neighbour::Usable(Mac([2, 0, 0, 0, 0, 2]));
    let neighbours = Neighbours::new(peers.iter().map(|peer| (2, *peer, neighbour)));
    let routes = Routes::new([(own, 16, via), (Ipv4Addr::UNSPECIFIED.into(), 0, Route::Reject)]);
    let view =
        View { interfaces: &interfaces, addresses: &addresses, neighbours: &neighbours, routes: &routes };
    assert!(peers.iter().all(|peer| view.path(*peer).is_ok()));
    each(&mut criterion.benchmark_group("path"), "IPv4", &peers, |peer| view.path(peer));
}

fn make(criterion: &mut Criterion) {
    let routes = routes(false, 10_000, &mut Sequence(7));
    let mut group = criterion.benchmark_group("make");
    group.bench_function("10,000 routes", |bencher| bencher.iter(|| Routes::new(routes.iter().copied())));
    let mac = Neighbour::Usable(Mac([2, 0, 0, 0, 0, 2]));
    let peers: Vec<_> =
        (0..5_000_u32).map(|host| (2, IpAddr::from(Ipv4Addr::from(0x0a00_0000 | host)), mac)).collect();
    group.bench_function("5,000 neighbours", |bencher| {
        bencher.iter(|| Neighbours::new(peers.iter().copied()));
    });
}

criterion_group! {
    name = benches;
    // Short: there are many, and each is compared with its neighbour in the same run only.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = longest_prefix, neighbours, addresses, path, make
}
criterion_main!(benches);
