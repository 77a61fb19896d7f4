//! Shutdown: every queued request is answered, whichever queue holds it.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use udpath_rig::campaign;

use super::witness::{Link, count};
use super::{halt, lab, pin, serve, sockets, unnamed};

/// Requests queued when the server is signalled: fewer than a worker's backlog and a receive buffer hold.
const QUEUED: usize = 400;

/// How long other programs take the CPU time during shutdown.
const STARVED: Duration = Duration::from_millis(300);

/// Spins on a CPU until `until`.
fn spin(cpu: usize, until: Instant) {
    pin(cpu);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn cpus() -> std::ops::Range<usize> {
    0..thread::available_parallelism().unwrap().get()
}

#[test]
fn queued_requests_are_answered_before_the_end() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab("acc-drain");
    let rounds = campaign::rounds(2, 20);
    let (mut asked, mut missing) = (0, 0);
    for _ in 0..rounds {
        for arguments in [
            &["--io", "xdp"][..],
            &["--io", "xdp", "--steer"],
            &["--io", "xdp", "--steer=0", "--no-live-frames"],
            &["--io", "xdp", "--steer", "--workers", "4", "--busy-poll"],
            &["--io", "reuseport", "--rcvbuf", "1000000"],
            &["--io", "shared", "--rcvbuf", "1000000"],
        ] {
            let what = arguments.join(" ");
            let server = serve(&lab, arguments);
            let before = Link::of(&lab);
            // Each flow's receive buffer holds all of its answers.
            let sockets = sockets(&lab, 8);
            halt(&server);
            for number in 0..QUEUED {
                sockets[number % sockets.len()].send(&(number as u32).to_le_bytes()).unwrap();
            }
            // Other programs take the CPU time, so that workers finish at different moments.
            let hogs: Vec<_> =
                cpus().map(|cpu| thread::spawn(move || spin(cpu, Instant::now() + STARVED))).collect();
            // Signalled before any of it is served.
            server.signal(Signal::TERM);
            server.signal(Signal::CONT);
            let counts = end_after_signal(server);
            hogs.into_iter().for_each(|hog| hog.join().unwrap());
            let link = Link::at_rest(&lab, &before, count(&counts["total"], "answered"));
            assert_eq!(unnamed(&what, &counts, QUEUED as u64, link), 0, "{what}: {counts}");
            let mut answers = BTreeSet::new();
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
                let mut room = [0; 8];
                while let Ok(len) = socket.recv(&mut room) {
                    answers.insert(room[..len].to_vec());
                }
            }
            asked += QUEUED;
            missing += QUEUED - answers.len();
            assert_eq!(answers.len(), QUEUED, "{what}: {counts}");
            assert_eq!(count(&counts["total"], "answered"), QUEUED as u64, "{what}");
        }
    }
    campaign::record("requests queued at SIGTERM", &format!("{asked}, without an answer: {missing}"));
    lab.down().unwrap();
}

/// Waits for a server that was signalled already: a second signal would end it at once.
fn end_after_signal(server: udpath_rig::Running) -> serde_json::Value {
    let ended = server.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}
