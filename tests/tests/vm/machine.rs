//! A machine with 20 CPUs in two nodes and 16 queues with RSS: booted once; the tests examine the recorded results.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use udpath_host::Source;
use udpath_host::source::Folder;
use udpath_rig::{VmSpec, awaited, campaign, program};

use crate::{Recorded, Step, StopOnPanic, experiment, packets, settings, steps};

/// Time limit. An idle machine with two CPUs takes a minute at most; one that also runs builds and other machines, ten
/// times as long.
const WITHIN: Duration = Duration::from_secs(1200);
/// More for each round of a campaign: two minutes at most, of which a flood until its server's memory is full takes
/// one.
const ROUND: Duration = Duration::from_secs(120);

/// Rounds with each of the causes that need a machine, and as many of their twins: one boot of it carries out all.
fn rounds() -> u32 {
    campaign::rounds(1, 20)
}

/// In target: the captured directory stays available for inspection, and as a source of fixtures.
pub(crate) static MACHINE: LazyLock<Recorded> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine-20-cpus-16-queues");
    boot(&folder, &[]);
    let archive = folder.join("captured.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(folder.join("captured"));
    assert!(tar.status().unwrap().success(), "the captured tree cannot be unpacked");
    fs::remove_file(archive).unwrap();
    Recorded { steps: steps(&folder.join("steps")), captured: folder.join("captured") }
});

/// The same machine in the state of its boot, for the experiments alone: what the steps of the other one leave would
/// steer packets.
pub(crate) static EXPERIMENT: LazyLock<Recorded> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("experiment-20-cpus-16-queues");
    boot(&folder, &["experiment".into()]);
    Recorded { steps: steps(&folder.join("steps")), captured: folder.join("captured") }
});

/// Boots it with these arguments of its script: none, or `experiment`.
fn boot(folder: &Path, arguments: &[OsString]) {
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
    fs::create_dir_all(folder.join("captured")).unwrap();
    settings::write(folder);
    let rounds = rounds();
    fs::write(folder.join("rounds"), format!("{rounds}\n")).unwrap();
    let within = WITHIN + ROUND * 10 * rounds;
    let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm").join(name);
    let spec = VmSpec { share: Some(folder.to_owned()), within, ..VmSpec::default() };
    let spec = spec
        .file(&program())
        .file(Path::new(env!("CARGO_BIN_EXE_record_netlink")))
        .file(&script("script.sh"))
        .file(&script("settings.sh"))
        .file(&script("experiment.sh"));
    let tools = ["/usr/sbin/ethtool", "/usr/sbin/irqbalance", "/usr/bin/script"];
    let spec = tools.iter().fold(spec, |spec, tool| spec.file(Path::new(tool)));
    let command = [&["sh".into(), "/files/script.sh".into()], arguments].concat();
    let vm = spec.boot(&command).unwrap();
    let host = vm.host().clone();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let stop = AtomicBool::new(false);
    let code = std::thread::scope(|scope| {
        let done = scope.spawn(|| vm.finish(&mut out, &mut err, &stop));
        let _stopped = StopOnPanic(&stop);
        // Each waits for the other; a machine that exits has reported why.
        let told = |name: &str, what: &str| {
            let code = folder.join(format!("steps/{name}-{what}.code"));
            awaited(&format!("the machine's step {name}-{what}"), within, || {
                (code.exists() || done.is_finished()).then_some(())
            });
            !done.is_finished()
        };
        if arguments.is_empty() {
            for exchange in &packets::EXCHANGES {
                exchange.take_part(folder, &host, |what| told(exchange.name, what));
            }
        } else {
            for round in &experiment::ROUNDS {
                round.take_part(folder, &host, |what| told(round.name(), what));
            }
        }
        done.join().unwrap()
    });
    let said = String::from_utf8_lossy(&err);
    assert_eq!(code.unwrap_or_else(|error| panic!("{error:?}")), 0, "{said}");
}

#[test]
fn it_is_the_machine_that_was_asked_for() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    assert_eq!(machine.fine("nodes"), "0-9\n10-19\n");
    assert_eq!(machine.fine("near"), "1\n-1\n-1\n");
    assert_eq!(machine.fine("drivers"), "virtio_net\nvmxnet3\ne1000e\n");
}

#[test]
fn the_program_runs_on_another_kernel() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    assert!(machine.fine("version").starts_with("udpath "));
    assert!(machine.fine("lab-up").contains("pair"));
    let labs: Value = serde_json::from_str(machine.fine("lab-list")).unwrap();
    assert_eq!(labs["labs"][0]["links"][0]["spec"]["queues"], 4);
    assert_eq!(machine.fine("lab-exec"), "0\n");
    assert_eq!(machine.fine("lab-down"), "");
    assert_eq!(machine.fine("lab-left"), "");
}

