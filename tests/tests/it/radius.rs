//! RADIUS: radclient accepts the service over every Io, a real FreeRADIUS answers the load, and both use the same file
//! of users. Needs root.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_protocols::radius::{Code, Kind, Packet, Secret, Writer};
use udpath_rig::{FREERADIUS_READY, Run, Running, TIMEOUT, client_and_server, freeradius};

use crate::inside::{self, IOS, addresses, end, start, udpath};

/// Every way to serve, as typed by a user.
const ACCESS: u16 = 1812;
const ACCOUNTING: u16 = 1813;
const SECRET: &str = "a secret of the lab";
/// Understood by FreeRADIUS as well.
const USERS: &str = "bob  Cleartext-Password := \"hello\"\n\
                     \tReply-Message := \"Hello, bob\",\n\tSession-Timeout := 3600,\n\tFramed-IP-Address := 192.0.2.10\n\
                     alice  Cleartext-Password := \"a password of more than sixteen bytes\"\n\
                     mallory  Auth-Type := Reject\n\
                     quentin  Cleartext-Password := 'it\\'s %{User-Name}, a \\\\ and 25 %'\n\
                     dana  Cleartext-Password := \"a\\ttab, \\\\, \\\"quotes\\\", \\101\"\n";
/// Not understood by it.
const CAROL: &str = "carol  Cleartext-Password := \"hello\", One-Time-Code := \"123456\"\n";

/// A folder with the files of a server.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.write("clients", &format!("0.0.0.0/0 \"{SECRET}\"\n::/0 \"{SECRET}\"\n"));
        files.write("users", USERS);
        files.write("secret", SECRET);
        files
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// `udpath serve radius` on the lab's server, at the ports for access and accounting.
fn serve(lab: &Lab, io: &str, files: &Files) -> Running {
    let (clients, users) = (files.name("clients"), files.name("users"));
    let mut arguments = vec!["radius", "--clients", &clients, "--users", &users];
    let binds = ["0.0.0.0", "[::]"]
        .into_iter()
        .flat_map(|ip| [ACCESS, ACCOUNTING].map(|port| format!("{ip}:{port}")));
    let binds: Vec<String> = binds.collect();
    binds.iter().for_each(|bind| arguments.extend(["--bind", bind]));
    inside::serve(lab, io, &arguments)
}

/// What radclient prints about one exchange: it verifies the reply's signatures.
fn radclient(lab: &Lab, files: &Files, to: SocketAddr, command: &str, attributes: &str) -> String {
    let request = files.write("request", attributes);
    let mut inside = lab.machine("client").unwrap().command("radclient");
    inside.args(["-x", "-r", "2", "-t", "5", "-f", &request, &to.to_string(), command, SECRET]);
    let ended = start(lab, inside, "radclient").finish();
    ended.out + &ended.err
}

