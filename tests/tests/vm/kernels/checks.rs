//! What each step of a boot has to show.

use super::*;

pub(super) fn verbs(recorded: &Recorded, (cpus, _, queues): Shape) {
    for step in ["version", "show", "completions", "man", "lab-up", "lab-down", "predict", "plan", "report"] {
        let ended = &recorded.steps[step];
        assert!(matches!(ended.code, 0 | 1), "{step}: {}{}", ended.out, ended.err);
    }
    assert_eq!(recorded.fine("lab-exec"), "0\n");
    for (link, card) in ["eth0", "eth1", "eth2"].into_iter().zip(CARDS) {
        let shown = looked(recorded, &format!("show-{link}"));
        assert_eq!(shown["interfaces"][0]["driver"], card, "{shown}");
    }
    for step in ["snapshot", "from-support", "show-json"] {
        let shown = looked(recorded, step);
        assert!(shown["interfaces"].as_array().unwrap().len() >= 3, "{step}: {shown}");
    }
    let top = json(recorded, "top");
    assert_eq!(top["cpus"].as_array().unwrap().len(), cpus as usize, "{top}");
    let metrics = recorded.fine("metrics");
    let series = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("udpath_softnet_processed_total{cpu="), cpus as usize, "{metrics}");
    assert_eq!(series("udpath_queue_interrupts_total{device=\"eth0\","), queues as usize, "{metrics}");
    for step in ["apply", "confirm", "undo", "status-after", "selected"] {
        recorded.fine(step);
    }
    for (rule, change) in [("field", "by-flow -> field:0+4"), ("least-loaded", "field:0+4 -> least-loaded")] {
        let said = recorded.fine(&format!("select-{rule}"));
        assert_eq!(said.matches(change).count(), CARDS.len(), "a group for each address: {said}");
    }
    let [before, applied, after] =
        ["looked-before", "looked-applied", "looked-after"].map(|step| recorded.fine(step));
    assert_eq!(before, after, "undone");
    let said: Vec<&str> = applied.lines().collect();
    assert!(said[0].ends_with('2'), "{applied}");
    assert_eq!((said[1], said.last().copied()), ("4194304", Some("0")), "{applied}");
    assert_ne!(before, applied);
}

/// A server gets what the policy says at its bind, and nothing is left of it afterwards.
pub(super) fn policy(recorded: &Recorded) {
    let before = recorded.fine("policy-before");
    assert!(before.starts_with("rb") && !before.contains("rb300000"), "{before}");
    let set = recorded.fine("policy-set");
    assert!(set.contains("none -> 300000") && set.contains("none -> 6"), "{set}");
    let bound: Vec<&str> = recorded.fine("policy-bound").lines().collect();
    let (buffer, list) = bound.split_first().unwrap();
    assert_eq!((*buffer, list.len()), ("rb300000", 2), "{bound:?}");
    assert!(list.iter().all(|line| line.ends_with("  in effect")), "{list:?}");
    assert!(!recorded.fine("policy-show").contains("also at"), "there is no other program");
    recorded.fine("policy-remove");
    assert_eq!(recorded.fine("policy-after"), before);
    assert_eq!(recorded.fine("policy-pins"), "");
}

