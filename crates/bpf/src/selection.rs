//! Chooses the socket of a reuseport group for each datagram: loader of `bpf/selection.bpf.c`.
//!
//! ```text
//!   slots     0    1    2    3
//!            [A]  [B]   –   [D]     rule: which of the occupied slots gets a datagram
//! ```
//! A datagram is never lost because of a slot: the next occupied one replaces one whose socket was closed, and without any the
//! kernel's hash chooses among all sockets of the group. A socket of the group that is in no slot gets none.
//!
//! The group owns the program, and the program its maps: they remain when this process ends, until [`detach`], another
//! program, or the group's last socket is closed. What is there already can be read by the program's ID: [`Installed`].

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::{ProgramError, SkReuseport, loaded_programs};
use aya::{Ebpf, EbpfLoader};
use aya_obj::generated::bpf_prog_type;

use crate::attach::{self, cause, errno, find, load_error, object};
use crate::error::Cause;
use crate::{Error, sys};

const NAME: &str = "selection";
/// The program as the kernel lists it (`bpftool prog`).
const PROGRAM: &str = "udpath_select";
/// The same, for slots that can be asked on their own.
const QUERY_PROGRAM: &str = "udpath_multiply";
const QUERIES: &str = "queries";
const SOCKETS: &str = "sockets";
const ORDERS: &str = "orders";
const DATAGRAMS: &str = "datagrams";
/// The map of the object's constants, which has the rule.
const CONSTANTS: &str = ".rodata";

/// Slots that a group can have: `MAX_SLOTS` of the program.
pub const MAX_SLOTS: u32 = 256;
/// Bytes that a field can have: `FIELD_WORDS` of the program.
pub const MAX_FIELD: u8 = 32;
/// Bytes that a datagram can carry: a field ends within them.
pub const MAX_PAYLOAD: u32 = 65_507;

/// How long a socket is waited for that a detached program still has: the kernel frees the program's array a grace period
/// of RCU later, some 10 ms. Shorter: on a busy machine setting a slot fails right after a detach. Longer: so does, later, one that
/// another program keeps.
const RELEASE: Duration = Duration::from_secs(2);
/// Time between two attempts. Shorter: more system calls. Longer: the slot is set later.
const ATTEMPT: Duration = Duration::from_millis(5);

/// The kernel's own error, which C libraries have no name for: `include/linux/errno.h`.
const ENOTSUPP: i32 = 524;

/// `struct rule` of the program: kind, offset, length.
type RuleWords = [u32; 3];
/// `struct order` of the program: number of occupied slots, the slots.
type OrderWords = [u32; 1 + MAX_SLOTS as usize];

/// Which of the occupied slots gets a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// By the kernel's keyed hash of the flow: its datagrams stay on one socket, in order.
    Hash,
    /// The number of the receiving CPU, modulo the occupied slots.
    Cpu,
    /// One after the other; each receiving CPU has its own turn, so that the counts of two sockets differ by at most one for
    /// each CPU. Datagrams of a flow can be read out of order.
    RoundRobin,
    /// The shortest queue, in bytes of the kernel's accounting; of empty ones the next that a thread waits for, of equal
    /// ones the next in turn. With more than 16
    /// occupied slots the shortest of 16 in turn. Datagrams of a flow can be read out of order.
    LeastLoaded,
    /// By a hash of a part of the payload, such as a connection ID; by that of the flow if the datagram ends before it.
    Field {
        /// From the first byte of the payload.
        offset: u16,
        /// Bytes: 1 to [`MAX_FIELD`].
        length: u8,
    },
}

impl Rule {
    fn words(self) -> RuleWords {
        match self {
            Self::Hash => [0, 0, 0],
            Self::Cpu => [1, 0, 0],
            Self::RoundRobin => [2, 0, 0],
            Self::LeastLoaded => [3, 0, 0],
            Self::Field { offset, length } => [4, offset.into(), length.into()],
        }
    }

