//! What holds for every run.

use proptest::prelude::*;
use udpath_steer::CpuSet;

use super::*;
use crate::description::Times;

const WARM_UP: Time = 2 * MILLISECOND;
const WINDOW: Time = 8 * MILLISECOND;

/// Machines and loads of all kinds, small enough for some milliseconds of a test.
fn descriptions() -> impl Strategy<Value = Description> {
    let machine = (
        1..=6_usize,
        1..=2_usize,
        1..=2_usize,
        prop::sample::select(vec![(2, 35), (4, 6), (4, 10), (4, 12), (5, 10), (6, 18)]),
    );
    let path = (1..=6_usize, any::<bool>(), any::<bool>(), prop::sample::select(Io::ALL.to_vec()));
    let service = (1..=4_usize, prop::sample::select(vec![1, 8]), any::<bool>(), 0..2000_u32);
    let load = (1..=64_usize, prop::option::of(1..=200_usize), any::<bool>(), any::<bool>());
    (machine, path, service, load).prop_map(|(machine, path, service, load)| {
        let (cores, threads_per_core, nodes, (major, minor)) = machine;
        let (queues, xps, rps, io) = path;
        let (workers, batch, pin, service_ns) = service;
        let (flows, inflight, veth, replies) = load;
        let kernel = Kernel::new(major, minor);
        let cpus = cores * threads_per_core;
        let io = if kernel.has_reuseport() && (io != Io::Percpu || kernel.has_selection()) {
            io
        } else {
            Io::Shared
        };
        let link = if veth && inflight.is_some() { Link::Veth } else { Link::Card };
        Description {
            cores,
            threads_per_core,
            nodes: if cores.is_multiple_of(nodes) { nodes } else { 1 },
            kernel,
            link,
            queues: queues.min(cpus),
            ring: 64,
            xps,
            rps: if rps { vec![CpuSet::first_n(cpus as u32)] } else { Vec::new() },
            io,
            workers,
            batch,
            pin: pin || io == Io::Percpu,
            service_ns: service_ns.into(),
            receive_buffer: 60_000,
            replies: replies || inflight.is_some(),
            flows,
            inflight: inflight.unwrap_or(0),
            rate: if inflight.is_none() { 2e6 } else { 0.0 },
            arrivals: if pin { Times::Constant } else { Times::Exponential },
            ..Description::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Nothing is lost but what is counted, and nothing is made.
    #[test]
    fn offered_is_completed_lost_or_inside(description in descriptions(), seed in 0..1000_u64) {
        prop_assert_eq!(description.check(), Ok(()));
        let costs = Costs::default();
        let mut path = Path::new(&description, &costs, seed);
        path.run(WARM_UP, WINDOW);
        let counts = path.counts;
        let lost = counts.ring + counts.backlog + counts.socket;
        prop_assert_eq!(counts.offered, counts.completed + lost + path.inside() as u64, "{:?}", description);
        // A flood may leave readers no time at all where softirqs run at every interrupt, before 4.9; a closed loop
        // never does.
        let livelock = description.inflight == 0 && description.kernel < Kernel::new(4, 9);
        prop_assert!(counts.completed > 0 || livelock, "nothing passes: {:?} {:?}", counts, description);
    }

    /// A run depends on its arguments alone.
    #[test]
    fn a_seed_repeats_a_run(description in descriptions(), seed in 0..1000_u64) {
        let costs = Costs::default();
        let run = || Path::new(&description, &costs, seed).run(WARM_UP, WINDOW);
        prop_assert_eq!(run(), run());
    }

    /// No CPU works more than all the time.
    #[test]
    fn time_is_spent_once(description in descriptions()) {
        let measured = Path::new(&description, &Costs::default(), 1).run(WARM_UP, WINDOW);
        for cpu in &measured.cpus {
            prop_assert!(cpu.softirq + cpu.thread <= WINDOW + MICROSECOND, "{:?} {:?}", cpu, description);
            prop_assert!(cpu.spinning <= WINDOW + MILLISECOND);
        }
    }
}

fn tps(description: &Description, costs: &Costs) -> f64 {
    let measured = Path::new(description, costs, 1).run(10 * MILLISECOND, 40 * MILLISECOND);
    measured.counts.completed as f64 / measured.seconds
}

/// A server with a worker, a socket and a queue for each CPU, as many flows to each, and nothing shared.
fn apart(cores: usize) -> Description {
    Description {
        cores,
        queues: cores,
        workers: cores,
        io: Io::Percpu,
        flows: 512,
        inflight: 64 * cores,
        ..Description::default()
    }
}

#[test]
fn more_cpus_are_never_slower_where_nothing_is_shared() {
    let costs = Costs::default();
    let rates: Vec<f64> = [1, 2, 4, 8, 16].map(|cores| tps(&apart(cores), &costs)).into();
    assert!(rates.windows(2).all(|pair| pair[1] > 1.5 * pair[0]), "{rates:?}");
}

#[test]
fn dearer_work_is_never_faster() {
    let base = Costs::default();
    let description = apart(4);
    let before = tps(&description, &base);
    for name in
        ["device_receive", "protocol_receive", "enqueue", "call", "read", "service", "send", "device_send"]
    {
        let mut costs = base.clone();
        costs.terms =
            costs.terms.map(|term, value| if term.name == name { value * 2.0 + 50.0 } else { value });
        let after = tps(&description, &costs);
        assert!(after < before, "{name}: {before} became {after}");
    }
}

#[test]
fn spreading_softirqs_over_a_shared_socket_starves_its_readers() {
    // The fall of the ladder, on eight CPUs: half of them receive, then all.
    let half = Description {
        cores: 8,
        kernel: Kernel::new(4, 6),
        queues: 8,
        irqs: CpuSet::first_n(4),
        io: Io::Shared,
        workers: 8,
        pin: false,
        inflight: 0,
        rate: 8e6,
        flows: 1024,
        ..Description::default()
    };
    let costs = Costs::default();
    let all = Description { irqs: CpuSet::new(), ..half.clone() };
    let split = Description { io: Io::Reuseport, ..all.clone() };
    let [half, all, split] = [&half, &all, &split].map(|description| tps(description, &costs));
    assert!(all < half * 0.7 && split > 3.0 * all, "{half} {all} {split}");
}

#[test]
fn later_kernels_keep_readers_alive_under_a_flood() {
    let flood = |minor| Description {
        cores: 1,
        kernel: Kernel::new(4, minor),
        io: Io::Shared,
        inflight: 0,
        rate: 4e6,
        replies: false,
        ..Description::default()
    };
    let costs = Costs::default();
    let [inline, deferred] = [flood(8), flood(9)].map(|description| tps(&description, &costs));
    assert!(deferred > 2.0 * inline, "{inline} {deferred}");
}

#[test]
fn readers_of_one_socket_lose_nothing() {
    let description = Description {
        cores: 2,
        link: Link::Veth,
        queues: 2,
        ring: 256,
        io: Io::Shared,
        workers: 2,
        receive_buffer: 2_359_296,
        inflight: 256,
        ..Description::default()
    };
    for kernel in [Kernel::new(4, 9), Kernel::new(4, 12), Kernel::new(5, 10), Kernel::new(6, 18)] {
        let description = Description { kernel, ..description.clone() };
        let costs = Costs::default();
        let mut path = Path::new(&description, &costs, 1);
        path.run(WARM_UP, WINDOW);
        assert_eq!(path.inside(), 256, "{kernel}");
    }
}
