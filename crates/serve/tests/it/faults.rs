//! Failures are counted by reason, and the worker continues, over every Io. Needs root.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use udpath_serve::{Config, Deferred, DropReason, Io, Outcome, Reply, Request, SendError, Service, WorkerId};

use crate::support::{
    Echo, Gate, GatedEcho, cases, client, config, link, one_and_all, payload, receive, start, stop, target,
    wait_until,
};

/// Panics on a payload of "boom"; counts in its answers how many requests this instance has seen.
struct Fragile {
    seen: u8,
}

impl Service for Fragile {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        self.seen += 1;
        assert_ne!(request.payload(), b"boom", "expected by the test");
        reply.write(&[self.seen])
    }
}

#[test]
fn a_panic_costs_one_datagram_and_the_instance() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-panic", 1);
    for mut case in cases(&lab, one_and_all) {
        case.config.workers = Some(1);
        let made = Arc::new(AtomicUsize::new(0));
        let server = case.start({
            let made = Arc::clone(&made);
            move |_| {
                made.fetch_add(1, Relaxed);
                Fragile { seen: 0 }
            }
        });
        let client = case.client(&server, 0);
        for (text, answer) in
            [("a", Some(1)), ("b", Some(2)), ("boom", None), ("c", Some(1)), ("boom", None), ("d", Some(1))]
        {
            client.send(text.as_bytes()).unwrap();
            if let Some(answer) = answer {
                assert_eq!(receive(&client), [answer], "{case} {text}");
            }
        }
        let status = stop(server);
        assert_eq!(made.load(Relaxed), 3);
        assert_eq!((status.total.received, status.total.answered), (6, 4));
        assert_eq!(status.total.dropped.by(DropReason::Panicked), 2);
    }
    lab.down().unwrap();
}

#[test]
fn a_panic_within_a_burst_spares_its_neighbours() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    /// Echoes behind a gate, and panics on "boom".
    struct GatedFragile(Gate);
    impl Service for GatedFragile {
        fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
            self.0.pass();
            assert_ne!(request.payload(), b"boom", "expected by the test");
            reply.write(request.payload())
        }
    }
    let lab = link("serve-spared", 1);
    for mut case in cases(&lab, one_and_all) {
        case.config.workers = Some(1);
        let gate = Gate::default();
        let held = gate.clone();
        let server = case.start(move |_| GatedFragile(held.clone()));
        let client = case.client(&server, 0);
        client.send(b"first").unwrap();
        gate.holds(1);
        let burst = ["a", "boom", "b", "boom", "boom", "c"];
        burst.iter().for_each(|text| assert!(client.send(text.as_bytes()).is_ok()));
        case.taken(&server, 7);
        gate.open();
        for expected in ["first", "a", "b", "c"] {
            assert_eq!(receive(&client), expected.as_bytes(), "{case}");
        }
        let total = stop(server).total;
        assert_eq!((total.received, total.dropped.by(DropReason::Panicked)), (7, 3), "{case}");
        if case.config.batch > 1 && !case.takes_frames() {
            assert_eq!(total.bursts, 2, "{case}");
        }
    }
    lab.down().unwrap();
}

#[test]
fn a_factory_that_panics_later_costs_datagrams_not_the_worker() {
    let _turn = udpath_rig::together();
    let calls = Arc::new(AtomicUsize::new(0));
    let one = Config { workers: Some(1), ..config(Io::Shared, "127.0.0.1:0") };
    let server = start(&one, move |_| {
        // Making the second and third instance fails.
        assert!(!(1..=2).contains(&calls.fetch_add(1, Relaxed)), "expected by the test");
        Fragile { seen: 0 }
    })
    .unwrap();
    let client = client(target(&server, 0));
    for text in ["boom", "lost", "lost too"] {
        client.send(text.as_bytes()).unwrap();
    }
    wait_until("three are dropped", || server.status().total.dropped.by(DropReason::Panicked) == 3);
    client.send(b"served").unwrap();
    assert_eq!(receive(&client), [1]);
    assert_eq!(stop(server).total.answered, 1);
}

#[test]
fn a_factory_that_panics_at_once_is_an_error() {
    let _turn = udpath_rig::together();
    let error = start(&config(Io::Reuseport, "127.0.0.1:0"), |worker: WorkerId| {
        assert!(worker.index() == 0, "expected by the test");
        Echo
    });
    assert!(error.unwrap_err().to_string().contains("ended unexpectedly"));
}

/// Passes every request to another thread.
struct Later(mpsc::Sender<(Deferred, Vec<u8>)>);

impl Service for Later {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let payload = request.payload().to_vec();
        match payload.as_slice() {
            b"without a handle" => Outcome::Defer,
            // Once a handle is taken, the outcome does not matter: this reply is not sent.
            b"both" => {
                self.0.send((request.defer(), payload)).unwrap();
                reply.write(b"not sent")
            }
            b"panic" => {
                self.0.send((request.defer(), payload)).unwrap();
                panic!("expected by the test")
            }
            _ => {
                self.0.send((request.defer(), payload)).unwrap();
                Outcome::Defer
            }
        }
    }
}

