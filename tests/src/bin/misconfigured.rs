//! A misconfigured UDP echo server with one socket, for a profile to diagnose. It runs until it is killed.
//!
//! ```text
//! misconfigured ADDR:PORT busy 20      twenty threads that poll the socket and never sleep
//! misconfigured ADDR:PORT slow 2       two threads that sleep, and spend a long time on each request
//! ```
//! stderr: `ready`, or an error.

#![allow(clippy::disallowed_methods, reason = "a program of tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of tests")]

use std::hint::black_box;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::ExitCode;

/// Work per request: about 50 us of CPU time.
const ROUNDS: u32 = 50_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("misconfigured: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &[String]) -> Result<(), String> {
    let [bind, how, threads] = arguments else {
        return Err("give ADDR:PORT, busy or slow, and THREADS".into());
    };
    let threads: usize = threads.parse().map_err(|error| format!("{threads} threads: {error}"))?;
    let socket = UdpSocket::bind(bind).map_err(|error| format!("bind {bind}: {error}"))?;
    let serve = match how.as_str() {
        "busy" => {
            socket.set_nonblocking(true).map_err(|error| format!("set nonblocking: {error}"))?;
            echo
        }
        "slow" => echo_slowly,
        other => return Err(format!("'{other}' is neither busy nor slow")),
    };
    eprintln!("ready");
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| serve(&socket)))));
    Ok(())
}

fn echo(socket: &UdpSocket) {
    each(socket, |_| ());
}

fn echo_slowly(socket: &UdpSocket) {
    each(socket, |request| _ = black_box(digest(request)));
}

/// Sends every datagram back after some work.
fn each(socket: &UdpSocket, work: impl Fn(&[u8])) {
    let mut bytes = [0; 2048];
    loop {
        match socket.recv_from(&mut bytes) {
            Ok((length, peer)) => {
                work(&bytes[..length]);
                // A peer that has exited accepts no reply.
                let _ = socket.send_to(&bytes[..length], peer);
            }
            // Errors left behind by such a peer do not end the server either.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
            Err(error) => return eprintln!("misconfigured: receive: {error}"),
        }
    }
}

/// All the work of a slow service, in a function with a name.
#[inline(never)]
fn digest(request: &[u8]) -> u64 {
    let mut sum = 1;
    for byte in request {
        sum = (sum << 7) ^ u64::from(*byte);
    }
    let mut round = 0;
    while round < ROUNDS {
        sum ^= sum << 13;
        sum ^= sum >> 7;
        sum ^= sum << 17;
        round += 1;
    }
    sum
}
