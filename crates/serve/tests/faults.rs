//! What goes wrong is counted by its reason, and the worker goes on.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use support::{Echo, Gate, client, config, payload, receive, stop, target, wait_until};
use udpath_serve::{
    Config, Deferred, DropReason, Io, Outcome, Reply, Request, SendError, Server, Service, WorkerId,
};

fn combinations() -> impl Iterator<Item = (Io, Config)> {
    Io::KERNEL.into_iter().flat_map(|io| {
        [1, 32].into_iter().flat_map(move |batch| {
            ["127.0.0.1:0", "[::]:0"].map(|bind| (io, Config { batch, ..config(io, bind) }))
        })
    })
}

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
    for (io, mut config) in combinations() {
        config.workers = Some(1);
        let made = Arc::new(AtomicUsize::new(0));
        let server = Server::start(&config, {
            let made = Arc::clone(&made);
            move |_| {
                made.fetch_add(1, Relaxed);
                Fragile { seen: 0 }
            }
        })
        .unwrap();
        let client = client(target(&server, 0));
        for (text, answer) in
            [("a", Some(1)), ("b", Some(2)), ("boom", None), ("c", Some(1)), ("boom", None), ("d", Some(1))]
        {
            client.send(text.as_bytes()).unwrap();
            if let Some(answer) = answer {
                assert_eq!(receive(&client), [answer], "{io} {text}");
            }
        }
        let status = stop(server);
        assert_eq!(made.load(Relaxed), 3);
        assert_eq!((status.total.received, status.total.answered), (6, 4));
        assert_eq!(status.total.dropped.by(DropReason::Panicked), 2);
    }
}

#[test]
fn a_panic_within_a_burst_spares_its_neighbours() {
    /// Echoes behind a gate, and panics on "boom".
    struct GatedFragile(Gate);
    impl Service for GatedFragile {
        fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
            self.0.pass();
            assert_ne!(request.payload(), b"boom", "expected by the test");
            reply.write(request.payload())
        }
    }
    let gate = Gate::default();
    let held = gate.clone();
    let one = Config { workers: Some(1), batch: 32, ..config(Io::Shared, "127.0.0.1:0") };
    let server = Server::start(&one, move |_| GatedFragile(held.clone())).unwrap();
    let client = client(target(&server, 0));
    client.send(b"first").unwrap();
    gate.holds(1);
    let burst = ["a", "boom", "b", "boom", "boom", "c"];
    burst.iter().for_each(|text| assert!(client.send(text.as_bytes()).is_ok()));
    gate.open();
    for expected in ["first", "a", "b", "c"] {
        assert_eq!(receive(&client), expected.as_bytes());
    }
    let status = stop(server);
    assert_eq!((status.total.bursts, status.total.dropped.by(DropReason::Panicked)), (2, 3));
}

#[test]
fn a_factory_that_panics_later_costs_datagrams_not_the_worker() {
    let calls = Arc::new(AtomicUsize::new(0));
    let one = Config { workers: Some(1), ..config(Io::Shared, "127.0.0.1:0") };
    let server = Server::start(&one, move |_| {
        // The second and third instance cannot be made.
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
    let error = Server::start(&config(Io::Reuseport, "127.0.0.1:0"), |worker: WorkerId| {
        assert!(worker.index() == 0, "expected by the test");
        Echo
    });
    assert!(error.unwrap_err().to_string().contains("ended by itself"));
}

/// Hands every request over, whole, to another thread.
struct Later(mpsc::Sender<(Deferred, Vec<u8>)>);

impl Service for Later {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let payload = request.payload().to_vec();
        match payload.as_slice() {
            b"without a handle" => Outcome::Defer,
            // Once a handle is out the outcome no longer matters: this reply is not sent.
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
    for (io, config) in combinations() {
        let (out, handles) = mpsc::channel();
        let server = Server::start(&config, move |_| Later(out.clone())).unwrap();
        let to = target(&server, 0);
        let client = client(to);
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
        assert_eq!(answers, [&b"answer"[..], b"both", b"panic"], "{io}");
        wait_until("all six are received", || server.status().total.received == 6);
        answered_elsewhere.join().unwrap();
        let total = stop(server).total;
        assert_eq!((total.received, total.answered, total.answered_bytes), (6, 3, 15));
        assert_eq!(total.dropped.by(DropReason::Abandoned), 2);
        assert_eq!(total.dropped.by(DropReason::Refused), 1);
        assert_eq!(total.dropped.total(), 3);
    }
}

#[test]
fn stopping_waits_for_deferred_answers() {
    let (out, handles) = mpsc::channel();
    let server = Server::start(&config(Io::Percpu, "0.0.0.0:0"), move |_| Later(out.clone())).unwrap();
    let client = client(target(&server, 0));
    client.send(b"slow").unwrap();
    let (handle, payload) = handles.recv().unwrap();
    assert_eq!(server.status().workers.len(), server.workers());
    let stopping = thread::spawn(move || stop(server));
    // The workers have ended, their ends of the channel with them; the answer still goes out.
    assert!(handles.recv().is_err());
    assert!(!stopping.is_finished());
    handle.answer(&payload).unwrap();
    assert_eq!(receive(&client), b"slow");
    assert_eq!(stopping.join().unwrap().total.answered, 1);
}

#[test]
fn replies_too_large_are_dropped_as_such() {
    struct Double;
    impl Service for Double {
        fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
            match reply.append(request.payload()) {
                Outcome::Reply => reply.append(request.payload()),
                refused => refused,
            }
        }
    }
    for (io, config) in combinations() {
        let server = Server::start(&config, |_| Double).unwrap();
        let client = client(target(&server, 0));
        client.send(&payload(40_000)).unwrap();
        client.send(b"ab").unwrap();
        assert_eq!(receive(&client), b"abab", "{io}");
        wait_until("both are counted", || server.status().total.received == 2);
        assert_eq!(stop(server).total.dropped.by(DropReason::ReplyTooLarge), 1);
    }
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
    for io in Io::KERNEL {
        for (batch, bind) in [(1, "127.0.0.1:0"), (1, "0.0.0.0:0"), (32, "127.0.0.1:0"), (32, "0.0.0.0:0")] {
            let gate = Gate::default();
            let held = gate.clone();
            let one = Config { workers: Some(1), batch, ..config(io, bind) };
            let server = Server::start(&one, move |_| support::GatedEcho(held.clone())).unwrap();
            let to = target(&server, 0);
            let client = client(to);
            client.send(b"first").unwrap();
            gate.holds(1);
            // One burst: bad at the start, in the middle, twice in a row, at the end.
            for text in ["bad", "a", "bad", "bad", "b", "c", "bad"] {
                match text {
                    "bad" => send_from_port_0(to, text.as_bytes()),
                    _ => assert!(client.send(text.as_bytes()).is_ok()),
                }
            }
            gate.open();
            for expected in ["first", "a", "b", "c"] {
                assert_eq!(receive(&client), expected.as_bytes(), "{io} {batch} {bind}");
            }
            wait_until("all are received", || server.status().total.received == 8);
            let total = stop(server).total;
            assert_eq!((total.answered, total.answered_bytes), (4, 8), "{io} {batch} {bind}");
            assert_eq!(total.dropped.by(DropReason::SendFailed), 4);
            assert_eq!(total.send_errors.by(SendError::Other), 4);
        }
    }
}
