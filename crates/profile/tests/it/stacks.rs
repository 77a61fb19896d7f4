//! The rules applied to published stacks: each has its author's diagnosis.

use udpath_profile::classes::{Class, Rules};
use udpath_profile::folded::{self, Weights};

fn weights(text: &str) -> Weights {
    Weights::of(&folded::parse(text).unwrap(), Rules::built_in())
}

/// The class with the largest weight.
fn first(weights: &Weights) -> Class {
    *weights.classes.iter().max_by_key(|(_, weight)| **weight).unwrap().0
}

/// "UDP sink spends all its time contending such lock": the socket's own.
#[test]
fn rhel_7_3_waits_for_the_sockets_lock() {
    let found = weights(include_str!("../stacks/rhel-7.3.folded"));
    assert_eq!(first(&found), Class::Lock);
    assert!(found.lock("socket-owner") > 0.75, "{found:?}");
    assert!(found.lock("socket-receive-queue") < 0.05, "{found:?}");
    assert_eq!(found.share(Class::Unclassified), 0.0, "{found:?}");
}

/// "It updates the amount of memory allocated by the socket atomically and experiences a cache miss on each run": the
/// accounting at reading comes first, no longer a lock.
#[test]
fn rhel_7_4_pays_for_accounting() {
    let found = weights(include_str!("../stacks/rhel-7.4.folded"));
    assert_eq!(first(&found), Class::SocketRead);
    assert!(found.lock("socket-owner") == 0.0 && found.lock("socket-receive-queue") > 0.1, "{found:?}");
    assert!(found.lock("slab") > 0.0, "{found:?}");
}

/// "A lock is biting us, again. This time is the sk_receive_queue spinlock."
#[test]
fn linux_4_11_waits_for_the_receive_queue() {
    let found = weights(include_str!("../stacks/linux-4.11.folded"));
    let lock = found.lock("socket-receive-queue");
    assert!(lock > 0.25 && found.locks.len() == 1, "{found:?}");
    assert_eq!(found.share(Class::Security), 490.0 / found.all as f64);
}

/// The rest is copying and memory: "a faster page allocator would probably save the day".
#[test]
fn linux_4_13_copies_and_frees() {
    let found = weights(include_str!("../stacks/linux-4.13.folded"));
    assert_eq!(first(&found), Class::Copy);
    assert!(found.locks.is_empty() && found.share(Class::Memory) > 0.2, "{found:?}");
}

/// "queued_spin_lock_slowpath: lock is contended; udp_queue_rcv_skb: acquires socket lock; echo server has only one
/// socket bound to a certain port, softirq of each core pushes packets into socket queue". It gives no shares: what is
/// tested is whose lock that is.
#[test]
fn one_socket_for_all_cores() {
    let found = weights(include_str!("../stacks/linux-4.6-one-socket.folded"));
    assert_eq!((found.share(Class::Lock), found.lock("socket-owner")), (1.0, 1.0), "{found:?}");
}

/// All senders hash to one transmit ring; the cost of its locks is negligible in comparison.
#[test]
fn one_transmit_ring() {
    let found = weights(include_str!("../stacks/freebsd-one-ring.folded"));
    assert_eq!(first(&found), Class::Transmit);
    assert!(found.share(Class::Lock) < 0.05, "{found:?}");
}

/// "Half the samples are now attributable to the inpcbhash read lock."
#[test]
fn a_read_lock_is_a_lock() {
    let found = weights(include_str!("../stacks/freebsd-pcb-hash.folded"));
    assert!(found.lock("pcb-hash") > 0.5, "{found:?}");
}