/// The ids of the findings about steering, in order.
fn findings(machine: &Recorded, step: &str) -> Vec<String> {
    let map: Value = serde_json::from_str(machine.fine(step)).unwrap();
    let ids =
        map["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap().to_owned());
    ids.filter(|id| ["rss", "irqs", "hint", "rps"].iter().any(|kind| id.starts_with(kind))).collect()
}

/// The tuning that an expert did by hand (Makita, LinuxCon Japan 2016): found, planned, applied, verified, undone.
#[test]
fn an_unspread_setup_is_detected_fixed_and_restored() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    machine.fine("arrange");
    // The driver's affinity hint alternates between single CPUs of the two nodes.
    assert_eq!(findings(machine, "found"), ["rss-table-short", "irqs-on-one-node", "hint-unused"]);
    let text = machine.fine("found-text");
    assert!(text.contains("uses 12 of 16 queues; rx-12-15 receive nothing"), "{text}");
    assert!(text.contains("go only to node 0, CPUs 0-9; CPUs 10-19 process no packets"), "{text}");
    // Settings already in place are not changes: queues 0 to 9 already match the plan.
    let plan = machine.fine("plan");
    assert!(plan.contains("eth0:rss/table") && plan.contains("eth0:irq/rx-15"), "{plan}");
    machine.fine("apply");
    assert_eq!(findings(machine, "better"), ["hint-unused"]);
    let (_, table) = packets::rss(machine.fine("spread"));
    assert_eq!(table.iter().copied().collect::<std::collections::BTreeSet<_>>().len(), 16);
    machine.fine("status");
    machine.fine("undo");
    assert_eq!(findings(machine, "undone"), findings(machine, "found"));
}

