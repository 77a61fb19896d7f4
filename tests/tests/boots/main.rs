//! Settings across reboots: an emulated machine boots repeatedly with the files in /etc and the journal of the
//! previous boot. Needs root.
//!
//! The host's systemd boots in a PID namespace of the emulated machine, which has its own kernel and initramfs: pid 1
//! is systemd, with Debian's systemd-udevd, its sockets and its trigger, systemd-sysctl, irqbalance and the units
//! that udpath writes, all from their own unit files. No step of a boot is done by hand, with two exceptions: /etc
//! and the journal are carried from one boot to the next in an archive (the file system is in memory), and power is
//! cut instead of a shutdown. The script of each boot is boot.sh; the expected results are here.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod units;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use udpath_rig::VmSpec;
use udpath_rig::campaign::{record, rounds};
use udpath_rig::{check_documents, program};

/// Time limit for one boot with its steps. On an idle host of two CPUs the first takes 275 s; beside other tests, three
/// times that. Too short fails on a busy host; too long delays the report of a machine that hangs.
const WITHIN: Duration = Duration::from_secs(1800);

/// Programs and files of systemd in the machine, and a server, each at its path on the host.
const SYSTEMD: [&str; 12] = [
    "/usr/lib/systemd/systemd",
    "/usr/lib/systemd/systemd-sysctl",
    "/usr/lib/systemd/network/99-default.link",
    "/usr/lib/sysctl.d/50-pid-max.conf",
    "/usr/bin/systemctl",
    "/usr/bin/systemd-run",
    "/usr/bin/udevadm",
    "/usr/bin/ss",
    "/usr/sbin/ethtool",
    "/usr/sbin/irqbalance",
    "/usr/sbin/nsd",
    "/usr/sbin/nsd-checkconf",
];
/// The time server, unpacked by scripts/setup.sh.
const CHRONYD: &str = "/var/cache/udpath/chronyd";
/// The units of systemd that boot here.
const UNITS: [&str; 21] = [
    "sysinit.target",
    "basic.target",
    "multi-user.target",
    "sockets.target",
    "timers.target",
    "paths.target",
    "slices.target",
    "local-fs.target",
    "local-fs-pre.target",
    "network.target",
    "network-pre.target",
    "shutdown.target",
    "umount.target",
    "swap.target",
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udev-trigger.service",
    "systemd-sysctl.service",
    "irqbalance.service",
    "nsd.service",
];

/// Results of one boot's steps: code, stdout, stderr.
type Steps = BTreeMap<String, (i32, String, String)>;

/// All boots, in order: the first applies, the last undoes.
static BOOTS: LazyLock<Vec<Steps>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boots");
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    let between = rounds(0, 18);
    let names = std::iter::once("first").chain((0..between).map(|_| "between")).chain(["last"]);
    names
        .enumerate()
        .map(|(number, name)| {
            boot(&folder, name);
            let steps = folder.join("steps");
            let said = read(&steps);
            fs::rename(steps, folder.join(format!("steps-{number}-{name}"))).unwrap();
            said
        })
        .collect()
});

fn boot(folder: &Path, name: &str) {
    let spec = VmSpec {
        cpus: 4,
        nodes: 1,
        queues: 4,
        share: Some(folder.to_owned()),
        // Buffers of sockets, for ss and udpath.
        modules: &["udp_diag"],
        within: WITHIN,
        ..VmSpec::default()
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boots/boot.sh");
    let mut spec = spec.file(&script);
    let own = SYSTEMD.map(|path| (PathBuf::from(path), path.to_owned()));
    let units = UNITS.map(|unit| {
        let path = format!("/usr/lib/systemd/system/{unit}");
        (PathBuf::from(&path), path)
    });
    spec.files.extend(own.into_iter().chain(units));
    let rules = fs::read_dir("/usr/lib/udev/rules.d").unwrap().flatten().map(|entry| entry.path());
    spec.files.extend(rules.map(|path| (path.clone(), path.to_str().unwrap().to_owned())));
    // Where an operator installs it, writable only by root.
    spec.files.push((program(), "/usr/sbin/udpath".into()));
    let export = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd/udpath-export.service");
    spec.files.push((export, "/usr/lib/systemd/system/udpath-export.service".into()));
    spec.files.push((PathBuf::from(CHRONYD), "/usr/sbin/chronyd".into()));
    // What a server's checker is run with; busybox's have fewer options.
    let tools = ["setpriv", "unshare", "mount", "chown", "chmod"].map(|tool| format!("/usr/bin/{tool}"));
    spec.files.extend(tools.into_iter().map(|path| (fs::canonicalize(&path).unwrap(), path)));
    let vm = spec.boot(&["sh".into(), "/files/boot.sh".into(), name.into()]).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = vm.finish(&mut out, &mut err, &AtomicBool::new(false));
    let said = format!("{}{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    assert_eq!(code.unwrap_or_else(|error| panic!("{error:?}\n{said}")), 0, "{said}");
}

fn read(folder: &Path) -> Steps {
    let text = |name: String| fs::read_to_string(folder.join(name)).unwrap();
    let names = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    names
        .filter_map(|name| name.strip_suffix(".code").map(str::to_owned))
        .map(|name| {
            let code = text(format!("{name}.code")).trim().parse().unwrap();
            let said = (code, text(format!("{name}.out")), text(format!("{name}.err")));
            (name, said)
        })
        .collect()
}

/// Stdout of a step that must have succeeded.
#[track_caller]
fn fine<'a>(boot: &'a Steps, step: &str) -> &'a str {
    let (code, out, err) = &boot[step];
    assert_eq!(*code, 0, "{step}: {out}{err}");
    check_documents(step, out);
    out
}

