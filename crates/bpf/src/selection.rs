//! Chooses the socket of a reuseport group for each datagram: loader of `bpf/selection.bpf.c`.
//!
//! ```text
//!   slots     0    1    2    3
//!            [A]  [B]   –   [D]     rule: which of the occupied slots gets a datagram
//! ```
//! A datagram is never lost because of a slot: the next occupied one replaces one whose socket was closed, and without
//! any the kernel's hash chooses among all sockets of the group. A socket of the group that is in no slot gets none.
//!
//! The group owns the program, and the program its maps: they remain when this process ends, until [`detach`], another
//! program, or the group's last socket is closed. What is there already can be read by the program's ID: [`Installed`].

mod installed;
mod rule;
mod slots;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::{ProgramError, SkReuseport};
use aya::{Ebpf, EbpfLoader};

use crate::attach::{self, cause, errno, find, load_error, object};
use crate::error::Cause;
use crate::{Error, sys};

pub use installed::Installed;
pub use rule::{MAX_FIELD, MAX_PAYLOAD, Rule};

use slots::{cookies, empty, put};

const NAME: &str = "selection";
/// The program as the kernel lists it (`bpftool prog`).
const PROGRAM: &str = "udpath_select";
/// The same, for slots that can be asked on their own.
const QUERY_PROGRAM: &str = "udpath_multiply";
const QUERIES: &str = "queries";
const SOCKETS: &str = "sockets";
const ORDERS: &str = "orders";
const DATAGRAMS: &str = "datagrams";

/// Slots that a group can have: `MAX_SLOTS` of the program.
pub const MAX_SLOTS: u32 = 256;
/// The kernel's own error, which C libraries have no name for: `include/linux/errno.h`.
const ENOTSUPP: i32 = 524;

/// `struct order` of the program: number of occupied slots, the slots.
type OrderWords = [u32; 1 + MAX_SLOTS as usize];

/// A loaded program, and the slots that it chooses from. Dropping it leaves a group that has the program as it is.
#[derive(Debug)]
pub struct Selection {
    object: Ebpf,
    program: &'static str,
    slots: u32,
    /// Slots whose socket gets queries only.
    held: BTreeSet<u32>,
}

impl Selection {
    /// Makes `rule` choose in the reuseport group of `member`, a bound socket, in place of what chose before. The slots
    /// are empty, so that the kernel's hash chooses until the first [`Self::set`].
    ///
    /// # Errors
    /// As [`Self::load`] and [`Self::attach_to`].
    pub fn attach(member: BorrowedFd<'_>, rule: Rule, slots: u32) -> Result<Self, Error> {
        let selection = Self::load(rule, slots)?;
        selection.attach_to(member)?;
        Ok(selection)
    }

    /// Loads the program, with so many slots: 1 to [`MAX_SLOTS`]. It chooses nothing yet, so that slots can be set
    /// before the first datagram.
    ///
    /// # Errors
    /// The rule or the number of slots is out of range; the kernel has no type information (BTF); or permission is
    /// denied (`CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`).
    pub fn load(rule: Rule, slots: u32) -> Result<Self, Error> {
        Self::load_program(PROGRAM, rule, slots)
    }

