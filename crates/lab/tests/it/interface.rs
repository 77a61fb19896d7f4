//! What an end of a link can be set to: transmit mapping, receive steering, offloads, moderation, NAPI.

use std::time::{Duration, Instant};

use udpath_lab::{Error, Interface, Lab, LinkSpec, Offloads, Rps, online_cpus};
use udpath_steer::{CpuSet, xps};

use crate::{TIMEOUT, exchange, pair, printed, socket};

#[test]
fn the_transmit_mapping_is_written_read_back_and_cleared() {
    udpath_lab::needs_root!();
    let lab = pair("t-xps", &LinkSpec::with_queues(2));
    let eth0 = lab.machine("client").unwrap().interface("eth0").unwrap();
    let empty = vec![CpuSet::new(); 2];
    assert_eq!(eth0.xps().unwrap(), empty);
    let map = eth0.spread_xps().unwrap();
    assert_eq!(map, xps::spread(&online_cpus().unwrap(), 2));
    assert_eq!(eth0.xps().unwrap(), map);
    let masks = printed(
        lab.machine("client").unwrap(),
        "cat",
        &["/sys/class/net/eth0/queues/tx-0/xps_cpus", "/sys/class/net/eth0/queues/tx-1/xps_cpus"],
    );
    let read: Vec<CpuSet> = masks.lines().map(|mask| CpuSet::from_mask(mask).unwrap()).collect();
    assert_eq!(read, map);
    // The other end has its own mapping.
    assert_eq!(lab.machine("server").unwrap().interface("eth0").unwrap().xps().unwrap(), empty);

    let error = eth0.set_xps(&map[..1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "client/eth0 has 2 transmit queues and the mapping has 1; give one set of CPUs per queue"
    );
    // A CPU that cannot exist, on the second queue: the first is restored too.
    let impossible = [CpuSet::from_iter([0]), CpuSet::from_iter([CpuSet::MAX_CPU])];
    let error = eth0.set_xps(&impossible).unwrap_err().to_string();
    assert!(error.contains("map CPUs 65535, which not all exist, to client/eth0 tx-1"), "{error}");
    assert_eq!(eth0.xps().unwrap(), map);
    eth0.clear_xps().unwrap();
    assert_eq!(eth0.xps().unwrap(), empty);
}

#[test]
fn one_queue_has_no_transmit_mapping() {
    udpath_lab::needs_root!();
    let lab = pair("t-one", &LinkSpec::with_queues(1));
    let eth0 = lab.machine("client").unwrap().interface("eth0").unwrap();
    assert!(matches!(eth0.xps(), Err(Error::OneQueue { .. })));
    assert!(matches!(eth0.spread_xps(), Err(Error::OneQueue { .. })));
}

#[test]
fn receive_steering_is_set_on_every_queue_and_read_back() {
    udpath_lab::needs_root!();
    let lab = pair("t-rps", &LinkSpec::with_queues(2));
    let eth0 = lab.machine("server").unwrap().interface("eth0").unwrap();
    assert_eq!(eth0.rps().unwrap(), [Rps::default(), Rps::default()]);
    // The kernel rounds flows up to a power of two.
    let wanted = Rps { cpus: CpuSet::from_iter([0]), flows: 1000 };
    eth0.set_rps(&wanted).unwrap();
    let found = Rps { flows: 1024, ..wanted.clone() };
    assert_eq!(eth0.rps().unwrap(), [found.clone(), found.clone()]);
    let file = "/sys/class/net/eth0/queues/rx-1/rps_flow_cnt";
    assert_eq!(printed(lab.machine("server").unwrap(), "cat", &[file]).trim(), "1024");
    // A set without a CPU that exists is refused, and what was there stays.
    let impossible = Rps { cpus: CpuSet::from_iter([CpuSet::MAX_CPU]), flows: 0 };
    let error = eth0.set_rps(&impossible).unwrap_err().to_string();
    assert!(error.contains("rps_cpus of server/eth0 rx-0"), "{error}");
    assert_eq!(eth0.rps().unwrap(), [found.clone(), found]);
    eth0.set_rps(&Rps::default()).unwrap();
    assert_eq!(eth0.rps().unwrap(), [Rps::default(), Rps::default()]);
}

#[test]
fn offloads_are_as_stated_and_as_ethtool_sees_them() {
    udpath_lab::needs_root!();
    let stated = Offloads { tso: false, gro: true, ..Offloads::default() };
    let lab = pair("t-offloads", &LinkSpec { offloads: stated, ..LinkSpec::default() });
    let server = lab.machine("server").unwrap();
    let eth0 = server.interface("eth0").unwrap();
    let as_seen = |wanted: &Offloads| {
        let shown = printed(server, "ethtool", &["-k", "eth0"]);
        for (name, on) in wanted.named() {
            // The total over all kinds of TSO includes one that is newer than the request that sets them.
            let name = if name == "tcp-segmentation-offload" { "tx-tcp-segmentation" } else { name };
            let line = format!("{name}: {}", if on { "on" } else { "off" });
            assert!(shown.lines().any(|shown| shown.trim().starts_with(&line)), "{line} is not in {shown}");
        }
    };
    assert_eq!(eth0.offloads().unwrap(), stated);
    as_seen(&stated);
    for wanted in [Offloads::OFF, Offloads::default(), stated] {
        eth0.set_offloads(&wanted).unwrap();
        assert_eq!(eth0.offloads().unwrap(), wanted);
        as_seen(&wanted);
    }
    let unmet = Offloads { scatter_gather: false, ..Offloads::default() };
    let error = eth0.set_offloads(&unmet).unwrap_err().to_string();
    assert_eq!(error, "tcp-segmentation-offload needs scatter-gather: turn both on, or both off");
    assert_eq!(eth0.offloads().unwrap(), stated);
    // With all checksums computed, traffic still passes.
    eth0.set_offloads(&Offloads::OFF).unwrap();
    let there = lab.address_of("server", "client").unwrap();
    let here = lab.address_of("client", "server").unwrap();
    exchange(&lab, "client", "server", there.ipv6.into(), here.ipv6.into(), 3);
}

#[test]
fn a_moderated_link_waits_for_more_frames() {
    udpath_lab::needs_root!();
    let moderated = |microseconds| {
        let name = format!("t-moderated-{microseconds}");
        let lab = pair(&name, &LinkSpec { queues: 2, moderation: microseconds, ..LinkSpec::default() });
        let ends =
            ["client", "server"].map(|name| lab.machine(name).unwrap().interface("eth0").unwrap().clone());
        for end in &ends {
            assert_eq!(end.moderation().unwrap(), u64::from(microseconds));
        }
        let _napi = ends.map(|end| end.ensure_napi().unwrap());
        let there = lab.address_of("server", "client").unwrap();
        let here = lab.address_of("client", "server").unwrap();
        let begin = Instant::now();
        exchange(&lab, "client", "server", there.ipv4.into(), here.ipv4.into(), 20);
        begin.elapsed()
    };
    moderated(0);
    // Each of the 20 follows the previous one at once, and so finds both ends waiting; the first may not.
    assert!(moderated(10_000) > Duration::from_millis(100));
}

/// Whether a reply sent by XDP at the server reaches the client's socket within `patience`.
fn answered(lab: &Lab, patience: Duration) -> bool {
    let there = lab.address_of("server", "client").unwrap().ipv4;
    let here = lab.address_of("client", "server").unwrap().ipv4;
    let client = socket(lab.machine("client").unwrap(), here.into());
    client.connect((there, 7)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        client.send(b"is anybody there?").unwrap();
        if client.recv(&mut [0; 64]).is_ok() {
            return true;
        }
    }
    false
}

#[test]
fn napi_lets_frames_sent_by_xdp_arrive() {
    udpath_lab::needs_root!();
    // The reply keeps the request's checksum, so the request must have a complete one.
    let lab = pair("t-napi", &LinkSpec { queues: 2, offloads: Offloads::OFF, ..LinkSpec::default() });
    let server = lab.machine("server").unwrap();
    let _answer = server.run(|| udpath_rig::Answer::attach("eth0", 7)).unwrap().unwrap();
    assert!(
        !answered(&lab, Duration::from_millis(200)),
        "veth delivers XDP_TX without NAPI: the guard is not needed"
    );
    let client: &Interface = lab.machine("client").unwrap().interface("eth0").unwrap();
    let napi = client.ensure_napi().unwrap();
    assert!(answered(&lab, TIMEOUT));
    drop(napi);
    // A child that another test has just forked holds a copy of the program's descriptor until it calls exec.
    let deadline = Instant::now() + TIMEOUT;
    while answered(&lab, Duration::from_millis(200)) {
        assert!(Instant::now() < deadline, "the guard is gone and NAPI is still on");
    }
}
