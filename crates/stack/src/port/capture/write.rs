//! Frames into a pcap file: little-endian, nanoseconds, Ethernet (draft-ietf-opsawg-pcap). A 24-byte file header and
//! a 16-byte record header do not justify a dependency.

use std::io::{self, BufWriter, Write};

use super::error::Error;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Snapshot length in the file header; libpcap's own limit.
const SNAPLEN: u32 = 262_144;

const ETHERNET: u32 = 1;

pub(super) struct Sink {
    name: String,
    /// `None` after a failed write: nothing more is written, because the file would have a gap within a record.
    to: Option<BufWriter<Box<dyn Write + Send>>>,
}

impl Sink {
    pub(super) fn new(name: String, to: impl Write + Send + 'static) -> Result<Self, Error> {
        let mut sink = Self { name, to: Some(BufWriter::new(Box::new(to))) };
        let version = 2_u32 | 4 << 16;
        sink.all(&[MAGIC_NANOSECONDS, version, 0, 0, SNAPLEN, ETHERNET], &[])?;
        sink.flush()?;
        Ok(sink)
    }

    /// Appends a frame with the timestamp `now`, nanoseconds since 1970. From 2106 on the seconds saturate.
    pub(super) fn write(&mut self, now: u64, frame: &[u8]) -> Result<(), Error> {
        let seconds = u32::try_from(now / 1_000_000_000).unwrap_or(u32::MAX);
        let len = frame.len() as u32;
        self.all(&[seconds, (now % 1_000_000_000) as u32, len, len], frame)
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.guarded(Write::flush)
    }

    fn all(&mut self, words: &[u32], bytes: &[u8]) -> Result<(), Error> {
        self.guarded(|to| {
            for word in words {
                to.write_all(&word.to_le_bytes())?;
            }
            to.write_all(bytes)
        })
    }

    fn guarded(
        &mut self,
        action: impl FnOnce(&mut BufWriter<Box<dyn Write + Send>>) -> io::Result<()>,
    ) -> Result<(), Error> {
        let failed = |cause| Error::Write { name: self.name.clone(), cause };
        let Some(to) = &mut self.to else {
            return Err(failed(io::Error::other("an earlier write failed")));
        };
        let done = action(to).map_err(failed);
        if done.is_err() {
            // Taken apart, not dropped: dropping would try to write the rest.
            self.to.take().map(BufWriter::into_parts);
        }
        done
    }
}
