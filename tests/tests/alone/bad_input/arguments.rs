//! Arguments that the other verbs reject.

use std::fs;
use std::net::UdpSocket;

use super::{Case, all_refused};

/// After an unknown name: the labs that there are, which may be other processes', or how to create one.
const INSTEAD: &str = "; ";

#[test]
fn boost() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let cases: &[Case<'_>] = &[
        (&["--duration", "0"], 2, "invalid value '0' for '--duration <TIME>'", "expected 50ms to 1h"),
        (&["--duration=-1"], 2, "invalid time `-1`", "expected a value such as 5s, 500ms, 10us or 2m"),
        (&["-d", "NaN"], 2, "invalid time `NaN`", "expected a value such as 5s, 500ms, 10us or 2m"),
        (&["-d", "inf"], 2, "invalid time `inf`", "expected a value such as 5s, 500ms, 10us or 2m"),
        (
            &["--seconds", "1e300"],
            2,
            "invalid time `1e300`",
            "expected a value such as 5s, 500ms, 10us or 2m",
        ),
        (
            &["--seconds", "soon"],
            2,
            "invalid value 'soon' for '--duration <TIME>': invalid time `soon`",
            "expected a value such as 5s, 500ms, 10us or 2m",
        ),
        (&["--size", "0"], 2, "invalid payload size 0", "expected 1 to 65507 bytes"),
        (&["--size", "17"], 2, "payload size 17 is too small for echo", "it needs at least 18 bytes"),
        (
            &["--size", "1473"],
            2,
            "payload size 1473 does not fit one frame of eth",
            "use the socket engine for more",
        ),
        (&["--size", "65508"], 2, "invalid payload size 65508", "expected 1 to 65507 bytes"),
        (
            &["--size", "-5"],
            2,
            "invalid value '-5' for '--size <BYTES>': invalid size `-5`",
            "expected a whole number of bytes from 0 to 4294967295",
        ),
        (&["--queues", "0"], 2, "invalid number of queues 0", "expected 1 to 4096"),
        (&["--queues", "100000"], 2, "invalid number of queues 100000", "expected 1 to 4096"),
        (
            &["--queues", "5000000000"],
            2,
            "invalid value '5000000000' for '--queues <N>': invalid number `5000000000`",
            "expected a whole number from 0 to 4294967295",
        ),
        (&["--workers", "0"], 2, "invalid number of workers 0", "expected 1 to 1024"),
        (&["--workers", "100000"], 2, "invalid number of workers 100000", "expected 1 to 1024"),
        (&["--flows", "0"], 2, "invalid number of flows 0", "expected 1 to 131072"),
        (&["--flows", "1000000"], 2, "invalid number of flows 1000000", "expected 1 to 131072"),
        (&["--inflight", "0"], 2, "--inflight must be", "at least 1"),
        (
            &["--inflight", "4294967295"],
            2,
            "64 flows with 4294967295 requests in flight each are too many",
            "the limit is 1048576 requests in all",
        ),
        (
            &["--io", "magic"],
            2,
            "invalid value 'magic' for '--io <LIST>'",
            "[possible values: shared, reuseport, percpu, xdp]",
        ),
        (
            &["--io", "shared,,percpu"],
            2,
            "a value is required for '--io <LIST>'",
            "[possible values: shared, reuseport, percpu, xdp]",
        ),
        (
            &["--engine", "magic"],
            2,
            "invalid value 'magic' for '--engine <ENGINE>'",
            "[possible values: kernel, socket]",
        ),
        (
            &["--bound", "0"],
            2,
            "invalid half-width 0 of the interval",
            "expected 0.001 to 0.5, such as 0.015 for 1.5 %",
        ),
        (
            &["--bound", "NaN"],
            2,
            "invalid half-width NaN of the interval",
            "expected 0.001 to 0.5, such as 0.015 for 1.5 %",
        ),
        (
            &["--duet", "always", "--workers", "1024"],
            2,
            "a duet needs 1024 CPUs on each side, one for each worker and queue",
            "use fewer --workers and --queues, or --duet never",
        ),
        (&["--blocks", "0"], 2, "invalid limit of 0 blocks per comparison", "expected 3 to 1000"),
        (&["--blocks", "1001"], 2, "invalid limit of 1001 blocks per comparison", "expected 3 to 1000"),
        (
            &["--report", "/nowhere/x.html"],
            3,
            "cannot write /nowhere/x.html",
            "create the folder first, or choose another): No such file or directory",
        ),
        (
            &["--report", "/proc/x.html"],
            3,
            "cannot write /proc/x.html",
            "create the folder first, or choose another): No such file or directory",
        ),
        (&["--report", "/proc"], 2, "--report: cannot write /proc: it is a folder", "name a file in it"),
        (&["--report", ""], 2, "a value is required for '--report <FILE.html>'", "none was supplied"),
        (
            &["--sze", "100"],
            2,
            "unexpected argument '--sze' found",
            "tip: a similar argument exists: '--size'",
        ),
    ];
    all_refused(&["boost", "--lab"], cases);
    all_refused(
        &["boost"],
        &[
            (&["--port", "1"], 2, "required arguments were not provided", "--load <LOAD>"),
            (&["--serve"], 2, "a value is required for '--serve", "none was supplied"),
            (
                &["--serve", "snmp"],
                2,
                "--serve: udpath has no server of snmp that answers",
                "use echo, ntp, dns, radius",
            ),
            (
                &["--serve", "dsn"],
                2,
                "--serve: invalid value 'dsn' for '<PROTOCOL>'",
                "possible values: echo",
            ),
            (
                &["--serve", "ntp", "10.0.0.1:123"],
                2,
                "--serve: the lab makes its own servers",
                "remove 10.0.0.1:123",
            ),
            (
                &["--serve", "dns", "--rate", "10k"],
                2,
                "--serve: remove --rate: trials are closed loops of boost's own --flows",
                "which come before --serve",
            ),
            (&["--serve", "ntp", "--names", "5"], 2, "--names is an option of dns, not of ntp", "remove it"),
            (
                &["--size", "80", "--serve", "dns"],
                2,
                "invalid --size 80",
                "the requests of dns have their own lengths: remove it",
            ),
            (
                &["--engine", "kernel", "--serve", "radius"],
                2,
                "--engine kernel sends the same requests of radius again and again",
                "remove it",
            ),
            (&["--port", "1", "--serve", "ntp"], 2, "cannot be used with", "--serve"),
        ],
    );
}

