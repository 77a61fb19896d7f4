//! Several signals to one server.

use super::*;

/// Both signals are pending when it continues, and two of its threads may take them at the same moment.
#[test]
fn two_signals_in_a_row_are_one_request() {
    for (one, other) in [(Signal::TERM, Signal::INT), (Signal::HUP, Signal::TERM)] {
        let mut serve = Serve::start(&["echo", "--bind", "127.0.0.1:0", "--json"]);
        for signal in [Signal::STOP, one, other, Signal::CONT] {
            kill_process(serve.pid(), signal).unwrap();
        }
        let (code, out, err) = serve.wait();
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["schema"], "udpath.serve/1");
    }
}

/// Its stdout is a pipe that is full and that nobody reads, so that it cannot end by itself.
#[test]
fn a_third_request_ends_it_at_once() {
    let (unread, full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    let filled =
        std::iter::repeat_with(|| rustix::io::write(&full, &[0; 4096])).take_while(Result::is_ok).count();
    assert!(filled > 0);
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_udpath"));
    command.args(["serve", "echo", "--bind", "127.0.0.1:0"]).stdout(full).stderr(Stdio::piped());
    let mut serve = Serve::of(command.spawn().unwrap());
    kill_process(serve.pid(), Signal::TERM).unwrap();
    let (port, deadline) = (serve.binds[0].port(), Instant::now() + TIMEOUT);
    while UdpSocket::bind(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "its socket is open after the first request");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut line = String::new();
    for (signal, says) in [
        (Signal::INT, "udpath: stopping; a further signal ends it at once\n"),
        (Signal::TERM, "udpath: ended at once by a third signal\n"),
    ] {
        // Longer than a request's signals may be apart.
        std::thread::sleep(Duration::from_millis(1_100));
        kill_process(serve.pid(), signal).unwrap();
        line.clear();
        serve.stderr.read_line(&mut line).unwrap();
        assert_eq!(line, says);
    }
    assert_eq!(serve.child.wait().unwrap().code(), Some(128 + 15));
    drop(unread);
}