    /// `None` for words of another version of the program.
    fn of(words: RuleWords) -> Option<Self> {
        match words {
            [0, 0, 0] => Some(Self::Hash),
            [1, 0, 0] => Some(Self::Cpu),
            [2, 0, 0] => Some(Self::RoundRobin),
            [3, 0, 0] => Some(Self::LeastLoaded),
            [4, offset, length] => {
                Some(Self::Field { offset: offset.try_into().ok()?, length: length.try_into().ok()? })
            }
            _ => None,
        }
    }
}

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
    /// Makes `rule` choose in the reuseport group of `member`, a bound socket, in place of what chose before. The slots are
    /// empty, so that the kernel's hash chooses until the first [`Self::set`].
    ///
    /// # Errors
    /// As [`Self::load`] and [`Self::attach_to`].
    pub fn attach(member: BorrowedFd<'_>, rule: Rule, slots: u32) -> Result<Self, Error> {
        let selection = Self::load(rule, slots)?;
        selection.attach_to(member)?;
        Ok(selection)
    }

    /// Loads the program, with so many slots: 1 to [`MAX_SLOTS`]. It chooses nothing yet, so that slots can be set before
    /// the first datagram.
    ///
    /// # Errors
    /// The rule or the number of slots is out of range; the kernel has no type information (BTF); or permission is denied
    /// (`CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`).
    pub fn load(rule: Rule, slots: u32) -> Result<Self, Error> {
        Self::load_program(PROGRAM, rule, slots)
    }

    /// The same, and slots can be asked on their own: [`Self::ask`]. It costs a lookup by source port for each datagram.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_for_queries(rule: Rule, slots: u32) -> Result<Self, Error> {
        Self::load_program(QUERY_PROGRAM, rule, slots)
    }

    fn load_program(name: &'static str, rule: Rule, slots: u32) -> Result<Self, Error> {
        check(rule, slots)?;
        let words = rule.words();
        let mut loader = EbpfLoader::new();
        loader.override_global("rule", &words, true);
        loader.map_max_entries(SOCKETS, slots).map_max_entries(DATAGRAMS, slots);
        let mut object = attach::load_tracing(NAME, &mut loader, object!("selection"))?;
        let program: &mut SkReuseport = find(&mut object, name)?;
        program.load().map_err(|error| load_error(NAME, error.into()))?;
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

    /// Puts a socket of the group into a slot, in place of the one that is there. `None` empties the slot: its socket gets no
    /// further datagrams, and can still read those that are queued. A socket has one slot, in one array.
    ///
    /// # Errors
    /// There is no such slot; the socket is not a bound UDP socket with `SO_REUSEPORT`; or it is in a slot already, of this
    /// or of another program.
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
    /// destination: those that a socket of this machine sends that is connected to the group's address. They are not counted.
    /// Earlier ports of the slot are forgotten. Only after [`Self::load_for_queries`].
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

/// Detaches the program from the reuseport group of `member`: the kernel's hash of the flow chooses again. Without a program
/// it does nothing.
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

/// A program of [`Selection`] that an earlier process has attached.
#[derive(Debug)]
pub struct Installed {
    /// Its rule.
    pub rule: Rule,
    /// The cookie of each slot's socket; `None` for an empty slot.
    pub sockets: Vec<Option<u64>>,
    array: MapData,
}

impl Installed {
    /// Reads the program with this ID; `None` if it is not one of [`Selection`], or of another version.
    ///
    /// # Errors
    /// It has been unloaded, or permission is denied.
    pub fn read(id: u32) -> Result<Option<Self>, Error> {
        let program = loaded_programs().flatten().find(|program| program.id() == id);
        let program =
            program.ok_or_else(|| gone(id, "it is no longer loaded, or permission is denied".into()))?;
        let kind = program.program_type();
        if kind != bpf_prog_type::BPF_PROG_TYPE_SK_REUSEPORT || program.name_as_str() != Some(PROGRAM) {
            return Ok(None);
        }
        let (mut rule, mut array) = (None, None);
        for map in program.map_ids().map_err(|error| gone(id, cause(&error)))?.unwrap_or_default() {
            let failed = |error: MapError| gone(id, cause(&error));
            let map = MapData::from_id(map).map_err(failed)?;
            let info = map.info().map_err(failed)?;
            match info.name_as_str() {
                Some(CONSTANTS) => {
                    let constants = Map::from_map_data(map).map_err(failed)?;
                    let constants = Array::<MapData, RuleWords>::try_from(constants).map_err(failed)?;
                    rule = Rule::of(constants.get(&0, 0).map_err(failed)?);
                }
                Some(SOCKETS) => array = Some((map, info.max_entries())),
                _ => {}
            }
        }
        let Some((rule, (array, slots))) = rule.zip(array) else { return Ok(None) };
        let sockets = cookies(array.fd().as_fd(), slots)?;
        Ok(Some(Self { rule, sockets, array }))
    }

    /// Empties all slots, so that the sockets can be put into those of another program. Until that one is attached, the
    /// kernel's hash chooses.
    ///
    /// # Errors
    /// The kernel returns an error.
    pub fn release(&mut self) -> Result<(), Error> {
        for (slot, socket) in (0..).zip(&mut self.sockets) {
            if socket.take().is_some() {
                empty(self.array.fd().as_fd(), slot).map_err(|error| {
                    refused(&format!("empty slot {slot} of a reuseport group"), error.into())
                })?;
            }
        }
        Ok(())
    }
}

/// Puts a socket into a slot; one that a detached program still has, as soon as the kernel has freed that one.
fn put(array: BorrowedFd<'_>, slot: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let end = Instant::now() + RELEASE;
    loop {
        match sys::put_socket(array, slot, socket) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                thread::sleep(ATTEMPT);
            }
            done => return done,
        }
    }
}

