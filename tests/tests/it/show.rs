//! `udpath show` as its users run it. Needs root for the lab.

use serde_json::Value;
use udpath_rig::{Run, client_and_server};

fn json(args: &[&str]) -> Value {
    let ended = Run::new(args).finish();
    assert_eq!(ended.code(), Some(0), "{args:?}: {}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

#[test]
fn the_way_of_another_namespace_is_shown() {
    udpath_lab::needs_root!();
    let lab = client_and_server("show", 3);
    let server = lab.machine("server").unwrap();
    let towards = server.towards("client").unwrap();
    let socket = server.run(|| std::net::UdpSocket::bind("0.0.0.0:5353")).unwrap().unwrap();
    let pid = std::process::id();
    let name = server.namespace().to_owned();
    let map = json(&["show", "--netns", &name, "--json"]);
    assert_eq!(map["schema"], "udpath.map/2");
    let interfaces = map["interfaces"].as_array().unwrap();
    let veth = interfaces.iter().find(|interface| interface["name"] == towards.name()).unwrap();
    assert_eq!((veth["driver"].as_str(), veth["rx_queues"].as_u64()), (Some("veth"), Some(3)));
    let bound = &json(&["show", "5353", "--netns", &name, "--json"])["sockets"];
    assert_eq!(bound.as_array().unwrap().len(), 1);
    assert_eq!((&bound[0]["local"], &bound[0]["pids"][0]), (&"0.0.0.0:5353".into(), &pid.into()));
    // Options are shown only for the sockets requested.
    assert_eq!(bound[0]["options"]["reuseport"], false);
    let every = &map["sockets"].as_array().unwrap()[0];
    assert_eq!(every["options"], Value::Null);
    drop(socket);
    let none = Run::new(&["show", "5353", "--netns", &name]).finish();
    assert_eq!(none.code(), Some(2));
    assert!(none.err.contains("no UDP socket is bound to port 5353"), "{}", none.err);
    lab.down().unwrap();
}

#[test]
fn counts_of_an_interval_are_of_that_interval() {
    let map = json(&["show", "lo", "-i", "0.2", "--json"]);
    assert!((0.2..5.0).contains(&map["seconds"].as_f64().unwrap()), "{}", map["seconds"]);
    let all = json(&["show", "--snapshot"]);
    assert_eq!(all["schema"], "udpath.snapshot/2");
    assert!(all["interfaces"].as_array().unwrap().iter().any(|interface| interface["name"] == "lo"));
}

#[test]
fn invalid_input_gives_one_sentence() {
    for (args, code, told) in [
        (&["show", "no-such0"][..], 2, "there is no interface 'no-such0'; there are lo"),
        (&["show", "pid:4194304"], 2, "process 4194304 does not exist"),
        (&["show", "pid:x"], 2, "invalid PID `x`: expected pid:N"),
        (&["show", "-i", "0"], 2, "expected 10ms to 5m"),
        (&["show", "--sysroot", "/no/such/folder"], 2, "contains neither proc nor sys"),
        (&["show", "--sysroot", "/", "-i", "1"], 2, "--interval needs two snapshots"),
        (&["show", "--netns", "no-such-one"], 2, "there is no network namespace no-such-one"),
        (&["predict", "192.0.2.1:1", "192.0.2.2:2", "--interface", "no-such0"], 2, "there is no interface"),
    ] {
        let ended = Run::new(args).finish();
        assert_eq!(ended.code(), Some(code), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
        assert_eq!(ended.err.trim_end().lines().count(), 1, "{}", ended.err);
        assert_eq!(ended.out, "");
    }
}
