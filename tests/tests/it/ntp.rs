//! NTP: chronyd and ntpdig accept the service over every Io, a real chronyd answers the load, and forged source
//! addresses gain no amplification. Needs root.
//!
//! Labs share the machine's clock, so every offset is close to 0.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_protocols::ntp::{Header, ReferenceId, Timestamp};
use udpath_rig::{Ended, Run, Running, TIMEOUT, client_and_server};

use crate::inside::{self, IOS, addresses, connected, end, start, udpath};

/// Every way to serve, as typed by a user.
/// ntpdig cannot ask at another port.
const PORT: u16 = 123;
/// Extracted by scripts/setup.sh: the package would replace the machine's own time daemon.
const CHRONYD: &str = "/var/cache/udpath/chronyd";
/// Largest plausible offset between two readings of one clock on a busy machine, seconds.
const MAX_OFFSET: f64 = 2.0;

/// `udpath serve ntp` on the lab's server, at the port of NTP.
fn serve(lab: &Lab, io: &str, more: &[&str]) -> Running {
    let arguments = ["ntp", "--bind", "0.0.0.0:123", "--bind", "[::]:123"];
    inside::serve(lab, io, &[&arguments[..], more].concat())
}

fn client(lab: &Lab, to: IpAddr) -> UdpSocket {
    connected(lab, SocketAddr::new(to, PORT))
}

/// chronyd without control of the clock and without files that another one has. `more`: further directives.
fn chronyd(lab: &Lab, machine: &str, flags: &[&str], more: &[String]) -> Running {
    let folder = std::env::temp_dir();
    let pid_file = folder.join(format!("udpath-chronyd-{}-{}.pid", std::process::id(), lab.name()));
    let mut inside = lab.machine(machine).unwrap().command(CHRONYD);
    inside.args(["-u", "root", "-x"]).args(flags);
    inside.args(["cmdport 0", "bindcmdaddress /", &format!("pidfile {}", pid_file.display())]).args(more);
    assert!(std::path::Path::new(CHRONYD).exists(), "no {CHRONYD}: scripts/setup.sh extracts it");
    start(lab, inside, "chronyd")
}

fn request(number: u64) -> [u8; Header::LEN] {
    Header { version: 4, mode: 3, transmit: Timestamp(number), ..Header::default() }.encode()
}

fn reply(socket: &UdpSocket) -> Header {
    let mut room = [0; 2048];
    let len = socket.recv(&mut room).unwrap();
    assert_eq!(len, Header::LEN);
    Header::decode(&room[..len]).unwrap()
}

/// The offset that `chronyd -Q` prints.
fn offset(ended: &Ended) -> f64 {
    let said = ended.err.clone() + &ended.out;
    assert_eq!(ended.code(), Some(0), "{said}");
    let offset = said.split("System clock wrong by ").nth(1).and_then(|rest| rest.split(' ').next());
    offset.and_then(|offset| offset.parse().ok()).unwrap_or_else(|| panic!("no offset: {said}"))
}

#[test]
fn chronyd_and_ntpdig_accept_it_over_every_io() {
    udpath_lab::needs_root!();
    for io in IOS {
        let lab = client_and_server("ntp-peers", 2);
        let server = serve(&lab, io, &["--local", "--stratum", "4"]);
        for address in addresses(&lab) {
            let ask = format!("server {address} iburst maxsamples 1");
            let asked = chronyd(&lab, "client", &["-Q", "-t", "20"], &[ask]).finish();
            assert!(offset(&asked).abs() < MAX_OFFSET, "{io} {address}: {}", asked.err);

            let mut ntpdig = lab.machine("client").unwrap().command("ntpdig");
            ntpdig.args(["-j", "-t", "20", &address.to_string()]);
            let asked = start(&lab, ntpdig, "ntpdig").finish();
            assert_eq!(asked.code(), Some(0), "{io} {address}: {}", asked.err);
            let told: Value = serde_json::from_str(asked.out.trim()).unwrap_or_else(|error| {
                panic!("{io} {address}: {error}: {}", asked.out);
            });
            assert_eq!((&told["stratum"], &told["leap"]), (&4.into(), &"no-leap".into()), "{told}");
            assert!(told["offset"].as_f64().unwrap().abs() < MAX_OFFSET, "{io} {address}: {told}");
        }
        let counts = end(server);
        let total = &counts["total"];
        assert!(total["received"].as_u64().unwrap() >= 4, "{io}: {total}");
        assert_eq!(total["received"], total["answered"], "{io}: {total}");
        lab.down().unwrap();
    }
}

