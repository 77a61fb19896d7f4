//! When a request arrived: the kernel's time stamp on kernel sockets, and the time of the burst elsewhere.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use udpath_serve::{Io, Outcome, Reply, Request, Service};

use crate::support::{Case, Echo, Gate, cases, config, link, one_and_all, receive, start, stop, wait_until};

/// Answers with the time of arrival in nanoseconds since the Unix epoch, once the gate is open.
struct Arrived(Gate);

impl Service for Arrived {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        self.0.pass();
        reply.write(&request.arrived().as_nanos().to_be_bytes())
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Times of two requests, the second of which arrived while the worker was held by the first.
#[derive(Debug)]
struct Times {
    before: Duration,
    first: Duration,
    second: Duration,
    /// When both were sent, and when the worker went on.
    sent: Duration,
    opened: Duration,
}

fn times(case: &Case<'_>, index: usize) -> Times {
    let gate = Gate::default();
    let held = gate.clone();
    let server = case.start(move |_| Arrived(held.clone()));
    let client = case.client(&server, index);
    let before = now();
    client.send(b"first").unwrap();
    gate.holds(1);
    client.send(b"second").unwrap();
    let sent = now();
    std::thread::sleep(Duration::from_millis(2));
    let opened = now();
    gate.open();
    let [first, second] = [0, 1].map(|_| {
        let nanos = u128::from_be_bytes(receive(&client).try_into().unwrap());
        Duration::from_nanos(nanos as u64)
    });
    let status = stop(server);
    assert_eq!(status.total.answered, 2, "{case}");
    Times { before, first, second, sent, opened }
}

/// With time stamps, waiting in the socket's queue does not make a request later; without them it does.
#[test]
fn a_request_arrives_when_the_kernel_receives_it() {
    udpath_lab::needs_root!();
    let lab = link("timestamps", 1);
    let all = || cases(&lab, one_and_all).into_iter();
    // The kernel begins to read the clock for packets some time after the first socket asked for it, and ends with the
    // last: this one stays.
    let mut other = config(Io::Shared, "127.0.0.1:0");
    other.timestamps = true;
    let other = start(&other, |_| Echo).unwrap();
    let mut first = all().next().unwrap();
    (first.config.workers, first.config.timestamps) = (Some(1), true);
    wait_until("the kernel stamps packets", || {
        let Times { second, sent, .. } = times(&first, 0);
        second <= sent
    });
    for mut case in all() {
        for (index, timestamps) in [(0, true), (1, true), (0, false), (1, false)] {
            if index >= case.config.binds.len() {
                continue;
            }
            (case.config.workers, case.config.timestamps) = (Some(1), timestamps);
            let times = times(&case, index);
            let what = format!("{case}, address {index}, timestamps {timestamps}: {times:?}");
            assert!(times.before <= times.first && times.first <= times.second, "{what}");
            assert!(times.second <= now(), "{what}");
            match (timestamps, case.takes_frames()) {
                // The loopback delivers within the call that sends.
                (true, false) => assert!(times.second <= times.sent, "{what}"),
                // The clock was read once the gate was open; a burst may hold both requests.
                (false, _) => assert!(times.first >= times.opened, "{what}"),
                (true, true) => {}
            }
        }
    }
    stop(other);
    lab.down().unwrap();
}
