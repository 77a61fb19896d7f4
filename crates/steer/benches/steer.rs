//! What steering costs per packet: the Toeplitz hash by tables against its definition, and the whole decision.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use udpath_steer::Flow;
use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::rfs::{FlowTable, SockFlowTable};
use udpath_steer::rps::{Backlogs, RpsMap, SteerDecision, steer};
use udpath_steer::rss::{IndirectionTable, Rss};
use udpath_steer::toeplitz::{Fields, Input, Key, Toeplitz, Transform};

/// Flows in turn, so that no branch and no line is always the same; a power of two.
const FLOWS: u32 = 1024;

fn ipv4_flows() -> Vec<Flow> {
    let server = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 53);
    let client = |at: u32| {
        let address = Ipv4Addr::from(0x0a00_0000 | at.wrapping_mul(0x9e37_79b9) >> 8);
        SocketAddr::new(address.into(), (at.wrapping_mul(40_503) & 0xffff) as u16)
    };
    (0..FLOWS).map(|at| Flow::udp(client(at), server).expect("both are IPv4")).collect()
}

fn ipv6_flows() -> Vec<Flow> {
    let server = SocketAddr::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), 53);
    let client = |at: u32| {
        let bits = 0x2001_0db8_u128 << 96 | u128::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        SocketAddr::new(Ipv6Addr::from(bits).into(), (at.wrapping_mul(40_503) & 0xffff) as u16)
    };
    (0..FLOWS).map(|at| Flow::udp(client(at), server).expect("both are IPv6")).collect()
}

/// Backlogs that are always empty.
struct Idle;

impl Backlogs for Idle {
    fn head(&self, _: u16) -> u32 {
        0
    }

    fn is_online(&self, cpu: u16) -> bool {
        cpu < 16
    }
}

fn toeplitz(c: &mut Criterion) {
    let (key, fields, transform) = (Key::microsoft(), Fields::AddressesPorts, Transform::None);
    let table = Toeplitz::new(key.clone());
    for (family, flows) in [("ipv4", ipv4_flows()), ("ipv6", ipv6_flows())] {
        let mut group = c.benchmark_group(format!("toeplitz {family}"));
        group.throughput(Throughput::Elements(FLOWS.into()));
        group.bench_function("table", |b| {
            b.iter(|| flows.iter().fold(0, |sum, flow| sum ^ table.hash(black_box(flow), fields, transform)));
        });
        group.bench_function("definition", |b| {
            let hash = |flow| key.hash_bitwise(&Input::new(black_box(flow), fields, transform));
            b.iter(|| flows.iter().fold(0, |sum, flow| sum ^ hash(flow)));
        });
        group.finish();
    }
}

fn decision(c: &mut Criterion) {
    let flows = ipv4_flows();
    let rss = Rss::new(Key::microsoft());
    let table = IndirectionTable::spread(128, 16).expect("a power of two");
    let map = RpsMap::new(&"0-15".parse().expect("a list"), None);
    let mut group = c.benchmark_group("decision");
    group.throughput(Throughput::Elements(FLOWS.into()));
    group.bench_function("hash, queue", |b| {
        b.iter(|| flows.iter().fold(0, |sum, flow| sum ^ table.queue(rss.hash(black_box(flow)))));
    });
    group.bench_function("hash, RPS", |b| {
        let decide = |flow| steer(rss.hash(black_box(flow)), None, map.as_ref(), &Idle);
        b.iter(|| flows.iter().filter_map(|flow| decide(flow).cpu()).map(u32::from).sum::<u32>());
    });
    group.bench_function("hash, RFS, RPS, flow limit", |b| {
        let (wanted, mut present) = (SockFlowTable::new(32_768, 16), FlowTable::new(2048));
        let mut limit = FlowLimit::new(FlowLimit::DEFAULT_BUCKETS);
        // Every second flow is read by somebody.
        flows.iter().step_by(2).for_each(|flow| wanted.record(rss.hash(flow), flow.source_port % 16));
        let mut tail = 0_u32;
        b.iter(|| {
            let mut sum = 0;
            for flow in &flows {
                let hash = rss.hash(black_box(flow));
                let decision = steer(hash, Some((&mut present, &wanted)), map.as_ref(), &Idle);
                // More than half full: the dearer of the two cases.
                if !limit.drops(hash, 600, 1000)
                    && let SteerDecision::Rfs { slot, .. } = decision
                {
                    tail = tail.wrapping_add(1);
                    present.queued(slot, tail & 1);
                }
                sum += u32::from(decision.cpu().unwrap_or(0));
            }
            sum
        });
    });
    group.finish();
}

criterion_group!(benches, toeplitz, decision);
criterion_main!(benches);
