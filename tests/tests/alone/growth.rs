//! Memory of `serve --io xdp` and of `load` under a steady load: nothing grows. A few seconds in `make test`, ten
//! minutes in `make soak`. Needs root.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use udpath_rig::{Run, TIMEOUT, campaign, client_and_server, program};

/// Seconds of the load: in `make test`, in `make soak`.
const SHORT: u32 = 8;
const WHOLE: u32 = 600;
/// Transactions requested per second: a rate that a loaded machine still carries, so that the run is steady.
const RATE: &str = "100k";
/// After this share of the run every table and buffer has been used. Lower: their first use counts as growth. Higher:
/// less time to grow in.
const SETTLED: f64 = 0.25;
/// Growth that counts, KiB: below it is rounding in the allocator and the kernel. A leak of one byte per thousand
/// transactions would be 440 KiB in the rest of ten minutes.
const GROWTH: u64 = 256;

/// Resident memory, KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn serve_over_xdp_and_load_do_not_grow() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = client_and_server("growth", 2);
    let mut inside = lab.machine("server").unwrap().command(program());
    inside.args(["serve", "echo", "--json", "--bind", "0.0.0.0:7000", "--io", "xdp"]);
    let length = Duration::from_secs(campaign::rounds(SHORT, WHOLE).into());
    let mut server = Run::of(inside, "serve").within(length + TIMEOUT * 2).start_with(|c| lab.spawn(c));
    server.says("ready io=");

    let to = lab.address_of("server", "client").unwrap().ipv4;
    let mut inside = lab.machine("client").unwrap().command(program());
    inside.args(["load", "echo", &format!("{to}:7000"), "--json", "--flows", "64", "--threads", "2"]);
    inside.args(["--rate", RATE, "-d", &format!("{}s", length.as_secs())]);
    let load = Run::of(inside, "load").within(length + TIMEOUT * 2).start_with(|c| lab.spawn(c));

    let begin = Instant::now();
    let pids = [server.pid(), load.pid()];
    let (mut settled, mut most) = ([0; 2], [0; 2]);
    // When the load ends, it writes its result; the memory for that does not count.
    while begin.elapsed() < length - Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(200));
        let now = pids.map(resident);
        if begin.elapsed() < length.mul_f64(SETTLED) {
            settled = now;
        }
        for (most, now) in most.iter_mut().zip(now) {
            *most = now.max(*most);
        }
    }
    let loaded = load.finish();
    let result: Value = serde_json::from_str(&loaded.out).expect("load prints its result");
    let ok = result["counts"]["ok"].as_u64().unwrap();
    // Half of what was requested: on any usable machine the memory was in use.
    assert!(ok > 50_000 * length.as_secs(), "only {ok} transactions: {}", loaded.err);
    for (name, (settled, most)) in ["serve --io xdp", "load"].iter().zip(settled.iter().zip(most)) {
        let grown = most.saturating_sub(*settled);
        campaign::record(
            &format!("growth of {name}"),
            &format!("{grown} KiB over {settled} KiB in {} s, {ok} transactions", length.as_secs()),
        );
        assert!(grown <= GROWTH, "{name} grew from {settled} to {most} KiB");
    }
}
