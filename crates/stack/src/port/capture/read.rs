//! Frames from a pcap or pcapng file.
//!
//! ```text
//!   file ──▸ buffer[start..end] ──▸ pcap_parser: one record or block ──▸ Record, borrowed from the buffer
//!              ▴ grows up to MAX_BLOCK_LEN when a block does not fit
//! ```
//! When the parser reports an incomplete record, more is read; a record that is still incomplete at the end of the
//! file is an error with its offset. Length fields are not trusted: the buffer grows only as bytes arrive.

use std::io::{self, Read};

use pcap_parser::nom;
use pcap_parser::pcapng::parse_sectionheaderblock;
use pcap_parser::{
    LegacyPcapBlock, PcapError, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header,
};

use super::error::Error;
use super::record::{ETHERNET, Links, Look, Record, nanoseconds};
use super::sections::{Section, pcapng_block};

/// Initial size of the buffer, bytes: one system call reads a few dozen full-size frames. Smaller: more system calls.
/// Larger: more memory for small captures.
const BUFFER_LEN: usize = 1 << 16;

/// Largest record or block, bytes: Wireshark's limit. Smaller: blocks with the names or keys of a long capture do not
/// fit. Larger: with a damaged length, more of the file is read before it is noticed.
const MAX_BLOCK_LEN: usize = 16 << 20;

/// Mask for the link type: the upper bits say whether frames have a check sequence, and how long it is. That does not
/// matter here, because the IP header has the packet's length.
const LINK_TYPE: u32 = 0xffff;

/// How captures begin: pcap in both byte orders, with microseconds, nanoseconds or Kuznetzov's records, and pcapng.
const MAGIC: &[[u8; 4]] = &[
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xcd, 0x34],
    [0x34, 0xcd, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

/// How compressed files begin, and what decompresses them.
const COMPRESSED: &[(&[u8], &str)] = &[
    (b"\x1f\x8b", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "unzstd"),
    (b"\xfd7zXZ\0", "unxz"),
    (b"BZh", "bunzip2"),
    (b"\x04\x22\x4d\x18", "unlz4"),
];

pub(super) struct Source {
    name: String,
    from: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Where in the file the buffer's `start` is.
    at: u64,
    format: Format,
    links: Links,
}

enum Format {
    /// The record parser, and the resolution of timestamps: units per second.
    Pcap {
        parse: ParseRecord,
        units: u32,
        link: u32,
    },
    PcapNg(Section),
}

type ParseRecord = fn(&[u8]) -> nom::IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>>;

impl Source {
    /// Reads up to the link type.
    pub(super) fn new(name: &str, links: Links, from: impl Read + Send + 'static) -> Result<Self, Error> {
        let mut source = Self {
            name: name.to_owned(),
            from: Box::new(from),
            buffer: vec![0; BUFFER_LEN],
            start: 0,
            end: 0,
            at: 0,
            format: Format::PcapNg(Section::default()),
            links,
        };
        loop {
            match recognised(&source.buffer[source.start..source.end]) {
                Look::Found(used, format) => {
                    if let Format::Pcap { link, .. } = format
                        && links == Links::Ethernet
                        && link != ETHERNET
                    {
                        return Err(source.other_link(link));
                    }
                    source.format = format;
                    source.consume(used);
                    return source.with_link();
                }
                Look::Short => {
                    if !source.fill()? {
                        return Err(source.not_a_capture());
                    }
                }
                Look::Damaged(_) => return Err(source.not_a_capture()),
                Look::OtherLink(link_type) => return Err(source.other_link(link_type)),
            }
        }
    }

    /// Reads the interface descriptions at the start of a pcapng file, so that another link type is rejected before
    /// anything is done.
    fn with_link(mut self) -> Result<Self, Error> {
        while let Format::PcapNg(section) = &self.format
            && section.interfaces.is_empty()
        {
            // A frame before any interface is malformed, so none is skipped here.
            if self.step(|_| ())?.is_none() {
                break;
            }
        }
        Ok(self)
    }

    /// Passes the next frame to `take` and returns the result. `None` at the end.
    pub(super) fn next<T>(&mut self, take: impl FnOnce(Record<'_>) -> T) -> Result<Option<T>, Error> {
        let mut take = Some(take);
        let mut taken = None;
        while taken.is_none() {
            let step = self.step(|record| {
                if let Some(take) = take.take() {
                    taken = Some(take(record));
                }
            })?;
            if step.is_none() {
                return Ok(None);
            }
        }
        Ok(taken)
    }

    /// Reads one record or block, and passes its frame, if it has one, to `take`. `None` at the end.
    fn step(&mut self, mut take: impl FnMut(Record<'_>)) -> Result<Option<()>, Error> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let look = match &mut self.format {
                Format::Pcap { parse, units, link } => pcap_record(bytes, *parse, *units, *link, &mut take),
                Format::PcapNg(section) => pcapng_block(bytes, self.links, section, &mut take),
            };
            match look {
                Look::Found(used, ()) => {
                    self.consume(used);
                    return Ok(Some(()));
                }
                Look::Short => {
                    if self.fill()? {
                        continue;
                    }
                    if self.start == self.end {
                        return Ok(None);
                    }
                    return Err(Error::Cut { name: self.name.clone(), at: self.at });
                }
                Look::Damaged(what) => return Err(self.damaged(what)),
                Look::OtherLink(link_type) => return Err(self.other_link(link_type)),
            }
        }
    }

    fn consume(&mut self, used: usize) {
        self.start += used;
        self.at += used as u64;
    }

    /// Reads more bytes into the buffer. False at the end of the file.
    fn fill(&mut self) -> Result<bool, Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            if self.end >= MAX_BLOCK_LEN {
                return Err(self.damaged("its length is more than 16 MiB"));
            }
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    let at = self.at + self.end as u64;
                    return Err(Error::Read { name: self.name.clone(), at, cause });
                }
            }
        }
    }

    fn not_a_capture(&self) -> Error {
        let start = &self.buffer[self.start..self.end];
        match COMPRESSED.iter().find(|(magic, _)| start.starts_with(magic)) {
            Some((_, tool)) => Error::Compressed { name: self.name.clone(), tool },
            None if start.is_empty() => Error::NoBytes { name: self.name.clone() },
            None if MAGIC.iter().any(|magic| start.starts_with(magic)) => {
                Error::CutHeader { name: self.name.clone(), len: self.end }
            }
            None => Error::NotACapture { name: self.name.clone() },
        }
    }

    fn other_link(&self, link_type: u32) -> Error {
        Error::LinkType { name: self.name.clone(), link_type }
    }

    /// All frames are of link types whose packets are not found, such as this one.
    pub(super) fn without_packets(&self, link_type: u32) -> Error {
        Error::WithoutPackets { name: self.name.clone(), link_type }
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { name: self.name.clone(), at: self.at, what }
    }
}

