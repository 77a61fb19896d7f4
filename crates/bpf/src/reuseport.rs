//! The reuseport groups of a network namespace, as the kernel has them: `reuseport.bpf.c`.
//!
//! ```text
//! group     what selects, a number n           sockets     0    1    2    3
//!           ├─ the kernel: its hash                       [A]  [B]  [C]  [D]
//!           ├─ a classic program ──▸ n: the socket at n; by hash if there is none
//!           └─ an eBPF program
//! ```

use std::collections::BTreeMap;
use std::io::Read;

use aya::programs::Iter;
use aya::{Btf, Ebpf, EbpfLoader};

use crate::Error;
use crate::attach::{cause, find, load_error, object, verified};
use crate::error::Cause;

const PROGRAM: &str = "reuseport";
/// Instructions of a classic program in a record.
const STEPS: usize = 8;
/// Offset of the instructions in a record, and its size.
const AT_STEPS: usize = 40;
const RECORD: usize = AT_STEPS + 8 * STEPS;
/// `SKF_AD_OFF` and `SKF_AD_CPU` of linux/filter.h: a load from this offset returns the number of the current CPU.
const CURRENT_CPU: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;

/// A reuseport group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReuseportGroup {
    /// What selects among its sockets.
    pub chooser: Chooser,
    /// Number of its sockets, including those that are not in the list.
    pub sockets: u32,
    /// Its sockets, by index.
    pub members: Vec<GroupMember>,
}

/// A socket of a reuseport group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupMember {
    /// Its index in the group, from 0: the number with which a program selects it. When another socket closes, the last
    /// one takes its index (`__reuseport_detach_sock` of net/core/sock_reuseport.c). `None`: above 1,023.
    pub index: Option<u32>,
    /// Its cookie, unique since boot. `None`: it was never asked for, and the kernel assigns it then.
    pub cookie: Option<u64>,
    /// Its inode, which descriptors name. `None`: a socket of the kernel itself.
    pub inode: Option<u32>,
    /// Its `SO_INCOMING_CPU`; for a connected socket, the CPU of the last datagram.
    pub incoming_cpu: Option<u32>,
}

/// What selects among the sockets of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chooser {
    /// The kernel itself, by its hash of the flow or by the members' incoming CPUs.
    Kernel,
    /// A classic BPF program that returns the number of the CPU that received the datagram.
    Cpu {
        /// Modulo this; `None`: as it is.
        modulus: Option<u32>,
    },
    /// Another classic BPF program (`SO_ATTACH_REUSEPORT_CBPF`).
    Classic {
        /// Its number of instructions.
        length: u32,
    },
    /// An eBPF program (`SO_ATTACH_REUSEPORT_EBPF`), by its ID, as in `bpftool prog show id N`.
    Extended {
        /// Its ID.
        id: u32,
    },
}

/// The loaded iterator. Loading takes a tenth of a second, for the kernel's type information; reading next to nothing.
#[derive(Debug)]
pub struct ReuseportIterator(Ebpf);

impl ReuseportIterator {
    /// Loads it. It is unloaded when dropped.
    ///
    /// # Errors
    /// The kernel has no iterator over UDP sockets (Linux 5.9) or no type information, or permission is denied
    /// (`CAP_BPF` and `CAP_PERFMON`).
    pub fn load() -> Result<Self, Error> {
        let types = Btf::from_sys_fs().map_err(|error| refused(cause(&error)))?;
        let mut loader = EbpfLoader::new();
        let object = loader.btf(Some(&types)).load(object!("reuseport"));
        let mut object = object.map_err(|error| load_error(PROGRAM, error))?;
        let program: &mut Iter = find(&mut object, PROGRAM)?;
        verified(|| program.load("udp", &types)).map_err(|error| load_error(PROGRAM, error.into()))?;
        Ok(Self(object))
    }

    /// The reuseport groups of the UDP sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel does not let it run.
    pub fn groups(&mut self) -> Result<Vec<ReuseportGroup>, Error> {
        let program: &mut Iter = find(&mut self.0, PROGRAM)?;
        let link = program.attach().and_then(|id| program.take_link(id));
        let link = link.map_err(|error| load_error(PROGRAM, error.into()))?;
        let mut file = link.into_file().map_err(|error| refused(cause(&error)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|error| refused(format!("cannot read its records: {error}").into()))?;
        Ok(groups(bytes.chunks_exact(RECORD).filter_map(record)))
    }
}

fn refused(source: Cause) -> Error {
    Error::Load { program: PROGRAM, source }
}

/// One record of the iterator.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    /// The group's address in the kernel, which goes no further than this file.
    group: u64,
    sockets: u32,
    chooser: Chooser,
    member: GroupMember,
}

fn record(bytes: &[u8]) -> Option<Record> {
    let long = |at: usize| bytes.get(at..)?.first_chunk().map(|long| u64::from_ne_bytes(*long));
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
    let (cookie, value) = (long(0)?, word(32)?);
    let chooser = match word(28)? {
        0 => Chooser::Kernel,
        1 => {
            let step = |at: usize| {
                let step = bytes.get(AT_STEPS + 8 * at..)?.first_chunk::<8>()?;
                Some((u16::from_ne_bytes([step[0], step[1]]), step[2], step[3], word(AT_STEPS + 8 * at + 4)?))
            };
            let steps: Option<Vec<_>> = (0..STEPS.min(value as usize)).map(step).collect();
            classic(value, &steps?)
        }
        _ => Chooser::Extended { id: value },
    };
    let member = GroupMember {
        // u32::MAX: not found. i32: -1 is none.
        index: word(20).filter(|index| *index != u32::MAX),
        cookie: Some(cookie).filter(|cookie| *cookie != 0),
        inode: Some(word(36)?).filter(|inode| *inode != 0),
        incoming_cpu: u32::try_from(word(24)?.cast_signed()).ok(),
    };
    Some(Record { group: long(8)?, sockets: word(16)?, chooser, member })
}