/// Neighbours that the table has no room for: what is sent to them is lost, and `diagnose` says why.
#[test]
fn a_neighbour_table_that_is_full_is_diagnosed() {
    udpath_lab::needs_root!();
    let Step { code, out, err } = &MACHINE.steps["overflow"];
    assert_eq!(*code, 1, "{out}{err}");
    let said = udpath_rig::json(out);
    let ids: Vec<&str> =
        said["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"neighbour-table-full"), "{ids:?}");
}

/// The findings of a step that diagnosed, by id.
fn diagnosed(step: &str) -> Vec<(String, Value)> {
    let Step { code, out, err } = &MACHINE.steps[step];
    assert!([0, 1].contains(code), "{step}: {out}{err}");
    let said = udpath_rig::json(out);
    let findings = said["findings"].as_array().unwrap().iter();
    findings.map(|finding| (finding["id"].as_str().unwrap().to_owned(), finding.clone())).collect()
}

/// A cause is found, as `how` says, in 19 of 20 rounds; `wrong` says what a diagnosis lacks.
fn found(how: &str, cause: &str, step: &str, wrong: impl Fn(&[(String, Value)]) -> Option<String>) {
    let rounds = rounds();
    let all: Vec<_> =
        (1..=rounds).filter_map(|round| wrong(&diagnosed(&format!("{step}-{round}")))).collect();
    campaign::record(&format!("{how}, {cause}"), &format!("{} of {rounds}", rounds as usize - all.len()));
    assert!(all.len() * 20 <= rounds as usize, "{} of {rounds}: {}", all.len(), all.concat());
}

/// Its twin has no such finding.
fn silent(cause: &str, step: &str, finding: &str) {
    let rounds = rounds();
    let ids = |round: u32| diagnosed(&format!("{step}-{round}")).into_iter().map(|(id, _)| id);
    let wrong = (1..=rounds).filter(|round| ids(*round).any(|id| id == finding)).count();
    campaign::record(
        &format!("findings of the healthy twin of {cause}"),
        &format!("{wrong} in {rounds} runs"),
    );
    assert_eq!(wrong, 0);
}

/// The same load, with a clock of the board and with the CPU's. It limits nothing here, so that it is a note among
/// those about the card.
#[test]
fn a_clock_of_the_board_is_diagnosed_and_that_of_the_cpu_is_not() {
    udpath_lab::needs_root!();
    let clocks = MACHINE.fine("clocks");
    assert!(clocks.split_whitespace().any(|clock| clock == "tsc"), "{clocks}");
    let cause = "a clock of the board";
    found("diagnosed", cause, "clock-slow", |findings| {
        let found = findings.iter().find(|(id, _)| id == "slow-clock");
        let right = found.is_some_and(|(_, found)| {
            found["evidence"] == "the clock source is acpi_pm"
                && found["remedies"].to_string().contains("takes `tsc` back at once")
        });
        (!right).then(|| format!("{findings:#?}"))
    });
    silent(cause, "clock-fast", "slow-clock");
}

/// A stopped server whose buffer has room for what its control group's limit has not; and without the limit.
#[test]
fn a_memory_limit_that_drops_datagrams_is_diagnosed_and_a_larger_buffer_is_not_advised() {
    udpath_lab::needs_root!();
    let cause = "a memory limit that datagrams reach";
    found("diagnosed first", cause, "memory-limited", |findings| {
        let [(id, found), ..] = findings else { return Some("nothing is found".to_owned()) };
        let evidence = found["evidence"].as_str().unwrap();
        let right = id == "memory-limit"
            && evidence.starts_with("control group /server of udpath (pid ")
            && evidence.contains("of at most 64 MiB of memory that cannot be taken back")
            && !found["remedies"].to_string().contains("receive-buffer");
        (!right).then(|| format!("{findings:#?}"))
    });
    silent(cause, "memory-free", "memory-limit");
}

/// A limit on all UDP sockets, of a backlog and of a flow in it, that the same load does not reach where it is larger.
#[test]
fn limits_of_the_machine_that_datagrams_reach_are_diagnosed() {
    udpath_lab::needs_root!();
    for (cause, id, limited, free, says) in [
        (
            "too little memory for all UDP sockets",
            "udp-memory",
            "udp-limited",
            "udp-free",
            "of at most 2,000 pages",
        ),
        (
            "a backlog too short for bursts",
            "backlog-full",
            "backlog-short",
            "backlog-long",
            " was full (net.core.netdev_max_backlog)",
        ),
        (
            "a flow with most of a backlog",
            "flow-limit",
            "flow-limited",
            "flow-free",
            "packets of a single large flow dropped",
        ),
    ] {
        found("diagnosed first", cause, limited, |findings| {
            let first = findings.first().filter(|(first, _)| first == id);
            let right = first.is_some_and(|(_, found)| found["evidence"].as_str().unwrap().contains(says));
            (!right).then(|| format!("{findings:#?}"))
        });
        silent(cause, free, id);
    }
}

/// A program that selects by CPU modulo eight among four sockets: CPUs that receive packets have no socket, until the
/// fix that the finding names counts four.
#[test]
fn cpus_without_a_socket_are_found_and_the_fix_gives_them_one() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    let found = |json: &str| {
        let result: Value = serde_json::from_str(json).unwrap();
        let mut findings = result["findings"].as_array().unwrap().clone();
        findings.retain(|finding| finding["id"] == "cpu-without-socket");
        findings
    };
    assert!(machine.fine("by-cpu").contains("by-flow -> by-cpu:8"));
    let wrong = found(machine.fine("without-socket"));
    let [finding] = &wrong[..] else { panic!("{wrong:?}") };
    // The queues' interrupts are on CPUs 0 to 9: 4 to 7 are beyond the four sockets, 8 and 9 are 0 and 1 again.
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(
        evidence.starts_with("CPUs 4-7 receive packets, but of the 4 sockets of 0.0.0.0:7300 (udpath, pid ")
            && evidence.ends_with("), selected by CPU modulo 8, the program selects none for them"),
        "{evidence}"
    );
    assert!(finding.to_string().contains("port:7300:selection=by-cpu\""), "{finding}");
    // Nothing is sent, so that it limits nothing and is a note.
    let diagnosed = found(machine.fine("without-diagnosed"));
    assert!(diagnosed.len() == 1 && diagnosed[0]["severity"] == "note", "{diagnosed:?}");
    let again = machine.fine("by-cpu-again");
    assert!(again.contains("by-cpu:8 -> by-cpu\n"), "{again}");
    assert_eq!(found(machine.fine("with-sockets")), [] as [Value; 0]);
}

/// Key and table are read on the machine, not given.
#[test]
fn a_flow_is_predicted_from_the_machines_own_tables() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    let text = machine.fine("predicted");
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(!line("hash").contains("unknown") && !line("queue").contains("unknown"), "{text}");
    assert!(!line("IRQ CPU").contains("unknown"), "{text}");
    let map: Value = serde_json::from_str(machine.fine("vmxnet3")).unwrap();
    assert_eq!(map["interfaces"][0]["driver"], "vmxnet3");
    assert!(map["interfaces"][0]["rss"]["entries"].as_u64().unwrap() > 0, "{map}");
}

