//! Requests, and what is a right answer to each (RFC 3416).
//!
//! ```text
//! GET, GETNEXT, Response   tag | request-id | error-status | error-index     | variables: SEQUENCE of (OID, value)
//! GETBULK                  tag | request-id | non-repeaters | max-repetitions | variables
//! ```

use std::cmp::Ordering;
use std::str::FromStr;

use super::MAX_MESSAGE;
use super::ber::{Reader, Writer, tag};
use super::oid::{self, Oid};

/// Tag of an answer.
pub(super) const RESPONSE: u8 = 0xa2;
/// Tag of an agent's refusal in version 3 (RFC 3412, 7.1.2).
pub(super) const REPORT: u8 = 0xa8;

/// Exceptions in place of a value (RFC 3416, 3).
const NO_SUCH_OBJECT: u8 = 0x80;
const NO_SUCH_INSTANCE: u8 = 0x81;
const END_OF_MIB_VIEW: u8 = 0x82;

/// Highest error-status: inconsistentName (RFC 3416, 3).
const MAX_ERROR: i32 = 18;

/// Most OIDs of one request; as many would hardly fit a message.
pub(super) const MAX_OIDS: usize = 32;

/// The operation on each OID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Its value.
    Get,
    /// The next OID and its value.
    GetNext,
    /// The next OIDs and their values, several at once.
    GetBulk,
}

impl Operation {
    const fn tag(self) -> u8 {
        match self {
            Self::Get => 0xa0,
            Self::GetNext => 0xa1,
            Self::GetBulk => 0xa5,
        }
    }
}

impl FromStr for Operation {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "get" => Ok(Self::Get),
            "getnext" => Ok(Self::GetNext),
            "getbulk" => Ok(Self::GetBulk),
            _ => Err(()),
        }
    }
}

/// What a request asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The operation.
    pub operation: Operation,
    /// The OIDs, at least one.
    pub oids: Vec<Oid>,
    /// Rows that [`Operation::GetBulk`] asks for.
    pub repetitions: u32,
}

/// The judgement of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has the values asked for.
    Answered,
    /// It says that there are none, or why not.
    Refused,
    /// No agent answers so.
    Wrong,
}

/// An answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pdu<'a> {
    pub(super) tag: u8,
    pub(super) request_id: i32,
    /// Error-status; 0: none.
    pub(super) error: i32,
    pub(super) variables: Reader<'a>,
}

impl<'a> Pdu<'a> {
    /// Reads a Response or a Report, the last element of `from`.
    #[inline]
    pub(super) fn read(mut from: Reader<'a>) -> Option<Self> {
        let (tag, contents) = from.any()?;
        from.end()?;
        let mut fields = Reader::new(contents);
        let (request_id, error, _error_index) = (fields.int()?, fields.int()?, fields.unsigned()?);
        let variables = fields.within(tag::SEQUENCE)?;
        fields.end()?;
        matches!(tag, RESPONSE | REPORT).then_some(Self { tag, request_id, error, variables })
    }

    /// The tag of the first exception in place of a value.
    pub(super) fn exception(&self) -> Option<u8> {
        let mut variables = self.variables;
        loop {
            let mut fields = variables.within(tag::SEQUENCE)?;
            fields.expect(tag::OID)?;
            let (kind, _) = fields.any()?;
            if (NO_SUCH_OBJECT..=END_OF_MIB_VIEW).contains(&kind) {
                return Some(kind);
            }
        }
    }
}

/// A request, composed: only its request-id is still to be written.
#[derive(Debug, Clone)]
pub(super) struct Composed {
    pub(super) bytes: Box<[u8]>,
    /// Where the four bytes of the request-id are.
    id_at: usize,
}

impl Composed {
    /// Writes the request with `id`, which takes four bytes, into `request`; returns its length. None: it does not fit.
    #[inline]
    pub(super) fn write(&self, id: u32, request: &mut [u8]) -> Option<usize> {
        let request = request.get_mut(..self.bytes.len())?;
        request.copy_from_slice(&self.bytes);
        self.put_id(id, request)?;
        Some(request.len())
    }

    /// Replaces the id of a copy of the request.
    #[inline]
    pub(super) fn put_id(&self, id: u32, copy: &mut [u8]) -> Option<()> {
        copy.get_mut(self.id_at..self.id_at + 4)?.copy_from_slice(&id.to_be_bytes());
        Some(())
    }
}

/// An id of four bytes in the place of the right one.
const PLACEHOLDER: u32 = 1 << 30;