#[test]
fn deferred_requests_end_in_exactly_one_way() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-defer", 2);
    for case in cases(&lab, one_and_all) {
        let (out, handles) = mpsc::channel();
        let server = case.start(move |_| Later(out.clone()));
        let client = case.client(&server, 0);
        let answered_elsewhere = thread::spawn(move || {
            for (handle, payload) in handles.into_iter().take(5) {
                match payload.as_slice() {
                    b"drop the handle" => drop(handle),
                    b"refuse" => handle.discard(DropReason::Refused),
                    _ => handle.answer(&payload).unwrap(),
                }
            }
        });
        for text in ["answer", "drop the handle", "refuse", "both", "panic", "without a handle"] {
            client.send(text.as_bytes()).unwrap();
        }
        let mut answers = [receive(&client), receive(&client), receive(&client)];
        answers.sort();
        assert_eq!(answers, [&b"answer"[..], b"both", b"panic"], "{case}");
        wait_until("all six are received", || server.status().total.received == 6);
        answered_elsewhere.join().unwrap();
        let total = stop(server).total;
        assert_eq!((total.received, total.answered, total.answered_bytes), (6, 3, 15));
        assert_eq!(total.dropped.by(DropReason::Abandoned), 2);
        assert_eq!(total.dropped.by(DropReason::Refused), 1);
        assert_eq!(total.dropped.total(), 3);
    }
    lab.down().unwrap();
}

#[test]
fn stopping_waits_for_deferred_answers() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-waits", 2);
    for case in cases(&lab, one_and_all) {
        let (out, handles) = mpsc::channel();
        let server = case.start(move |_| Later(out.clone()));
        let client = case.client(&server, 0);
        client.send(b"slow").unwrap();
        let (handle, payload) = handles.recv().unwrap();
        assert_eq!(server.status().workers.len(), server.workers());
        let stopping = thread::spawn(move || stop(server));
        // The workers have ended and dropped their ends of the channel; the answer is still sent.
        assert!(handles.recv().is_err());
        assert!(!stopping.is_finished());
        handle.answer(&payload).unwrap();
        assert_eq!(receive(&client), b"slow", "{case}");
        assert_eq!(stopping.join().unwrap().total.answered, 1, "{case}");
    }
    lab.down().unwrap();
}

#[test]
fn replies_too_large_are_dropped_as_such() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    /// Answers with the request, repeated as often as its first byte says.
    struct Times;
    impl Service for Times {
        fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
            let mut outcome = Outcome::Reply;
            for _ in 0..request.payload()[0] {
                outcome = reply.append(request.payload());
            }
            outcome
        }
    }
    let lab = link("serve-large", 2);
    for case in cases(&lab, one_and_all) {
        let server = case.start(|_| Times);
        let client = case.client(&server, 0);
        // Requests in one frame and in fragments; replies in one frame, in fragments, and too long, one of them by one
        // byte.
        let longest = if case.target(&server, 0).is_ipv4() { 65_507 } else { 65_527 };
        let (mut received, mut refused) = (0, 0);
        for (times, len) in
            [(2, 2), (2, 1_400), (40, 1_400), (47, 1_400), (2, 32_000), (2, 40_000), (1, longest)]
        {
            let request = [&[times], &payload(len - 1)[..]].concat();
            client.send(&request).unwrap();
            received += 1;
            if usize::from(times) * len > longest {
                refused += 1;
                // Its fragments and those of the next request would not fit the socket's buffer together.
                wait_until("it is counted", || server.status().total.received == received);
                continue;
            }
            assert!(receive(&client) == request.repeat(times.into()), "{case}: {times} times {len}");
        }
        wait_until("all are counted", || server.status().total.received == 7);
        let total = stop(server).total;
        assert_eq!((total.answered, refused), (5, 2), "{case}");
        assert_eq!(total.dropped.by(DropReason::ReplyTooLarge), 2, "{case}");
    }
    lab.down().unwrap();
}

/// Sends a datagram whose source port is 0: nothing can be sent back to it.
fn send_from_port_0(to: std::net::SocketAddr, text: &[u8]) {
    let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP))
        .expect("a raw socket, which needs root");
    let len = u16::try_from(8 + text.len()).unwrap();
    // Source port 0, destination port, length, no checksum.
    let header = [0, to.port(), len, 0].map(u16::to_be_bytes).concat();
    rustix::net::sendto(&raw, &[&header, text].concat(), SendFlags::empty(), &to).unwrap();
}

#[test]
fn a_reply_the_kernel_refuses_is_counted_and_its_neighbours_are_sent() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = link("serve-refused", 1);
    let ipv4 = |own: &str| vec![vec![format!("{own}:0")], vec!["0.0.0.0:0".into()]];
    for mut case in cases(&lab, ipv4) {
        case.config.workers = Some(1);
        let gate = Gate::default();
        let held = gate.clone();
        let server = case.start(move |_| GatedEcho(held.clone()));
        let (to, client) = (case.target(&server, 0), case.client(&server, 0));
        client.send(b"first").unwrap();
        gate.holds(1);
        // One burst: bad at the start, in the middle, twice in a row, at the end.
        for text in ["bad", "a", "bad", "bad", "b", "c", "bad"] {
            match text {
                "bad" => case.at_client(|| send_from_port_0(to, text.as_bytes())),
                _ => assert!(client.send(text.as_bytes()).is_ok()),
            }
        }
        gate.open();
        for expected in ["first", "a", "b", "c"] {
            assert_eq!(receive(&client), expected.as_bytes(), "{case}");
        }
        wait_until("all are received", || server.status().total.received == 8);
        let total = stop(server).total;
        assert_eq!((total.answered, total.answered_bytes), (4, 8), "{case}");
        assert_eq!(total.dropped.by(DropReason::SendFailed), 4, "{case}");
        assert_eq!(total.send_errors.by(SendError::Other), 4, "{case}");
    }
    lab.down().unwrap();
}
