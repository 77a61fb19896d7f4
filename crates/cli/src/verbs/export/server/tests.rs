use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;

use super::*;

/// Longest wait for anything that must come.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The limit of a connection's time here.
const SHORT: Duration = Duration::from_secs(2);

/// A server whose readings start when the test allows them, and the number of readings.
struct Bed<'s> {
    address: SocketAddr,
    /// Signals that a reading has started.
    begun: Receiver<()>,
    /// Allows one reading to finish.
    go: Sender<()>,
    stop: Stop<'s>,
    server: ScopedJoinHandle<'s, usize>,
}

/// Stops the server however the test ends: a scope waits for it.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'s> Bed<'s> {
    /// The body of an answer is `length` bytes long.
    fn new<'e>(scope: &'s std::thread::Scope<'s, 'e>, stop: &'s AtomicBool, length: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, begun) = channel();
        let (go, let_go) = channel();
        let server = scope.spawn(move || {
            let looks = Cell::new(0);
            let mut look = || -> Result<Format<'_>, String> {
                looks.set(looks.get() + 1);
                tell.send(()).map_err(|error| error.to_string())?;
                let_go.recv_timeout(TIMEOUT).map_err(|error| error.to_string())?;
                let number = looks.get();
                Ok(Box::new(move |_| Ok(format!("{number}{}", "0".repeat(length - 1)))))
            };
            serve(&listener, stop, SHORT, &mut look).unwrap();
            looks.get()
        });
        Self { address, begun, go, stop: Stop(stop), server }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client
    }

    fn asked(&self) -> TcpStream {
        let mut client = self.client();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        client
    }

    /// The number of readings, after the server has ended.
    fn end(self) -> usize {
        drop(self.stop);
        self.server.join().unwrap()
    }
}

/// Status and body.
fn answer(client: TcpStream) -> (String, String) {
    answer_or_reset(client).expect("an answer")
}

/// Status and body; an error if the connection was reset before the whole answer arrived.
fn answer_or_reset(mut client: TcpStream) -> io::Result<(String, String)> {
    let mut text = String::new();
    client.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    Ok((head.lines().next().unwrap().to_owned(), body.to_owned()))
}

#[test]
fn scrapes_that_come_during_a_look_share_the_next_one() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bed = Bed::new(scope, &stop, 1);
        let first = bed.asked();
        bed.begun.recv_timeout(TIMEOUT).unwrap();
        // While the server reads, these wait in the kernel.
        let others: Vec<TcpStream> = (0..30).map(|_| bed.asked()).collect();
        bed.go.send(()).unwrap();
        // On a busy machine, the first reading may be too old for them by now; then there is one more.
        bed.go.send(()).unwrap();
        assert_eq!(answer(first), ("HTTP/1.1 200 OK".into(), "1".into()));
        let mut bodies: Vec<String> = others.into_iter().map(|client| answer(client).1).collect();
        bodies.dedup();
        assert_eq!(bodies.len(), 1, "{bodies:?}");
        let looks = bed.end();
        assert!(looks <= 2, "{looks} looks for 31 scrapes");
    });
}

#[test]
fn idle_clients_do_not_block_others_and_the_oldest_is_closed_first() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bed = Bed::new(scope, &stop, 1);
        let mut idle: Vec<TcpStream> = (0..3 * CONNECTIONS).map(|_| bed.client()).collect();
        bed.go.send(()).unwrap();
        assert_eq!(answer(bed.asked()).0, "HTTP/1.1 200 OK");
        // The first ones were closed without an answer.
        let mut rest = Vec::new();
        let _ = idle[0].read_to_end(&mut rest);
        assert!(rest.is_empty());
        bed.end();
    });
}

#[test]
fn slow_clients_get_their_answer_before_they_are_closed() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bed = Bed::new(scope, &stop, 1);
        let began = Instant::now();
        let mut slow = bed.client();
        // A byte from time to time: a limit on the gap between two bytes would never expire.
        let mut sent = 0_u32;
        while slow.write_all(b"x").is_ok() {
            sent += 1;
            assert!(began.elapsed() < SHORT + TIMEOUT, "still open after {sent} bytes");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
        assert_eq!(bed.end(), 0);
    });
}

#[test]
fn an_answer_under_way_at_the_end_is_written_whole_and_idle_clients_do_not_delay_it() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More than the buffers of both ends can hold.
        let length = 16 << 20;
        let bed = Bed::new(scope, &stop, length);
        let idle = bed.client();
        let client = bed.asked();
        bed.begun.recv_timeout(TIMEOUT).unwrap();
        stop.store(true, Ordering::Relaxed);
        bed.go.send(()).unwrap();
        let reader = scope.spawn(|| answer(client));
        let (status, body) = reader.join().unwrap();
        assert_eq!((status.as_str(), body.len()), ("HTTP/1.1 200 OK", length));
        assert_eq!(bed.end(), 1);
        drop(idle);
    });
}

/// Clients that send a request and do not read occupy all places, until a new client needs one.
#[test]
fn clients_that_do_not_read_make_room_in_the_end() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bed = Bed::new(scope, &stop, 16 << 20);
        for _ in 0..4 * CONNECTIONS {
            bed.go.send(()).unwrap();
        }
        let stuck: Vec<TcpStream> = (0..CONNECTIONS).map(|_| bed.asked()).collect();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match answer_or_reset(bed.asked()) {
                Ok((status, body)) if status == "HTTP/1.1 200 OK" => {
                    assert_eq!(body.len(), 16 << 20);
                    break;
                }
                Ok((status, _)) => assert_eq!(status, "HTTP/1.1 503 Service Unavailable"),
                // Rejected before its request arrived: the request reaches a closed socket.
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
            }
            assert!(Instant::now() < deadline, "never any room");
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(stuck);
        bed.end();
    });
}

#[test]
fn invalid_requests_are_answered_even_with_trailing_data() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bed = Bed::new(scope, &stop, 1);
        for (request, status) in [
            (format!("POST /metrics HTTP/1.1\r\n\r\n{}", "x".repeat(4000)), "400 Bad Request"),
            ("GET / HTTP/1.1\r\n\r\n".into(), "404 Not Found"),
            (format!("GET /{}", "x".repeat(9000)), "431 Request Header Fields Too Large"),
        ] {
            let mut client = bed.client();
            client.write_all(request.as_bytes()).unwrap();
            assert_eq!(answer(client).0, format!("HTTP/1.1 {status}"));
        }
        assert_eq!(bed.end(), 0);
    });
}
