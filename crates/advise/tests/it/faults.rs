//! Servers that fail in the middle of a climb. Needs root, and the built program beside this test's own folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_advise::ladder::ladder;
use udpath_advise::result::Verdict;
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, boost};
use udpath_load::Engine;
use udpath_protocols::echo::EchoLoad;
use udpath_serve::Io;

/// A rung whose server comes up and then dies is reported as failed, and the climb continues from the best.
#[test]
fn a_server_that_dies_fails_its_rung_alone() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    // While another program keeps a CPU busy, the flows at home there send too little, and rungs are refused as
    // drifted.
    udpath_rig::judged("a climb beside a server that dies", dying);
}

fn dying() {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("udpath");
    assert!(program.is_file(), "no {}: run `cargo build` first, or `make test`", program.display());
    let folder = tempfile::tempdir().unwrap();
    let short_lived = folder.path().join("short-lived");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *reuseport*) echo ready >&2; sleep 0.2; exit 1;; esac\nexec {} \"$@\"\n",
        program.display()
    );
    fs::write(&short_lived, script).unwrap();
    fs::set_permissions(&short_lived, fs::Permissions::from_mode(0o755)).unwrap();

    let config = Config {
        program: short_lived,
        service: Vec::new(),
        queues: 2,
        xps: true,
        moderation: 75,
        ladder: ladder(&[Io::Shared, Io::Reuseport], 2),
        left_out: Vec::new(),
        workers: 2,
        size: 100,
        flows: 8,
        inflight: 8,
        trial: Duration::from_millis(100),
        bound: Bound::new(0.5, 3).unwrap(),
        duet: None,
        engine: Engine::Kernel,
        ipv6: false,
        profile: false,
        command: None,
    };
    let result = boost(&config, &EchoLoad::new(1), &mut |_| (), &AtomicBool::new(false)).unwrap();
    // What "together" adds to the others depends on which of them won.
    let names: Vec<_> =
        result.rungs.iter().map(|rung| rung.name.as_str()).filter(|name| *name != "together").collect();
    assert_eq!(
        names,
        ["one-queue", "shared", "rps", "reuseport", "rps+reuseport", "rfs", "pinned", "batched", "gso"]
    );
    let uses_reuseport = |name: &str| ["reuseport", "rps+reuseport", "rfs"].contains(&name);
    for rung in result.rungs.iter().filter(|rung| rung.name != "together") {
        assert_eq!(rung.verdict == Verdict::Failed, uses_reuseport(&rung.name), "{rung:?}");
    }
    let dead = &result.rungs[3];
    assert!(!dead.kept && dead.note.as_deref().is_some_and(|note| note.contains("ended")), "{:?}", dead.note);
    assert_ne!(result.best, "reuseport");
}