impl Question {
    /// The PDU within what `around` adds; none if that is longer than a message may be.
    pub(super) fn compose(&self, around: impl FnOnce(&mut Writer<'_>)) -> Option<Composed> {
        let mut buffer = [0; MAX_MESSAGE];
        let mut writer = Writer::new(&mut buffer);
        for oid in self.oids.iter().rev() {
            let since = writer.len();
            writer.element(tag::NULL, &[]);
            writer.element(tag::OID, oid.contents());
            writer.wrap(tag::SEQUENCE, since);
        }
        writer.wrap(tag::SEQUENCE, 0);
        writer.int(if self.operation == Operation::GetBulk { self.repetitions } else { 0 });
        writer.int(0);
        let after_id = writer.len();
        writer.int(PLACEHOLDER);
        writer.wrap(self.operation.tag(), 0);
        around(&mut writer);
        let len = writer.finish()?;
        Some(Composed { bytes: buffer[..len].into(), id_at: len - after_id - 4 })
    }

    /// Judges a Response to this question.
    #[inline]
    pub(super) fn judge(&self, answer: &Pdu<'_>) -> Verdict {
        match answer.error {
            0 => {}
            1..=MAX_ERROR => return Verdict::Refused,
            _ => return Verdict::Wrong,
        }
        match self.operation {
            Operation::Get | Operation::GetNext => self.judge_each(answer.variables),
            Operation::GetBulk => self.judge_rows(answer.variables),
        }
    }

    /// One variable for each OID.
    fn judge_each(&self, mut variables: Reader<'_>) -> Verdict {
        let mut verdict = Verdict::Answered;
        for asked in &self.oids {
            let Some((name, value)) = variable(&mut variables) else { return Verdict::Wrong };
            let order = oid::compare(name, asked.contents());
            verdict = match (self.operation, value, order) {
                (Operation::Get, Value::None, Ordering::Equal) => Verdict::Refused,
                (Operation::Get, Value::Some, Ordering::Equal) => verdict,
                (Operation::GetNext, Value::End, Ordering::Equal) => Verdict::Refused,
                (Operation::GetNext, Value::Some, Ordering::Greater) => verdict,
                _ => return Verdict::Wrong,
            };
        }
        if variables.is_empty() { verdict } else { Verdict::Wrong }
    }

    /// Rows of one variable for each OID, the last one perhaps not complete; each is the next after the one above it,
    /// or says that there is none.
    fn judge_rows(&self, mut variables: Reader<'_>) -> Verdict {
        let columns = self.oids.len().min(MAX_OIDS);
        let mut above: [&[u8]; MAX_OIDS] = [&[]; MAX_OIDS];
        for (above, oid) in above.iter_mut().zip(&self.oids) {
            *above = oid.contents();
        }
        let mut some = false;
        for _row in 0..self.repetitions {
            for above in &mut above[..columns] {
                if variables.is_empty() {
                    return if some { Verdict::Answered } else { Verdict::Refused };
                }
                let Some((name, value)) = variable(&mut variables) else { return Verdict::Wrong };
                match (value, oid::compare(name, above)) {
                    (Value::Some, Ordering::Greater) => some = true,
                    (Value::End, Ordering::Equal) => {}
                    _ => return Verdict::Wrong,
                }
                *above = name;
            }
        }
        match variables.is_empty() {
            true if some => Verdict::Answered,
            true => Verdict::Refused,
            false => Verdict::Wrong,
        }
    }
}

/// What a variable has for its OID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Some,
    /// No object or no instance of that name.
    None,
    /// Nothing after that name.
    End,
}

/// The next variable: its name's contents, and its value.
#[inline]
fn variable<'a>(variables: &mut Reader<'a>) -> Option<(&'a [u8], Value)> {
    let mut fields = variables.within(tag::SEQUENCE)?;
    let name = fields.expect(tag::OID).filter(|name| oid::is_valid(name))?;
    let (kind, contents) = fields.any()?;
    fields.end()?;
    let len = contents.len();
    let fits = match kind {
        NO_SUCH_OBJECT | NO_SUCH_INSTANCE => return (len == 0).then_some((name, Value::None)),
        END_OF_MIB_VIEW => return (len == 0).then_some((name, Value::End)),
        tag::INTEGER => (1..=4).contains(&len),
        tag::OID => oid::is_valid(contents),
        // IpAddress, then Counter32, Unsigned32 and TimeTicks, Counter64 (RFC 2578, 7.1): a sign byte more than the
        // value.
        0x40 => len == 4,
        0x41..=0x43 => (1..=5).contains(&len),
        0x46 => (1..=9).contains(&len),
        // OCTET STRING, Opaque.
        tag::OCTETS | 0x44 => true,
        _ => false,
    };
    fits.then_some((name, Value::Some))
}

/// The OID of the only variable of a Report, its counter.
pub(super) fn counter<'a>(report: &Pdu<'a>) -> Option<&'a [u8]> {
    let mut variables = report.variables;
    variable(&mut variables).map(|(name, _)| name)
}
