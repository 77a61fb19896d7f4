//! A reuseport group: which of the sockets bound to one address gets a datagram.
//!
//! ```text
//! bind order     0    1    2    3          close socket 1     0    3    2
//! sockets       [A]  [B]  [C]  [D]         ------------->    [A]  [D]  [C]     the last one fills the hole
//! ```
//! So an index into a group, as a BPF program returns it, is not a name of a socket: it changes when another socket
//! closes (`net/core/sock_reuseport.c`).

use serde::{Deserialize, Serialize};

use crate::hash::reciprocal_scale;

/// How a group chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// By the kernel's own hash of the 4-tuple, which has a secret drawn at boot (`udp_ehashfn` of `net/ipv4/udp.c`):
    /// even over flows, and not to be predicted.
    Hash,
    /// By the CPU that received the packet: the sockets' SO_INCOMING_CPU. Groups lost it with Linux 4.5 and have it back
    /// since 6.2.
    Cpu,
    /// By a program that gives the number of the CPU that received the packet, modulo that of the sockets: what
    /// `udpath apply --set port:53:selection=by-cpu` attaches (`SO_ATTACH_REUSEPORT_CBPF`). It goes before SO_INCOMING_CPU.
    CpuModulo,
    /// By the hash that came with the packet, which a network card or RPS gave it: udpath's own datapath, and a
    /// program that reads SKF_AD_RXHASH.
    Rxhash,
    /// They are no group, for they share their address by SO_REUSEADDR alone: the one bound last gets everything, unless
    /// others name the receiving CPU; then the last of those (`udp4_lib_lookup2` of `net/ipv4/udp.c`).
    Last,
    /// Not to be told: the options of the sockets could not be read, or the group is not the one that a program was made
    /// for.
    Unknown,
}

/// A group in its order of binding. `T` is whatever names a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<T> {
    sockets: Vec<Member<T>>,
}

/// A socket of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member<T> {
    name: T,
    /// Its SO_INCOMING_CPU.
    cpu: Option<u32>,
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self { sockets: Vec::new() }
    }
}

impl<T: PartialEq> Group<T> {
    /// No socket yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A socket is bound, with its SO_INCOMING_CPU if it was set; gives its index for now.
    pub fn bind(&mut self, name: T, cpu: Option<u32>) -> usize {
        self.sockets.push(Member { name, cpu });
        self.sockets.len() - 1
    }

    /// A socket is closed; the last one takes its place. Says whether it was there.
    pub fn close(&mut self, name: &T) -> bool {
        let found = self.sockets.iter().position(|member| member.name == *name);
        if let Some(at) = found {
            self.sockets.swap_remove(at);
        }
        found.is_some()
    }

    /// The socket at an index, for now.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.sockets.get(index).map(|member| &member.name)
    }

    /// How many sockets there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sockets.len()
    }

    /// No socket?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// The index chosen by a hash: [`reciprocal_scale`]. None in an empty group.
    #[must_use]
    #[inline]
    pub fn by_hash(&self, hash: u32) -> Option<usize> {
        let place = reciprocal_scale(hash, self.sockets.len() as u32) as usize;
        (!self.sockets.is_empty()).then_some(place)
    }

    /// The index chosen when sockets have SO_INCOMING_CPU: from the hash's own place on, round the group, the first
    /// socket that names `cpu`; if none does, the hash's own place (`reuseport_select_sock_by_hash`).
    #[must_use]
    pub fn by_cpu(&self, hash: u32, cpu: u32) -> Option<usize> {
        let own = self.by_hash(hash)?;
        let round = (own..self.sockets.len()).chain(0..own);
        round.into_iter().find(|&at| self.sockets[at].cpu == Some(cpu)).or(Some(own))
    }

    /// The index chosen when a program returned `index`: that one, or by hash when there is no such socket.
    #[must_use]
    pub fn by_index(&self, hash: u32, index: u32) -> Option<usize> {
        match usize::try_from(index) {
            Ok(index) if index < self.sockets.len() => Some(index),
            _ => self.by_hash(hash),
        }
    }

    /// Does any socket name a CPU?
    #[must_use]
    pub fn has_cpus(&self) -> bool {
        self.sockets.iter().any(|member| member.cpu.is_some())
    }

    /// Indices of the sockets that name `cpu`.
    pub fn of_cpu(&self, cpu: u32) -> impl Iterator<Item = usize> + '_ {
        let members = self.sockets.iter().enumerate();
        members.filter(move |(_, member)| member.cpu == Some(cpu)).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(cpus: &[Option<u32>]) -> Group<char> {
        let mut group = Group::new();
        for (name, cpu) in ('A'..).zip(cpus) {
            group.bind(name, *cpu);
        }
        group
    }

    #[test]
    fn a_closed_sockets_place_is_taken_by_the_last() {
        let mut group = group(&[None; 4]);
        assert!(group.close(&'B'));
        assert_eq!((0..3).map(|at| *group.get(at).unwrap()).collect::<String>(), "ADC");
        // The worker comes back: its socket is the last now.
        assert_eq!(group.bind('B', None), 3);
        assert!(group.close(&'B'), "closing the last one moves nothing");
        assert_eq!((0..3).map(|at| *group.get(at).unwrap()).collect::<String>(), "ADC");
        assert!(!group.close(&'B'));
    }

    #[test]
    fn by_hash_is_even() {
        let group = group(&[None; 3]);
        let third = u32::MAX / 3;
        assert_eq!([0, third, third + 1, u32::MAX].map(|hash| group.by_hash(hash).unwrap()), [0, 0, 1, 2]);
        assert_eq!(Group::<char>::new().by_hash(7), None);
    }

    #[test]
    fn by_cpu_takes_the_next_socket_that_names_it() {
        let group = group(&[Some(0), Some(1), None, Some(1)]);
        assert_eq!(group.by_cpu(0, 0), Some(0));
        assert_eq!(group.by_cpu(0, 1), Some(1));
        assert_eq!(group.by_cpu(u32::MAX, 1), Some(3));
        assert_eq!(group.by_cpu(u32::MAX / 2 + 1, 0), Some(0), "round the end");
        assert_eq!(group.by_cpu(u32::MAX / 2 + 1, 7), Some(2), "nobody names it: by hash");
        assert_eq!(group.of_cpu(1).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn an_index_past_the_group_falls_back_to_the_hash() {
        let group = group(&[None; 2]);
        assert_eq!(group.by_index(u32::MAX, 0), Some(0));
        assert_eq!(group.by_index(u32::MAX, 2), Some(1));
        assert_eq!(Group::<char>::new().by_index(0, 0), None);
    }
}