/// A daemon asks repeatedly and chooses its source by its own checks.
#[test]
fn a_running_chronyd_selects_it() {
    udpath_lab::needs_root!();
    let lab = client_and_server("ntp-daemon", 2);
    let server = serve(&lab, "auto", &["--local"]);
    let [address, _] = addresses(&lab);
    let mut daemon = chronyd(&lab, "client", &["-d"], &[format!("server {address} iburst")]);
    daemon.says(&format!("Selected source {address}"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.finish().code(), Some(0));
    end(server);
    lab.down().unwrap();
}

/// Control and private messages, other modes, authenticated and broken requests get nothing; a request with extension
/// fields gets 48 bytes. The order of replies shows that nothing else was sent.
#[test]
fn nothing_is_amplified_over_any_io() {
    udpath_lab::needs_root!();
    let lab = client_and_server("ntp-modes", 2);
    for io in IOS {
        let server = serve(&lab, io, &["--local"]);
        let (mut asked, mut refused, mut malformed) = (0, 0, 0);
        for address in addresses(&lab) {
            let socket = client(&lab, address);
            // ntpq's readvar, ntpdc's monlist, the same padded to a header, and a MAC.
            let read_variables = [0x16, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            let monlist = [0x17, 0, 3, 0x2a, 0, 0, 0, 0];
            let mut unanswered = vec![read_variables.to_vec(), monlist.to_vec()];
            for mode in [0, 1, 2, 4, 5, 6, 7] {
                let mut other = request(1).to_vec();
                other[0] = 4 << 3 | mode;
                unanswered.push(other);
            }
            unanswered.push([&request(1)[..], &[7; 20]].concat());
            refused += unanswered.len();
            let broken = [vec![], vec![0x23], request(1)[..47].to_vec(), [&request(1)[..], &[0; 7]].concat()];
            malformed += broken.len();
            let extended = [&request(2)[..], &[1, 4, 0, 28], &[0; 24]].concat();
            for datagram in unanswered.iter().chain(&broken).chain([&extended, &request(3).to_vec()]) {
                socket.send(datagram).unwrap();
            }
            asked += unanswered.len() + broken.len() + 2;
            let mut replies = [(); 2].map(|()| reply(&socket)).map(|reply| (reply.origin.0, reply.mode));
            // One flow is answered in order, unless several threads read one socket.
            if io == "shared" {
                replies.sort_unstable();
            }
            assert_eq!(replies, [(2, 4), (3, 4)], "{io} {address}");
        }
        let counts = end(server);
        let total = &counts["total"];
        let count = |name: &str| total["dropped"][name].as_u64().unwrap_or(0);
        assert_eq!(total["received"], asked, "{io}: {total}");
        assert_eq!(total["answered"], 4, "{io}: {total}");
        assert_eq!(
            (count("refused"), count("malformed")),
            (refused as u64, malformed as u64),
            "{io}: {total}"
        );
    }
    lab.down().unwrap();
}

/// Over its rate a client gets few kisses, whichever workers it reaches and whichever path it takes.
#[test]
fn the_rate_of_a_client_is_limited_over_every_io() {
    udpath_lab::needs_root!();
    const ASKED: u64 = 200;
    let lab = client_and_server("ntp-rate", 2);
    for io in IOS {
        let server = serve(&lab, io, &["--local", "--rate-limit", "1000", "--rate-burst", "3"]);
        let [address, _] = addresses(&lab);
        // Many flows, so that several workers serve them.
        let sockets: Vec<_> = (0..10).map(|_| client(&lab, address)).collect();
        for number in 0..ASKED {
            sockets[number as usize % sockets.len()].send(&request(number)).unwrap();
        }
        // It answers what is queued before it ends.
        let counts = end(server);
        let total = &counts["total"];
        let (mut answers, mut kisses) = (0, 0);
        udpath_rig::awaited("all replies", TIMEOUT, || {
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
                let mut room = [0; 2048];
                while let Ok(len) = socket.recv(&mut room) {
                    let reply = Header::decode(&room[..len]).unwrap();
                    let kiss = reply.stratum == 0;
                    let rate = reply.leap == 3 && reply.reference_id == ReferenceId::RATE;
                    assert!(!kiss || (rate && reply.poll == 10), "{io}: {reply:?}");
                    (answers, kisses) = (answers + u64::from(!kiss), kisses + u64::from(kiss));
                }
            }
            (total["answered"] == answers + kisses).then_some(())
        });
        assert_eq!(total["received"], ASKED, "{io}: {total}");
        assert_eq!(answers, 3, "{io}: {total}");
        // The 1st, 2nd, 4th, ... 128th; fewer if workers met at the client's entry.
        assert!((1..=8).contains(&kisses), "{io}: {kisses} kisses: {total}");
        assert_eq!(total["dropped"]["refused"], ASKED - answers - kisses, "{io}: {total}");
    }
    lab.down().unwrap();
}

/// The counts of `udpath load ntp` with every reply valid; `io`: that of the server.
fn load(lab: &Lab, target: SocketAddr, io: &str, engine: &str) -> Value {
    let target = target.to_string();
    let load = [
        "load",
        "ntp",
        &target,
        "--engine",
        engine,
        "--flows",
        "4",
        "--inflight",
        "2",
        "-d",
        "500ms",
        "--json",
    ];
    // A service on the server's interface accepts the frames of the kernel engine; without one, the interface needs
    // NAPI.
    let towards_client = lab.machine("server").unwrap().towards("client").unwrap();
    let _napi =
        (engine == "kernel" && !["xdp", "auto"].contains(&io)).then(|| towards_client.ensure_napi().unwrap());
    let ended = udpath(lab, "client", &load).finish();
    assert_eq!(ended.code(), Some(0), "{engine}: {}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    // Of AF_XDP there is one engine, with or without live frames.
    let name = engine.trim_end_matches("-rings");
    assert_eq!((&result["protocol"], &result["engine"]), (&"ntp".into(), &name.into()));
    let counts = &result["counts"];
    assert!(counts["ok"].as_u64().unwrap() > 10, "{engine}: {counts}");
    for wrong in ["corrupt", "duplicate", "wrong_flow"] {
        assert_eq!(counts[wrong], 0, "{engine}: {counts}");
    }
    assert_eq!(result["size"], Header::LEN, "{engine}");
    result
}

#[test]
fn chronyd_answers_the_load_of_every_engine() {
    udpath_lab::needs_root!();
    let lab = client_and_server("ntp-load", 2);
    let more = ["local stratum 10", "allow", "port 123"].map(String::from);
    let mut server = chronyd(&lab, "server", &["-d"], &more);
    server.says("Disabled control of system clock");
    for address in addresses(&lab) {
        let socket = client(&lab, address);
        udpath_rig::awaited("chronyd to answer", TIMEOUT, || {
            // Until chronyd has opened its socket, the request is refused.
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let _ = socket.send(&request(1));
            socket.recv(&mut [0; 64]).ok()
        });
        for engine in ["socket", "xdp", "xdp-rings", "kernel"] {
            load(&lab, SocketAddr::new(address, PORT), "shared", engine);
        }
    }
    server.signal(Signal::TERM);
    let _ = server.finish();
    lab.down().unwrap();
}

#[test]
fn every_engine_loads_it_over_every_io() {
    udpath_lab::needs_root!();
    let lab = client_and_server("ntp-ios", 2);
    let [address, _] = addresses(&lab);
    for io in IOS {
        // Without --local: replies of an unsynchronized clock are valid as well.
        let server = serve(&lab, io, &[]);
        let mut sent = 0;
        for engine in ["socket", "xdp", "kernel"] {
            let result = load(&lab, SocketAddr::new(address, PORT), io, engine);
            sent += result["counts"]["sent"].as_u64().unwrap();
        }
        let counts = end(server);
        assert_eq!(counts["total"]["received"], sent, "{io}: {counts}");
        assert_eq!(counts["total"]["answered"], sent, "{io}: {counts}");
    }
    lab.down().unwrap();
}

/// A load against a server that refuses by kiss-o'-death is not answered.
#[test]
fn kisses_are_not_valid_replies() {
    udpath_lab::needs_root!();
    let lab = client_and_server("ntp-kisses", 1);
    let server = serve(&lab, "shared", &["--local", "--rate-limit", "1000", "--rate-burst", "1"]);
    let [address, _] = addresses(&lab);
    let target = SocketAddr::new(address, PORT).to_string();
    let load = ["load", "ntp", &target, "--rate", "1000", "-d", "500ms", "--timeout", "300ms", "--json"];
    let ended = udpath(&lab, "client", &load).finish();
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = &result["counts"];
    assert_eq!(counts["ok"].as_u64().unwrap() + counts["late"].as_u64().unwrap(), 1, "{counts}");
    assert!(counts["refused"].as_u64().unwrap() >= 1, "{counts}");
    assert_eq!(counts["corrupt"], 0, "{counts}");
    end(server);
    lab.down().unwrap();
}

#[test]
fn wrong_options_are_named() {
    for (options, said) in [
        (&["--stratum", "16"][..], "invalid --stratum 16: expected 1 to 15"),
        (&["--rate-limit", "often"], "invalid --rate-limit often: expected 1 to 131072 seconds"),
        (&["--rate-burst", "4"], "--rate-burst needs --rate-limit"),
        (&["--tcp"], "ntp supports UDP only: remove --tcp"),
    ] {
        let arguments = [&["serve", "ntp", "--bind", "127.0.0.1:0"][..], options].concat();
        let ended = Run::new(&arguments).finish();
        assert_eq!(ended.code(), Some(2), "{}", ended.err);
        udpath_rig::one_sentence(&arguments.join(" "), &ended.err);
        assert!(ended.err.contains(said), "{}", ended.err);
    }
    let ended = Run::new(&["serve", "echo", "--bind", "127.0.0.1:0", "--stratum", "3"]).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    assert!(ended.err.contains("--stratum is an option of ntp, not of echo: remove it"), "{}", ended.err);
    let ended = Run::new(&["load", "ntp", "127.0.0.1:9", "--size", "49"]).finish();
    assert_eq!(ended.code(), Some(2), "{}", ended.err);
    assert!(ended.err.contains("payload size 49 is too large for ntp"), "{}", ended.err);
}
