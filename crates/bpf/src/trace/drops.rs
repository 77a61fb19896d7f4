//! Dropped packets: loader and results of `bpf/drops.bpf.c`.

use super::{EntriesByCpu, Loader, Run, Tracepoints, Tracer, entries_within};
use crate::Error;
use crate::attach::object;

const NAME: &str = "drops";
/// Memory of the drop table, bytes. Less: ports are lost earlier; more: it is allocated up front.
const MEMORY: usize = 4 << 20;
/// Entries of that table, minimum and maximum.
const PLACES: (usize, usize) = (512, 8192);
/// Words of `struct place` and of a count.
const PLACE: usize = 2;
const COUNT: usize = 1;

/// Counts every packet that the kernel drops, until dropped.
#[derive(Debug)]
pub struct SkbDrops(Tracepoints);

/// Dropped packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// By location, reason and port, in no particular order.
    pub drops: Vec<SkbDrop>,
    /// Drops without room in the table.
    pub no_room: u64,
}

/// Packets dropped at one location for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkbDrop {
    /// An address inside the function that dropped.
    pub location: u64,
    /// `enum skb_drop_reason` of the running kernel; the subsystem in the upper half.
    pub reason: u32,
    /// Its direction.
    pub way: Way,
    /// The UDP port on this machine; 0 for other packets, and if there was no room for more ports.
    pub port: u16,
    /// How many.
    pub packets: u64,
}

/// The direction of a packet: `enum way` of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// Not UDP, or its headers could not be read.
    Other,
    /// UDP that was received.
    Received,
    /// UDP that was sent.
    Sent,
}

impl SkbDrops {
    /// Starts counting.
    ///
    /// # Errors
    /// Permission denied, or a kernel without drop reasons (before 5.17) or without BTF.
    pub fn attach(loader: &mut Loader) -> Result<Self, Error> {
        let places = entries_within(MEMORY, (PLACE + COUNT) * size_of::<u64>(), PLACES);
        let mut points = Tracepoints::load(NAME, loader, &[("drops", places)], object!("drops"))?;
        points.attach("kfree_skb")?;
        Ok(Self(points))
    }
}

impl Tracer for SkbDrops {
    type Counts = DropCounts;

    fn detach(&mut self) {
        self.0.detach();
    }

    fn runs(&self) -> Vec<Run> {
        self.0.runs()
    }

    fn read(&self) -> Result<DropCounts, Error> {
        let mut drops = parse(&self.0.entries_by_cpu("drops")?);
        drops.extend(parse(&self.0.entries_by_cpu("rest")?));
        Ok(DropCounts { drops, no_room: self.0.sum("lost", 0)? })
    }
}

fn parse(entries: &EntriesByCpu<PLACE, COUNT>) -> Vec<SkbDrop> {
    let counted = |(place, by_cpu): &([u64; PLACE], _)| SkbDrop::parse(place, sum(by_cpu));
    entries.iter().map(counted).collect()
}

fn sum(by_cpu: &aya::maps::PerCpuValues<[u64; COUNT]>) -> u64 {
    by_cpu.iter().map(|[count]| count).sum()
}

impl SkbDrop {
    fn parse([location, rest]: &[u64; PLACE], packets: u64) -> Self {
        let way = match rest >> 48 {
            1 => Way::Received,
            2 => Way::Sent,
            _ => Way::Other,
        };
        Self { location: *location, reason: *rest as u32, way, port: (rest >> 32) as u16, packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_is_read_from_its_words() {
        let found = SkbDrop::parse(&[0xffff_8000, 1 << 48 | 53 << 32 | 2 << 16 | 3], 9);
        let way = Way::Received;
        assert_eq!(found, SkbDrop { location: 0xffff_8000, reason: 0x2_0003, way, port: 53, packets: 9 });
        assert_eq!(SkbDrop::parse(&[0, 2 << 48], 0).way, Way::Sent);
        assert_eq!(SkbDrop::parse(&[0, 0], 0).way, Way::Other);
    }
}
