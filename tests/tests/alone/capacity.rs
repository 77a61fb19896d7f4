//! `udpath capacity --calibrate`: measures this machine in a lab, leaves nothing behind, and its costs can be used.

use std::fs;

use serde_json::Value;
use udpath_model::Costs;
use udpath_rig::{Run, TIMEOUT};

#[test]
fn a_calibration_leaves_costs_and_nothing_else() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs.json");
    let path = file.display().to_string();
    let labs = || Run::new(&["lab", "list", "--json"]).finish().out;
    let before = labs();
    // It runs every rung several times; on a busy machine that takes longer than most runs may.
    let ended = Run::new(&["capacity", "--calibrate", "--costs", &path]).within(TIMEOUT * 5).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert_eq!(labs(), before);
    let costs: Costs = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(costs.check(), Ok(()));
    assert!(costs.range.cpus >= 2 && costs.range.virtual_link, "{costs:?}");
    // Every rung that the costs come from is shown, measured and modelled.
    for rung in
        ["reuseport, ", "reuseport batched, ", "shared, ", "rps+reuseport, ", "reuseport, 1 CPU, 1 queue"]
    {
        assert!(ended.out.lines().any(|line| line.starts_with(rung)), "{rung}: {}", ended.out);
    }
    // The work of a transaction is what the lab's rungs took: no more than all of two CPUs, and not nothing.
    let terms = costs.terms;
    let work = terms.device_receive + terms.protocol_receive + terms.read + terms.send + 2.0 * terms.call;
    assert!((200.0..50_000.0).contains(&work), "{work} ns, {terms:?}");

    let small = folder.path().join("small.toml");
    fs::write(&small, "cores = 2\nqueues = 2\nworkers = 2\n").unwrap();
    let small = small.display().to_string();
    let used = Run::new(&["capacity", &small, "--costs", &path, "--json", "--extrapolate"]).finish();
    assert_eq!(used.code(), Some(0), "{}", used.err);
    let document: Value = serde_json::from_str(&used.out).unwrap();
    assert!(document["outcome"]["tps"].as_f64().unwrap() > 1000.0, "{document}");
}
