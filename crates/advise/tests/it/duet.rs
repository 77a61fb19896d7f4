//! Trials at once, with real traffic: on two CPUs each side has one. Needs root, and the built program beside this
//! test's own folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_advise::duet::halves;
use udpath_advise::ladder::{Rung, Settings, Step};
use udpath_advise::result::Verdict;
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, boost};
use udpath_host::Snapshot;
use udpath_host::source::Folder;
use udpath_load::Engine;
use udpath_protocols::echo::EchoLoad;
use udpath_serve::Io;

/// Each server runs once on each side and nowhere else, and each counts on both. RFS, which one side alone cannot have,
/// is compared in turn, on both.
#[test]
fn each_rung_runs_on_both_sides() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let cpus = Snapshot::read(&Folder::live()).cpus;
    let sides = halves(&cpus.list, &cpus.online).expect("this test needs two cores");
    // One CPU of each half, so that the test is the same on larger machines.
    let sides = sides.map(|side| side.iter().take(1).collect::<udpath_steer::CpuSet>());

    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("udpath");
    assert!(program.is_file(), "no {}: run `cargo build` first, or `make test`", program.display());
    let folder = tempfile::tempdir().unwrap();
    let (script, started) = (folder.path().join("serve"), folder.path().join("started"));
    let text = format!(
        "#!/bin/sh\necho \"$(sed -n 's/^Cpus_allowed_list:\\t//p' /proc/self/status)\" >> {}\nexec {} \"$@\"\n",
        started.display(),
        program.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();

    let base = Settings::base(1, 64);
    let batched = Settings { batch: 32, ..base };
    let rfs = Settings { io: Io::Reuseport, rps: true, rfs: true, ..base };
    let rung = |name: &'static str, step| Rung { name: name.into(), change: "exactly this".into(), step };
    let config = Config {
        program: script,
        service: Vec::new(),
        queues: 1,
        xps: true,
        moderation: 75,
        ladder: vec![
            rung("base", Step::Exactly(base)),
            rung("equal", Step::Base),
            rung("batched", Step::Exactly(batched)),
            rung("rfs", Step::Exactly(rfs)),
        ],
        left_out: Vec::new(),
        workers: 1,
        size: 100,
        flows: 8,
        inflight: 8,
        trial: Duration::from_millis(100),
        bound: Bound::new(0.001, 6).unwrap(),
        duet: Some(sides.clone()),
        engine: Engine::Kernel,
        ipv6: false,
        profile: false,
        command: None,
    };
    let result = boost(&config, &EchoLoad::new(1), &mut |_| (), &AtomicBool::new(false)).unwrap();

    let started = fs::read_to_string(&started).unwrap();
    let wanted = format!("{}\n{}\n", sides[0], sides[1]).repeat(4);
    assert_eq!(started, wanted, "where the servers of the four rungs may run");
    assert_eq!(result.duets.as_ref().unwrap().cpus, sides);
    let [first, equal, batched, rfs] = &result.rungs[..] else { panic!("{:?}", result.rungs) };
    for rung in [first, equal, batched, rfs] {
        assert!(rung.trials.iter().all(|tps| *tps > 0.0), "{rung:?}");
        let used: Vec<u32> = rung.cpus.iter().map(|used| used.cpu).collect();
        let both: Vec<u32> = sides.iter().flat_map(udpath_steer::CpuSet::iter).collect();
        assert_eq!(used, both, "{}", rung.name);
    }
    // In turn, each on both sides.
    assert!(rfs.verdict != Verdict::Failed && rfs.in_turn.is_none(), "{rfs:?}");
    // The limit is six blocks of duets, which are three in turn: a race that showed nothing reached it.
    let reached = [equal, batched].map(|rung| rung.verdict == Verdict::NotShown);
    assert!(!reached[0] || equal.in_turn.is_some(), "{equal:?}");
    assert!(!reached[1] || batched.in_turn.is_some(), "{batched:?}");
    let compared = result.rungs.iter().filter(|rung| rung.in_turn.is_some()).count();
    assert_eq!(result.duets.unwrap().rungs, compared);
}