#[test]
fn radclient_is_answered_over_every_io() {
    udpath_lab::needs_root!();
    for io in IOS {
        let (lab, files) = (client_and_server("radius-peers", 2), Files::new());
        files.write("users", &format!("{USERS}{CAROL}"));
        let server = serve(&lab, io, &files);
        let mut answered = 0;
        for address in addresses(&lab) {
            let mut ask = |port, command: &str, attributes: &str, expected: &[&str]| {
                let said = radclient(&lab, &files, SocketAddr::new(address, port), command, attributes);
                for expected in expected {
                    assert!(said.contains(expected), "{io} {address} {attributes}: no {expected:?}: {said}");
                }
                answered += 1;
                said
            };
            let signed = "Message-Authenticator=0x00";
            let hello = [
                "Received Access-Accept",
                "Reply-Message = \"Hello, bob\"",
                "Session-Timeout = 3600",
                "Framed-IP-Address = 192.0.2.10",
            ];
            ask(ACCESS, "auth", &format!("User-Name=bob,User-Password=hello,{signed}"), &hello);
            ask(ACCESS, "auth", &format!("User-Name=bob,CHAP-Password=hello,{signed}"), &hello);
            let long = "User-Password=\"a password of more than sixteen bytes\"";
            ask(ACCESS, "auth", &format!("User-Name=alice,{long},{signed}"), &["Received Access-Accept"]);
            for (name, password) in [("bob", "hell"), ("eve", "hello"), ("mallory", "x")] {
                let request = format!("User-Name={name},User-Password=\"{password}\",{signed}");
                ask(ACCESS, "auth", &request, &["Received Access-Reject"]);
            }
            let proxied =
                format!("User-Name=bob,User-Password=hello,Proxy-State=0x01,Proxy-State=0x0203,{signed}");
            let said = ask(ACCESS, "auth", &proxied, &["Received Access-Accept"]);
            let reply = said.split("Received Access-Accept").nth(1).unwrap();
            let [first, second] =
                ["Proxy-State = 0x01\n", "Proxy-State = 0x0203"].map(|state| reply.find(state));
            assert!(first.is_some() && first < second, "{said}");
            let challenge = ["Received Access-Challenge", "State = 0x"];
            let said =
                ask(ACCESS, "auth", &format!("User-Name=carol,User-Password=hello,{signed}"), &challenge);
            let state = said.split("State = ").last().unwrap().split_whitespace().next().unwrap();
            for (code, verdict) in
                [("123457", "Received Access-Reject"), ("123456", "Received Access-Accept")]
            {
                let answer = format!("User-Name=carol,User-Password={code},State={state},{signed}");
                ask(ACCESS, "auth", &answer, &[verdict]);
            }
            ask(ACCESS, "status", signed, &["Received Access-Accept"]);
            ask(ACCOUNTING, "status", signed, &["Received Accounting-Response"]);
            for kind in ["Start", "Interim-Update", "Stop"] {
                let request = format!("User-Name=bob,Acct-Status-Type={kind},Acct-Session-Id=7");
                ask(ACCOUNTING, "acct", &request, &["Received Accounting-Response"]);
            }
            let request = format!("User-Name=bob,Acct-Status-Type=Start,Acct-Session-Id=7,{signed}");
            ask(ACCOUNTING, "acct", &request, &["Received Accounting-Response"]);
        }
        let counts = end(server);
        let total = &counts["total"];
        // radclient repeats a request if the machine is busy.
        assert!(total["received"].as_u64().unwrap() >= answered, "{io}: {total}");
        assert_eq!(total["received"], total["answered"], "{io}: {total}");
        lab.down().unwrap();
    }
}

fn client(lab: &Lab, to: IpAddr, port: u16) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = lab.machine("client").unwrap().run(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.connect(SocketAddr::new(to, port)).unwrap();
    socket
}

/// An Access-Request of bob, signed with `secret` if there is one.
fn request(secret: Option<&str>, identifier: u8, name: &str) -> Vec<u8> {
    let (mut buffer, authenticator) = ([0; 512], [identifier ^ 0xa5; 16]);
    let mut request = Writer::new(&mut buffer, Code::ACCESS_REQUEST, identifier, &authenticator).unwrap();
    let at = secret.map(|_| request.message_authenticator().unwrap());
    request.attribute(Kind::USER_NAME, name.as_bytes()).unwrap();
    let mut password = *b"hello\0\0\0\0\0\0\0\0\0\0\0";
    Secret::new(SECRET.as_bytes()).hide(&mut password, &authenticator);
    request.attribute(Kind::USER_PASSWORD, &password).unwrap();
    let request = request.finish().unwrap();
    if let Some((secret, at)) = secret.zip(at) {
        Secret::new(secret.as_bytes()).sign(request, &authenticator, at).unwrap();
    }
    request.to_vec()
}

/// What is not signed with the client's secret gets nothing; what is sent again gets the same again, also a challenge,
/// whose State would be another a second later.
#[test]
fn unsigned_requests_get_nothing_and_repeated_ones_the_same_over_every_io() {
    udpath_lab::needs_root!();
    let (lab, files) = (client_and_server("radius-signed", 2), Files::new());
    files.write("users", &format!("{USERS}{CAROL}"));
    for io in IOS {
        let server = serve(&lab, io, &files);
        let (mut refused, mut malformed, mut answered) = (0, 0, 0);
        for address in addresses(&lab) {
            let socket = client(&lab, address, ACCESS);
            for unsigned in [request(None, 1, "bob"), request(Some("another"), 2, "bob")] {
                socket.send(&unsigned).unwrap();
                refused += 1;
            }
            for broken in [&b""[..], &[1; 19], &request(Some(SECRET), 3, "bob")[..30]] {
                socket.send(broken).unwrap();
                malformed += 1;
            }
            let (challenged, last) = (request(Some(SECRET), 4, "carol"), request(Some(SECRET), 5, "bob"));
            let mut replies = Vec::new();
            for sent in [&challenged, &challenged, &challenged, &last] {
                socket.send(sent).unwrap();
                let mut buffer = [0; 4096];
                let len = socket.recv(&mut buffer).unwrap();
                replies.push(buffer[..len].to_vec());
                answered += 1;
                // States count seconds.
                std::thread::sleep(std::time::Duration::from_millis(600));
            }
            let code = |at: usize| Packet::decode(&replies[at]).unwrap().code();
            assert_eq!((code(0), code(3)), (Code::ACCESS_CHALLENGE, Code::ACCESS_ACCEPT), "{io} {address}");
            assert!(replies[0] == replies[1] && replies[0] == replies[2], "{io} {address}: {replies:02x?}");
        }
        let counts = end(server);
        let total = &counts["total"];
        let count = |name: &str| total["dropped"][name].as_u64().unwrap_or(0);
        assert_eq!(total["answered"], answered, "{io}: {total}");
        assert_eq!((count("refused"), count("malformed")), (refused, malformed), "{io}: {total}");
    }
    lab.down().unwrap();
}

