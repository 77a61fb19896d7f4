//! Routes against a second, naive implementation: a linear search over all prefixes.

use std::net::IpAddr;

use proptest::prelude::*;
use udpath_stack::tables::{Hop, Route, Routes};

fn bits(address: IpAddr) -> Vec<bool> {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets.into_iter().flat_map(|octet| (0..8).map(move |bit| octet << bit & 0x80 != 0)).collect()
}

/// The route of the longest prefix; the first of several with the same prefix.
fn naive(routes: &[(IpAddr, u8, Route)], destination: IpAddr) -> Option<&Route> {
    let wanted = bits(destination);
    let mut best: Option<(usize, &Route)> = None;
    for (address, prefix, route) in routes {
        let (address, prefix) = (bits(*address), usize::from(*prefix));
        let covers = address.len() == wanted.len() && address[..prefix] == wanted[..prefix];
        if covers && best.is_none_or(|(longest, _)| prefix > longest) {
            best = Some((prefix, route));
        }
    }
    best.map(|(_, route)| route)
}

/// Clustered addresses: nested, adjacent, at both ends of the range, and some anywhere.
fn v4() -> impl Strategy<Value = u32> {
    prop_oneof![
        (0_u32..16).prop_map(|low| 0x0a00_0000 | low << 4),
        (0_u32..16).prop_map(|high| high << 28),
        (0_u32..4).prop_map(|low| u32::MAX - low),
        any::<u32>(),
    ]
}

fn v6() -> impl Strategy<Value = u128> {
    prop_oneof![
        (0_u128..16).prop_map(|low| 0x2001_0db8 << 96 | low << 60),
        (0_u128..16).prop_map(|high| high << 124),
        (0_u128..4).prop_map(|low| u128::MAX - low),
        any::<u128>(),
    ]
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![v4().prop_map(|bits| IpAddr::V4(bits.into())), v6().prop_map(|bits| IpAddr::V6(bits.into())),]
}

fn entry() -> impl Strategy<Value = (IpAddr, u8, Route)> {
    let route = prop_oneof![
        9 => (1_u32..6).prop_map(|interface| {
            Route::Hop(Hop { interface, gateway: None, source: None, mtu: None })
        }),
        1 => Just(Route::Reject),
    ];
    let prefix = prop_oneof![0_u8..=128, 20_u8..=32, Just(0), Just(128)];
    (address(), prefix, route).prop_map(|(address, prefix, route)| {
        (address, if address.is_ipv4() { prefix.min(32) } else { prefix }, route)
    })
}

/// The addresses just before, at, and just after the prefix, where an error would show.
fn edges(address: IpAddr, prefix: u8) -> Vec<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            let (first, last) = (address.to_bits() & !host, address.to_bits() | host);
            let edges = [first.wrapping_sub(1), first, address.to_bits(), last, last.wrapping_add(1)];
            edges.map(|bits| IpAddr::V4(bits.into())).to_vec()
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            let (first, last) = (address.to_bits() & !host, address.to_bits() | host);
            let edges = [first.wrapping_sub(1), first, address.to_bits(), last, last.wrapping_add(1)];
            edges.map(|bits| IpAddr::V6(bits.into())).to_vec()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_longest_prefix_wins(
        routes in prop::collection::vec(entry(), 0..60),
        anywhere in prop::collection::vec(address(), 20),
    ) {
        let table = Routes::new(routes.clone());
        let at_edges = routes.iter().flat_map(|(address, prefix, _)| edges(*address, *prefix));
        for destination in at_edges.chain(anywhere) {
            prop_assert_eq!(table.get(destination), naive(&routes, destination), "{}", destination);
        }
    }
}

#[test]
fn a_table_of_the_internets_size_is_right() {
    // A fixed linear congruential sequence: 20,000 prefixes of 8 to 32 bits, and as many destinations in them.
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let routes: Vec<_> = (0..20_000)
        .map(|_| {
            let (address, prefix) = (random(), 8 + random() % 25);
            let hop = Hop { interface: random() % 50, gateway: None, source: None, mtu: None };
            (IpAddr::V4(address.into()), prefix as u8, Route::Hop(hop))
        })
        .collect();
    let table = Routes::new(routes.clone());
    assert_eq!(table.len(), routes.len());
    for (address, ..) in routes.iter().step_by(100) {
        assert_eq!(table.get(*address), naive(&routes, *address), "{address}");
    }
}
