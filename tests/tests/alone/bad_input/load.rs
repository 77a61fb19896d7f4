//! Arguments that `udpath load` rejects.

use super::{Case, TO, all_refused};

#[test]
fn load() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let overlong = "9".repeat(400);
    let cases: &[Case<'_>] = &[
        (
            &["echo", TO, "--rate", "0"],
            2,
            "invalid rate 0",
            "expected a number above 0 and up to 1000000000 per second",
        ),
        (
            &["echo", TO, "--rate", "-5k"],
            2,
            "invalid rate -5000",
            "expected a number above 0 and up to 1000000000 per second",
        ),
        (
            &["echo", TO, "--rate", "99999G"],
            2,
            "invalid rate 99999000000000",
            "expected a number above 0 and up to 1000000000 per second",
        ),
        (
            &["echo", TO, "--rate", &overlong],
            2,
            "invalid rate inf",
            "expected a number above 0 and up to 1000000000 per second",
        ),
        (
            &["echo", TO, "--rate", "NaN"],
            2,
            "invalid value 'NaN' for '--rate <RATE>': invalid rate `NaN`",
            "expected a value such as 1000, 100k or 2M",
        ),
        (
            &["echo", TO, "--rate", ""],
            2,
            "invalid value '' for '--rate <RATE>': invalid rate ``",
            "expected a value such as 1000, 100k or 2M",
        ),
        (
            &["echo", TO, "--ramp", "5..NaN"],
            2,
            "invalid value '5..NaN' for '--ramp <A..B>': invalid rate `NaN`",
            "expected a value such as 1000, 100k or 2M",
        ),
        (&["echo", TO, "--arrivals", "burst:0", "--rate", "10"], 2, "burst length must be", "at least 1"),
        (&["echo", TO, "-d", "0"], 2, "duration of 0ns is too short", "at least 1 ms"),
        (
            &["echo", TO, "-d", "-1s"],
            2,
            "invalid value '-1s' for '--duration <TIME>': invalid time `-1s`",
            "expected a value such as 5s, 500ms, 10us or 2m",
        ),
        (
            &["echo", TO, "-d", "99999999999999999999s"],
            2,
            "invalid value '99999999999999999999s' for '--duration <TIME>': invalid time `99999999999999999999s`",
            "expected a value such as 5s, 500ms, 10us or 2m",
        ),
        (&["echo", TO, "-d", "1000000h"], 2, "duration of 3600000000s is too long", "at most 7 days"),
        (
            &["echo", TO, "-d", "NaN"],
            2,
            "invalid value 'NaN' for '--duration <TIME>': invalid time `NaN`",
            "expected a value such as 5s, 500ms, 10us or 2m",
        ),
        (&["echo", TO, "--timeout", "0s"], 2, "timeout of 0ns is too short", "at least 1 ms"),
        (&["echo", TO, "--warmup", "99999999h"], 2, "warm-up of 359999996400s is too long", "at most 7 days"),
        (&["echo", TO, "--size", "0"], 2, "invalid payload size 0", "expected 1 to 65507 bytes"),
        (
            &["echo", TO, "--size", "17"],
            2,
            "payload size 17 is too small for echo",
            "it needs at least 18 bytes",
        ),
        (&["echo", TO, "--size", "65508"], 2, "invalid payload size 65508", "expected 1 to 65507 bytes"),
        (
            &["echo", TO, "--size", "99999999999"],
            2,
            "invalid value '99999999999' for '--size <BYTES>': invalid size `99999999999`",
            "expected a whole number of bytes from 0 to 4294967295",
        ),
        (&["echo", TO, "--flows", "0"], 2, "invalid number of flows 0", "expected 1 to 131072"),
        (
            &["echo", TO, "--flows", "4294967295"],
            2,
            "invalid number of flows 4294967295",
            "expected 1 to 131072",
        ),
        (&["echo", TO, "--inflight", "0"], 2, "--inflight must be", "at least 1"),
        (&["echo", TO, "--threads", "0"], 2, "invalid number of threads 0", "expected 1 to 1024"),
        (
            &["echo", TO, "--threads", "9"],
            2,
            "9 threads for 1 flow(s)",
            "every thread needs its own flow; use more flows or fewer threads",
        ),
        (
            &["echo", TO, "--source-ports", "9-5"],
            2,
            "invalid port range `9-5`",
            "expected LOW-HIGH with 1 <= LOW <= HIGH",
        ),
        (
            &["echo", TO, "--source", "::1"],
            2,
            "127.0.0.1 and ::1 have different address families",
            "use IPv4 or IPv6 for all",
        ),
        (
            &["echo", TO, "--source", "192.0.2.9"],
            3,
            "cannot bind flow 0 to 192.0.2.9:0",
            "not an address of this machine: add it, or use another --source): Cannot assign",
        ),
        (
            &["echo", TO, "[::1]:9"],
            2,
            "127.0.0.1 and ::1 have different address families",
            "use IPv4 or IPv6 for all",
        ),
        (
            &["echo", "127.0.0.1"],
            2,
            "invalid target `127.0.0.1`",
            "expected ADDR:PORT, such as 192.0.2.1:7 or [2001:db8::1]:7",
        ),
        (&["echo", "127.0.0.1:0"], 2, "target 127.0.0.1:0 has port 0", "name the server's port"),
        (
            &["echo", "0.0.0.0:7"],
            2,
            "target 0.0.0.0:7 is a wildcard address",
            "name an address of the server",
        ),
        (
            &["echo", "[fe80::1%nosuch0]:7"],
            2,
            "invalid target `[fe80::1%nosuch0]:7`",
            "this machine has no interface `nosuch0`",
        ),
        (&["echo"], 2, "no target", "name the server as ADDR:PORT, or use --lab"),
        (
            &["echo", TO, "--mode", "flood"],
            2,
            "echo does not support --mode flood",
            "use rr, or `udpath load sink --mode flood` with `udpath serve sink` as the server",
        ),
        (
            &["sink", TO, "--mode", "rr"],
            2,
            "sink does not support --mode rr",
            "use stream or flood, or `udpath load echo --mode rr` with `udpath serve echo` as the server",
        ),
        (
            &["echo", TO, "--engine", "magic"],
            2,
            "invalid value 'magic' for '--engine <ENGINE>'",
            "[possible values: socket, kernel, xdp, xdp-rings]",
        ),
        (
            &["echo", TO, "--engine", "kernel"],
            3,
            "kernel engine: 127.0.0.1:9 is reached through the loopback, which has no native XDP",
            "use the socket engine, or a server in another network namespace",
        ),
        (
            &["echo", TO, "--engine", "kernel", "--rate", "5"],
            2,
            "the kernel engine is a closed loop over UDP",
            "use --mode rr with --inflight, or --engine socket",
        ),
        (
            &["echo", TO, "--engine", "kernel", "--tcp"],
            2,
            "the kernel engine is a closed loop over UDP",
            "use --mode rr with --inflight, or --engine socket",
        ),
        (
            &["echo", TO, "--engine", "xdp"],
            2,
            "the xdp engine cannot run this plan: 127.0.0.1 is reached through the loopback, which has no native XDP",
            "use the socket engine, or a server in another network namespace",
        ),
        (
            &["echo", TO, "--engine", "xdp", "--tcp"],
            2,
            "the xdp engine supports UDP only",
            "remove --tcp, or use --engine socket",
        ),
        (
            &["sink", TO, "--engine", "xdp"],
            2,
            "the xdp engine does not support stream",
            "use --engine socket",
        ),
        (
            &["echo", "192.0.2.1:9", "--engine", "xdp", "--flows", "5000"],
            2,
            "the xdp engine cannot run this plan: 5000 flows exceed its limit of 4096",
            "use fewer",
        ),
        (&["echo", TO, "--tcp"], 3, "cannot connect a flow to 127.0.0.1:9", "start a server there"),
        (
            &["echo", TO, "--find-max", "--loss", "2"],
            2,
            "invalid loss limit 2",
            "expected a share from 0 % to below 100 %",
        ),
        (&["echo", "--lab", "--queues", "0"], 2, "invalid number of queues 0", "expected 1 to 4096"),
        (&["echo", "--lab", "--mtu", "576"], 2, "invalid MTU 576", "expected 1280 to 65535"),
        (
            &["echo", "--lab", "--tcp", "--congestion", "vegas2"],
            2,
            "unknown congestion control `vegas2`",
            "cubic",
        ),
        (
            &["echo", "--lab", "--queues", "100000"],
            2,
            "invalid number of queues 100000",
            "expected 1 to 4096",
        ),
        (
            &["echo", "--lab", "--pattern", "incast", "--hosts", "0"],
            2,
            "invalid --hosts 0",
            "expected 1 to 32",
        ),
        (
            &["echo", TO, "--gso", "--tcp"],
            2,
            "--gso joins requests of mode rr over UDP sockets, not of mode rr over tcp with engine socket",
            "remove it",
        ),
        (
            &["dns", "--lab", "--name", "h{}"],
            2,
            "invalid --name h{}: a server made for the load needs the name of its zone behind the number",
            "use a name such as host{}.example.org",
        ),
        (
            &["chess", TO],
            2,
            "invalid value 'chess' for '<PROTOCOL>'",
            "[possible values: echo, sink, ntp, dns, radius, snmp, replay, mix]",
        ),
    ];
    all_refused(&["load"], cases);
}
