//! Blocks of a pcapng file.
//!
//! ```text
//! section header | interface description, one per interface | packets, each with the number of its interface | ...
//!                                                            enhanced (6), simple (3: of interface 0), or obsolete (2)
//! ```

use pcap_parser::PcapNGOption;
use pcap_parser::nom;
use pcap_parser::pcapng::{
    Block, InterfaceDescriptionBlock, OptionCode, UnknownBlock, parse_block_be, parse_block_le,
};
use pcap_parser::traits::PcapNGPacketBlock;

use super::record::{ETHERNET, Links, Look, Record, nanoseconds};

/// The block type that starts a section, the same in both byte orders; the block itself says which one it uses.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The type of the Packet Block that the Enhanced Packet Block replaced.
const PACKET: u32 = 2;

const NO_INTERFACE: &str = "the frame refers to an interface without a description";

/// What the blocks since the last section header say about those that follow.
#[derive(Default)]
pub(super) struct Section {
    big_endian: bool,
    pub(super) interfaces: Vec<Interface>,
}

#[derive(Clone, Copy)]
pub(super) struct Interface {
    link: u32,
    /// Snapshot length; 0: unlimited.
    snaplen: u32,
    /// Resolution of its timestamps, units per second; and their offset, seconds.
    units: u128,
    offset: i64,
}

impl Interface {
    /// The time of a frame in nanoseconds since 1970, from its timestamp.
    fn time(&self, stamp: u64) -> u64 {
        let stamp = u128::from(stamp);
        let seconds = i128::from(self.offset) + (stamp / self.units) as i128;
        nanoseconds(seconds, stamp % self.units, self.units)
    }
}

/// The obsolete Packet Block, of which the interface's number has only 16 bits.
struct Packet<'a> {
    interface: u16,
    time: u64,
    original: u32,
    data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// From what stands between the lengths of the block: interface (2), drops (2), time (4, 4), captured and original
    /// length (4, 4), the frame, padding, options. `None`: its lengths contradict each other.
    fn new(body: &'a [u8], big_endian: bool) -> Option<Self> {
        let (header, rest) = body.split_first_chunk::<20>()?;
        let [a, b, ..] = *header;
        let interface = if big_endian { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) };
        let [high, low, captured, original] = [4, 8, 12, 16].map(|at| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        });
        let data = rest.get(..usize::try_from(captured).ok()?)?;
        Some(Self { interface, time: u64::from(high) << 32 | u64::from(low), original, data })
    }
}

pub(super) fn pcapng_block(
    bytes: &[u8],
    links: Links,
    section: &mut Section,
    take: &mut impl FnMut(Record<'_>),
) -> Look<()> {
    // The parser subtracts the 12 bytes around a block's body from its length before it has validated the length.
    if let Some((kind, rest)) = bytes.split_first_chunk::<4>()
        && let Some(len) = rest.first_chunk()
        && *kind != SECTION_HEADER
        && (if section.big_endian { u32::from_be_bytes(*len) } else { u32::from_le_bytes(*len) }) < 12
    {
        return Look::Damaged("the block's length is less than 12");
    }
    let parsed = if section.big_endian { parse_block_be(bytes) } else { parse_block_le(bytes) };
    let (rest, block) = match parsed {
        Ok(parsed) => parsed,
        Err(nom::Err::Incomplete(_)) => return Look::Short,
        Err(_) => return Look::Damaged("the block's lengths contradict each other"),
    };
    match block {
        Block::SectionHeader(header) => {
            *section = Section { big_endian: header.big_endian(), interfaces: Vec::new() };
        }
        Block::InterfaceDescription(description) => {
            let link = description.linktype.0 as u32;
            if links == Links::Ethernet && link != ETHERNET {
                return Look::OtherLink(link);
            }
            let Some(interface) = interface(&description, section.big_endian) else {
                return Look::Damaged("its timestamp resolution does not fit 64 bits");
            };
            section.interfaces.push(interface);
        }
        Block::EnhancedPacket(packet) => {
            let Some(interface) = section.interfaces.get(packet.if_id as usize) else {
                return Look::Damaged(NO_INTERFACE);
            };
            take(Record {
                bytes: packet.packet_data(),
                link: interface.link,
                original: packet.origlen,
                time: interface.time(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low)),
            });
        }
        Block::SimplePacket(packet) => {
            let Some(interface) = section.interfaces.first() else {
                return Look::Damaged(NO_INTERFACE);
            };
            // Its length is implied: the minimum of the original length, the snapshot length, and the block's data.
            let mut data = packet.packet_data();
            if interface.snaplen > 0 {
                data = &data[..data.len().min(interface.snaplen as usize)];
            }
            take(Record { bytes: data, link: interface.link, original: packet.origlen, time: 0 });
        }
        // The parser does not know this one, which programs before 2012 wrote.
        Block::Unknown(packet) if kind(&packet, section.big_endian) == PACKET => {
            let Some(packet) = Packet::new(packet.data, section.big_endian) else {
                return Look::Damaged("the block's lengths contradict each other");
            };
            let Some(interface) = section.interfaces.get(usize::from(packet.interface)) else {
                return Look::Damaged(NO_INTERFACE);
            };
            take(Record {
                bytes: packet.data,
                link: interface.link,
                original: packet.original,
                time: interface.time(packet.time),
            });
        }
        // None of the others has frames: names, statistics, keys, a vendor's own.
        _ => {}
    }
    Look::Found(bytes.len() - rest.len(), ())
}

/// The type of a block, which the parser gives as if it were little-endian.
fn kind(block: &UnknownBlock<'_>, big_endian: bool) -> u32 {
    if big_endian { block.block_type.swap_bytes() } else { block.block_type }
}

/// The timestamp resolution and offset of an interface. `None`: invalid.
fn interface(description: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Option<Interface> {
    let value = |code| description.options.iter().find(|option| option.code == code).map(PcapNGOption::value);
    // A power of ten or, if the highest bit is set, of two; the default is microseconds.
    let resolution = value(OptionCode::IfTsresol).and_then(<[u8]>::first).copied().unwrap_or(6);
    let (base, exponent) = if resolution & 0x80 == 0 { (10, resolution) } else { (2, resolution & 0x7f) };
    let units = u64::checked_pow(base, exponent.into())?.into();
    let offset = value(OptionCode::IfTsoffset)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| if big_endian { i64::from_be_bytes(*bytes) } else { i64::from_le_bytes(*bytes) });
    let link = description.linktype.0 as u32;
    Some(Interface { link, snaplen: description.snaplen, units, offset })
}
