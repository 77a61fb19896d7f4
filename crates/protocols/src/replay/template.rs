//! The load: payloads in the order of the capture, each flow from a place of its own.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use udpath_load::plan::MAX_SIZE;
use udpath_load::result::LoadResult;
use udpath_load::template::{
    Id, InKernel, Judgement, Lengths, MAX_REQUESTS, Prebuilt, Protocol, ReplyRules, Template, Written,
};

use super::capture::Payloads;
use super::{ID, PCAP, PORT};
use crate::{OptionError, Options};

/// Bytes of a reply that are looked at. More: receive buffers leave the cache. Fewer: an identifier behind them is not
/// found.
const MAX_REPLY: usize = 2048;
/// Most bytes of an identifier.
const MAX_WIDTH: usize = 8;

/// Where a protocol has its identifier: at the same place in requests and replies, big endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IdField {
    offset: usize,
    width: usize,
}

impl IdField {
    /// Bytes up to its end.
    const fn end(self) -> usize {
        self.offset + self.width
    }

    const fn bits(self) -> u32 {
        self.width as u32 * u8::BITS
    }

    /// Its place in `message`, if that is long enough.
    fn of(self, message: &mut [u8]) -> Option<&mut [u8]> {
        message.get_mut(self.offset..self.end())
    }

    /// As the kernel engine writes it: all of it, or as many of its low bytes as have a width of its own.
    fn in_kernel(self) -> Id {
        let width = [8, 4, 2].into_iter().find(|width| *width <= self.width).unwrap_or(1);
        let at = self.end() - width;
        Id { at, echoed_at: at, width, bits: width as u32 * u8::BITS }
    }

    fn read(self, message: &[u8]) -> Option<u64> {
        let bytes = message.get(self.offset..self.end())?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl FromStr for IdField {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (offset, width) = text.split_once(':').ok_or(())?;
        let field = Self { offset: offset.parse().map_err(drop)?, width: width.parse().map_err(drop)? };
        let valid = (1..=MAX_WIDTH).contains(&field.width) && field.offset <= MAX_REPLY - field.width;
        if valid { Ok(field) } else { Err(()) }
    }
}

/// A capture as a load.
#[derive(Debug, Clone)]
pub struct ReplayLoad {
    run: u64,
    payloads: Arc<Payloads>,
    id: Option<IdField>,
    lengths: Lengths,
}

impl ReplayLoad {
    /// The capture that `options` name, in run `run`.
    ///
    /// # Errors
    /// An invalid option; a capture that cannot be read, has no datagrams to the port, or one too short for the
    /// identifier.
    pub fn from_options(run: u64, options: &Options) -> Result<Self, OptionError> {
        let id: Option<IdField> = options.parsed(
            &ID,
            "OFFSET:WIDTH with a width of 1 to 8 bytes within the first 2048",
            |_: &IdField| true,
        )?;
        let port = options.parsed(&PORT, "1 to 65535", |port: &u16| *port > 0)?;
        let path = options.required_path(&PCAP, "the capture to replay")?;
        let payloads = Payloads::read(&path, port).map_err(|error| OptionError::Invalid {
            option: PCAP.name,
            value: path.display().to_string(),
            reason: error.to_string(),
        })?;
        if let Some(id) = id {
            check_lengths(&payloads, id)?;
        }
        let longest = payloads.iter().map(<[u8]>::len).max().unwrap_or(1);
        let lengths = Lengths { longest, mean: (payloads.total() / payloads.count()).max(1) };
        Ok(Self { run, payloads: Arc::new(payloads), id, lengths })
    }
}

/// Every payload must have room for the identifier.
fn check_lengths(payloads: &Payloads, id: IdField) -> Result<(), OptionError> {
    let end = id.end();
    match payloads.iter().enumerate().find(|(_, payload)| payload.len() < end) {
        None => Ok(()),
        Some((at, short)) => Err(OptionError::Invalid {
            option: ID.name,
            value: format!("{}:{}", id.offset, id.width),
            reason: format!("payload {} of the capture has {} bytes, fewer than {end}", at + 1, short.len()),
        }),
    }
}

impl Protocol for ReplayLoad {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn hint(&self, _result: &LoadResult) -> Option<String> {
        self.payloads.left_out().hint()
    }

    fn min_size(&self) -> usize {
        self.lengths.longest
    }

    fn max_size(&self) -> usize {
        MAX_SIZE
    }

    fn one_size(&self) -> bool {
        false
    }

    fn lengths(&self) -> Option<Lengths> {
        Some(self.lengths)
    }

    fn ids(&self) -> u64 {
        self.id.map_or(1, |id| 1_u64.checked_shl(id.bits()).unwrap_or(u64::MAX))
    }

    fn in_kernel(&self) -> Option<InKernel> {
        Some(InKernel::Prebuilt(Prebuilt {
            // Of a longer capture, the first ones that fit the engine's table.
            requests: Written::InTurn(self.payloads.count().min(MAX_REQUESTS) as u32),
            id: self.id.map_or(Id::NONE, IdField::in_kernel),
            reply: ReplyRules {
                min: self.id.map_or(1, IdField::end),
                max: MAX_SIZE,
                within: Vec::new(),
                rules: Cow::Borrowed(&[]),
            },
        }))
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(ReplayTemplate { load: self.clone() })
    }
}

/// Writes payloads and looks for their identifiers in replies.
#[derive(Debug, Clone)]
pub struct ReplayTemplate {
    load: ReplayLoad,
}

impl ReplayTemplate {
    /// What the identifiers of a flow differ by from its numbers, so that those of other runs and flows are others.
    fn key(&self, flow: u32) -> u64 {
        (self.load.run ^ u64::from(flow).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }
}

impl Template for ReplayTemplate {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn min_size(&self) -> usize {
        self.load.lengths.longest
    }

    fn max_reply(&self, _size: usize) -> usize {
        MAX_REPLY
    }

    fn seq_bits(&self) -> u32 {
        self.load.id.map_or(0, IdField::bits)
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        // Flows begin at places spread over the capture: multiples of its golden section.
        let begin = (self.load.payloads.count() as u64 * 618 / 1000).wrapping_mul(u64::from(flow));
        let payload = self.load.payloads.get(begin.wrapping_add(seq));
        // As long as the longest, or longer.
        let place = &mut request[..payload.len()];
        place.copy_from_slice(payload);
        if let Some(id) = self.load.id
            && let Some(field) = id.of(place)
        {
            let number = (seq ^ self.key(flow)).to_be_bytes();
            field.copy_from_slice(&number[MAX_WIDTH - id.width..]);
        }
        payload.len()
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let Some(id) = self.load.id else { return Judgement::Valid { seq: 0 } };
        match id.read(reply) {
            Some(number) => {
                let mask = u64::MAX >> (u64::BITS - id.bits());
                Judgement::Valid { seq: (number ^ self.key(flow)) & mask }
            }
            None => Judgement::Corrupt,
        }
    }
}

#[cfg(test)]
mod tests;
