//! Units of systemd: restarted, with policies, spread over their sockets, and in instances; now and after each boot.

use super::*;

/// Its configuration is changed and put back under the unit of Debian's package, which systemd restarts each time.
#[test]
fn a_servers_unit_is_restarted_by_systemd() {
    udpath_lab::needs_root!();
    let (boot, mut pids) = (first(), Vec::new());
    fine(boot, "nsd-start");
    fine(boot, "nsd-apply");
    fine(boot, "nsd-undo");
    // The main process, the one for zone transfers, and the servers.
    for (step, processes, files) in
        [("nsd-before", 3, &[][..]), ("nsd-applied", 4, &["udpath.conf"]), ("nsd-undone", 3, &[])]
    {
        let mut lines = fine(boot, step).lines();
        pids.push(lines.next().unwrap());
        assert_eq!(lines.next().unwrap().trim(), processes.to_string(), "{step}: {:?}", boot[step]);
        assert_eq!(lines.collect::<Vec<_>>(), files, "{step}");
    }
    assert!(pids[0] != pids[1] && pids[1] != pids[2], "it was not restarted: {pids:?}");
}

/// nsd is not told of its policy: it asks for other buffers itself, before its bind.
#[test]
fn a_policy_holds_for_a_unit_over_restarts_and_boots() {
    udpath_lab::needs_root!();
    let boot = first();
    ended(boot, "policy-unknown", 3, "LoadState=not-found");
    ended(boot, "policy-stopped", 0, "no policy of /system.slice/nsd.service");
    let before = fine(boot, "policy-before");
    assert!(
        before.starts_with("rb") && !before.contains("rb1500000") && !before.contains("tb16777216"),
        "{before}"
    );
    let set = fine(boot, "policy-set");
    assert!(set.contains("none -> 1500000") && set.contains("bound before"), "{set}");
    assert!(set.contains("sysctl:net.core.wmem_max"), "its limit is raised: {set}");
    assert!(fine(boot, "policy-later").contains("in effect when"), "{:?}", boot["policy-later"]);
    let restarts: Vec<&str> = fine(boot, "policy-restarts").lines().collect();
    assert_eq!(restarts, ["rb1500000 tb16777216 8388608"; 20]);
    assert!(!fine(boot, "policy-show").contains("when"), "{:?}", boot["policy-show"]);
    let off: Value = serde_json::from_str(fine(boot, "policy-off")).unwrap();
    for option in off["options"].as_array().unwrap() {
        assert_eq!(option["state"], "later", "{option}");
    }
    for boot in &BOOTS[1..] {
        assert_eq!(boot["policy-unit"].0, 0, "{:?}", boot["policy-unit"]);
        let time = |step: &str| fine(boot, step).trim().parse::<u64>().unwrap();
        let (ended, started) = (time("policy-ended"), time("policy-started"));
        assert!(0 < ended && ended < started, "set at {ended} us, nsd started at {started} us");
        assert_eq!(fine(boot, "policy-booted"), "rb1500000 tb16777216 8388608\n");
        // Other units' policies are listed too, and their programs may not have started yet.
        let holds = fine(boot, "policy-holds").lines().filter(|line| line.contains("nsd.service"));
        let holds: Vec<&str> = holds.collect();
        assert!(holds.len() == 2 && holds.iter().all(|line| line.ends_with("  in effect")), "{holds:?}");
    }
    let boot = last();
    fine(boot, "policy-remove");
    assert_eq!(fine(boot, "policy-after"), before);
    ended(boot, "policy-none", 0, "no policy");
    assert!(!fine(boot, "policy-pins").contains("udpath"), "{:?}", boot["policy-pins"]);
}

