//! Why a capture cannot be replayed, or its replies not be written.

use std::io;

use crate::frame;

/// Why a capture cannot be replayed, or not to its end, or why its replies cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file, or it must not be read.
    #[error("cannot open the capture {name}: {cause}")]
    Open {
        /// Which.
        name: String,
        /// Why not.
        cause: io::Error,
    },
    /// The file for the replies cannot be made.
    #[error("cannot create {name} for the replies: {cause}")]
    Create {
        /// Which.
        name: String,
        /// Why not.
        cause: io::Error,
    },
    /// The replies would overwrite what is replayed.
    #[error("cannot write the replies to {name}: it is the capture that is replayed; give another file")]
    SameFile {
        /// Which.
        name: String,
    },
    /// It is something else.
    #[error("{name} is not a capture: it begins like neither pcap nor pcapng")]
    NotACapture {
        /// Which.
        name: String,
    },
    /// Frames of another kind of link.
    #[error(
        "cannot replay {name}: its link type is {link_type}, and only Ethernet, 1, is replayed; capture on one \
         interface, not on \"any\""
    )]
    LinkType {
        /// Which.
        name: String,
        /// As in the list at tcpdump.org/linktypes.html.
        link_type: u32,
    },
    /// The file ends within a record.
    #[error("{name} ends within the record at byte {at}: it was cut short")]
    Cut {
        /// Which.
        name: String,
        /// Where the record begins.
        at: u64,
    },
    /// A record contradicts itself, or what comes before it.
    #[error("{name} is damaged at byte {at}: {what}")]
    Damaged {
        /// Which.
        name: String,
        /// Where the record begins.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The kernel does not give the bytes.
    #[error("cannot read {name} at byte {at}: {cause}")]
    Read {
        /// Which.
        name: String,
        /// From where on.
        at: u64,
        /// Why not.
        cause: io::Error,
    },
    /// The kernel does not take the replies.
    #[error("cannot write replies to {name}: {cause}")]
    Write {
        /// Which.
        name: String,
        /// Why not.
        cause: io::Error,
    },
    /// No memory for frames.
    #[error(transparent)]
    Frame(#[from] frame::Error),
}
