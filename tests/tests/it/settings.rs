//! `udpath plan`, `apply`, `confirm`, `undo` and `status` as their users run them: exit codes, sentences, and
//! behaviour with a full disk, a read-only /sys, no privileges, a second udpath, a closed terminal, irqbalance, and
//! machines that change during the run (`odd.rs`). Needs root.

mod elsewhere;
mod interrupted;
mod journal;
mod odd;
mod place;
mod revert;
mod systemd;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use udpath_rig::{Said, TIMEOUT, awaited, program};

use place::{Place, RPS};
use revert::reverting;

#[test]
fn the_way_from_a_plan_to_its_undo() {
    udpath_lab::needs_root!();
    let place = Place::new("way");
    let before = place.rps();
    let diff = place.run(&["plan", "--set", RPS, "--reason", "one queue"]);
    assert_eq!(diff.fine().out, "eth0:rps/rx-0  none -> 0-1  moves flows; one queue\n");
    let shell = place.run(&["plan", "--shell", "--set", RPS]);
    assert!(
        shell.fine().out.ends_with("echo 3 > /sys/class/net/eth0/queues/rx-0/rps_cpus\n"),
        "{}",
        shell.out
    );
    let plan = place.files.path().join("plan.json");
    fs::write(&plan, &place.run(&["plan", "--json", "--set", RPS]).fine().out).unwrap();
    let plan = plan.to_str().unwrap();
    assert_eq!(place.rps(), before);

    let applied = place.run(&["apply", plan, "--json"]);
    let document: Value = serde_json::from_str(&applied.fine().out).unwrap();
    assert_eq!((&document["schema"], &document["id"]), (&"udpath.apply/1".into(), &1.into()));
    assert_eq!(document["changes"][0]["to"], "0-1");
    assert!(place.rps().ends_with('3'));
    // The plan was for a machine on which it had not been applied yet.
    place.run(&["apply", plan]).refused(3, "make the plan again");
    assert!(place.run(&["apply", "--set", RPS]).fine().err.contains("nothing to do"));
    place.run(&["status"]).fine();

    fs::write(place.state.path().join("x"), "").unwrap();
    place.shell("echo 1 > /sys/class/net/eth0/queues/rx-0/rps_cpus").fine();
    let drifted = place.run(&["status", "--json"]);
    drifted.refused(1, "1 setting is not at its applied value");
    let document: Value = serde_json::from_str(&drifted.out).unwrap();
    let held = &document["applies"][0]["settings"][0];
    assert_eq!((&held["state"], &held["now"]), (&"drifted".into(), &"0".into()));
    assert!(place.run(&["status"]).out.contains("is 0; perhaps by"), "{}", place.run(&["status"]).out);

    let lines = place.run(&["undo", "--print"]);
    assert!(
        lines.fine().out.ends_with("echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus\n"),
        "{}",
        lines.out
    );
    place.run(&["undo"]).refused(1, "another program changed it from 0-1");
    place.shell("echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus").fine();
    assert_eq!(place.rps(), before);
    place.run(&["undo"]).refused(3, "nothing to undo");
    place.run(&["undo", "9"]).refused(2, "it has 1");
    place.run(&["confirm"]).refused(3, "no apply awaits");
}

#[test]
fn another_namespace_is_reached_by_its_name() {
    udpath_lab::needs_root!();
    let place = Place::new("netns");
    let (before, state) = (place.rps(), place.state.path().to_str().unwrap());
    let name = place.lab.machine("here").unwrap().namespace();
    let run = |arguments: &[&str]| {
        let arguments = [arguments, &["--state", state, "--netns", name]].concat();
        Said::from(Command::new(program()).args(arguments).stdin(Stdio::null()).output().unwrap())
    };
    run(&["apply", "--set", RPS, "--confirm", "1s"]).fine();
    assert!(place.rps().ends_with('3'));
    awaited("the apply to be reverted there", TIMEOUT, || (place.rps() == before).then_some(()));
    run(&["apply", "--set", RPS]).fine();
    let wrong = Said::from(Command::new(program()).args(["undo", "2", "--state", state]).output().unwrap());
    wrong.refused(3, &format!("udpath undo 2 --netns {name}"));
    assert!(run(&["status"]).fine().out.contains("holds"));
    run(&["undo"]).fine();
    assert_eq!(place.rps(), before);
    let none = Said::from(
        Command::new(program()).args(["status", "--netns", "no-such", "--state", state]).output().unwrap(),
    );
    none.refused(2, "no-such");
}

