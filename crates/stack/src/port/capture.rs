//! Capture files as a port: frames are received from one file, and what is transmitted is written to another.
//!
//! ```text
//!   requests.pcap ── read.rs ──▸ frames ──▸ worker ──▸ frames ── write.rs ──▸ replies.pcap
//!   pcap or pcapng               of a pool of its own                         pcap, nanoseconds
//! ```
//! This runs a service on a capture, step by step; the replies can be read with `tcpdump -r` and
//! Wireshark. A replay ignores the capture's timing: frames are received as fast as they are polled. A reply carries
//! the timestamp of the last frame read before it, so two replays of one file produce identical bytes.
//!
//! # What is not replayed
//! - A truncated frame (`tcpdump -s`): the missing end would look like a defect that the frame did not have. Counted:
//!   [`Skipped::snapped`].
//! - A frame longer than [`MAX_FRAME_LEN`], such as a GRO packet in a capture on the receiving host:
//!   [`Skipped::too_long`].
//! - Link types other than Ethernet; a capture on the interface `any` is one of them. The replay ends with an
//!   [`Error`]. [`Frames`], which only looks, reads them.
//!
//! Frames that the capturing machine sent itself may lack their checksum, because its NIC was to fill it in:
//! [`Capture::unverified`].
//!
//! # Replaying a capture into a handler
//! ```
//! use std::sync::Arc;
//! use udpath_stack::epoch::{Domain, Table};
//! use udpath_stack::groups::Groups;
//! use udpath_stack::handler::{Datagram, Outcome};
//! use udpath_stack::mesh::{self, mesh};
//! use udpath_stack::port::capture::Capture;
//! use udpath_stack::worker::{Parts, Worker};
//!
//! # let folder = std::env::temp_dir().join(format!("udpath-replay-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let requests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/ipv4.pcap");
//! # let replies = folder.join("replies.pcap");
//! let capture = Capture::open(requests, Some(&replies))?;
//! let domain = Domain::new(1, 8);
//! let mut worker = Worker::new(Parts {
//!     port: Some(capture),
//!     handler: |datagram: Datagram<'_>, buffer: &mut [u8]| {
//!         buffer[..datagram.payload.len()].copy_from_slice(datagram.payload);
//!         Outcome::Reply(datagram.payload.len())
//!     },
//!     reader: domain.register("replay")?,
//!     groups: Arc::new(Table::new(&domain, Groups::new(&["10.77.0.2:7007".parse()?], [])?)),
//!     rings: mesh(1, mesh::Config { backlog: 64, frames: 256 })?.remove(0),
//!     steering: None,
//! });
//! while worker.poll() > 0 {}
//! let capture = worker.port().expect("it was given one");
//! assert!(capture.error().is_none() && capture.at_end());
//! println!("{:?} {:?}", worker.counters().snapshot(), capture.skipped());
//! # assert_eq!(worker.counters().snapshot().answered, 9);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod frames;
mod link;
mod read;
mod record;
mod sections;
mod write;

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub use error::Error;
pub use frames::{Frames, LeftOut};

use read::Source;
use record::Links;
use write::Sink;

use crate::frame::{self, Burst, Pool, Region};
use crate::port::{Checksums, Completions, Counts, Mode, Port, Properties};

/// Longest frame that is replayed or sent, bytes: what fits a 4096-byte frame after its headroom. AF_XDP has the same
/// limit on a machine with 4 KiB pages.
pub const MAX_FRAME_LEN: usize = FRAME_SIZE - 256;

const FRAME_SIZE: usize = 4096;

/// Frames of the port: four bursts, because other workers may hold some. Fewer: a replay steered between workers
/// would stall. More: only memory, because the next burst is not read before there is a frame for it.
const FRAMES: usize = 4 * frame::BURST;

/// A capture being replayed.
pub struct Capture {
    properties: Properties,
    pool: Pool,
    source: Source,
    replies: Option<Sink>,
    counts: Counts,
    completions: Completions,
    skipped: Skipped,
    /// Timestamp of the last frame read: nanoseconds since 1970.
    now: u64,
    at_end: bool,
    error: Option<Error>,
}

/// Frames of the capture that were not replayed, and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Truncated by the capture.
    pub snapped: u64,
    /// Longer than [`MAX_FRAME_LEN`].
    pub too_long: u64,
}

