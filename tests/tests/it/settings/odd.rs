//! Settings on unusual machines: names with a common prefix, devices and queues that disappear, CPUs that are offline
//! or never existed, and the limits of container privileges. Each gives one sentence, and nothing is left half done.

use std::fs;

use super::place::{Place, RPS};

/// Steering of all queues of all interfaces, and the qdiscs.
const POLL_INTERVAL: &str =
    "cd /sys/class/net; grep -H . */queues/*/*ps_cpus 2>/dev/null || true; tc qdisc show";

impl Place {
    fn look(&self) -> String {
        self.shell(POLL_INTERVAL).fine().out.clone()
    }

    fn plan(&self, requests: &[&str]) -> String {
        let mut arguments = vec!["plan", "--json"];
        requests.iter().for_each(|request| arguments.extend(["--set", request]));
        let path = self.files.path().join("plan.json");
        fs::write(&path, &self.run(&arguments).fine().out).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

#[test]
fn names_with_a_common_prefix_are_distinguished() {
    udpath_lab::needs_root!();
    let place = Place::new("alike");
    let pair = |name: &str| {
        format!(
            "ip link add {name} numrxqueues 2 numtxqueues 2 type veth peer name p{name} numrxqueues 2 numtxqueues 2"
        )
    };
    place.shell(&format!("{}; {}", pair("eth1"), pair("eth10"))).fine();
    let before = place.look();
    let applied = place.run(&["apply", "--set", "eth1:rps/rx-*=1"]);
    assert_eq!(applied.fine().out, "eth1:rps/rx-0  none -> 1\neth1:rps/rx-1  none -> 1\n");
    let after = place.look();
    let changed = after.lines().zip(before.lines()).filter(|(after, before)| after != before);
    let changed: Vec<&str> = changed.map(|(after, _)| after).collect();
    assert_eq!(changed, ["eth1/queues/rx-0/rps_cpus:2", "eth1/queues/rx-1/rps_cpus:2"]);
    place.run(&["undo"]).fine();
    assert_eq!(place.look(), before);
    place.run(&["apply", "--set", "eth100:rps/rx-0=1"]).refused(3, "no such interface");
}

#[test]
fn a_removed_device_is_reported_at_each_step() {
    udpath_lab::needs_root!();
    let place = Place::new("vanished");
    let make = "ip link add lan0 type veth peer name lan1";
    place.shell(make).fine();
    // Between plan and apply.
    let plan = place.plan(&["lan0:rps/rx-0=1", RPS]);
    place.shell("ip link del lan0").fine();
    let before = place.look();
    place.run(&["apply", &plan]).refused(3, "cannot read lan0:rps/rx-0: no such interface");
    assert_eq!(place.look(), before);
    // After the apply: the rest is restored, and the missing device is named.
    place.shell(make).fine();
    place.run(&["apply", "--set", "lan0:rps/rx-0=1", "--set", RPS]).fine();
    place.shell("ip link del lan0").fine();
    let status = place.run(&["status"]);
    status.refused(1, "1 setting is not at its applied value");
    assert!(status.out.contains("gone") && status.out.contains("holds"), "{}", status.out);
    place.run(&["undo"]).refused(1, "lan0:rps/rx-0 is gone");
    assert_eq!(place.look(), before);
    place.run(&["status"]).fine();
}

#[test]
fn a_queue_that_goes_between_reading_and_writing_takes_all_back() {
    udpath_lab::needs_root!();
    let place = Place::new("queue");
    let before = place.look();
    // The plan's own first change removes the queue of its second.
    let requests = ["apply", "--set", "eth0:channels/rx=1", "--set", "eth0:rps/rx-3=1"];
    place.run(&requests).refused(4, "eth0:rps/rx-3");
    assert_eq!(place.look(), before);
    // Removed by another program between plan and apply.
    let plan = place.plan(&["eth0:rps/rx-3=1", RPS]);
    place.shell("ethtool -L eth0 rx 2").fine();
    place.run(&["apply", &plan]).refused(3, "cannot read eth0:rps/rx-3: no such interface or queue");
    place.shell("ethtool -L eth0 rx 4").fine();
    assert_eq!(place.look(), before);
    assert_eq!(place.run(&["status"]).fine().out, "");
}

#[test]
fn missing_cpus_and_interrupts_are_reported_with_the_existing_ones() {
    udpath_lab::needs_root!();
    let place = Place::new("cpus");
    let before = place.look();
    for request in ["eth0:rps/rx-0=0-8191", "eth0:xps/tx-0=8191", "port:9:threads=1", "irq:999999:affinity=0"]
    {
        let said = place.run(&["apply", "--set", request]);
        let (code, part) = match request {
            request if request.starts_with("eth0") => (2, "this machine has no CPU"),
            request if request.starts_with("port") => (3, "no UDP socket is bound to port 9"),
            _ => (3, "no such IRQ"),
        };
        said.refused(code, part);
    }
    // A veth has no interrupts: this is an error, not a success.
    for request in ["eth0:irq/rx-0=0", "eth0:irq/rx-*=0"] {
        place.run(&["apply", "--set", request]).refused(3, "its queues have no IRQs");
    }
    // The last CPU appears offline to the run.
    let off =
        "echo 0 > $S.cpus; trap 'rm -f $S.cpus' EXIT; mount --bind $S.cpus /sys/devices/system/cpu/online";
    place
        .shell(&format!("{off}; $U apply --state $S --set {RPS}"))
        .refused(2, "CPU 1 is offline; online CPUs: 0");
    assert_eq!(place.look(), before);
}

#[test]
fn container_root_gets_the_missing_permission() {
    udpath_lab::needs_root!();
    let place = Place::new("container");
    let before = place.look();
    let pid = std::process::id();
    let thread = format!("thread:{pid}/{pid}:affinity=0");
    // The build directory may be closed to others.
    let open = "cp $U $S.open; chmod 755 $S.open; trap 'rm -rf $S.open $S.j' EXIT; mkdir -m 700 $S.j";
    let user = "chown 65534 $S.j; setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur";
    let bare = "setpriv --bounding-set=-all --inh-caps=-all";
    for (around, request, part) in [
        // Root in a user namespace of its own, unprivileged outside.
        (user, RPS, "it needs root"),
        (user, "eth0:channels/rx=2", "cannot set eth0:channels/rx"),
        (user, "eth0:qdisc=mq", "cannot set eth0:qdisc"),
        (user, "sysctl:net.ipv4.ip_default_ttl=70", "it needs root"),
        (user, &thread, "CAP_SYS_NICE"),
        // Root without capabilities: it can still write files it owns.
        (bare, RPS, "it needs root"),
        (bare, "eth0:channels/rx=2", "cannot set eth0:channels/rx"),
        (bare, "eth0:qdisc=mq", "cannot set eth0:qdisc"),
    ] {
        let said = place.shell(&format!("{open}; {around} $S.open apply --state $S.j --set {request}"));
        said.refused(3, part);
        assert!(said.err.contains("nothing was changed"), "{}", said.err);
        assert_eq!(place.look(), before, "{around} {request}");
    }
    // Several at once: the first one already fails.
    let requests = format!("--set {RPS} --set sysctl:net.ipv4.ip_default_ttl=70");
    place
        .shell(&format!("{open}; {bare} $S.open apply --state $S.j {requests}"))
        .refused(3, "nothing was changed");
    assert_eq!(place.look(), before);
}
