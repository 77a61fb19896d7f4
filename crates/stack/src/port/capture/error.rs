//! Why a capture cannot be replayed, or its replies not be written.

use std::io;

use crate::frame;

/// Why a capture cannot be replayed, or not to its end, or why its replies cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not exist or is not readable.
    #[error("cannot open the capture {name}")]
    Open {
        /// The file.
        name: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The file for the replies cannot be created.
    #[error("cannot create {name} for the replies")]
    Create {
        /// The file.
        name: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The replies would overwrite the capture.
    #[error("cannot write the replies to {name}: it is the capture being replayed; choose another file")]
    SameFile {
        /// The file.
        name: String,
    },
    /// Not a capture file.
    #[error("{name} is not a capture: neither a pcap nor a pcapng header")]
    NotACapture {
        /// The file.
        name: String,
    },
    /// Nothing at all.
    #[error("{name} is empty: not even the header of a capture")]
    NoBytes {
        /// The file.
        name: String,
    },
    /// The file ends within its header.
    #[error(
        "{name} is truncated: a capture of which only the first {len} bytes are there, less than its header"
    )]
    CutHeader {
        /// The file.
        name: String,
        /// Its length.
        len: usize,
    },
    /// A compressed file.
    #[error("{name} is compressed: decompress it first: {tool} -c {name} > FILE")]
    Compressed {
        /// The file.
        name: String,
        /// What decompresses it.
        tool: &'static str,
    },
    /// Frames of another link type.
    #[error(
        "cannot replay {name}: link type {link_type} is not supported, only Ethernet (1); capture on one Ethernet \
         interface, not on \"any\", or convert it (tcprewrite --dlt=enet)"
    )]
    LinkType {
        /// The file.
        name: String,
        /// As listed at tcpdump.org/linktypes.html.
        link_type: u32,
    },
    /// Frames of a link type that has no IP packets, or without a known place for them.
    #[error(
        "{name} has frames of link type {link_type} only: packets are found in those of Ethernet (1), Linux cooked (113, 276), raw IP \
         (101, 228, 229), loopback (0, 108), PPP (9, 50), PPPoE (51), Cisco HDLC (104), enc (109), pflog (117) and nflog (239); \
         capture where the packets have such a header: `tcpdump -i any` on the machine that receives them"
    )]
    WithoutPackets {
        /// The file.
        name: String,
        /// As listed at tcpdump.org/linktypes.html.
        link_type: u32,
    },
    /// The file ends within a record.
    #[error("{name} is truncated: it ends within the record at byte {at}")]
    Cut {
        /// The file.
        name: String,
        /// Offset of the record.
        at: u64,
    },
    /// A record contradicts itself, or what comes before it.
    #[error("{name} is damaged at byte {at}: {what}")]
    Damaged {
        /// The file.
        name: String,
        /// Offset of the record.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file cannot be read.
    #[error("cannot read {name} at byte {at}")]
    Read {
        /// The file.
        name: String,
        /// Offset of the read.
        at: u64,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The replies cannot be written.
    #[error("cannot write replies to {name}")]
    Write {
        /// The file.
        name: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// Out of memory for frames.
    #[error(transparent)]
    Frame(#[from] frame::Error),
}