#[test]
fn invalid_input_is_a_usage_error_and_changes_nothing() {
    udpath_lab::needs_root!();
    let place = Place::new("usage");
    for (arguments, part) in [
        (&["--set", "eth0:rps/rx-0"][..], "SETTING=VALUE"),
        (&["--set", "eth0:rps/rx-0=ff"], "0-3,8"),
        (&["--set", "eth0:rps/0=1"], "eth0:rps/rx-0"),
        (&["--set", "eth0:rps/rx-0=0", "--set", "eth0:rps/rx-0=1"], "cannot be both 0 and 1"),
        (&["--set", "eth0:rps/rx-0=4000"], "has no CPU 4000"),
        (
            &["--set", "sysctl:net.ipv4.conf.eth0.accept_local=1"],
            "--allow sysctl:net.ipv4.conf.eth0.accept_local",
        ),
        (&["--set", "sysctl:kernel.core_pattern=|/tmp/x"], "--allow sysctl:kernel.core_pattern"),
        (&["--set", "sysctl:net.ipv4.ip_forward=1"], "whether this machine forwards packets"),
        (&["--set", "sysctl:net.ipv4.udp_rmem_min=8MB"], "with K, M or G, as in 8M"),
        (&["--set", "sysctl:net.ipv4.conf.eth0.log_martians=8M"], "it is a number, now 0"),
        (&["--set", "eth0:qdisc=no-such"], "one of default, mq, fq"),
        (&["--set", RPS, "--confirm", "soon"], "such as 5s"),
        (&["--set", RPS, "--confirm", "60s", "--persist"], "cannot be used with"),
        (&["--set", RPS, "--ignore-conflict", "gravity"], "irqbalance, tuned"),
        (&["/dev/null"], "not a plan"),
        (&[], "PLAN.json"),
    ] {
        place.run(&[&["apply"], arguments].concat()).refused(2, part);
    }
    place.run(&["apply", "/no/such/plan"]).refused(3, "/no/such/plan");
    place.run(&["apply", "--set", "eth9:rps/rx-0=0"]).refused(3, "no such interface");
    place.run(&["apply", "--set", "eth0:feature/loopback=on"]).refused(3, "has it off and cannot change it");
    let allowed = ["--allow", "sysctl:net.ipv4.conf.eth0.accept_local"];
    place
        .run(&[&["apply", "--set", "sysctl:net.ipv4.conf.eth0.accept_local=1"], &allowed[..]].concat())
        .fine();
    place.run(&["undo"]).fine();
    // Somebody's plan goes through the same gate.
    let plan = place.files.path().join("theirs.json");
    let change = r#"{"setting":"sysctl:kernel.core_pattern","to":"|/tmp/x"}"#;
    fs::write(&plan, format!(r#"{{"schema":"udpath.plan/2","changes":[{change}]}}"#)).unwrap();
    let before = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    place
        .run(&["apply", plan.to_str().unwrap()])
        .refused(2, "not among the settings that are known to be harmless");
    assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), before);
    // Units are the kernel's bytes.
    place.run(&["apply", "--set", "sysctl:net.ipv4.udp_rmem_min=8k"]).fine();
    let read = || fs::read_to_string("/proc/sys/net/ipv4/udp_rmem_min").unwrap();
    assert_eq!(place.lab.machine("here").unwrap().run(read).unwrap(), "8192\n");
    place.run(&["undo"]).fine();
}

#[test]
fn a_change_that_the_kernel_refuses_is_exit_4_and_the_rest_is_taken_back() {
    udpath_lab::needs_root!();
    let place = Place::new("refuses");
    let before = place.rps();
    // A veth has no NAPI that could be threaded, unless GRO is on.
    let set = "eth0:napi/threaded=on";
    place.run(&["apply", "--set", RPS, "--set", set]).refused(4, "eth0:napi/threaded");
    assert_eq!(place.rps(), before);
    // The first change failed: nothing was changed.
    place.run(&["apply", "--set", set]).refused(3, "nothing was changed");
    assert_eq!(place.run(&["status"]).fine().out, "");
}

