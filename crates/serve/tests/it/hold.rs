//! A server that is held answers nothing before it is released, and then what has arrived meanwhile. Needs root.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use udpath_serve::{DropReason, Outcome, Reply, StreamService};

use crate::support::{Echo, TIMEOUT, cases, one_and_all, receive, start_with_tcp, stop, target};

/// How long a reply must not come. One that comes later than this would pass; one that comes at all is a fault.
const SILENCE: Duration = Duration::from_millis(200);

#[test]
fn nothing_is_answered_before_the_release_and_nothing_is_lost() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = crate::support::link("serve-hold", 2);
    for mut case in cases(&lab, one_and_all) {
        case.config.hold = true;
        let server = case.start(|_| Echo);
        let client = case.client(&server, 0);
        client.set_read_timeout(Some(SILENCE)).unwrap();
        client.send(b"early").unwrap();
        client.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(server.status().total.answered, 0, "{case}");
        server.release();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert_eq!(receive(&client), b"early", "{case}");
        let status = stop(server);
        assert_eq!((status.total.received, status.total.answered), (1, 1), "{case}");
    }
    lab.down().unwrap();
}

#[test]
fn a_server_that_ends_before_its_release_answers_nothing() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let lab = crate::support::link("serve-unheld", 2);
    for mut case in cases(&lab, one_and_all) {
        case.config.hold = true;
        let server = case.start(|_| Echo);
        let client = case.client(&server, 0);
        client.send(b"early").unwrap();
        case.taken(&server, 1);
        let status = stop(server);
        client.set_read_timeout(Some(SILENCE)).unwrap();
        client.recv(&mut [0; 8]).unwrap_err();
        assert_eq!((status.total.answered, status.total.dropped.by(DropReason::Starting)), (0, 1), "{case}");
    }
    lab.down().unwrap();
}

#[test]
fn connections_wait_for_the_release_too() {
    let _turn = udpath_rig::together();
    struct Stream;
    impl StreamService for Stream {
        fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
            reply.write(input)
        }
    }
    let mut config = crate::support::config(udpath_serve::Io::Shared, "127.0.0.1:0");
    config.hold = true;
    let server = start_with_tcp(&config, |_| Stream).unwrap();
    let mut stream = TcpStream::connect(target(&server, 0)).unwrap();
    stream.write_all(b"early").unwrap();
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    stream.read(&mut [0; 8]).unwrap_err();
    assert_eq!(server.status().tcp.unwrap().accepted, 0);
    server.release();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"early");
    stop(server);
}
