//! Updates the counters in a snapshot whose other parts are unchanged.

use std::collections::{BTreeSet, HashMap};

use super::{Effort, Watch};
use crate::client::netdev::{Counters, Direction, QueueCounters};
use crate::client::route::Link;
use crate::interfaces::Interface;
use crate::queues::List;
use crate::sockets::{Socket, Sockets};
use crate::softnet::Softnet;
use crate::{
    Fact, Missing, Snapshot, Source, cpus, ip, irqs, neighbours, processes, queues, sockets, softnet, text,
    udp,
};

/// The current links.
pub(super) fn links(source: &dyn Source) -> Option<Vec<Link>> {
    source.links().ok().map(|fact| fact.value)
}

impl Watch {
    /// Reads the counters into `now`, a copy of the last snapshot but for its list of sockets, which is `known`. False
    /// if the configuration has changed since, or a part can no longer be read: then everything must be reread.
    pub(super) fn recount(&mut self, source: &dyn Source, known: &[Socket], now: &mut Snapshot) -> bool {
        let Ok(time) = source.time() else { return false };
        now.taken = time.value;
        // The snapshot already lists what was missing; anything newly missing shows as absent.
        let missing = &mut Vec::new();
        self.interfaces(source, now)
            && ticks(source, now)
            && interrupts(source, now)
            && packets(source, now, missing)
            && self.sockets(source, known, &mut now.sockets, missing)
    }

    fn interfaces(&self, source: &dyn Source, now: &mut Snapshot) -> bool {
        let Some(links) = links(source) else { return false };
        let (set_up, counted): (Vec<Link>, Vec<_>) = links
            .into_iter()
            .map(|mut link| {
                let statistics = std::mem::take(&mut link.statistics);
                (link, statistics)
            })
            .unzip();
        if set_up != self.links {
            return false;
        }
        let by_number: HashMap<u32, _> = set_up.iter().map(|link| link.index).zip(counted).collect();
        let counters = source.queue_counters().ok();
        let counters = List::new(counters, |queue| queue.interface);
        now.interfaces.iter_mut().all(|interface| {
            let statistics = by_number.get(&interface.index).filter(|counters| !counters.is_empty());
            match statistics {
                Some(statistics) => interface.statistics.clone_from(statistics),
                // A capture, or a kernel that does not report them here.
                None => interface.statistics = crate::links::statistics(source, &interface.name),
            }
            recount(source, interface, &counters)
        })
    }

    /// The list of sockets, with the `known` owners.
    fn sockets(
        &mut self,
        source: &dyn Source,
        known: &[Socket],
        now: &mut Sockets,
        missing: &mut Vec<Missing>,
    ) -> bool {
        if now.from.is_none() {
            return true;
        }
        let Some(mut listed) = sockets::list(source, missing) else { return false };
        sockets::sort(&mut listed.value);
        self.strangers |= !keep_owners(known, &mut listed.value);
        if self.strangers && self.owners.is_due() {
            for socket in &mut listed.value {
                socket.owners.clear();
            }
            let inodes = sockets::inodes(&mut listed.value);
            let (joined, effort) = Effort::of(|| {
                let scan = processes::scan(source, &inodes).ok()?;
                Some(sockets::join(source, listed, &inodes, &scan, missing))
            });
            self.owners = effort;
            self.strangers = false;
            let Some(joined) = joined else { return false };
            *now = joined;
            return true;
        }
        let mut groups = sockets::groups(&mut listed.value);
        sockets::order::keep(&now.groups, known, &listed.value, &mut groups);
        now.groups = groups;
        now.list = listed.value;
        now.from = Some(listed.from);
        true
    }
}

/// Gives the listed sockets the owners that they are known to have. False if one is new. Both lists are sorted; most
/// sockets are in both, in the same place.
fn keep_owners(known: &[Socket], listed: &mut [Socket]) -> bool {
    let mut known = known.iter().peekable();
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    for socket in listed.iter_mut().filter(|socket| socket.inode != 0) {
        while let Some(before) = known.next_if(|before| sockets::place(before) < sockets::place(socket)) {
            gone.push(before);
        }
        match known.next_if(|before| identity(before) == identity(socket)) {
            Some(same) => socket.owners.clone_from(&same.owners),
            None => come.push(socket),
        }
    }
    // A socket that was connected or bound anew has another place, but is the same.
    let gone: HashMap<_, _> =
        gone.into_iter().chain(known).map(|socket| (identity(socket), socket)).collect();
    let mut all_known = true;
    for socket in come {
        match gone.get(&identity(socket)) {
            Some(same) => socket.owners.clone_from(&same.owners),
            None => all_known = false,
        }
    }
    all_known
}

/// What tells a socket from every other since boot.
const fn identity(socket: &Socket) -> (u32, Option<u64>) {
    (socket.inode, socket.cookie)
}

/// CPU time per CPU. A CPU that came online or went offline is a configuration change.
fn ticks(source: &dyn Source, now: &mut Snapshot) -> bool {
    let list = &mut now.cpus.list;
    if list.iter().all(|cpu| cpu.ticks.is_none()) {
        return true;
    }
    let Ok(mut ticks) = text::parsed(source, "/proc/stat", cpus::ticks) else { return false };
    for cpu in list.iter_mut() {
        let count = ticks.remove(&cpu.number);
        if count.is_some() != cpu.ticks.is_some() {
            return false;
        }
        cpu.ticks = count;
    }
    ticks.is_empty()
}

