//! Tagged frames on a machine with VLAN devices: an emulated one, whose kernel supports them. This test binary also
//! runs there, and compares xdp with kernel sockets on a lab's link.
//!
//! ```text
//! server  eth0.100  10.100.0.1, fd00:100::1    served; priority of its packets: 5
//!         eth0.200  no address                 up, but serves nothing
//!         eth0.300  10.30.0.1                  down
//!         eth0.400  10.40.0.1                  has a MAC address of its own
//!         eth0.500  10.50.0.1                  802.1ad
//!         VLAN 600  has no device
//! ```

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::Signal;
use udpath_lab::Lab;
use udpath_rig::VmSpec;
use udpath_rig::{Run, TIMEOUT, awaited, program};

use super::frames::{Ends, FIRST_PORT, tagged};
use super::{Compared, Request, client, ends, lab, replies, run, serve};

/// Time limit of the emulated machine, boot included: on an idle machine it takes 40 s.
const WITHIN: Duration = Duration::from_secs(400);

/// Name of the test that runs in the emulated machine.
const INSIDE: &str = "differential::vlans::tags_are_answered_as_by_kernel_sockets";

#[test]
fn tags_of_vlan_devices_that_serve_are_answered_and_no_others() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let own = std::env::current_exe().unwrap();
    let mut spec = VmSpec { cpus: 2, nodes: 1, queues: 1, within: WITHIN, ..VmSpec::default() };
    // In the same layout as here, so that the test finds the program.
    spec.files.push((own, "/files/deps/alone".into()));
    spec = spec.file(&program());
    for tool in ["/usr/sbin/ethtool", "/usr/sbin/ip"] {
        spec = spec.file(&PathBuf::from(tool));
    }
    let inside = ["/files/deps/alone", "--exact", INSIDE, "--ignored", "--nocapture"];
    let vm = spec.boot(&inside.map(Into::into)).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = vm.finish(&mut out, &mut err, &AtomicBool::new(false));
    let [out, err] = [out, err].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(code.unwrap_or_else(|error| panic!("{error:?}: {out}{err}")), 0, "{out}{err}");
    assert!(out.contains("1 passed"), "{out}{err}");
    println!("{out}");
}

/// An 802.1Q tag.
fn tag(control: u16) -> Vec<u8> {
    [0x8100, control].into_iter().flat_map(u16::to_be_bytes).collect()
}