#[test]
fn serve() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let busy = busy.local_addr().unwrap().to_string();
    let here = ["--bind", "127.0.0.1:0"];
    let with = |more: &[&'static str]| [&["echo"], &here[..], more].concat();
    let cases: &[Case<'_>] = &[
        (
            &with(&["--io", "magic"]),
            2,
            "invalid value 'magic' for '--io <IO>'",
            "[possible values: auto, shared, reuseport, percpu, xdp]",
        ),
        (
            &with(&["--io", "percpu", "--workers", "1000"]),
            3,
            "percpu runs one worker per CPU: 1000 workers do not fit",
            "or fewer",
        ),
        (
            &with(&["--workers", "0"]),
            2,
            "invalid number of workers 0",
            "expected 1 to 1024, ideally one per CPU",
        ),
        (
            &with(&["--workers", "100000"]),
            2,
            "invalid number of workers 100000",
            "expected 1 to 1024, ideally one per CPU",
        ),
        (&with(&["--batch", "0"]), 2, "invalid batch 0", "expected 1 to 1024 datagrams"),
        (&with(&["--rcvbuf", "0"]), 2, "invalid receive buffer size 0", "expected 1 to 1073741823 bytes"),
        (
            &with(&["--cpus", "3-1"]),
            2,
            "invalid value '3-1' for '--cpus <LIST>': range \"3-1\" (character 1) runs backwards",
            "write the lower CPU first",
        ),
        (
            &with(&["--cpus", "60000"]),
            3,
            "CPU 60000 is not among those this process may use",
            "change the list or the cpuset",
        ),
        (&with(&["--flow-limit"]), 2, "--flow-limit needs", "needs --steer"),
        (
            &with(&["--io", "reuseport", "--steer"]),
            2,
            "reuseport has no frames to steer: the kernel chooses the socket",
            "use --io xdp, or omit --steer",
        ),
        (
            &with(&["--steer=0,2", "--workers", "2"]),
            2,
            "cannot steer to worker 2: there are 2 workers",
            "counted from 0",
        ),
        (
            &with(&["--steer=3-1"]),
            2,
            "invalid value '3-1' for '--steer[=<WORKERS>]': range \"3-1\" (character 1) runs backwards",
            "write the lower CPU first",
        ),
        (&["echo"], 2, "required arguments were not provided", "--bind <ADDR:PORT>"),
        (
            &["echo", "--bind", "127.0.0.1:99999"],
            2,
            "invalid value '127.0.0.1:99999'",
            "for '--bind <ADDR:PORT>'",
        ),
        (
            &["echo", "--bind", "[fe80::1%nosuch0]:7"],
            2,
            "invalid value '[fe80::1%nosuch0]:7'",
            "for '--bind <ADDR:PORT>'",
        ),
        (
            &["echo", "--bind", "192.0.2.1:7"],
            3,
            "cannot bind UDP 192.0.2.1:7",
            "`ip address` lists the addresses of this host",
        ),
        (
            &["echo", "--bind", &busy],
            3,
            &format!("cannot bind UDP {busy}"),
            "(stop the other server or choose another port): Address already in use",
        ),
        (
            &["sink", "--bind", &busy],
            3,
            &format!("cannot bind UDP {busy}"),
            "(stop the other server or choose another port): Address already in use",
        ),
        (
            &["chess", "--bind", "127.0.0.1:0"],
            2,
            "invalid value 'chess' for '<PROTOCOL>'",
            "[possible values: echo, sink, ntp, dns, radius]",
        ),
    ];
    all_refused(&["serve"], cases);
}