/// Interrupt counts. A different set is a configuration change: queues were added or removed.
fn interrupts(source: &dyn Source, now: &mut Snapshot) -> bool {
    if now.irqs.is_empty() && now.processor_interrupts.is_empty() {
        return true;
    }
    let Ok(found) = irqs::listed(source) else { return false };
    let same = found.irqs.len() == now.irqs.len()
        && found
            .irqs
            .iter()
            .zip(&now.irqs)
            .all(|(new, old)| new.number == old.number && new.name == old.name);
    for (old, new) in now.irqs.iter_mut().zip(found.irqs) {
        old.counts = new.counts;
    }
    now.processor_interrupts = found.processor;
    same
}

/// The receive path of each CPU, IP and UDP.
fn packets(source: &dyn Source, now: &mut Snapshot, missing: &mut Vec<Missing>) -> bool {
    let softnet = softnet::read(source, missing);
    let cpus = |softnet: &Softnet| -> BTreeSet<u32> { softnet.cpus.keys().copied().collect() };
    let udp = udp::read(source, missing);
    let same = cpus(&softnet) == cpus(&now.softnet)
        && (udp.v4.is_some(), udp.v6.is_some()) == (now.udp.v4.is_some(), now.udp.v6.is_some());
    (now.softnet, now.udp) = (softnet, udp);
    (now.ip, now.neighbours) = (ip::read(source, missing), neighbours::read(source, missing));
    same
}

/// Reads the counters of known queues. False if the set of queues changed.
fn recount(source: &dyn Source, interface: &mut Interface, lists: &List<QueueCounters>) -> bool {
    let known = |fact: &Option<Fact<Counters>>| fact.as_ref().map(|fact| fact.from.clone());
    let rx = interface.rx.iter().filter_map(|queue| known(&queue.counters));
    let Some(from) = rx.chain(interface.tx.iter().filter_map(|queue| known(&queue.counters))).next() else {
        return true;
    };
    // Querying the driver is the most expensive part: only if its counters are those of the queues.
    if interface.driver_counters.as_ref().is_some_and(|fact| fact.from == from) {
        interface.driver_counters = source.driver_counters(&interface.name).ok();
    }
    let driver = interface.driver.as_ref().map(|driver| &driver.value);
    let Some(mut counted) =
        queues::counters(interface.index, driver, interface.driver_counters.as_ref(), lists)
    else {
        return false;
    };
    let from = counted.from.clone();
    let mut put = |direction, id, counters: &mut Option<Fact<Counters>>| {
        let new = counted.value.remove(&(direction, id)).map(|new| Fact::new(new, from.clone()));
        let same = new.is_some() == counters.is_some();
        *counters = new;
        same
    };
    interface.rx.iter_mut().all(|queue| put(Direction::Rx, queue.id, &mut queue.counters))
        && interface.tx.iter_mut().all(|queue| put(Direction::Tx, queue.id, &mut queue.counters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::Owner;
    use crate::sockets::tests::socket;

    fn owned(local: &str, inode: u32, fd: u32) -> Socket {
        let cookie = Some(u64::from(inode) + 100);
        Socket { cookie, owners: vec![Owner { pid: 7, fd }], ..socket(local, inode, 0) }
    }

    #[test]
    fn sockets_keep_their_owners_wherever_they_are_bound_now() {
        let mut known = vec![
            owned("0.0.0.0:53", 1, 3),
            owned("[::]:53", 2, 4),
            owned("0.0.0.0:4000", 3, 5),
            owned("127.0.0.1:5000", 4, 6),
            socket("0.0.0.0:4789", 0, 0),
        ];
        sockets::sort(&mut known);
        // The third is closed, and the fourth was connected, which changed its address.
        let mut listed = vec![
            owned("0.0.0.0:53", 1, 3),
            owned("[::]:53", 2, 4),
            owned("10.0.0.1:5000", 4, 6),
            socket("0.0.0.0:4789", 0, 0),
        ];
        sockets::sort(&mut listed);
        let expected = listed.clone();
        listed.iter_mut().for_each(|socket| socket.owners.clear());
        assert!(keep_owners(&known, &mut listed));
        assert_eq!(listed, expected);
    }

    #[test]
    fn a_new_socket_is_noticed_even_with_the_inode_of_an_old_one() {
        let known = [owned("0.0.0.0:53", 1, 3)];
        let again = Socket { cookie: Some(999), owners: Vec::new(), ..owned("0.0.0.0:53", 1, 3) };
        let new = Socket { owners: Vec::new(), ..owned("0.0.0.0:54", 9, 3) };
        for stranger in [again, new] {
            let mut listed = [stranger];
            assert!(!keep_owners(&known, &mut listed));
            assert_eq!(listed[0].owners, []);
        }
        assert!(keep_owners(&known, &mut [socket("0.0.0.0:4789", 0, 0)]), "the kernel's own need no owner");
    }
}
