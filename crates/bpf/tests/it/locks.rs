//! Waits for locks, which a busy CPU samples, against the kernel's own count of them. Needs root.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use udpath_bpf::trace::{Loader, LockWaits, Tracer, count_runs};

/// How long two threads contend. With 64 of the waits followed in 64 ticks, of 4 ms at most, some 500 on each CPU.
const CONTENTION: Duration = Duration::from_secs(2);
/// Most such times: other programs may use most of both CPUs, and threads that do not run at once do not contend.
/// Beside two builds ten of them gave 34,273 waits; a quiet machine needs one or two.
const TIMES: usize = 30;
/// Fewest waits for the test to mean anything: ten times as many as two CPUs follow at 1000 Hz.
const FEWEST: u64 = 40_000;
/// How far the estimate may be off: six standard deviations of an estimate from a thousand that are chosen at random.
const OFF: f64 = 0.2;

/// Threads that take the lock of one socket's queue again and again.
fn contend(threads: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = socket.recv(&mut [0; 1]);
                }
            });
        }
        thread::sleep(CONTENTION);
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn sampled_waits_agree_with_the_kernels_count() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let counted = count_runs().unwrap();
    let mut waits = LockWaits::attach(&mut Loader::default()).unwrap();
    let runs_of =
        |waits: &LockWaits| waits.runs().into_iter().find(|run| run.at == "contention_begin").unwrap().runs;
    for _ in 0..TIMES {
        contend(2 * thread::available_parallelism().unwrap().get());
        if runs_of(&waits) >= FEWEST {
            break;
        }
    }
    waits.detach();
    let runs = runs_of(&waits);
    drop(counted);
    let counts = waits.read().unwrap();
    let estimate: u64 = counts.waits.iter().map(|wait| wait.waits).sum();
    println!("{runs} waits by the kernel's count, {estimate} by estimate");
    assert!(runs >= FEWEST, "the threads waited {runs} times: too few to choose from");
    let off = (estimate as f64 / runs as f64 - 1.0).abs();
    assert!(off < OFF, "{estimate} waits instead of {runs}; {counts:?}");
}