#[test]
fn report() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("text"), "hello").unwrap();
    fs::write(path("cut.json"), "{\"schema\":\"udpath.boost/2\",\"rungs\":[").unwrap();
    fs::write(path("newer.json"), "{\"schema\":\"udpath.boost/9\"}").unwrap();
    all_refused(
        &["report"],
        &[
            (
                &[&path("nothing.json")],
                3,
                "/nothing.json",
                "(name a file that exists, or - for standard input): No such file or directory",
            ),
            (
                &["/proc"],
                3,
                "cannot read /proc",
                "(name a file in it, or - for standard input): Is a directory",
            ),
            (
                &["/dev/null"],
                3,
                "/dev/null is empty",
                "expected a result of udpath boost, load, profile or experiment",
            ),
            (&[&path("text")], 3, "/text", "is not JSON"),
            (&[&path("cut.json")], 3, "/cut.json", "is truncated at line"),
            (&[&path("newer.json")], 3, "/newer.json", "written by another version of udpath"),
            (&[], 2, "the following required arguments were not provided", "<FILE>"),
        ],
    );
}

#[test]
fn lab() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    all_refused(
        &["lab"],
        &[
            (
                &["up", "Bad Name"],
                2,
                "invalid lab name \"Bad Name\"",
                "expected 1 to 32 of a-z, 0-9 and -, starting with a letter or digit",
            ),
            (&["up", "x", "--queues", "0"], 2, "invalid number of queues 0", "expected 1 to 4096"),
            (&["up", "x", "--queues", "100000"], 2, "invalid number of queues 100000", "expected 1 to 4096"),
            (&["up", "x", "--machines", "a,a"], 2, "two machines are named \"a\"", "give each its own name"),
            (
                &["up", "x", "--machines", ""],
                2,
                "invalid machine name \"\"",
                "expected 1 to 15 of a-z, 0-9 and -, starting with a letter or digit",
            ),
            (&["down", "no-such-lab-here"], 3, "there is no lab \"no-such-lab-here\"", INSTEAD),
            (
                &["exec", "no-such-lab-here/a", "--", "true"],
                3,
                "there is no lab \"no-such-lab-here\"",
                INSTEAD,
            ),
            (
                &["exec", "no-such-lab-here/a"],
                2,
                "the following required arguments were not provided",
                "<CMD>...",
            ),
            (&["down"], 2, "the following required arguments were not provided", "<NAME|--stale|--all>"),
            (&["frob"], 2, "unrecognized subcommand 'frob'", "[subcommands: up, exec, list, down]"),
        ],
    );
}