#[test]
fn without_rights_on_read_only_files_or_a_full_disk_nothing_is_half_done() {
    udpath_lab::needs_root!();
    let place = Place::new("refusals");
    let before = place.rps();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";
    // The build directory may be closed to others, and so may the journal's.
    let open =
        "cp $U /tmp/udpath-open-$$; chmod 755 /tmp/udpath-open-$$; trap 'rm -rf /tmp/udpath-open-$$*' EXIT";
    let folder = "mkdir -m 1777 /tmp/udpath-open-$$.d";
    let apply = "apply --state /tmp/udpath-open-$$.d/j --set eth0:rps/rx-0=0-1";
    place
        .shell(&format!("{open}; {folder}; {nobody} /tmp/udpath-open-$$ {apply}"))
        .refused(3, "it needs root");
    place
        .shell(&format!("{open}; {nobody} /tmp/udpath-open-$$ apply --state /proc/j --set {RPS}"))
        .refused(3, "/proc/j");
    let plan = place.shell(&format!("{open}; {nobody} /tmp/udpath-open-$$ plan --set {RPS}"));
    assert!(plan.fine().out.contains("none -> 0-1"));
    place
        .shell(&format!("mount -o remount,bind,ro /sys; $U apply --state $S --set {RPS}"))
        .refused(3, "read-only");
    assert_eq!(place.rps(), before);

    // Pages of a journal: one for the lock, one for the beginning, and then the disk is full.
    let many =
        "--set eth0:rps/rx-*=0-1 --set eth0:rfs/rx-*=64 --set eth0:xps/tx-*=0 --reason $(printf %0400d 0)";
    let full =
        format!("mount -t tmpfs -o size=8k,mode=700 none $S; set -f; $U apply --state $S {many} || code=$?");
    // The next apply is not blocked.
    let next = format!("{full}; $U apply --state $S --set {RPS}; $U undo --state $S 2>&1; exit $code");
    let said = place.shell(&next);
    assert_eq!((said.code, said.err.lines().count()), (Some(4), 2), "{}", said.err);
    assert!(
        said.err.contains("No space left on device") && said.err.contains("verified as 1"),
        "{}",
        said.err
    );
    assert!(said.out.contains("undid apply 1"), "{}", said.out);
    assert_eq!(place.rps(), before);
    let none = format!("mount -t tmpfs -o size=4k,mode=700 none $S; set -f; $U apply --state $S {many}");
    place.shell(&none).refused(3, "No space left on device");
    assert_eq!(place.rps(), before);
}

#[test]
fn unconfirmed_changes_revert_after_the_terminal_closed() {
    udpath_lab::needs_root!();
    let place = Place::new("unconfirmed");
    let before = place.rps();
    // `script` provides a terminal, which is hung up when it exits.
    let applied =
        place.shell(&format!("script -qec \"$U apply --state $S --confirm 2s --set {RPS}\" /dev/null"));
    assert!(applied.fine().out.contains("reverts in 2 s"), "{}", applied.out);
    assert!(place.rps().ends_with('3'));
    assert!(place.run(&["status"]).fine().out.contains("unless confirmed"));
    assert_eq!(reverting(place.state.path()).len(), 1);
    awaited("the apply to be reverted", TIMEOUT, || (place.rps() == before).then_some(()));
    awaited("what reverted it to end", TIMEOUT, || reverting(place.state.path()).is_empty().then_some(()));
    place.run(&["confirm", "1"]).refused(3, "has been undone");
    assert!(place.run(&["status"]).fine().out.contains("reverted: not confirmed in time"));
}

#[test]
fn confirmed_changes_stay_and_no_process_waits() {
    udpath_lab::needs_root!();
    let place = Place::new("confirmed");
    place.run(&["apply", "--confirm", "10m", "--set", RPS]).fine();
    assert_eq!(reverting(place.state.path()).len(), 1);
    place.run(&["confirm"]).fine();
    awaited("what would revert it to end", TIMEOUT, || {
        reverting(place.state.path()).is_empty().then_some(())
    });
    assert!(place.rps().ends_with('3'));
    // The same after a manual undo.
    place.run(&["undo"]).fine();
    place.run(&["apply", "--confirm", "10m", "--set", RPS]).fine();
    place.run(&["undo"]).fine();
    awaited("what would revert it to end", TIMEOUT, || {
        reverting(place.state.path()).is_empty().then_some(())
    });
}

/// The real irqbalance, which sees all IRQs and can move none: its /proc/irq is read-only.
struct Irqbalance {
    process: std::process::Child,
    made: Option<PathBuf>,
}

