//! Settings of a running server's sockets and threads.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use serde_json::Value;
use udpath_host::process::{SocketValue, waiting};
use udpath_rig::{Said, TIMEOUT, awaited, program};

use super::place::{Kind, PORT, Place, WORKERS};

#[test]
fn a_larger_receive_buffer_takes_a_burst_that_overflowed_before() {
    udpath_lab::needs_root!();
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("buffer", kind);
        // A query is charged about 800 bytes. One client is one flow, which maps to one socket.
        let request = format!("port:{PORT}:receive-buffer=16777216");
        let [before, during, after] =
            place.proven("server", &[&request], |place| place.burst(0, 1, 5000).dropped);
        assert!(before > 0 && during == 0 && after > 0, "{kind:?}: {before} {during} {after}");
    }
}

#[test]
fn sockets_take_the_datagrams_of_their_cpu() {
    udpath_lab::needs_root!();
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("percpu", kind);
        let queued = |place: &Place| [0, 1].map(|cpu| place.burst(cpu, 40, 1).queued);
        let by_flow = |queued: &[Vec<u32>; 2]| queued.iter().flatten().all(|bytes| *bytes > 0);
        let by_cpu = |queued: &[Vec<u32>; 2]| {
            (0..2).all(|cpu| (0..2).all(|socket| (queued[cpu][socket] > 0) == (cpu == socket)))
        };
        let request = format!("port:{PORT}:incoming-cpu=one-per-cpu");
        let [before, during, after] = place.proven("server", &[&request], queued);
        assert!(by_flow(&before) && by_cpu(&during) && by_flow(&after), "{before:?} {during:?} {after:?}");
        // By the group's own selection. The kernel does not report it, so the buffer is what differs between the
        // snapshots.
        let request = format!("port:{PORT}:selection=by-cpu");
        let buffer = format!("port:{PORT}:receive-buffer=4000000");
        let [before, during, after] = place.proven("server", &[&request, &buffer], queued);
        assert!(by_flow(&before) && by_cpu(&during) && by_flow(&after), "{before:?} {during:?} {after:?}");
    }
}

#[test]
fn sockets_share_the_datagrams_of_one_flow() {
    udpath_lab::needs_root!();
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("spread", kind);
        let queued = |place: &Place| place.burst(0, 1, 40).queued;
        let by_flow = |queued: &[u32]| queued.iter().filter(|bytes| **bytes > 0).count() == 1;
        for rule in ["round-robin", "least-loaded"] {
            let request = format!("port:{PORT}:selection={rule}");
            // The kernel reports no selection, so the buffer is what differs between the snapshots.
            let buffer = format!("port:{PORT}:receive-buffer=4000000");
            let [before, during, after] = place.proven("server", &[&request, &buffer], queued);
            assert!(by_flow(&before) && by_flow(&after), "{kind:?}: {before:?} {after:?}");
            assert!(during.iter().all(|bytes| *bytes == during[0]), "{kind:?} {rule}: {during:?}");
        }
    }
}