fn empty(array: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
    match sys::remove_socket(array, slot) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        done => done,
    }
}

fn cookies(array: BorrowedFd<'_>, slots: u32) -> Result<Vec<Option<u64>>, Error> {
    let cookie = |slot| match sys::cookie_at(array, slot) {
        Ok(cookie) => Ok(Some(cookie)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(refused("read the slots of a reuseport group", error.into())),
    };
    (0..slots).map(cookie).collect()
}

fn check(rule: Rule, slots: u32) -> Result<(), Error> {
    let invalid = |why: String| Err(refused("load BPF program 'selection'", why.into()));
    if !(1..=MAX_SLOTS).contains(&slots) {
        return invalid(format!("a group has 1 to {MAX_SLOTS} slots, not {slots}"));
    }
    match rule {
        Rule::Field { length, .. } if !(1..=MAX_FIELD).contains(&length) => {
            invalid(format!("a field has 1 to {MAX_FIELD} bytes, not {length}"))
        }
        Rule::Field { offset, length } if u32::from(offset) + u32::from(length) > MAX_PAYLOAD => {
            invalid(format!(
                "a field of {length} bytes at {offset} is beyond the longest datagram, {MAX_PAYLOAD} bytes"
            ))
        }
        _ => Ok(()),
    }
}

fn refused(what: &str, source: Cause) -> Error {
    Error::Reuseport { what: what.to_owned(), source }
}

fn gone(id: u32, source: Cause) -> Error {
    refused(&format!("read BPF program {id}"), source)
}

fn lacks(what: &str) -> Error {
    Error::Load { program: NAME, source: format!("the object has no '{what}'").into() }
}

fn unread(error: &MapError) -> Error {
    Error::Load { program: NAME, source: cause(error) }
}

#[cfg(test)]
mod tests {
    use error_reporter::Report;

    use super::*;

    #[test]
    fn rules_round_trip() {
        let field = Rule::Field { offset: 6, length: 8 };
        for rule in [Rule::Hash, Rule::Cpu, Rule::RoundRobin, Rule::LeastLoaded, field] {
            assert_eq!(Rule::of(rule.words()), Some(rule));
        }
        assert_eq!((Rule::of([5, 0, 0]), Rule::of([0, 1, 0]), Rule::of([4, 0, 256])), (None, None, None));
    }

    #[test]
    fn what_is_out_of_range_is_said_before_anything_is_loaded() {
        let said = |rule, slots| Report::new(check(rule, slots).unwrap_err()).to_string();
        let field = |offset, length| Rule::Field { offset, length };
        assert!(said(Rule::Hash, 0).ends_with("a group has 1 to 256 slots, not 0"));
        assert!(said(Rule::Hash, 257).ends_with("not 257"));
        assert!(said(field(0, 0), 4).ends_with("a field has 1 to 32 bytes, not 0"));
        assert!(said(field(0, 33), 4).ends_with("not 33"));
        assert!(said(field(65_500, 8), 4).contains("beyond the longest datagram"));
        assert!(check(field(65_499, 8), 256).is_ok() && check(Rule::Hash, 1).is_ok());
    }
}