impl Irqbalance {
    fn start() -> Self {
        // The directory for its socket; its unit would create it.
        let folder = PathBuf::from("/run/irqbalance");
        let made = fs::create_dir(&folder).is_ok().then_some(folder.clone());
        let lines = "mount --bind /proc/irq /proc/irq; mount -o remount,ro,bind /proc/irq; \
                     exec irqbalance --foreground --interval=1";
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-e", "-c", lines])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let this = Self { process, made };
        let socket = folder.join(format!("irqbalance{}.sock", this.process.id()));
        awaited("irqbalance's socket", TIMEOUT, || socket.exists().then_some(()));
        this
    }
}

impl Drop for Irqbalance {
    fn drop(&mut self) {
        // SIGTERM, so that it removes its socket.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
        if let Some(folder) = &self.made {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// An IRQ with settable CPUs: writing its current value succeeds.
fn irq() -> (u32, String) {
    let mut numbers: Vec<u32> = fs::read_dir("/proc/irq")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let found = numbers.into_iter().rev().find_map(|irq| {
        let path = format!("/proc/irq/{irq}/smp_affinity_list");
        let now = fs::read_to_string(&path).ok()?.trim().to_owned();
        (now != "0" && fs::write(&path, &now).is_ok()).then_some((irq, now))
    });
    found.expect("this machine has an IRQ whose CPUs can be set")
}

#[test]
fn apply_bans_the_irq_in_a_running_irqbalance_and_undo_lifts_the_ban() {
    udpath_lab::needs_root!();
    let state = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let folder: &[&str] =
            if arguments[0] == "plan" { &[] } else { &["--state", state.path().to_str().unwrap()] };
        Said::from(
            Command::new(program()).args(arguments).args(folder).stdin(Stdio::null()).output().unwrap(),
        )
    };
    let (irq, before) = irq();
    let request = format!("irq:{irq}:affinity=0");
    let now = || fs::read_to_string(format!("/proc/irq/{irq}/smp_affinity_list")).unwrap().trim().to_owned();
    // Without it, nothing is banned.
    let alone = run(&["plan", "--set", &request]);
    assert!(!alone.fine().out.contains("irqbalance"), "{}", alone.out);
    let irqbalance = Irqbalance::start();
    let plan = run(&["plan", "--set", &request]);
    let pid = irqbalance.process.id();
    assert!(
        plan.fine().out.contains(&format!("none -> {irq}  irqbalance (pid {pid}) would move")),
        "{}",
        plan.out
    );
    run(&["apply", "--set", &request]).fine();
    assert_eq!(now(), "0");
    // irqbalance reports the ban itself, so a further plan has nothing to change.
    let again = run(&["plan", "--set", &format!("irq:{irq}:affinity={before}")]);
    assert!(!again.fine().out.contains("irqbalance:ban"), "{}", again.out);
    assert!(run(&["status"]).fine().out.contains("irqbalance:ban"));
    run(&["undo"]).fine();
    assert_eq!(now(), before);
    assert!(run(&["plan", "--set", &request]).fine().out.contains("irqbalance:ban"));
    let ignore_conflicts = run(&["plan", "--ignore-conflict", "irqbalance", "--set", &request]);
    assert!(!ignore_conflicts.fine().out.contains("irqbalance:ban"), "{}", ignore_conflicts.out);
    // The equivalent in a shell.
    let lines = run(&["plan", "--shell", "--set", &request])
        .fine()
        .out
        .lines()
        .take(2)
        .collect::<Vec<_>>()
        .join("\n");
    assert!(Command::new("sh").args(["-e", "-c", &lines]).status().unwrap().success(), "{lines}");
    awaited("irqbalance to take the shell's word", TIMEOUT, || {
        (!run(&["plan", "--set", &request]).out.contains("irqbalance:ban")).then_some(())
    });
    // If its socket is missing, the IRQ cannot be banned, and nothing is written.
    let socket = PathBuf::from(format!("/run/irqbalance/irqbalance{pid}.sock"));
    let aside = socket.with_extension("aside");
    fs::rename(&socket, &aside).unwrap();
    run(&["apply", "--set", &request]).refused(3, "--ignore-conflict irqbalance");
    fs::rename(&aside, &socket).unwrap();
    assert_eq!(now(), before);
    drop(irqbalance);
    let plan = run(&["plan", "--set", &request]);
    assert!(!plan.fine().out.contains("irqbalance"), "{}", plan.out);
}