/// A group is predicted as configured, and verified at its sockets.
#[test]
fn group_settings_are_predicted_and_verified() {
    udpath_lab::needs_root!();
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("predicted", kind);
        // One queue, so that the result is certain: RPS's only CPU then processes its packets.
        place.apply("server", &["eth0:channels/rx=1"]).fine();
        let to = format!("10.0.0.2:{PORT}");
        let predicted = || -> (Option<u64>, String) {
            let from = ["predict", "10.0.0.1:4000", &to, "--interface", "eth0", "--json"];
            let said: Value = serde_json::from_str(&place.udpath("server", &from).fine().out).unwrap();
            let inodes: Vec<u64> = said["receivers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|end| end["inode"].as_u64().unwrap())
                .collect();
            let all: Vec<u64> = place.sockets().iter().map(|socket| socket.id.inode.into()).collect();
            assert_eq!(inodes, all, "{said}");
            let step = &said["path"]["socket"];
            (step["value"].as_u64(), step["why"].as_str().unwrap().to_owned())
        };
        let hash = "selected by the kernel's own hash, with a secret drawn at boot";
        assert_eq!(predicted(), (None, hash.to_owned()), "{kind:?}");
        for (request, why) in [
            ("selection=by-cpu", "the CPU number modulo 2, by the program attached to the group"),
            ("incoming-cpu=one-per-cpu", "the only socket with that SO_INCOMING_CPU"),
        ] {
            for cpu in [0, 1] {
                let requests = [format!("eth0:rps/rx-0={cpu}"), format!("port:{PORT}:{request}")];
                place.apply("server", &[&requests[0], &requests[1]]).fine();
                assert_eq!(predicted(), (Some(cpu), why.to_owned()), "{kind:?} {request}");
                for sender in [0, 1] {
                    let queued = place.burst(sender, 40, 1).queued;
                    let at = cpu as usize;
                    assert!(
                        queued[at] > 0 && queued[1 - at] == 0,
                        "{kind:?} {requests:?} {sender}: {queued:?}"
                    );
                }
                place.udpath("server", &["undo"]).fine();
                assert_eq!(predicted().0, None, "{kind:?} {request}");
            }
        }
        place.udpath("server", &["undo"]).fine();
    }
}

#[test]
fn threads_run_where_they_are_put_and_read_the_socket_of_their_cpu() {
    udpath_lab::needs_root!();
    for kind in [Kind::Nsd, Kind::Knot] {
        let place = Place::new("threads", kind);
        for cpu in [0, 1] {
            let request = format!("port:{PORT}:threads={cpu}");
            let ran = |place: &Place| {
                place.dnsperf(1 - cpu);
                let (server, waiting) = (place.server(), waiting(&place.server()).unwrap());
                let read = |tid| waiting.values().flatten().any(|thread| thread.tid == tid);
                let readers = server.threads.iter().filter(|thread| read(thread.id.tid));
                readers.map(|thread| (thread.last_cpu, thread.affinity.to_string())).collect::<Vec<_>>()
            };
            let [before, during, after] = place.proven("server", &[&request], ran);
            assert_eq!(during, vec![(cpu, cpu.to_string()); WORKERS], "{kind:?}");
            let affinities =
                |of: &[(u32, String)]| of.iter().map(|(_, cpus)| cpus.clone()).collect::<Vec<_>>();
            assert_eq!(affinities(&before), affinities(&after));
        }
        // Sockets and threads together: each socket is read on the CPU where its datagrams arrive.
        let requests = ["incoming-cpu", "threads"].map(|item| format!("port:{PORT}:{item}=one-per-cpu"));
        place.apply("server", &[&requests[0], &requests[1]]).fine();
        let (server, waiting) = (place.server(), waiting(&place.server()).unwrap());
        for (cpu, socket) in place.sockets().iter().enumerate() {
            let readers = &waiting[&socket.id.inode];
            assert_eq!(readers.len(), 1, "{kind:?}");
            let reader = server.threads.iter().find(|thread| readers.contains(&thread.id)).unwrap();
            assert_eq!(reader.affinity.to_string(), cpu.to_string(), "{kind:?}: {socket}");
            assert!(socket.values.contains(&SocketValue::IncomingCpu(Some(cpu as u32))));
        }
        place.udpath("server", &["undo"]).fine();
    }
}

