//! What addresses have to do with it: a client on the server's own machine, a server bound to another address than is
//! asked, and one that answers from another.

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Running, program};

use super::{PORT, diagnosed_under, file, first_is, found_first, python, right, silent};

/// An address of the server's machine beside its first one.
fn second(first: &str) -> String {
    let (net, _) = first.rsplit_once('.').unwrap();
    format!("{net}.200")
}

fn run(bed: &Bed, machine: &str, command: &str) {
    let ended = bed.command(machine, "sh").args(["-c", command]).output().unwrap();
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// The diagnoses of both ends while a client asks one of two addresses of a server that is bound to any.
fn asked(second_address: bool) -> (Value, Value) {
    let bed = Bed::new("addresses", &LinkSpec::with_queues(1));
    let target = bed.target(PORT);
    let (first, _) = target.split_once(':').unwrap();
    let other = second(first);
    run(&bed, "server", &format!("ip address add {other}/32 dev eth0"));
    let server = python(&bed, &["0", "0", "1"]);
    let at = if second_address { format!("{other}:{PORT}") } else { target.clone() };
    let load = bed.start("client", program(), &["load", "echo", &at, "--rate", "500", "-d", "20s"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let client = bed.start("client", program(), &["diagnose", "-d", "2s", "--json"]);
    let ended = bed.diagnose(&[&PORT.to_string(), "-d", "2s", "--json"]);
    let client = client.finish();
    for one in [load, server] {
        one.signal(Signal::TERM);
        drop(one);
    }
    bed.down();
    (udpath_rig::json(&ended.out), udpath_rig::json(&client.out))
}

#[test]
fn answers_from_another_address_are_named_at_both_ends() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let cause = "answers from another address";
    found_first(cause, || {
        let (server, client) = asked(true);
        let wrong = first_is(&server, Some("answer-from-other-address"));
        let wrong = wrong.or_else(|| first_is(&client, Some("no-listener")));
        if wrong.is_none() {
            let found = &client["findings"][0];
            let cause = found["cause"].as_str().unwrap();
            assert!(cause.contains("answers from another than was asked"), "{found:#}");
            assert!(!format!("{}", found["remedies"]).contains("scan"), "{found:#}");
        }
        wrong
    });
    silent(cause, || {
        let (server, client) = asked(false);
        first_is(&server, None).or_else(|| first_is(&client, None))
    });
}

/// `sleeps.py`, ready, bound to this address.
fn sleeps(bed: &Bed, bound: &str, seconds: &str) -> Running {
    let arguments = [&*file("sleeps.py"), bound, &PORT.to_string(), seconds];
    let mut server = bed.start("server", "python3", &arguments);
    server.says("ready");
    server
}

/// The diagnosis of a server whose client is on its machine and asks this address.
fn on_one_machine(bound: &str, asked: &str) -> Value {
    let bed = Bed::new("local", &LinkSpec::with_queues(1));
    let server = sleeps(&bed, bound, "0");
    let target = format!("{asked}:{PORT}");
    diagnosed_under(bed, server, "server", &["load", "echo", &target, "--rate", "2k", "-d", "20s"])
}

#[test]
fn a_client_on_the_same_machine_does_not_count() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let wrong = right("the rate of a server whose client is on its machine", || {
        let json = on_one_machine("127.0.0.1", "127.0.0.1");
        let rate = json["capacity"]["carried"]["rate"].as_f64();
        // A generator that waits for a CPU sends fewer.
        (!rate.is_some_and(|rate| (1_500.0..2_200.0).contains(&rate))).then(|| format!("{json:#}"))
    });
    assert_eq!(wrong, None);
}

#[test]
fn a_server_at_another_address_is_named_with_it() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let json = on_one_machine("127.0.0.2", "127.0.0.1");
    let found = &json["findings"][0];
    assert_eq!(found["id"], "no-listener", "{json:#}");
    let cause = found["cause"].as_str().unwrap();
    assert!(cause.contains(&format!("bound to 127.0.0.2:{PORT} alone")), "{cause}");
    assert!(json["capacity"].is_null(), "nothing was served: {}", json["capacity"]);
}

/// What readers cost does not limit them if they sleep for each request. Their command is whole, on a line of its own.
#[test]
fn readers_that_sleep_are_promised_no_rate() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let wrong = right("a server that sleeps", || {
        let bed = Bed::new("sleeps", &LinkSpec::with_queues(1));
        let server = sleeps(&bed, "0.0.0.0", "0.002");
        let load = bed.load(&["echo", &bed.target(PORT), "--flows", "16", "--rate", "4k", "-d", "20s"]);
        let ended = bed.diagnose(&[&PORT.to_string(), "-d", "4s"]);
        for one in [load, server] {
            one.signal(Signal::TERM);
            drop(one);
        }
        bed.down();
        let whole = format!("sleeps.py 0.0.0.0 {PORT} 0.002");
        let command = ended.out.lines().find(|line| line.contains("udpath multiply -n "));
        let right = ended.out.contains("[reader-slow]")
            && !ended.out.contains("to expect)")
            && command.is_some_and(|line| line.ends_with(&whole));
        (!right).then_some(ended.out)
    });
    assert_eq!(wrong, None);
}