impl Capture {
    /// Opens `from`, and creates `to` for what is transmitted. Without `to`, transmitted frames are counted and
    /// discarded.
    ///
    /// # Errors
    /// A file cannot be opened or created, both are the same, `from` is not a capture, or not an Ethernet capture.
    pub fn open(from: impl AsRef<Path>, to: Option<&Path>) -> Result<Self, Error> {
        let from = from.as_ref();
        let name = from.display().to_string();
        let open = |cause| Error::Open { name: name.clone(), cause };
        let file = udpath_files::input(from).map_err(open)?;
        // Validated before anything is overwritten.
        let identity = file.metadata().map(|meta| (meta.dev(), meta.ino())).map_err(open)?;
        let mut capture = Self::new(&name, file, None::<io::Sink>)?;
        if let Some(to) = to {
            let name = to.display().to_string();
            if std::fs::metadata(to).is_ok_and(|meta| (meta.dev(), meta.ino()) == identity) {
                return Err(Error::SameFile { name });
            }
            let file = udpath_files::output::stream(to)
                .map_err(|cause| Error::Create { name: name.clone(), cause })?;
            capture.replies = Some(Sink::new(name, file)?);
        }
        Ok(capture)
    }

    /// Reads a capture called `name` from any reader, and writes what is transmitted to any writer. Both block.
    ///
    /// # Errors
    /// It is not a capture, or not an Ethernet capture; out of memory; the header of `to` cannot be written.
    pub fn new(
        name: &str,
        from: impl Read + Send + 'static,
        to: Option<impl Write + Send + 'static>,
    ) -> Result<Self, Error> {
        let source = Source::new(name, Links::Ethernet, from)?;
        let replies = to.map(|to| Sink::new(format!("the replies to {name}"), to)).transpose()?;
        let pool = Region::new(FRAME_SIZE, FRAMES)?.pool(FRAMES)?;
        let properties = Properties {
            name: format!("capture {name}"),
            mode: Mode::Direct,
            max_frame_len: MAX_FRAME_LEN,
            checksums: Checksums::Unverified,
            hashed: false,
        };
        Ok(Self {
            properties,
            pool,
            source,
            replies,
            counts: Counts::default(),
            completions: Completions::default(),
            skipped: Skipped::default(),
            now: 0,
            at_end: false,
            error: None,
        })
    }

    /// Disables checksum verification: for a capture on the machine that sent the frames, whose kernel left the
    /// checksums to its NIC.
    #[must_use]
    pub fn unverified(mut self) -> Self {
        self.properties.checksums = Checksums::Verified;
        self
    }

    /// Whether there is nothing more to receive: everything was read, or an [`error`](Self::error) ended the replay.
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.at_end
    }

    /// The error that ended the replay early, or kept replies from being written. Frames received before it are
    /// valid.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Frames not replayed so far.
    #[must_use]
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Frames that are neither free nor written.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pool.outstanding()
    }

    fn failed(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

impl Port for Capture {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn receive(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        while !into.is_full() && !self.at_end {
            let Some(mut frame) = self.pool.take() else { break };
            let skipped = &mut self.skipped;
            let next = self.source.next(|record| {
                if record.is_snapped() {
                    skipped.snapped += 1;
                    return None;
                }
                if record.bytes.len() > MAX_FRAME_LEN || !frame.set_len(record.bytes.len()) {
                    skipped.too_long += 1;
                    return None;
                }
                frame.bytes_mut().copy_from_slice(record.bytes);
                Some(record.time)
            });
            if let Ok(Some(Some(time))) = next {
                self.now = time;
                into.push(frame);
                continue;
            }
            let foreign = self.pool.put(frame);
            debug_assert!(foreign.is_none(), "it was just taken from the pool");
            match next {
                Ok(Some(_)) => self.counts.invalid += 1,
                Ok(None) => self.at_end = true,
                Err(error) => {
                    self.at_end = true;
                    self.failed(error);
                }
            }
        }
        let count = into.len() - before;
        self.counts.received += count as u64;
        count
    }

    fn transmit(&mut self, frames: &mut Burst) {
        let mut sent = 0;
        for frame in frames.iter() {
            if let Some(sink) = &mut self.replies
                && let Err(error) = sink.write(self.now, frame.bytes())
            {
                self.failed(error);
                break;
            }
            sent += 1;
        }
        self.counts.transmitted += sent as u64;
        self.completions.sent(sent);
        for frame in frames.drain(..sent) {
            let foreign = self.pool.put(frame);
            debug_assert!(foreign.is_none(), "a frame returns to the port it came from");
        }
    }

    fn recycle(&mut self, frames: &mut Burst) {
        for frame in frames.drain(..) {
            let foreign = self.pool.put(frame);
            debug_assert!(foreign.is_none(), "a frame returns to the port it came from");
        }
    }

    fn supply(&mut self, into: &mut Burst, wanted: usize) {
        let room = into.remaining_capacity().min(wanted);
        into.extend(std::iter::from_fn(|| self.pool.take()).take(room));
    }

    /// Writes what was transmitted to the file.
    fn flush(&mut self) {
        if let Some(sink) = &mut self.replies
            && let Err(error) = sink.flush()
        {
            self.failed(error);
        }
    }

    fn completions(&mut self, into: &mut Completions) {
        self.completions.move_to(into);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
