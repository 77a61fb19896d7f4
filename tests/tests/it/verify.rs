//! `udpath predict` of many flows, and verified with real packets: in a lab, with a real server. Needs root.

use std::fs;
use std::net::{SocketAddr, UdpSocket};

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Ended, Run, Running, TIMEOUT, client_and_server, one_sentence, program};

const PORT: u16 = 7053;
/// Packets of each flow, and number of flows.
const PACKETS: usize = 25;
const FLOWS: usize = 8;

fn start(lab: &Lab, machine: &str, arguments: &[&str]) -> Running {
    let mut inside = lab.machine(machine).unwrap().command(program());
    inside.args(arguments);
    Run::of(inside, &arguments.join(" ")).start_with(|command| lab.spawn(command))
}

fn set_rps(lab: &Lab, queue: u32, mask: &str) {
    let path = format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus");
    lab.machine("server").unwrap().run(|| fs::write(&path, mask)).unwrap().unwrap();
}

fn targets(lab: &Lab) -> [SocketAddr; 2] {
    let server = lab.address_of("server", "client").unwrap();
    [SocketAddr::new(server.ipv4.into(), PORT), SocketAddr::new(server.ipv6.into(), PORT)]
}

/// Runs a verification while flows send requests to the server, each answered before the next; returns the flows'
/// sources.
fn verified(lab: &Lab, arguments: &[&str], targets: &[SocketAddr]) -> (Ended, Vec<SocketAddr>) {
    let name = lab.machine("server").unwrap().namespace().to_owned();
    let predict = ["predict", "--interface", "eth0", "--netns", &name, "--verify=60"];
    let mut predict = Run::new(&[&predict, arguments].concat()).within(TIMEOUT * 3).start();
    predict.says("watching what eth0 receives");
    let mut sources = Vec::new();
    for (target, _) in targets.iter().flat_map(|target| (0..FLOWS).map(move |flow| (target, flow))) {
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind(any)).unwrap().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.connect(target).unwrap();
        for _ in 0..PACKETS {
            socket.send(b"which way").unwrap();
            socket.recv(&mut [0; 64]).expect("the server answers");
        }
        sources.push(socket.local_addr().unwrap());
    }
    predict.signal(Signal::TERM);
    (predict.finish(), sources)
}

fn serve(lab: &Lab) -> Running {
    let bind = targets(lab).map(|target| target.to_string());
    let mut server =
        start(lab, "server", &["serve", "echo", "--io", "shared", "--bind", &bind[0], "--bind", &bind[1]]);
    server.says("ready io=shared");
    server
}

#[test]
fn packets_take_the_predicted_path_on_a_link() {
    udpath_lab::needs_root!();
    let lab = client_and_server("verify", 1);
    let server = serve(&lab);
    let to = format!(":{PORT}");
    // RPS steers everything to CPU 1, whichever CPU sent it.
    set_rps(&lab, 0, "2");
    let all = (FLOWS * PACKETS * 2) as u64;
    let (ended, sources) = verified(&lab, &["--to", &to, "--json"], &targets(&lab));
    assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.err);
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    let verification = &said["verification"];
    assert_eq!((&verification["packets"], &verification["flows"]), (&all.into(), &sources.len().into()));
    assert_eq!((&verification["cpu"]["right"], &verification["cpu"]["wrong"]), (&all.into(), &0.into()));
    // A veth records no queue, and the packet still carries the sender's.
    assert_eq!(
        (&verification["queue"]["not_observed"], &verification["queue"]["wrong"]),
        (&all.into(), &0.into())
    );
    assert_eq!(verification["taken_by"]["places"][0]["place"], 1, "{verification}");
    // Two sockets, one per family, both the server's.
    let receivers = said["receivers"].as_array().unwrap();
    assert_eq!(receivers.len(), 2, "{said}");
    for receiver in receivers {
        assert_eq!(receiver["processes"][0]["pid"], server.pid(), "{receiver}");
        assert!(!receiver["processes"][0]["threads"].as_array().unwrap().is_empty(), "{receiver}");
    }
    let shares = said["spread"]["socket"]["places"].as_array().unwrap();
    assert!(shares.iter().all(|share| share["packets"] == all / 2), "{shares:?}");

    // As text, and only for the given flows.
    let [v4, _] = targets(&lab);
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("flows");
    fs::write(&list, format!("10.0.0.1:1 {v4} 5\n")).unwrap();
    let (ended, _) = verified(&lab, &["--flows", list.to_str().unwrap()], &[v4]);
    assert_eq!(ended.code(), Some(3), "{}", ended.out);
    assert!(ended.err.contains("unverified: eth0 received none of these datagrams"), "{}", ended.err);
    let (ended, _) = verified(&lab, &["--to", &to], &[v4]);
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let verdict = ended.out.lines().last().unwrap();
    assert!(verdict.starts_with("verified on 200 packets of 8 flows: hash not compared ("), "{verdict}");
    assert!(
        verdict.ends_with("queue not compared (the driver does not report it), CPU right in 100 %"),
        "{verdict}"
    );

    // A model that does not match the machine is detected, with a flow that differs.
    let (ended, sources) = verified(&lab, &["--to", &to, "--queues", "1", "--rps-cpus", "0"], &[v4]);
    assert_eq!(ended.code(), Some(1), "{}{}", ended.out, ended.err);
    let said = ended.err.lines().last().unwrap();
    one_sentence("a wrong model", &format!("{said}\n"));
    assert!(
        said.contains("200 of 200 packets differ") && said.contains("CPU predicted 0, observed 1"),
        "{said}"
    );
    assert!(sources.iter().any(|source| said.contains(&format!(":{} -> {v4}", source.port()))), "{said}");
    drop(server);
    lab.down().unwrap();
}

