//! The frames of a capture one by one, to be looked at: those of other link types with an Ethernet header in front of
//! their packet.
//!
//! ```text
//! Ethernet (1)                                   as it is; PPPoE, MPLS and SNAP in it: its packet
//! Linux cooked (113, 276), `tcpdump -i any`      its EtherType, then the packet
//! BSD loopback (0, 108), raw IP (12, 14, 101, 228, 229: tunnels)    the EtherType of the packet's version
//! PPP (9, 50), PPPoE (51), Cisco HDLC (104)      its protocol as an EtherType, then the packet
//! OpenBSD's enc (109) and pflog (117), nflog (239)    the EtherType of the packet's version
//! others (USB, 802.11 ...)                       counted
//! ```
//! A capture whose end is missing or damaged gives what is whole before that.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use super::error::Error;
use super::link::{self, Packet};
use super::read::Source;
use super::record::{ETHERNET, Links, Record};

/// Frames of a capture, including truncated ones: to be looked at, not replayed.
pub struct Frames {
    source: Source,
    /// A packet behind its Ethernet header.
    frame: Vec<u8>,
    count: u64,
    left_out: LeftOut,
    at_end: bool,
}

/// What a capture has beyond its frames.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LeftOut {
    /// Frames of link types without IP packets, or without a known place for them.
    pub links: BTreeMap<u32, u64>,
    /// Why the rest of the file was not read.
    pub end: Option<Error>,
}

impl LeftOut {
    /// Whether that is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.end.is_none()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (link, count) in &self.links {
            write!(f, "{separator}{count} of link type {link}")?;
            separator = ", ";
        }
        match &self.end {
            Some(error) => write!(f, "{separator}what follows: {error}"),
            None => Ok(()),
        }
    }
}

impl Frames {
    /// Opens a capture.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a capture.
    pub fn open(from: impl AsRef<Path>) -> Result<Self, Error> {
        let name = from.as_ref().display().to_string();
        let file =
            udpath_files::input(from.as_ref()).map_err(|cause| Error::Open { name: name.clone(), cause })?;
        Self::new(&name, file)
    }

    /// Reads a capture called `name` from any reader.
    ///
    /// # Errors
    /// It is not a capture.
    pub fn new(name: &str, from: impl Read + Send + 'static) -> Result<Self, Error> {
        let source = Source::new(name, Links::All, from)?;
        Ok(Self { source, frame: Vec::new(), count: 0, left_out: LeftOut::default(), at_end: false })
    }

    /// Passes the next frame, from its Ethernet header on, to `look` and returns the result; `None` at the end.
    ///
    /// # Errors
    /// The capture cannot be read; it is damaged or truncated, or of another link type, and no frame came before.
    pub fn look<T>(&mut self, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        let mut look = Some(look);
        while !self.at_end {
            let (frame, left_out) = (&mut self.frame, &mut self.left_out);
            let next = self.source.next(|record| match as_ethernet(&record, frame) {
                Some(bytes) => look.take().map(|look| look(bytes)),
                None => {
                    *left_out.links.entry(record.link).or_default() += 1;
                    None
                }
            });
            match next {
                Ok(Some(None)) => {}
                Ok(Some(looked)) => {
                    self.count += 1;
                    return Ok(looked);
                }
                Ok(None) => self.at_end = true,
                Err(error @ (Error::Cut { .. } | Error::Damaged { .. })) if self.count > 0 => {
                    self.at_end = true;
                    self.left_out.end = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        match self.left_out.links.first_key_value() {
            Some((link, _)) if self.count == 0 => Err(self.source.without_packets(*link)),
            _ => Ok(None),
        }
    }

    /// What has been left out so far.
    #[must_use]
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }
}

/// The frame with an Ethernet header in front of its packet, which is made in `buffer` where there is none, or more
/// between them. `None`: not known where its packet is.
fn as_ethernet<'a>(record: &Record<'a>, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let Packet { ether_type, bytes } = if record.link == ETHERNET {
        match link::within_ethernet(record.bytes) {
            Some(packet) => packet,
            None => return Some(record.bytes),
        }
    } else {
        link::packet(record.link, record.bytes)?
    };
    buffer.clear();
    buffer.extend_from_slice(&[0; 12]);
    buffer.extend_from_slice(&ether_type.to_be_bytes());
    buffer.extend_from_slice(bytes);
    Some(buffer)
}
