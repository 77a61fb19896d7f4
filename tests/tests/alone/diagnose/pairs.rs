//! Two causes at once: both are named.

use udpath_rig::campaign;

use super::causes::{CAUSES, Cause, FULL, Load, REUSEPORT};
use super::{Scene, repeats, right, severe};

/// Causes that can be arranged beside each other: what is sent and what is set do not exclude each other.
const SEVEN: [&str; 7] = [
    "shared-socket",
    "packet-sockets",
    "netfilter",
    "rps-one-cpu",
    "checksum-errors",
    "no-listener",
    "fragments",
];

/// What programs of their own send beside a server under full load, ten times what they send alone: of 300,000
/// datagrams a second, less would be under 1 %, and the cause of nothing.
const BESIDE: [(&str, Load); 3] = [
    ("checksum-errors", Load::Python(&["ADDRESS", "7000", "100", "200", "10", "1", "checksum"])),
    ("no-listener", Load::Python(&["ADDRESS", "7001", "100", "200", "10", "8"])),
    ("fragments", Load::Python(&["ADDRESS", "7000", "3000", "50", "10", "8"])),
];

fn cause(id: &str) -> &'static Cause {
    CAUSES.iter().find(|cause| cause.id == id).unwrap()
}

/// What is wrong with the diagnosis of both at once; nothing if both are named.
fn both(pair: [&'static Cause; 2]) -> Option<String> {
    let served =
        pair.iter().map(|cause| &cause.served).find(|served| **served != REUSEPORT).unwrap_or(&REUSEPORT);
    let mut scene = Scene::new("pair", served, false);
    for cause in pair {
        (cause.before)(&mut scene);
        if cause.id == "netfilter" {
            ban(&scene);
        }
    }
    // What costs CPU time shows only on a loaded server.
    scene.load(&FULL);
    for cause in pair {
        if let Some((_, load)) = BESIDE.iter().find(|(id, _)| *id == cause.id) {
            let main = scene.load.take();
            scene.load(load);
            let more = std::mem::replace(&mut scene.load, main);
            scene.others.extend(more);
        }
    }
    let (ended, json) = scene.diagnose();
    scene.end();
    let found = severe(&json);
    let named = pair.iter().all(|cause| found.contains(&cause.id)) && ended.code() == Some(1);
    (!named).then(|| {
        let [one, other] = pair.map(|cause| cause.id);
        format!("{one} and {other}: found {found:?}: {json:#}")
    })
}

/// Sixteen rules before the one that tracks, as of a firewall: tracking alone is 7 % of a machine's CPU time, which a
/// program beside it brings below the 5 % that a finding needs.
fn ban(scene: &Scene) {
    for host in 1..=16 {
        scene.run("nft", &[&format!("insert rule inet t input ip saddr 198.51.100.{host} drop")]);
    }
}

#[test]
fn both_of_two_causes_are_named() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let all: Vec<[&Cause; 2]> = (0..SEVEN.len())
        .flat_map(|one| (one + 1..SEVEN.len()).map(move |other| [one, other].map(|at| cause(SEVEN[at]))))
        .collect();
    let few = campaign::rounds(3, all.len() as u32) as usize;
    let pairs: Vec<_> = all.iter().step_by(all.len() / few).collect();
    let wrong: Vec<String> = pairs
        .iter()
        .filter_map(|pair| right(&format!("{} and {}", pair[0].id, pair[1].id), || both(**pair)))
        .collect();
    let figure = format!("{} of {}", pairs.len() - wrong.len(), pairs.len());
    campaign::record("pairs of causes, both named", &format!("{figure}{}", repeats()));
    assert!(wrong.is_empty(), "{figure}: {}", wrong.concat());
}