#[test]
#[ignore = "runs in the emulated machine: needs VLAN devices"]
fn tags_are_answered_as_by_kernel_sockets() {
    let _turn = udpath_rig::alone();
    let lab = lab("vlans");
    let ends = ends(&lab);
    let ip = |text: &str| run(&lab, "server", "ip", &text.split_whitespace().collect::<Vec<_>>());
    ip("link add link eth0 name eth0.100 type vlan id 100 egress-qos-map 0:5");
    ip("addr add 10.100.0.1/24 dev eth0.100");
    ip("addr add fd00:100::1/64 dev eth0.100 nodad");
    ip("link add link eth0 name eth0.200 type vlan id 200");
    ip("link add link eth0 name eth0.300 type vlan id 300");
    ip("addr add 10.30.0.1/24 dev eth0.300");
    ip("link add link eth0 name eth0.400 address 02:00:00:00:04:00 type vlan id 400");
    ip("addr add 10.40.0.1/24 dev eth0.400");
    ip("link add link eth0 name eth0.500 type vlan proto 802.1ad id 500");
    ip("addr add 10.50.0.1/24 dev eth0.500");
    for vlan in [100, 200, 400, 500] {
        ip(&format!("link set eth0.{vlan} up"));
    }
    let client = ends.client_mac.map(|byte| format!("{byte:02x}")).join(":");
    for (vlan, address) in [(100, "10.100.0.2"), (100, "fd00:100::2"), (400, "10.40.0.2"), (500, "10.50.0.2")]
    {
        ip(&format!("neigh replace {address} lladdr {client} dev eth0.{vlan}"));
    }
    refused_while_tags_are_removed(&lab);
    let requests = requests(&ends);
    let (kernel, _) = replies(&lab, "reuseport", &[], &requests);
    let (xdp, answered) = replies(&lab, "xdp", &[], &requests);
    let Compared { kinds, wrong, .. } = Compared::of(&ends, &requests, &kernel, &xdp);
    for (kind, [_, kernel, xdp]) in &kinds {
        println!("{kind}: {kernel} answered by the kernel, {xdp} by xdp");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // VLAN 100 with the priority of its device, for both IP versions; all by the fast path.
    for (number, (kind, _)) in
        requests.iter().enumerate().filter(|(_, (kind, _))| kind.starts_with("VLAN 100,"))
    {
        let reply = &xdp[&(FIRST_PORT + number as u16)];
        assert_eq!(reply.len(), 1, "{kind}");
        assert_eq!(reply[0].3, tag(0xa064), "{kind}");
    }
    let fast = kinds
        .iter()
        .filter(|(kind, _)| kind.starts_with("VLAN 100,") || kind.starts_with("to the fast path"));
    assert!(answered >= fast.count() as u64, "{answered} by the fast path");
    let silent = |kind: &str| kinds[kind][1] == 0 && kinds[kind][2] == 0;
    assert!(silent("VLAN 300") && silent("VLAN 600") && silent("VLAN 100 in VLAN 100"));
    named_devices_serve(&lab, &ends);
    devices_come_and_go(&lab);
    lab.down().unwrap();
}

/// The tag of a device without an address is accepted if the device is named.
fn named_devices_serve(lab: &Lab, ends: &Ends) {
    let untagged: (IpAddr, IpAddr) = (ends.client.0.into(), ends.server.0.into());
    let request = ("VLAN 200".to_owned(), vec![tagged(ends, untagged, &tag(200), FIRST_PORT)]);
    let (xdp, _) = replies(lab, "xdp", &["--interface", "eth0.200"], &[request]);
    assert_eq!(xdp[&FIRST_PORT][0].3, tag(200));
}

/// A tag is accepted while its device exists.
fn devices_come_and_go(lab: &Lab) {
    let mut server = serve(lab, "xdp", &[]);
    let mut client = client(lab);
    let (source, destination) = ("10.100.0.2".parse().unwrap(), "10.100.0.1".parse().unwrap());
    let mut port = FIRST_PORT;
    let mut answered = || {
        port += 2;
        let frame = tagged(&client.ends, (source, destination), &tag(100), port);
        client.socket.send(&frame).unwrap();
        client.caught_up(port + 1);
        while client.take(Duration::from_millis(50)) {}
        client.replies.contains_key(&port)
    };
    assert!(answered());
    let ip = |text: &str| run(lab, "server", "ip", &text.split_whitespace().collect::<Vec<_>>());
    ip("link set eth0.100 down");
    awaited("silence once the device is down", TIMEOUT, || (!answered()).then_some(()));
    ip("link set eth0.100 up");
    awaited("an answer once it is up", TIMEOUT, || answered().then_some(()));
    ip("link del eth0.100");
    awaited("silence once the device is gone", TIMEOUT, || (!answered()).then_some(()));
    assert!(!server.has_ended());
    server.signal(Signal::TERM);
    assert_eq!(server.finish().code(), Some(0));
}

/// An interface that strips tags cannot serve a VLAN: its frames are indistinguishable from others. Afterwards, tags
/// stay in the frames.
fn refused_while_tags_are_removed(lab: &Lab) {
    let mut inside = lab.machine("server").unwrap().command(program());
    inside.args(["serve", "echo", "--io", "xdp", "--bind", "10.100.0.1:7000"]);
    let refused = Run::of(inside, "serve a VLAN").start_with(|command| lab.spawn(command)).finish();
    assert_eq!(refused.code(), Some(3), "{}", refused.err);
    let why = "eth0 removes VLAN tags before xdp sees them, so frames of eth0.100 cannot be recognized";
    assert!(
        refused.err.contains(why) && refused.err.contains("ethtool -K eth0 rxvlan off"),
        "{}",
        refused.err
    );
    run(lab, "server", "ethtool", &["-K", "eth0", "rxvlan", "off"]);
}

fn requests(ends: &Ends) -> Vec<Request> {
    let pair = |source: &str, destination: &str| -> (IpAddr, IpAddr) {
        (source.parse().unwrap(), destination.parse().unwrap())
    };
    let (v4, v6) = (pair("10.100.0.2", "10.100.0.1"), pair("fd00:100::2", "fd00:100::1"));
    let untagged: (IpAddr, IpAddr) = (ends.client.0.into(), ends.server.0.into());
    let mut asked: Vec<(String, (IpAddr, IpAddr), Vec<u8>)> = Vec::new();
    for (version, addresses) in [("IPv4", v4), ("IPv6", v6)] {
        for control in [100, 0x2064, 0xe064, 0x1064] {
            asked.push((format!("VLAN 100, {version}, {control:#06x}"), addresses, tag(control)));
        }
    }
    for priority in 0..8 {
        asked.push((format!("to the fast path, priority {priority}"), untagged, tag(priority << 13)));
    }
    asked.extend([
        ("to the fast path, untagged".into(), untagged, Vec::new()),
        ("VLAN 200".into(), untagged, tag(200)),
        ("VLAN 300".into(), pair("10.30.0.2", "10.30.0.1"), tag(300)),
        ("VLAN 400".into(), pair("10.40.0.2", "10.40.0.1"), tag(400)),
        ("VLAN 500".into(), pair("10.50.0.2", "10.50.0.1"), tag(500)),
        ("VLAN 500 of 802.1ad".into(), pair("10.50.0.2", "10.50.0.1"), vec![0x88, 0xa8, 1, 0xf4]),
        ("VLAN 600".into(), untagged, tag(600)),
        ("VLAN 100 in VLAN 100".into(), v4, [tag(100), tag(100)].concat()),
        ("VLAN 100 in a priority".into(), v4, [tag(0), tag(100)].concat()),
        ("a priority in VLAN 100".into(), v4, [tag(100), tag(0)].concat()),
    ]);
    let made = asked.into_iter().enumerate().map(|(number, (kind, addresses, tag))| {
        (kind, vec![tagged(ends, addresses, &tag, FIRST_PORT + number as u16)])
    });
    made.collect()
}
