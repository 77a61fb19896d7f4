//! One socket with many readers.

use udpath_lab::LinkSpec;
use udpath_rig::Bed;

use super::{PORT, alone, bind, misconfigured, said};

/// Since Linux 6.18 datagrams are queued without the lock, so only readers contend: most of all if they do not sleep.
#[test]
fn the_receive_queue_lock_is_named_with_the_socket_and_its_readers() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let bed = Bed::new("busy", &LinkSpec::with_queues(2)).first("client");
    let server = misconfigured(&bed, &["busy", "20"]);
    // A low rate: its readers have the CPUs to themselves.
    let _load = bed.load(&["echo", &bed.target(PORT), "--flows", "16", "--rate", "1k", "-d", "90s"]);
    let lock = "the receive-queue lock of one socket, 0.0.0.0:53, read by ";
    let (_, text) = said(&bed, "receive-queue-lock", lock);
    // Two CPUs of one core share the lock's memory and take it without a wait: the rule's own tests tell the two apart.
    let doing = ["waits for", "goes into"].map(|doing| format!(" % of CPU time {doing} {lock}"));
    assert!(doing.iter().any(|doing| text.contains(doing)), "{text}");
    assert!(text.ends_with(&format!(" threads of misconfigured (pid {})", server.pid())), "{text}");
}

/// Sleeping readers are woken one by one, and each takes the lock of the queue twice.
#[test]
fn waking_many_readers_is_named_with_the_socket() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let bed = Bed::new("woken", &LinkSpec::with_queues(2)).first("server");
    let server = bed.serve(&["sink", "--io", "shared", "--workers", "20", "--no-pin", "--bind", &bind()]);
    let target = bed.target(PORT);
    let _load =
        bed.load(&["sink", &target, "--mode", "flood", "--flows", "16", "--threads", "2", "-d", "90s"]);
    let (_, text) = said(&bed, "lock", "one socket");
    // Wakeups, or waiting for the lock needed for them: whichever is more.
    let socket = format!("one socket, 0.0.0.0:53, read by 20 threads of udpath (pid {})", server.pid());
    let woken = text.ends_with(&format!(
        " % of CPU time goes into waking the readers of {socket}, and into the lock for that"
    ));
    assert!(
        woken || text.ends_with(&format!(" % of CPU time waits for the wait-queue lock of {socket}")),
        "{text}"
    );
}
