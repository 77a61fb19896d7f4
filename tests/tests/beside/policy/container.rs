//! A policy for containers: their network, mount, PID and cgroup namespaces are their own, and their cgroup has another
//! name at each start, so that the policy is that of their slice.

use std::path::Path;

use udpath_rig::campaign::{record, rounds};

use super::{BUFFER, PINNED, SERVER, Scene, Server, effects};

/// The slice that the runtime makes its containers' cgroups in.
const SLICE: &str = "pods.slice";

/// Starts the server as a container of the slice, in a new cgroup.
fn start(scene: &Scene, group: &str) -> Server {
    scene.cgroup.make(group);
    let mut command = scene.cgroup.command(group, "unshare");
    command.args(["--net", "--mount", "--pid", "--cgroup", "--fork", "--mount-proc", "--kill-child"]);
    // In its cgroup namespace, its own cgroup is the root.
    let inside = r#"grep -q '^0::/$' /proc/self/cgroup && ip link set lo up && exec python3 -c "$0" "$1""#;
    command.args(["sh", "-c", inside, SERVER, &scene.port.to_string()]);
    Server::of(command)
}

/// Ends it, and removes its cgroup.
fn stop(scene: &Scene, group: &str, server: Server) {
    scene.cgroup.kill(group);
    drop(server);
    scene.cgroup.remove(group);
}

#[test]
fn restarts_of_a_container_keep_the_policy_of_its_slice() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    scene.cgroup.make(SLICE);
    let slice = scene.cgroup.name(SLICE);
    let first = format!("{SLICE}/first");
    let mut early = start(&scene, &first);
    let before = early.line();
    let buffer = format!("receive-buffer={BUFFER}");
    scene.run(&["policy", "set", &slice, &buffer, "reuseport=on"]).fine();
    // Its socket is seen from here, and the server's name and number are the host's.
    for (state, note) in effects(&slice) {
        let says = format!("port {} of python3 (pid ", scene.port);
        assert!(state == "later" && note.starts_with(&says), "{state}: {note}");
    }
    stop(&scene, &first, early);

    let restarts = rounds(3, 20);
    let mut in_force = 0;
    for restart in 1..=restarts {
        let group = format!("{SLICE}/{restart:012x}");
        let mut server = start(&scene, &group);
        let (line, effects) = (server.line(), effects(&slice));
        let has = effects.iter().all(|(state, note)| state == "in-effect" && note.is_empty());
        if line == format!("{BUFFER} 1") && effects.len() == 2 && has {
            in_force += 1;
        } else {
            println!("container, restart {restart}: {line}, {effects:?}");
        }
        stop(&scene, &group, server);
    }
    record("policy in force after restarts of a container", &format!("{in_force} of {restarts}"));
    assert_eq!(in_force, restarts);

    // What it sets itself afterwards wins, and is seen from here.
    let group = format!("{SLICE}/last");
    let mut server = start(&scene, &group);
    server.line();
    server.set_buffer(20_000);
    let (state, note) = effects(&slice).remove(0);
    assert!(state == "broken" && note.contains("has 40000: the program itself set it"), "{state}: {note}");
    stop(&scene, &group, server);

    scene.run(&["policy", "remove", &slice]).fine();
    assert!(!Path::new(PINNED).exists());
    let mut server = start(&scene, &group);
    assert_eq!(server.line(), before);
    stop(&scene, &group, server);
    scene.cgroup.remove(SLICE);
}