/// What the collector has answered with each of its threads.
fn answered(text: &str) -> Vec<u64> {
    let counted: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let workers = counted["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker["answered"].as_u64().unwrap()).collect()
}

/// A restarted server has a new reuseport group: the drop-in of its unit sets what selects in it, at a boot too.
#[test]
fn one_flow_is_spread_over_the_sockets_of_a_unit_after_a_boot() {
    udpath_lab::needs_root!();
    let one_socket = |boot: &Steps, step: &str| {
        let counts = answered(fine(boot, step));
        let (all, most) = (counts.iter().sum::<u64>(), *counts.iter().max().unwrap());
        assert!(counts.len() == 4 && all > 0 && all == most, "{step}: {counts:?}");
    };
    let boot = first();
    one_socket(boot, "spread-before");
    let set = fine(boot, "spread-set");
    assert!(set.contains("policy:collector.service:2055/spread") && set.contains("round-robin"), "{set}");
    assert!(
        fine(boot, "spread-later").contains("in effect when it is restarted"),
        "{:?}",
        boot["spread-later"]
    );
    assert!(fine(boot, "spread-set-now").contains("in effect\n"), "{:?}", boot["spread-set-now"]);
    for boot in &BOOTS[1..] {
        assert!(fine(boot, "spread-holds").contains("in effect\n"), "{:?}", boot["spread-holds"]);
        assert!(fine(boot, "spread-status").contains("holds"), "{:?}", boot["spread-status"]);
        let counts = answered(fine(boot, "spread-booted"));
        let all: u64 = counts.iter().sum();
        let share = |count: u64| count as f64 / all as f64;
        let fair = counts.iter().all(|count| (0.23..=0.27).contains(&share(*count)));
        assert!(counts.len() == 4 && all >= 100 && fair, "{counts:?}");
    }
    let boot = last();
    ended(boot, "spread-undo", 0, "undid apply 1: all settings read back at their previous values\n");
    one_socket(boot, "spread-after");
    ended(boot, "spread-none", 0, "no policy");
}

/// Under the unit of udpath's own package, in its sandbox: one process reads with three capabilities, the other answers
/// with none.
#[test]
fn the_exporter_is_started_by_systemd_and_may_do_little() {
    udpath_lab::needs_root!();
    for boot in &*BOOTS {
        assert_eq!(boot["export-active"].1, "active\n", "{}", fine(boot, "export-said"));
        let mut processes: Vec<&str> = fine(boot, "export-processes").lines().map(str::trim).collect();
        processes.sort_unstable();
        let process = |name: &str, capabilities: u64| {
            format!("{name} Uid:102 CapEff:{capabilities:016x} NoNewPrivs:1 Seccomp:2")
        };
        // CAP_DAC_READ_SEARCH, CAP_NET_ADMIN and CAP_SYS_PTRACE.
        let reader = process("udpath export --listen 127.0.0.1:9453 --queues", 1 << 2 | 1 << 12 | 1 << 19);
        assert_eq!(processes, [process("/proc/self/exe export-answer", 0), reader]);
        let metrics = fine(boot, "export-metrics");
        // Of the collector, which is another user's process, and of the journal, which is root's.
        let [sockets, journal] = [
            "udpath_sockets{address=\"127.0.0.1\",port=\"2055\",process=\"udpath\"} 4\n",
            "udpath_journal_readable{} 1\n",
        ];
        assert!(metrics.contains(sockets) && metrics.contains(journal), "{metrics}");
    }
}

/// What `udpath multiply` sets of the time server's unit.
const SETTING: &str = "unit:ntp-server.service/instances";

/// The instances of a step's status, all of which serve and have got datagrams.
#[track_caller]
fn served_by(boot: &Steps, step: &str, count: usize) {
    let status: Value = serde_json::from_str(fine(boot, step)).unwrap();
    let instances = status["instances"].as_array().unwrap();
    assert_eq!(instances.len(), count, "{step}: {status}");
    for instance in instances {
        assert_eq!(instance["state"], "serving", "{step}: {status}");
        assert!(instance["datagrams"].as_u64().unwrap() > 0, "{step}: {status}");
    }
}

/// Every request of a load was answered, once.
#[track_caller]
fn all_answered(boot: &Steps, step: &str) {
    let load: Value = serde_json::from_str(fine(boot, step)).unwrap();
    let counts = &load["counts"];
    assert!(counts["ok"].as_u64().unwrap() > 0 && counts["ok"] == counts["sent"], "{step}: {counts}");
    assert_eq!(counts["ok"], load["counts"]["received"], "{step}: {counts}");
}

/// chronyd under a unit with a user and a sandbox, as Debian's.
#[test]
fn a_unit_runs_in_instances_over_boots_and_as_before_once_they_are_undone() {
    udpath_lab::needs_root!();
    let boot = first();
    ended(
        boot,
        "multiply-stopped",
        3,
        "nsd.service does not run; start it first: systemctl start nsd.service",
    );
    ended(boot, "multiply-nsd", 3, "set server-count");
    // It has four sockets of its own: its instances do not start, and it runs as before.
    ended(boot, "multiply-collector", 3, "has 4 sockets at 127.0.0.1:2055 itself");
    assert_eq!(fine(boot, "multiply-restored"), "active\n");
    let before = fine(boot, "multiply-before");
    assert!(before.contains("active\nchronyd\nchronyd.pid\n"), "{before}");
    let set = fine(boot, "multiply-set");
    assert!(set.contains("2 instances at") && set.contains("chosen by flow hash"), "{set}");
    all_answered(boot, "multiply-load");
    served_by(boot, "multiply-status", 2);
    let of_each = |cpu: u32| {
        format!(
            "CPUAffinity={cpu}\nUser=_chrony\nProtectSystem=strict\nPrivateTmp=yes\nActiveState=active\nCpus_allowed_list:\t{cpu}\n"
        )
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let instances = fine(boot, "multiply-instances");
    assert_eq!(sorted(instances), sorted(&format!("{}{}", of_each(0), of_each(1))), "{instances}");
    all_answered(boot, "multiply-number");
    assert!(fine(boot, "multiply-three").contains("3 instances at"), "{:?}", boot["multiply-three"]);
    assert!(fine(boot, "multiply-two").contains("2 instances at"), "{:?}", boot["multiply-two"]);
    for boot in &BOOTS[1..] {
        let holds: Value = serde_json::from_str(fine(boot, "multiply-holds")).unwrap();
        let last = holds["applies"].as_array().unwrap().last().unwrap();
        let held = &last["settings"][0];
        assert_eq!((&held["setting"], &held["state"]), (&SETTING.into(), &"holds".into()), "{holds}");
        assert!(held["note"].is_null(), "{held}");
        all_answered(boot, "multiply-booted-load");
        served_by(boot, "multiply-booted", 2);
        let status: Value = serde_json::from_str(fine(boot, "multiply-killed")).unwrap();
        assert_eq!(status["instances"].as_array().unwrap().len(), 2, "{status}");
    }
    let boot = last();
    ended(boot, "multiply-stop", 0, "ntp-server.service runs as before");
    all_answered(boot, "multiply-after-load");
    assert_eq!(fine(boot, "multiply-after"), before);
    ended(boot, "multiply-none", 3, "ntp-server.service is not multiplied");
    ended(boot, "multiply-undo", 3, "nothing to undo");
}