#[test]
fn unknown_steps_are_not_verified() {
    udpath_lab::needs_root!();
    let lab = client_and_server("verify2", 2);
    let server = serve(&lab);
    let (ended, _) = verified(&lab, &["--to", &PORT.to_string(), "--json"], &targets(&lab)[..1]);
    assert_eq!(ended.code(), Some(3), "{}", ended.out);
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    // The sending CPU is not predicted; the receiving CPUs are reported anyway.
    let came: u64 = said["verification"]["taken_by"]["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["packets"].as_u64().unwrap())
        .sum();
    assert_eq!(came, (FLOWS * PACKETS) as u64, "{said}");
    let last = ended.err.lines().last().unwrap();
    one_sentence("unverified", &format!("{last}\n"));
    assert!(last.contains("nothing could be compared") && last.contains("sender's transmit queue"), "{last}");
    drop(server);
    lab.down().unwrap();
}

#[test]
fn many_flows_of_a_list_or_a_capture_spread() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("flows");
    let lines: String = (0..64).map(|at| format!("192.0.2.7:{} 192.0.2.1:53 10\n", 4000 + at)).collect();
    fs::write(&list, format!("# a resolver's clients\n\n{lines}")).unwrap();
    let known = ["--key", "microsoft", "--table", "weight:120,8", "--queues", "16", "--irq-cpus", "0-15"];
    let run = |more: &[&str]| Run::new(&[&["predict"], more, &known[..]].concat()).finish();
    let text = run(&["--flows", list.to_str().unwrap()]);
    assert_eq!(text.code(), Some(0), "{}", text.err);
    assert!(text.out.starts_with("64 flows, 640 packets\n\n1 of 16 queues takes "), "{}", text.out);
    let json = run(&["--flows", list.to_str().unwrap(), "--json"]);
    let said: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&said["schema"], &said["flows"]), (&"udpath.predict/2".into(), &64.into()));
    let sum = |step: &str, field: &str| -> u64 {
        let places = said["spread"][step]["places"].as_array().unwrap();
        places.iter().map(|place| place[field].as_u64().unwrap()).sum()
    };
    assert_eq!((sum("queue", "packets"), sum("cpu", "flows")), (640, 64));
    assert_eq!(said["spread"]["queue"]["places"][0]["place"], 0);

    let fixture =
        |name: &str| format!("{}/../crates/stack/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    for name in ["ipv4.pcap", "ipv4.pcapng", "vlan.pcap", "ipv6.pcap"] {
        let ended = run(&["--capture", &fixture(name), "--json"]);
        assert_eq!(ended.code(), Some(0), "{name}: {}", ended.err);
        let said: Value = serde_json::from_str(&ended.out).unwrap();
        assert!(said["packets"].as_u64().unwrap() >= said["flows"].as_u64().unwrap(), "{name}: {said}");
        assert!(said["spread"]["queue"]["unknown"].as_array().unwrap().is_empty(), "{name}: {said}");
    }
    // The same packets in both formats.
    let of = |name: &str| run(&["--capture", &fixture(name), "--json"]).out;
    assert_eq!(of("ipv4.pcap"), of("ipv4.pcapng"));
}

#[test]
fn invalid_input_gives_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let (wrong, empty) = (file("wrong", b"\n192.0.2.7:1 nowhere\n"), file("empty", b"# none\n"));
    let (one, noise) = (file("one", b"192.0.2.7:1 192.0.2.1:53\n"), file("noise", &[7; 5000]));
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--flows", &wrong], 3, "line 2: invalid address `nowhere`"),
        (&["--flows", &empty], 3, "contains no flows"),
        (&["--flows", &one, "--to", "54"], 3, "no flows that match --to"),
        (&["--flows", &noise], 3, "line 1 is longer than 1000 characters"),
        (&["--flows", "/no/such"], 3, "cannot open /no/such"),
        (&["--capture", &noise], 3, "is not a capture"),
        (&["--capture", "/no/such"], 3, "cannot open the capture /no/such"),
        (&["--flows", &one, "--capture", &noise], 2, "cannot be used with"),
        (&["--flows", &one, "--reverse", "1"], 2, "required"),
        (&["192.0.2.7:1", "192.0.2.1:53", "--verify"], 2, "--interface"),
        (&["--verify=0", "--interface", "lo"], 2, "expected 100ms to 24h"),
        (&["--verify", "--interface", "no-such0"], 2, "there is no interface 'no-such0'"),
        (&["--flows", &one, "--to", "dns"], 2, "neither a port nor an address"),
        (&["--interface", "lo"], 2, "<SRC:PORT>"),
    ];
    for (arguments, code, part) in cases {
        let ended = Run::new(&[&["predict"], *arguments].concat()).finish();
        assert_eq!(ended.code(), Some(*code), "{}: {}{}", ended.shown, ended.out, ended.err);
        one_sentence(&ended.shown, &ended.err);
        assert!(ended.err.contains(part), "{}: {}", ended.shown, ended.err);
        assert_eq!(ended.out, "", "{}", ended.shown);
    }
}