/// Both instances of a server answer on its port, and nothing is left of them.
pub(super) fn multiplied(recorded: &Recorded) {
    let up = recorded.fine("multiply-up");
    assert!(up.contains("ready: 2 instances at 127.0.0.1:1123"), "{up}");
    answered("multiply", &json(recorded, "multiply-load"));
    let status = json(recorded, "multiply-status");
    let instances = status["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 2, "{status}");
    for instance in instances {
        assert_eq!((&instance["state"], &instance["restarts"]), (&"serving".into(), &0.into()), "{status}");
        assert!(instance["datagrams"].as_u64().unwrap() > 0, "{status}");
    }
    for step in ["multiply-stop", "multiply-code"] {
        recorded.fine(step);
    }
    assert_eq!(recorded.fine("multiply-left"), "");
}

/// Requests were answered, and no answer was wrong. A machine that waits for its host may lose some packets, on any Io.
#[track_caller]
fn answered(name: &str, load: &Value) {
    assert!(is_answered(load), "{name}: {}", load["counts"]);
}

fn is_answered(load: &Value) -> bool {
    let [sent, ok, lost, corrupt, wrong] =
        ["sent", "ok", "lost", "corrupt", "wrong_flow"].map(|key| load["counts"][key].as_u64().unwrap());
    ok > 0 && ok + lost <= sent && lost <= sent / 2 && corrupt + wrong == 0
}

pub(super) fn services(passed: &Passed, kernel: &DebianKernel) {
    let Passed { recorded, loads, .. } = passed;
    let counts: String = loads.iter().map(|(name, load)| format!("{name}: {}\n", load["counts"])).collect();
    for (name, load) in loads {
        let service = name.split(' ').next().unwrap();
        let network = recorded.steps.get(&format!("{service}-network")).map_or("", |step| step.out.as_str());
        assert!(is_answered(load), "{name}: requests were not answered; all loads:\n{counts}{network}");
    }
    let served = |name: &str| {
        let said = json(recorded, &format!("{name}-served"));
        let sent = loads.iter().filter(|(load, _)| load.split(' ').next() == Some(name));
        let ok: u64 = sent.map(|(_, load)| load["counts"]["ok"].as_u64().unwrap()).sum();
        let total = &said["total"];
        assert!(ok > 0 && total["answered"].as_u64().unwrap() >= ok, "{name}: {ok} of {total}");
        said
    };
    let refused = |name: &str, part: &str| {
        let up = recorded.fine(&format!("{name}-up"));
        udpath_rig::one_sentence(name, up);
        assert!(up.contains(part), "{name}: {up}");
        assert_eq!(recorded.steps[&format!("{name}-served")].code, 3, "{name}: {up}");
    };
    for io in IOS {
        assert_eq!(served(io)["io"], io);
        assert_eq!(loads.iter().filter(|(name, _)| name.starts_with(&format!("{io} "))).count(), CARDS.len());
    }
    let native: &[&str] = if kernel.vmxnet3_xdp { &["xdp", "xdp-vmxnet3"] } else { &["xdp"] };
    for name in native {
        let said = served(name);
        let xdp = &said["xdp"];
        assert!(xdp["taken"].as_u64().unwrap() > 0, "{name}: {xdp}");
        for port in xdp["ports"].as_array().unwrap() {
            assert_eq!(port["live_frames"], "yes", "{name}: {port}");
        }
    }
    for name in ["xdp-vmxnet3", "xdp-e1000e"].into_iter().filter(|name| !native.contains(name)) {
        refused(name, "has no native XDP");
    }
    served("auto");
    // What a verifier writes is for developers.
    for (name, step) in &recorded.steps {
        let said = format!("{}{}", step.out, step.err);
        assert!(!said.contains("processed ") || !said.contains(" insns"), "{name}: {said}");
    }
}

pub(super) fn engines(recorded: &Recorded) {
    let others = ["ntp", "mix"].map(|protocol| (format!("load-{protocol}"), "kernel"));
    for (step, engine) in ENGINES.map(|engine| (format!("load-{engine}"), engine)).into_iter().chain(others) {
        let load = udpath_rig::json(&recorded.steps[&step].out);
        assert_eq!(load["engine"], engine, "{load}");
        answered(&step, &load);
    }
    let said = &recorded.steps["load-snmp"].err;
    assert!(said.contains("10.0.0.1:161 answered none of"), "{said}");
}

/// The rules know this kernel's functions, and its tracepoints are read.
pub(super) fn profiled(recorded: &Recorded, kernel: &DebianKernel) {
    let profile = json(recorded, "profile");
    let classes = profile["classes"].as_array().unwrap();
    let share = |name: &str| {
        classes.iter().find(|class| class["of"] == name).map_or(0.0, |class| class["share"].as_f64().unwrap())
    };
    assert!(share("unclassified") < 0.05, "{classes:?}");
    let seen: BTreeSet<&str> = classes.iter().filter_map(|class| class["of"].as_str()).collect();
    // Where a datagram comes in, is read, and leaves; a few hundred samples of thousands of datagrams have some of
    // each.
    for part in [
        ["udp-receive", "ip", "napi-gro"],
        ["socket-read", "copy", "skb"],
        ["udp-send", "transmit", "nic-driver"],
    ] {
        assert!(part.iter().any(|class| seen.contains(class)), "none of {part:?} is in {seen:?}");
    }
    assert!(profile["datagrams"]["received"].as_u64().unwrap() > 0, "{}", profile["datagrams"]);
    for trace in ["locks", "drops", "softirqs"] {
        assert!(profile["traces"][trace].is_object(), "{trace}: {}", profile["traces"]);
    }
    let delays = &profile["traces"]["delays"];
    assert_eq!(delays.is_object(), kernel.data_ready, "{delays}");
    if !kernel.data_ready {
        let absent = profile["traces"]["absent"][0]["reason"].as_str().unwrap();
        assert!(
            absent.ends_with("this kernel has no such tracepoint (Linux 6.3 and later have it)"),
            "{absent}"
        );
    }
}