#[test]
fn settings_lost_by_a_server_restart_are_reported_before_and_after() {
    udpath_lab::needs_root!();
    for kind in [Kind::Nsd, Kind::Knot] {
        let mut place = Place::new("restart", kind);
        let requests =
            ["receive-buffer=8388608", "busy-poll=50", "threads=1"].map(|item| format!("port:{PORT}:{item}"));
        let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
        let plan = place.udpath("server", &["plan", "--set", requests[0]]);
        plan.fine();
        assert!(
            plan.err.contains("receive-buffer lasts until the socket is closed: a restart"),
            "{}",
            plan.err
        );
        assert!(plan.out.contains(&format!("10.0.0.2:{PORT} of ")), "{}", plan.out);
        let applied = place.apply("server", &requests);
        applied.fine();
        assert!(applied.err.contains("affinity lasts until the thread ends: a restart"), "{}", applied.err);
        assert_eq!(
            place.udpath("server", &["status"]).fine().out.matches("holds").count(),
            applied.out.lines().count()
        );
        place.restart();
        let status = place.udpath("server", &["status"]);
        assert_eq!(status.code, Some(1), "{}", status.out);
        assert!(
            status.out.contains("gone; perhaps by a restart of the server, which resets it"),
            "{}",
            status.out
        );
        assert!(!status.out.contains("holds"), "{}", status.out);
        let settled = place.settled("server");
        let undone = place.udpath("server", &["undo"]);
        undone.fine();
        assert!(undone.err.contains("gone with their process or socket"), "{}", undone.err);
        assert_eq!(place.settled("server"), settled);
        // And after the server has exited for good.
        place.apply("server", &requests).fine();
        place.end();
        place.udpath("server", &["undo"]).fine();
        let nobody = place.apply("server", &requests);
        assert_eq!(nobody.code, Some(3), "{}", nobody.err);
        assert!(nobody.err.contains(&format!("no UDP socket is bound to port {PORT}")), "{}", nobody.err);
    }
}

#[test]
fn a_foreign_server_is_refused_with_the_missing_capability() {
    udpath_lab::needs_root!();
    let place = Place::new("rights", Kind::Nsd);
    let open = tempfile::Builder::new().prefix("udpath-open").tempdir().unwrap();
    let copy = open.path().join("udpath");
    udpath_rig::copy_program(&program(), &copy);
    let journal = open.path().join("journal");
    fs::create_dir(&journal).unwrap();
    for path in [open.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // A journal is readable only by its owner.
    chown(&journal, Some(65534), Some(65534)).unwrap();
    let (before, inode) = (place.settled("server"), place.sockets()[0].id.inode);
    for request in
        [format!("port:{PORT}:receive-buffer=8388608"), format!("socket:{}/{inode}:busy-poll=1", place.pid())]
    {
        let mut command = place.command("server", "setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(&copy).arg("apply").arg("--state").arg(&journal).args(["--set", &request]);
        Said::from(command.output().unwrap()).refused(3, "CAP_SYS_PTRACE");
    }
    assert_eq!(place.settled("server"), before);
}

/// nsd's reload keeps the sockets and ends the worker that named one: undo finds it through the process that now
/// holds it.
#[test]
fn a_socket_is_found_again_when_the_process_it_was_named_by_has_ended() {
    udpath_lab::needs_root!();
    let place = Place::new("reload", Kind::Nsd);
    let before = place.sockets();
    let waiting = waiting(&place.server()).unwrap();
    let inode = before[0].id.inode;
    let worker = waiting[&inode].first().unwrap().pid;
    assert_ne!(worker, place.pid());
    let request = format!("socket:{worker}/{inode}:busy-poll=50");
    place.apply("server", &[&request]).fine();
    place.reload();
    awaited("the worker to end", TIMEOUT, || (!place.server().processes.contains(&worker)).then_some(()));
    let status = place.udpath("server", &["status"]);
    assert!(status.fine().out.contains("holds (it is now socket:"), "{}", status.out);
    let polls = |place: &Place| place.sockets()[0].values.contains(&SocketValue::BusyPoll(50));
    assert!(polls(&place));
    let undone = place.udpath("server", &["undo"]);
    assert!(undone.fine().err.contains("all settings read back at their previous values"), "{}", undone.err);
    assert!(!polls(&place));
    assert_eq!(place.sockets()[0].values, before[0].values);
}