/// The result of `udpath load radius`; every reply that arrived was intact.
fn load(lab: &Lab, files: &Files, target: SocketAddr, engine: &str, more: &[&str]) -> Value {
    let (target, secret, users) = (target.to_string(), files.name("secret"), files.name("users"));
    let arguments =
        ["load", "radius", &target, "--secret-file", &secret, "--users", &users, "--engine", engine];
    let arguments =
        [&arguments[..], &["--flows", "4", "--inflight", "2", "-d", "500ms", "--json"], more].concat();
    let ended = udpath(lab, "client", &arguments).finish();
    assert_eq!(ended.code(), Some(0), "{engine} {more:?}: {}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = &result["counts"];
    for wrong in ["corrupt", "duplicate", "wrong_flow"] {
        assert_eq!(counts[wrong], 0, "{engine} {more:?}: {counts}");
    }
    result
}

/// The options of each kind of load, and the port to send it to.
const LOADS: [(&[&str], u16); 3] =
    [(&["--method", "pap"], ACCESS), (&["--method", "chap"], ACCESS), (&["--accounting"], ACCOUNTING)];

#[test]
fn freeradius_answers_the_load_of_every_engine() {
    udpath_lab::needs_root!();
    let (lab, files) = (client_and_server("radius-load", 2), Files::new());
    let command = freeradius(files.folder.path(), SECRET, Path::new(&files.path("users"))).unwrap();
    let mut inside = lab.machine("server").unwrap().command(&command[0]);
    inside.args(&command[1..]);
    let mut server =
        Run::of(inside, "freeradius").within(TIMEOUT * 6).start_with(|command| lab.spawn(command));
    server.says(FREERADIUS_READY);
    let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
    for address in addresses(&lab) {
        for engine in ["socket", "kernel", "xdp", "xdp-rings"] {
            for (more, port) in LOADS {
                let result = load(&lab, &files, SocketAddr::new(address, port), engine, more);
                let counts = &result["counts"];
                assert!(counts["ok"].as_u64().unwrap() > 10, "{engine} {more:?}: {counts}");
                assert_eq!(counts["refused"], 0, "{engine} {more:?}: {counts}");
            }
        }
    }
    // A user it does not have, and another password than it has.
    files.write("users", "bob  Cleartext-Password := \"hello\"\neve  Cleartext-Password := \"x\"\nalice  Cleartext-Password := \"y\"\n");
    let [address, _] = addresses(&lab);
    let result = load(&lab, &files, SocketAddr::new(address, ACCESS), "socket", &[]);
    let [ok, refused] = ["ok", "refused"].map(|name| result["counts"][name].as_u64().unwrap());
    assert!(ok > 10 && refused > ok, "{}", result["counts"]);
    server.signal(Signal::TERM);
    let _ = server.finish();
    drop(napi);
    lab.down().unwrap();
}

#[test]
fn every_engine_loads_it_over_every_io() {
    udpath_lab::needs_root!();
    let (lab, files) = (client_and_server("radius-ios", 2), Files::new());
    files.write("users", &format!("{USERS}{CAROL}"));
    let [address, _] = addresses(&lab);
    for io in IOS {
        let server = serve(&lab, io, &files);
        // The kernel engine's frames arrive only where the receiver runs NAPI, as it does under XDP.
        let interface = lab.machine("server").unwrap().towards("client").unwrap();
        let _napi = (!["xdp", "auto"].contains(&io)).then(|| interface.ensure_napi().unwrap());
        let mut sent = 0;
        for engine in ["socket", "kernel", "xdp"] {
            for (more, port) in LOADS {
                let result = load(&lab, &files, SocketAddr::new(address, port), engine, more);
                let counts = &result["counts"];
                assert!(counts["ok"].as_u64().unwrap() > 10, "{io} {engine} {more:?}: {counts}");
                assert_eq!(counts["refused"], 0, "{io} {engine} {more:?}: {counts}");
                sent += counts["sent"].as_u64().unwrap();
            }
        }
        let counts = end(server);
        assert_eq!(counts["total"]["received"], sent, "{io}: {counts}");
        assert_eq!(counts["total"]["answered"], sent, "{io}: {counts}");
    }
    lab.down().unwrap();
}

#[test]
fn an_unknown_client_is_refused() {
    udpath_lab::needs_root!();
    let (lab, files) = (client_and_server("radius-unknown", 1), Files::new());
    files.write("clients", &format!("203.0.113.0/24 \"{SECRET}\"\n"));
    let server = serve(&lab, "shared", &files);
    let [address, _] = addresses(&lab);
    let target = SocketAddr::new(address, ACCESS).to_string();
    let secret = files.name("secret");
    let arguments = [
        "load",
        "radius",
        &target,
        "--secret-file",
        &secret,
        "--rate",
        "100",
        "-d",
        "300ms",
        "--timeout",
        "200ms",
    ];
    let ended = udpath(&lab, "client", &arguments).finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    assert!(ended.err.contains("check that a server of protocol radius is running"), "{}", ended.err);
    let counts = end(server);
    let total = &counts["total"];
    assert!(total["received"].as_u64().unwrap() > 0 && total["answered"] == 0, "{total}");
    assert_eq!(total["dropped"]["refused"], total["received"], "{total}");
    lab.down().unwrap();
}

#[test]
fn without_files_this_host_is_served_and_loaded() {
    let mut server =
        Run::new(&["serve", "radius", "--bind", "127.0.0.1:0", "--io", "shared", "--json"]).start();
    let said = server.says_line("ready io=");
    let bind = said.split_whitespace().find_map(|word| word.strip_prefix("bind=")).unwrap();
    let ended = Run::new(&["load", "radius", bind, "-d", "300ms", "--json"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(result["counts"]["ok"].as_u64().unwrap() > 10, "{}", result["counts"]);
    let ended = Run::new(&["load", "radius", bind, "-d", "300ms", "--inflight", "257"]).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    udpath_rig::one_sentence("257 in flight", &ended.err);
    end(server);
}

#[test]
fn wrong_options_and_files_are_named() {
    let files = Files::new();
    let (good, bad) = (files.name("clients"), files.write("bad", "10.0.0.0/8 secret\n10.0.0.1/8 secret\n"));
    let users = files.name("users");
    let serve = ["serve", "radius", "--bind", "127.0.0.1:0"];
    let load = ["load", "radius", "127.0.0.1:9"];
    for (first, more, said) in [
        (
            &serve[..],
            &["--clients", &bad, "--users", &users][..],
            "line 2: 10.0.0.1/8 has bits set after its prefix",
        ),
        (
            &serve,
            &["--clients", &good, "--users", &bad],
            "line 1: expected := after secret, but the line ends",
        ),
        (&serve, &["--clients", "/nonexistent", "--users", &users], "cannot read it: No such file"),
        (&serve, &["--clients", &good], "--clients needs --users"),
        (&serve, &["--users", &users], "--users needs --clients"),
        (&serve, &["--tcp"], "radius supports UDP only: remove --tcp"),
        (&load, &["--users", &good], "line 1: expected NAME := VALUE"),
        (&load, &["--method", "eap"], "invalid --method eap: expected pap or chap"),
        (&load, &["--secret", "x", "--secret-file", &good], "--secret is given as well"),
        (&load, &["--engine", "kernel", "--inflight", "64"], "at most 32 requests in flight per flow"),
        (&load, &["--size", "80"], "payload size 80 is too small for radius"),
    ] {
        let arguments = [first, more].concat();
        let ended = Run::new(&arguments).finish();
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {}", ended.err);
        udpath_rig::one_sentence(&arguments.join(" "), &ended.err);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
}
