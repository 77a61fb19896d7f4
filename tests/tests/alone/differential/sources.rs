//! Senders that the kernel rejects: xdp answers none of them, whatever changes while it runs.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use udpath_rig::{Running, TIMEOUT, awaited};

use super::frames::from_address;
use super::{Client, SECOND, client, lab, run, serve};

/// Source port of the first spoofed request; each gets the next one.
const PORTS: u16 = 5000;

/// How long a loop may run before the check: on a lab link a frame takes microseconds.
const LOOPS: Duration = Duration::from_millis(500);

fn end(server: Running) -> Value {
    server.signal(Signal::TERM);
    let ended = server.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// Whether a request from this address is answered. Every earlier request has been answered by then,
/// or never will be.
fn answered(client: &mut Client, port: &mut u16, source: Ipv4Addr) -> bool {
    *port += 2;
    client.socket.send(&from_address(&client.ends, source.into(), *port)).unwrap();
    client.caught_up(*port + 1);
    while client.take(Duration::from_millis(20)) {}
    client.replies.contains_key(&*port)
}

#[test]
fn a_request_from_one_served_address_to_another_makes_no_loop() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab("no-loop");
    // A neighbour that forwards: it sends frames for the second address back.
    let server = lab.address_of("server", "client").unwrap().ipv4.to_string();
    for key in ["ip_forward", "conf.eth0.forwarding"] {
        run(&lab, "client", "sysctl", &["-q", "-w", &format!("net.ipv4.{key}=1")]);
    }
    run(&lab, "client", "ip", &["route", "add", &format!("{SECOND}/32"), "via", &server]);
    let running = serve(&lab, "xdp", &[]);
    let client = client(&lab);
    client.socket.send(&from_address(&client.ends, SECOND.into(), client.ends.port)).unwrap();
    std::thread::sleep(LOOPS);
    let counts = end(running);
    let came = counts["xdp"]["program"]["source"].as_u64().unwrap();
    assert_eq!(counts["total"]["answered"], 0, "{counts}");
    // The kernel drops it as well.
    assert_eq!((came, &counts["total"]["received"]), (1, &Value::from(0)), "{counts}");
    lab.down().unwrap();
}

#[test]
fn an_address_is_rejected_as_a_source_once_the_host_has_it() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab("own-sources");
    let running = serve(&lab, "xdp", &[]);
    let (mut client, mut port) = (client(&lab), PORTS);
    let late = Ipv4Addr::new(10, 88, 0, 1);
    let mut asks = |source| answered(&mut client, &mut port, source);
    assert!(asks(late), "a stranger is answered");
    run(&lab, "server", "ip", &["addr", "add", &format!("{late}/24"), "dev", "lo"]);
    awaited("no answer to the host's new address", TIMEOUT, || (!asks(late)).then_some(()));
    for own in [[10, 88, 0, 0], [10, 88, 0, 255]] {
        assert!(!asks(own.into()), "{own:?}: of its network");
    }
    assert!(asks([10, 88, 1, 0].into()), "of another network");
    run(&lab, "server", "ip", &["addr", "del", &format!("{late}/24"), "dev", "lo"]);
    awaited("an answer once it is a stranger's again", TIMEOUT, || asks(late).then_some(()));
    // A whole network that is routed as local.
    run(&lab, "server", "ip", &["route", "add", "local", "198.18.0.0/15", "dev", "lo"]);
    awaited("no answer to a local network", TIMEOUT, || (!asks([198, 19, 1, 2].into())).then_some(()));
    assert!(asks([198, 20, 0, 0].into()), "behind it");
    end(running);
    lab.down().unwrap();
}

#[test]
fn rp_filter_holds_as_it_is_set() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab("rp-filter");
    let mut running = serve(&lab, "xdp", &[]);
    let (mut client, mut port) = (client(&lab), PORTS);
    let (stranger, elsewhere) = (Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(203, 0, 113, 7));
    let own = client.ends.client.0;
    let mut becomes = |what: &str, wanted: [bool; 3]| {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let now = [own, stranger, elsewhere].map(|source| answered(&mut client, &mut port, source));
            if now == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {now:?}, not {wanted:?}");
        }
    };
    run(&lab, "server", "sysctl", &["-q", "-w", "net.ipv4.conf.all.rp_filter=0"]);
    let mode = |mode: u8| {
        run(&lab, "server", "sysctl", &["-q", "-w", &format!("net.ipv4.conf.eth0.rp_filter={mode}")]);
    };
    // Its route uses another interface.
    run(&lab, "server", "ip", &["route", "add", "203.0.113.0/24", "dev", "lo"]);
    mode(0);
    becomes("off", [true, true, true]);
    mode(1);
    becomes("strict", [true, false, false]);
    mode(2);
    becomes("loose", [true, false, true]);
    let via = lab.address_of("client", "server").unwrap().ipv4.to_string();
    mode(1);
    run(&lab, "server", "ip", &["route", "add", "198.51.100.0/24", "via", &via]);
    becomes("strict, with a route", [true, true, false]);
    let said = running.says("ready");
    assert!(!said.contains("rp_filter"), "it holds: {said}");
    // More networks than it keeps: it says so, and rejects none of them.
    let every_other = (0..9_000u32).map(|n| Ipv4Addr::from(0xc612_0000 + 2 * n));
    let routes: String = every_other.map(|address| format!("route add {address}/32 dev lo\n")).collect();
    let batch = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&batch, routes).unwrap();
    run(&lab, "server", "ip", &["-batch", batch.path().to_str().unwrap()]);
    running.says("rp_filter=1 of eth0 does not apply to frames that xdp takes: the routes make more than 8192 networks");
    becomes("strict, with too many networks", [true, true, true]);
    run(&lab, "server", "ip", &["rule", "add", "from", "192.0.2.9", "table", "100"]);
    running.says("rp_filter=1 of eth0 uses the main routing table only");
    let counts = end(running);
    assert!(counts["xdp"]["program"]["source"].as_u64().unwrap() > 0, "{}", counts["xdp"]);
    lab.down().unwrap();
}

/// A frame's source must be reachable from the server's own address, too.
#[test]
fn a_server_starts_where_documentation_addresses_have_no_way_back() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab("strict-start");
    run(&lab, "server", "sysctl", &["-q", "-w", "net.ipv4.conf.all.rp_filter=1"]);
    let running = serve(&lab, "xdp", &[]);
    let (mut client, mut port) = (client(&lab), PORTS);
    let own = client.ends.client.0;
    assert!(answered(&mut client, &mut port, own));
    assert!(!answered(&mut client, &mut port, Ipv4Addr::new(198, 51, 100, 7)));
    let counts = end(running);
    assert!(counts["xdp"]["answered"].as_u64().unwrap() > 0, "{}", counts["xdp"]);
    lab.down().unwrap();
}