    /// The same, and slots can be asked on their own: [`Self::ask`]. It costs a lookup by source port for each
    /// datagram.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_for_queries(rule: Rule, slots: u32) -> Result<Self, Error> {
        Self::load_program(QUERY_PROGRAM, rule, slots)
    }

    fn load_program(name: &'static str, rule: Rule, slots: u32) -> Result<Self, Error> {
        rule.check(slots)?;
        let words = rule.words();
        let mut loader = EbpfLoader::new();
        loader.override_global("rule", &words, true);
        loader.map_max_entries(SOCKETS, slots).map_max_entries(DATAGRAMS, slots);
        let mut object = attach::load_tracing(NAME, &mut loader, object!("selection"))?;
        let program: &mut SkReuseport = find(&mut object, name)?;
        attach::verified(|| program.load()).map_err(|error| load_error(NAME, error.into()))?;
        Ok(Self { object, program: name, slots, held: BTreeSet::new() })
    }

    /// Makes the program choose in the reuseport group of `member`, in place of what chose before.
    ///
    /// # Errors
    /// The socket was bound without `SO_REUSEPORT`, or is not a UDP socket.
    pub fn attach_to(&self, member: BorrowedFd<'_>) -> Result<(), Error> {
        let program = self.object.program(self.program).ok_or_else(|| lacks(self.program))?;
        let program: &SkReuseport =
            program.try_into().map_err(|error: ProgramError| load_error(NAME, error.into()))?;
        program.attach(member).map_err(|error| {
            let source: Cause = match errno(&error) {
                Some(libc::EINVAL) => "the socket was bound without SO_REUSEPORT; set it before bind".into(),
                Some(ENOTSUPP) => "it is not a UDP socket".into(),
                _ => cause(&error),
            };
            refused("attach BPF program 'selection' to the socket's reuseport group", source)
        })
    }

    /// Puts a socket of the group into a slot, in place of the one that is there. `None` empties the slot: its socket
    /// gets no further datagrams, and can still read those that are queued. A socket has one slot, in one array.
    ///
    /// # Errors
    /// There is no such slot; the socket is not a bound UDP socket with `SO_REUSEPORT`; or it is in a slot already, of
    /// this or of another program.
    pub fn set(&mut self, slot: u32, socket: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        self.held.remove(&slot);
        self.place(slot, socket)
    }

    /// Puts a socket of the group into a slot without giving it datagrams, other than queries: [`Self::ask`], and
    /// [`Self::admit`] when it has answered.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn hold(&mut self, slot: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.held.insert(slot);
        self.place(slot, Some(socket))
    }

    /// From now on the slot's socket gets datagrams.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn admit(&mut self, slot: u32) -> Result<(), Error> {
        self.held.remove(&slot);
        self.write_order()
    }

    /// From now on the slot's socket gets queries only. It can still read what is queued.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn retire(&mut self, slot: u32) -> Result<(), Error> {
        self.held.insert(slot);
        self.write_order()
    }

    /// Gives datagrams with this source port to the slot's socket, whatever the rule, if their source address is their
    /// destination: those that a socket of this machine sends that is connected to the group's address. They are not
    /// counted. Earlier ports of the slot are forgotten. Only after [`Self::load_for_queries`].
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn ask(&mut self, slot: u32, port: u16) -> Result<(), Error> {
        let map = self.object.map_mut(QUERIES).ok_or_else(|| lacks(QUERIES))?;
        let mut queries: HashMap<&mut MapData, u32, u32> = map.try_into().map_err(|error| unread(&error))?;
        let known: Result<Vec<(u32, u32)>, MapError> = queries.iter().collect();
        for (earlier, _) in known.map_err(|error| unread(&error))?.into_iter().filter(|(_, of)| *of == slot) {
            queries.remove(&earlier).map_err(|error| unread(&error))?;
        }
        queries.insert(u32::from(port.to_be()), slot, 0).map_err(|error| unread(&error))
    }

    fn place(&mut self, slot: u32, socket: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let what = || match socket {
            Some(_) => format!("put a socket into slot {slot} of a reuseport group"),
            None => format!("empty slot {slot} of a reuseport group"),
        };
        if slot >= self.slots {
            return Err(refused(&what(), format!("its slots are 0 to {}", self.slots - 1).into()));
        }
        let array = self.array()?;
        let done = match socket {
            Some(socket) => put(array, slot, socket),
            None => empty(array, slot),
        };
        done.map_err(|error| {
            let source: Cause = match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    "it is in a slot of this or of another program; empty that one first".into()
                }
                Some(libc::EINVAL) => "it is not bound, or was bound without SO_REUSEPORT".into(),
                Some(ENOTSUPP) => "it is not a UDP socket".into(),
                _ => error.into(),
            };
            refused(&what(), source)
        })?;
        self.write_order()
    }

    /// The cookie of each slot's socket; `None` for an empty slot.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn sockets(&self) -> Result<Vec<Option<u64>>, Error> {
        cookies(self.array()?, self.slots)
    }

    /// How many datagrams were given to each slot's sockets since the program was loaded.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn datagrams(&self) -> Result<Vec<u64>, Error> {
        let map = self.object.map(DATAGRAMS).ok_or_else(|| lacks(DATAGRAMS))?;
        let counts: PerCpuArray<&MapData, u64> = map.try_into().map_err(|error| unread(&error))?;
        counts.iter().map(|cpus| Ok(cpus.map_err(|error| unread(&error))?.iter().sum())).collect()
    }

    fn array(&self) -> Result<BorrowedFd<'_>, Error> {
        match self.object.map(SOCKETS) {
            Some(Map::ReusePortSockArray(data)) => Ok(data.fd().as_fd()),
            _ => Err(lacks(SOCKETS)),
        }
    }

    /// Writes the occupied slots, without those that are held or whose sockets were closed.
    fn write_order(&mut self) -> Result<(), Error> {
        let occupied = (0..).zip(self.sockets()?).filter_map(|(slot, cookie)| cookie.map(|_| slot));
        let occupied = occupied.filter(|slot| !self.held.contains(slot)).collect::<Vec<u32>>();
        let mut words: OrderWords = [0; 1 + MAX_SLOTS as usize];
        let [count, slots @ ..] = &mut words;
        for (place, slot) in slots.iter_mut().zip(occupied) {
            (*place, *count) = (slot, *count + 1);
        }
        let map = self.object.map_mut(ORDERS).ok_or_else(|| lacks(ORDERS))?;
        let mut orders: Array<&mut MapData, OrderWords> = map.try_into().map_err(|error| unread(&error))?;
        orders.set(0, words, 0).map_err(|error| unread(&error))
    }
}

/// Detaches the program from the reuseport group of `member`: the kernel's hash of the flow chooses again. Without a
/// program it does nothing.
///
/// # Errors
/// The socket was bound without `SO_REUSEPORT`.
pub fn detach(member: BorrowedFd<'_>) -> Result<(), Error> {
    match SkReuseport::detach(member) {
        Ok(()) => Ok(()),
        // A group without a program.
        Err(error) if errno(&error) == Some(libc::ENOENT) => Ok(()),
        Err(error) => {
            let source: Cause = match errno(&error) {
                Some(libc::EINVAL) => "the socket was bound without SO_REUSEPORT".into(),
                _ => cause(&error),
            };
            Err(refused("detach the BPF program of the socket's reuseport group", source))
        }
    }
}

/// Returns once every lookup of a socket that runs now has ended, and with it the program that it runs: from then on a
/// slot's socket gets nothing that was given to it by an earlier [`Selection::retire`]'s orders. A lookup and the way
/// to the socket's queue are one RCU read-side critical section (`ip_local_deliver_finish` of net/ipv4/ip_input.c), and
/// this waits for a grace period: some 10 ms. A kernel with `nohz_full` CPUs offers no such wait; then it returns at
/// once.
pub fn grace_period() {
    sys::outwait_programs();
}

fn refused(what: &str, source: Cause) -> Error {
    Error::Reuseport { what: what.to_owned(), source }
}

fn lacks(what: &str) -> Error {
    Error::Load { program: NAME, source: format!("the object has no '{what}'").into() }
}

fn unread(error: &MapError) -> Error {
    Error::Load { program: NAME, source: cause(error) }
}