/// The format of the file, by its header. The section header is parsed again later, as a block.
fn recognised(bytes: &[u8]) -> Look<Format> {
    match parse_pcap_header(bytes) {
        Ok((rest, header)) => {
            let link = header.network.0 as u32 & LINK_TYPE;
            let parse: ParseRecord = match (header.is_modified_format(), header.is_bigendian()) {
                (true, _) => parse_pcap_frame_modified,
                (_, true) => parse_pcap_frame_be,
                _ => parse_pcap_frame,
            };
            let units = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            return Look::Found(bytes.len() - rest.len(), Format::Pcap { parse, units, link });
        }
        Err(nom::Err::Incomplete(_)) => return Look::Short,
        Err(_) => {}
    }
    match parse_sectionheaderblock(bytes) {
        Ok(_) => Look::Found(0, Format::PcapNg(Section::default())),
        Err(nom::Err::Incomplete(_)) => Look::Short,
        Err(_) => Look::Damaged("no header"),
    }
}

fn pcap_record(
    bytes: &[u8],
    parse: ParseRecord,
    units: u32,
    link: u32,
    take: &mut impl FnMut(Record<'_>),
) -> Look<()> {
    match parse(bytes) {
        Ok((rest, record)) => {
            let time = nanoseconds(record.ts_sec.into(), record.ts_usec.into(), units.into());
            take(Record { bytes: record.data, link, original: record.origlen, time });
            Look::Found(bytes.len() - rest.len(), ())
        }
        Err(nom::Err::Incomplete(_)) => Look::Short,
        Err(_) => Look::Damaged("the record header is invalid"),
    }
}
