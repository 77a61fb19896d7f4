//! A reuseport group: which of the sockets bound to one address receives a datagram.
//!
//! ```text
//! bind order     0    1    2    3          close socket 1     0    3    2
//! sockets       [A]  [B]  [C]  [D]         ------------->    [A]  [D]  [C]     the last one moves into the gap
//! ```
//! So an index into a group, as a BPF program returns it, does not identify a socket permanently: it changes when
//! another socket closes (`net/core/sock_reuseport.c`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hash::reciprocal_scale;

/// How a group selects a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// By the kernel's own hash of the 4-tuple, with a secret drawn at boot (`udp_ehashfn` of `net/ipv4/udp.c`): even
    /// over flows, but unpredictable.
    Hash,
    /// By the CPU that received the packet: the sockets' SO_INCOMING_CPU. Not supported by groups from Linux 4.5
    /// until 6.2.
    Cpu,
    /// By a program that returns the number of the CPU that received the packet, modulo the number of sockets: the
    /// one that `udpath apply --set port:53:selection=by-cpu` attaches (`SO_ATTACH_REUSEPORT_CBPF`). It overrides
    /// SO_INCOMING_CPU.
    CpuModulo,
    /// By a program that returns the number of the CPU that received the packet, as it is: by the kernel's hash where
    /// there is no such socket. It overrides SO_INCOMING_CPU.
    CpuIndex,
    /// By the packet's hash, from a network card or RPS: udpath's own datapath, and programs that read SKF_AD_RXHASH.
    Rxhash,
    /// Not a group: the sockets share their address by SO_REUSEADDR only. The last one bound receives everything,
    /// unless others have the receiving CPU as SO_INCOMING_CPU; then the last of those (`udp4_lib_lookup2` of
    /// `net/ipv4/udp.c`).
    Last,
    /// Unknown: the options of the sockets could not be read, the group is not the one that a program was made for, or
    /// the program is another one.
    Unknown,
}

/// A group in bind order. `T` identifies a socket.
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
    /// An empty group.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a socket that was bound, with its SO_INCOMING_CPU if set; returns its current index.
    pub fn bind(&mut self, name: T, cpu: Option<u32>) -> usize {
        self.sockets.push(Member { name, cpu });
        self.sockets.len() - 1
    }

    /// Removes a socket that was closed; the last one takes its place. Returns whether it was in the group.
    pub fn close(&mut self, name: &T) -> bool {
        let found = self.sockets.iter().position(|member| member.name == *name);
        if let Some(at) = found {
            self.sockets.swap_remove(at);
        }
        found.is_some()
    }

    /// The socket currently at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.sockets.get(index).map(|member| &member.name)
    }

    /// Number of sockets.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether the group is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// The index selected by a hash: [`reciprocal_scale`]. `None` for an empty group.
    #[must_use]
    #[inline]
    pub fn by_hash(&self, hash: u32) -> Option<usize> {
        let place = reciprocal_scale(hash, self.sockets.len() as u32) as usize;
        (!self.sockets.is_empty()).then_some(place)
    }

    /// The index selected if sockets have SO_INCOMING_CPU: the first socket with `cpu`, scanning the group from the
    /// hash's index and wrapping around; if there is none, the hash's index (`reuseport_select_sock_by_hash`).
    #[must_use]
    pub fn by_cpu(&self, hash: u32, cpu: u32) -> Option<usize> {
        let own = self.by_hash(hash)?;
        let round = (own..self.sockets.len()).chain(0..own);
        round.into_iter().find(|&at| self.sockets[at].cpu == Some(cpu)).or(Some(own))
    }

    /// The index selected if a program returned `index`: that one, or by hash if there is no such socket.
    #[must_use]
    pub fn by_index(&self, hash: u32, index: u32) -> Option<usize> {
        match usize::try_from(index) {
            Ok(index) if index < self.sockets.len() => Some(index),
            _ => self.by_hash(hash),
        }
    }

    /// Whether any socket has SO_INCOMING_CPU set.
    #[must_use]
    pub fn has_cpus(&self) -> bool {
        self.sockets.iter().any(|member| member.cpu.is_some())
    }

    /// Indices of the sockets whose SO_INCOMING_CPU is `cpu`.
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
        assert_eq!(group.by_cpu(u32::MAX / 2 + 1, 7), Some(2), "no such SO_INCOMING_CPU: by hash");
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