/// Asserts that a step exited with `code` and printed `part`.
#[track_caller]
fn ended(boot: &Steps, step: &str, code: i32, part: &str) {
    let (found, out, err) = &boot[step];
    assert_eq!(*found, code, "{step}: {out}{err}");
    assert!(format!("{out}{err}").contains(part), "{step}: {part:?} is not in {out}{err}");
}

fn first() -> &'static Steps {
    BOOTS.first().unwrap()
}

fn last() -> &'static Steps {
    BOOTS.last().unwrap()
}

/// The settings, how each is kept, and how other tools show it.
const WANTED: [(&str, &str); 8] = [
    ("rmem", "4194304"),
    ("rps", "2"),
    ("defer", "2"),
    ("channels", "2"),
    ("ring", "512"),
    ("irq", "3"),
    ("qdisc", "qdisc fq"),
    ("usecs", "50"),
];

/// Values by name, as printed by the script's `look`.
fn looked(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once('=')).collect()
}

#[test]
fn kept_settings_survive_a_boot_and_status_reports_them() {
    udpath_lab::needs_root!();
    let applied = fine(first(), "applied");
    for (name, value) in WANTED {
        assert_ne!(looked(fine(first(), "before"))[name], value, "{name} was so before");
        assert_eq!(looked(applied)[name], value, "{name} as applied");
    }
    for boot in &BOOTS[1..] {
        let seen = looked(fine(boot, "booted"));
        for (name, value) in WANTED {
            assert_eq!(seen[name], value, "{name} after a boot; the boot said: {}", boot["unit"].1);
        }
        let status: Value = serde_json::from_str(&boot["status-json"].1).unwrap();
        for (kept, id) in status["applies"].as_array().unwrap().iter().zip(1..=2) {
            assert_eq!(kept["id"], id, "{status}");
            for held in kept["settings"].as_array().unwrap() {
                assert_eq!(held["state"], "holds", "{held}");
            }
        }
        fine(boot, "closed");
        // One entry per plan, however many boots.
        assert_eq!(fine(boot, "entries"), fine(first(), "entries"));
    }
    record("boots with a kept plan", &(BOOTS.len() - 1).to_string());
}

#[test]
fn a_file_that_would_override_a_kept_sysctl_is_named_and_loses() {
    udpath_lab::needs_root!();
    let (_, _, err) = &first()["apply"];
    assert!(err.contains("/etc/sysctl.d/99-sysctl.conf sets net.core.rmem_max to 300000"), "{err}");
    assert!(fine(first(), "files").contains("/etc/sysctl.d/99-udpath-000001.conf"));
}

#[test]
fn settings_of_other_link_files_are_not_lost() {
    udpath_lab::needs_root!();
    // A drop-in of 99-default.link for eth0, a file of its own for eth2.
    for boot in &*BOOTS {
        let seen = looked(fine(boot, if boot.contains_key("booted") { "booted" } else { "applied" }));
        assert_eq!((seen["mtu0"], seen["mtu2"]), ("1400", "1300"), "{seen:?}");
    }
    let files = fine(first(), "files");
    assert!(files.contains("/etc/systemd/network/05-udpath-000001-eth0.link"), "{files}");
    assert!(files.contains("/etc/systemd/network/10-lan2.link.d/90-udpath-000001-eth2.conf"), "{files}");
}

#[test]
fn the_rules_that_keep_steering_are_carried_out_by_udevd_for_queues_that_come_later() {
    udpath_lab::needs_root!();
    assert_eq!(fine(last(), "queues"), "2\n1\n");
}

#[test]
fn an_apply_whose_cgroup_is_killed_is_reverted_all_the_same() {
    udpath_lab::needs_root!();
    assert_eq!(fine(first(), "doomed").lines().last(), Some("2"));
    assert_eq!(fine(first(), "reverted-is"), "0\n", "{:?}", first()["reverted"]);
    assert!(fine(first(), "reverted").contains("reverted: "), "{:?}", first()["reverted"]);
}

#[test]
fn a_boot_ends_an_unconfirmed_apply() {
    udpath_lab::needs_root!();
    fine(first(), "unconfirmed");
    let boot = &BOOTS[1];
    ended(boot, "status", 1, "not confirmed before a reboot, which reset it: close it with `udpath undo 3`");
    ended(boot, "confirm", 3, "was lost at a reboot");
    ended(boot, "close", 0, "reset by an earlier boot, not checked: eth1:rps/rx-0");
    fine(boot, "closed");
}

#[test]
fn undo_after_a_boot_restores_all_and_leaves_nothing() {
    udpath_lab::needs_root!();
    let boot = last();
    ended(boot, "undo-rest", 0, "undid apply 2: all settings read back at their previous values\n");
    ended(boot, "undo", 0, "undid apply 1: all settings read back at their previous values\n");
    let (before, after) = (looked(fine(first(), "before")), looked(fine(boot, "undone")));
    assert_eq!(before, after);
    assert_eq!(fine(boot, "left"), fine(first(), "clean"), "files are left");
    assert_eq!(boot["nothing"].0, 0, "{:?}", boot["nothing"]);
    ended(boot, "again", 3, "nothing to undo");
}

#[test]
fn a_unit_does_not_run_a_program_that_others_can_write() {
    udpath_lab::needs_root!();
    ended(first(), "writable", 3, "install -o root -g root -m 755 /tmp/open/udpath /usr/sbin/udpath");
    ended(first(), "owned", 3, "belongs to user 65534");
    assert_eq!(fine(first(), "nothing-kept"), "", "{}", fine(first(), "nothing-kept"));
}