#[test]
fn top_and_export_see_every_cpu_and_queue() {
    udpath_lab::needs_root!();
    let metrics = MACHINE.fine("metrics");
    let series = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("udpath_softnet_processed_total{cpu="), 20, "{metrics}");
    assert_eq!(series("udpath_queue_interrupts_total{device=\"eth0\","), 16, "{metrics}");
    let top: Value = serde_json::from_str(MACHINE.fine("top-json")).unwrap();
    assert_eq!(top["cpus"].as_array().unwrap().len(), 20, "{top}");
    let queues = top["queues"].as_array().unwrap().iter();
    let of_card: Vec<&Value> = queues.filter(|queue| queue["interface"] == "eth0").collect();
    assert_eq!(of_card.len(), 16, "{top}");
    assert!(of_card.iter().all(|queue| queue["irq"].is_u64()), "{top}");
    let text = MACHINE.fine("top");
    assert!(text.contains("eth0") && text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_cpu_that_goes_away_is_in_the_profile_until_then() {
    udpath_lab::needs_root!();
    let profile: Value = serde_json::from_str(MACHINE.fine("left")).unwrap();
    let lines = profile["cpus"].as_array().unwrap();
    assert_eq!(lines.len(), 20, "{profile}");
    let gone: Vec<&Value> = lines.iter().filter(|line| line["until"].is_number()).collect();
    assert!(gone.len() == 1 && gone[0]["cpu"] == 19, "{gone:?}");
    let until = gone[0]["until"].as_f64().unwrap();
    assert!(until > 0.5 && until < profile["seconds"].as_f64().unwrap(), "{until}");
    let ns =
        |line: &Value| line["sampled"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    // The set of CPUs is checked every 0.1 s, less often on an emulated machine.
    assert!(ns(gone[0]) > 0 && ns(gone[0]) as f64 <= 1e9 * (until + 0.1), "{}", gone[0]);
    // Slices of a second: the other CPUs continue after it.
    let slices = |line: &Value| -> Vec<usize> {
        let slices = line["time_line"].as_array().unwrap().iter().enumerate();
        slices
            .filter(|(_, slice)| slice.as_object().is_some_and(|slice| !slice.is_empty()))
            .map(|(at, _)| at)
            .collect()
    };
    assert!(slices(gone[0]).iter().all(|at| *at as f64 <= until), "{}", gone[0]);
    assert!(lines.iter().any(|line| slices(line).iter().any(|at| *at as f64 > until)), "{lines:?}");
    let notes = profile["notes"].as_array().unwrap();
    let told = format!("CPU 19 went offline after {until:.1} s: ");
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with(&told)), "{notes:?}");
}

#[test]
fn its_proc_and_sys_are_a_source() {
    udpath_lab::needs_root!();
    let source = Folder::captured(&MACHINE.captured);
    let queues = source.names("/sys/class/net/eth0/queues").unwrap();
    assert_eq!(queues.iter().filter(|name| name.starts_with("rx-")).count(), 16);
    assert_eq!(udpath_host::source::value(&source, "/sys/devices/system/cpu/online").unwrap(), "0-19");
    assert_eq!(udpath_host::source::number(&source, "/sys/class/net/eth1/device/numa_node"), Ok(-1));
    assert_eq!(udpath_host::source::number(&source, "/sys/class/net/eth0/device/../numa_node"), Ok(1));
    let distances = udpath_host::source::value(&source, "/sys/devices/system/node/node1/distance").unwrap();
    assert_eq!(distances.split_whitespace().count(), 2);
    let interrupts = source.text("/proc/interrupts").unwrap();
    assert_eq!(interrupts.lines().next().unwrap().split_whitespace().count(), 20);
    assert_eq!(interrupts.lines().filter(|line| line.contains("-input.")).count(), 16);
    for file in [
        "/proc/softirqs",
        "/proc/stat",
        "/proc/sys/net/core/rmem_max",
        "/proc/net/snmp",
        "/proc/self/mountinfo",
    ] {
        assert!(source.text(file).is_ok_and(|text| !text.is_empty()), "{file}");
    }
    let irq = interrupts.lines().find(|line| line.ends_with("-input.3")).unwrap().split_once(':').unwrap().0;
    let affinity = format!("/proc/irq/{}/smp_affinity_list", irq.trim());
    assert_eq!(udpath_host::source::value(&source, &affinity).unwrap(), "13");
    assert!(source.target("/sys/class/net/eth0").unwrap().contains("virtio"));
}
