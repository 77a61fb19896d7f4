use std::collections::BTreeMap;

use udpath_host::interfaces::{ChannelCounts, Channels};
use udpath_host::irqs::Irq;
use udpath_profile::classes::Class;

use super::*;
use crate::rules::testing::{Host, fact, found_in, of, only, set, settings};

/// Four queues on four CPUs of two nodes, each queue's interrupt as given.
fn placed_on(cpus: [&str; 4]) -> Host {
    let mut host = Host::with_queues(4);
    host.cpus(4, 2);
    for (queue, cpu) in host.map.interfaces[0].queues.iter_mut().zip(cpus) {
        queue.affinity = Some(set(cpu));
        queue.cpus = set(cpu);
    }
    host
}

#[test]
fn interrupts_that_keep_to_one_node() {
    let host = placed_on(["0", "1", "0", "1"]);
    let finding = only(&host, "irqs-on-one-node");
    assert_eq!(finding.evidence, "eth0: the interrupts of 4 queues go only to node 0, CPUs 0-1");
    assert_eq!(finding.cause, "CPUs 2-3 process no packets");
    assert_eq!(
        settings(&finding),
        ["eth0:irq/rx-0=0", "eth0:irq/rx-1=1", "eth0:irq/rx-2=2", "eth0:irq/rx-3=3"]
    );
    assert_eq!(host.found("irqs-share-cpus"), []);
    assert_eq!(placed_on(["0", "1", "2", "3"]).found("irqs-on-one-node"), []);
}

#[test]
fn interrupts_that_share_cpus() {
    let host = placed_on(["0", "1", "2", "2"]);
    let finding = only(&host, "irqs-share-cpus");
    assert_eq!(finding.evidence, "eth0: the interrupts of 4 queues go to 3 CPUs of 4");
    assert_eq!(finding.locations, [2, 3].map(|queue| Location::Queue("eth0".into(), queue)));
    assert_eq!(placed_on(["0", "1", "2", "3"]).found("irqs-share-cpus"), []);
}

#[test]
fn hints_that_nothing_follows() {
    let mut host = placed_on(["0", "1", "2", "3"]);
    host.map.interfaces[0].queues[3].hint = Some(set("0"));
    let finding = only(&host, "hint-unused");
    assert!(finding.evidence.starts_with("eth0: the interrupts of rx-3 do not go to"));
    assert_eq!(settings(&finding), ["eth0:irq/rx-3=0"]);
    host.map.interfaces[0].queues[3].hint = Some(set("3"));
    assert_eq!(host.found("hint-unused"), []);
}

#[test]
fn a_single_queue_without_rps() {
    let mut host = Host::with_queues(1);
    host.cpus(4, 1);
    host.map.interfaces[0].queues[0].cpus = set("0");
    let max = ChannelCounts { combined: Some(8), ..ChannelCounts::default() };
    host.snapshot.interfaces[0].channels = Some(fact(Channels { max, ..Channels::default() }));
    let finding = only(&host, "one-queue");
    assert_eq!(finding.evidence, "eth0 has one receive queue and RPS is off, on a machine of 4 CPUs");
    assert_eq!(settings(&finding), ["eth0:channels/combined=4", "eth0:rps/rx-0=1-3"]);
    host.map.interfaces[0].queues[0].rps = set("1-3");
    assert_eq!(host.found("one-queue"), []);
}

#[test]
fn a_device_without_known_interrupts() {
    let mut host = Host::with_queues(2);
    assert_eq!(host.found("no-irq-found"), []);
    host.map.interfaces[0].queues.iter_mut().for_each(|queue| queue.irq = None);
    assert_eq!(
        only(&host, "no-irq-found").evidence,
        "eth0: no interrupt found for 2 queues; none has eth0 or ixgbe in its name"
    );
    let irq = |number: u32, name: &str, chip: &str| Irq {
        number,
        name: name.into(),
        chip: chip.into(),
        counts: BTreeMap::new(),
        affinity: None,
        effective: None,
        hint: None,
        node: None,
    };
    host.snapshot.irqs =
        vec![irq(7, "eth0-fp-0", "PCI-MSI"), irq(8, "ixgbe:misc", "PCI-MSI"), irq(9, "ahci", "PCI-MSI")];
    assert_eq!(
        only(&host, "no-irq-found").evidence,
        "eth0: no interrupt found for 2 queues; what may be its own: eth0-fp-0, ixgbe:misc"
    );
    host.snapshot.irqs = (0..9).map(|n| irq(n, &format!("eth0-{n}"), "PCI-MSI")).collect();
    let said = only(&host, "no-irq-found").evidence;
    assert!(said.ends_with("eth0-4, eth0-5 and 3 more"), "{said}");
    host.map.interfaces[0].driver = Some("hv_netvsc".into());
    assert_eq!(host.found("no-irq-found"), []);
}

#[test]
fn an_interrupt_that_has_not_moved_yet() {
    let mut host = placed_on(["0", "1", "2", "3"]);
    assert_eq!(host.found("irq-not-moved-yet"), []);
    host.map.interfaces[0].queues[1].cpus = set("0");
    let finding = only(&host, "irq-not-moved-yet");
    assert_eq!(finding.evidence, "eth0: the interrupts of rx-1 still go to their previous CPUs");
}

#[test]
fn one_full_cpu_beside_free_ones() {
    const SECOND: u64 = 1_000_000_000;
    let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5_000)]);
    profile.cpus[0].sampled = BTreeMap::from([(Context::Softirq, 49 * SECOND / 10)]);
    profile.cpus[1].sampled =
        BTreeMap::from([(Context::Softirq, SECOND / 10), (Context::Idle, 49 * SECOND / 10)]);
    let [finding] = &found_in(&profile, "one-cpu")[..] else { panic!() };
    assert_eq!(finding.evidence, "CPU 0 is full while the other is 2.0 % used");
    assert_eq!(finding.locations, [Location::Cpu(0)]);
    profile.cpus[1].sampled = BTreeMap::from([(Context::Softirq, 4 * SECOND)]);
    assert_eq!(found_in(&profile, "one-cpu"), []);
}