/// A classic program of so many instructions, of which these are the first: code, jump if true, jump if false, operand,
/// as in `struct sock_filter`.
fn classic(length: u32, steps: &[(u16, u8, u8, u32)]) -> Chooser {
    let load = ((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, CURRENT_CPU);
    let modulo = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
    let end = ((libc::BPF_RET | libc::BPF_A) as u16, 0, 0, 0);
    match *steps {
        [first, last] if (first, last) == (load, end) => Chooser::Cpu { modulus: None },
        [first, (code, 0, 0, modulus), last] if (first, code, last) == (load, modulo, end) => {
            Chooser::Cpu { modulus: Some(modulus) }
        }
        _ => Chooser::Classic { length },
    }
}

/// The groups, in the order in which the iterator first saw them.
fn groups(records: impl Iterator<Item = Record>) -> Vec<ReuseportGroup> {
    let (mut found, mut numbers) = (Vec::<ReuseportGroup>::new(), BTreeMap::new());
    for Record { group, sockets, chooser, member } in records {
        let number = *numbers.entry(group).or_insert(found.len());
        if number == found.len() {
            found.push(ReuseportGroup { chooser, sockets, members: Vec::new() });
        }
        found[number].members.push(member);
    }
    found.iter_mut().for_each(|group| group.members.sort_unstable());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a group without a program; the inode is the cookie and 100.
    fn bytes(cookie: u8, group: u8, index: u32, incoming_cpu: i32) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        (bytes[0], bytes[8], bytes[16], bytes[36]) = (cookie, group, 2, cookie + 100);
        bytes[20..24].copy_from_slice(&index.to_ne_bytes());
        bytes[24..28].copy_from_slice(&incoming_cpu.to_ne_bytes());
        bytes
    }

    /// The same of a group with a classic program.
    fn with_program(steps: &[libc::sock_filter]) -> [u8; RECORD] {
        let mut bytes = bytes(7, 1, 0, -1);
        (bytes[28], bytes[32]) = (1, steps.len() as u8);
        for (at, step) in steps.iter().enumerate().take(STEPS) {
            let place = &mut bytes[AT_STEPS + 8 * at..][..8];
            place[..2].copy_from_slice(&step.code.to_ne_bytes());
            (place[2], place[3]) = (step.jt, step.jf);
            place[4..].copy_from_slice(&step.k.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn records_are_read() {
        let member =
            |index, incoming_cpu| GroupMember { index, cookie: Some(7), inode: Some(107), incoming_cpu };
        let of = |member| Some(Record { group: 1, sockets: 2, chooser: Chooser::Kernel, member });
        assert_eq!(record(&bytes(7, 1, 1, -1)), of(member(Some(1), None)));
        assert_eq!(record(&bytes(7, 1, u32::MAX, 3)), of(member(None, Some(3))));
        let mut extended = bytes(7, 1, 0, -1);
        (extended[28], extended[32]) = (2, 12);
        assert_eq!(record(&extended).unwrap().chooser, Chooser::Extended { id: 12 });
        let mut unnamed = bytes(0, 1, 0, 0);
        unnamed[36] = 0;
        let unnamed = record(&unnamed).unwrap().member;
        assert_eq!((unnamed.cookie, unnamed.inode), (None, None));
        assert_eq!(record(&bytes(7, 1, 0, 0)[..39]), None);
    }

    #[test]
    fn a_program_that_returns_the_cpu_is_recognised() {
        let step = |code: libc::c_uint, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let load = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, CURRENT_CPU);
        let modulo = step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 4);
        let end = step(libc::BPF_RET | libc::BPF_A, 0);
        let chooser = |steps: &[_]| record(&with_program(steps)).unwrap().chooser;
        assert_eq!(chooser(&[load, end]), Chooser::Cpu { modulus: None });
        assert_eq!(chooser(&[load, modulo, end]), Chooser::Cpu { modulus: Some(4) });
        let hash = libc::sock_filter { k: (libc::SKF_AD_OFF + libc::SKF_AD_RXHASH) as u32, ..load };
        for other in
            [&[hash, end][..], &[hash, modulo, end], &[end], &[load, modulo, modulo, end], &[load; 200]]
        {
            assert_eq!(chooser(other), Chooser::Classic { length: other.len() as u32 });
        }
    }

    #[test]
    fn sockets_are_gathered_by_group_and_sorted_by_index() {
        let records = [bytes(7, 1, 1, -1), bytes(8, 2, 0, -1), bytes(9, 1, 0, -1)];
        let groups = groups(records.iter().filter_map(|bytes| record(bytes)));
        let cookies: Vec<Vec<u64>> = groups
            .iter()
            .map(|group| group.members.iter().filter_map(|member| member.cookie).collect())
            .collect();
        assert_eq!(cookies, [vec![9, 7], vec![8]]);
    }
}
