//! The message of version 3 with the parameters of the User-based Security Model (RFC 3412, 6; RFC 3414, 2.4).
//!
//! ```text
//! SEQUENCE
//!   version 3
//!   SEQUENCE       msgID | msgMaxSize | flags | security model 3
//!   OCTET STRING   SEQUENCE  engine ID | boots | time | user | code | salt
//!   SEQUENCE       context engine ID | context | PDU                         or, encrypted, an OCTET STRING with it
//! ```

use super::MAX_MESSAGE;
use super::ber::{Reader, Writer, tag};
use super::engine::AgentEngine;
use super::pdu::{Composed, Pdu};
use super::usm::{Keys, MAX_CODE, SALT_LEN};

/// The number of version 3, and of the User-based Security Model.
const VERSION: u32 = 3;
const SECURITY_MODEL: u32 = 3;

/// Flags: authenticated, encrypted, and "report what is wrong with it" (RFC 3412, 6.4).
const AUTH: u8 = 1;
const PRIV: u8 = 2;
const REPORTABLE: u8 = 4;

/// How messages are protected, and as whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) user: &'a [u8],
    pub(super) engine: &'a AgentEngine,
    /// Whether keys are used as far as there are any; discovery has steps without.
    pub(super) level: Level,
}

/// How far a message is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Not at all.
    Plain,
    /// As far as there are keys, but not encrypted.
    Authentic,
    /// As far as there are keys.
    Full,
}

impl<'a> Sender<'a> {
    fn keys(&self) -> Option<&'a Keys> {
        self.engine.keys().filter(|_| self.level != Level::Plain)
    }

    fn flags(&self) -> u8 {
        let private = self.level == Level::Full;
        match self.keys() {
            None => 0,
            Some(keys) if private && keys.is_private() => AUTH | PRIV,
            Some(_) => AUTH,
        }
    }

    /// Writes the request with these ids at the agent's `time` into `request`; returns its length. None: it does not
    /// fit.
    pub(super) fn write(
        &self,
        question: &Composed,
        id: u32,
        time: u32,
        salt: [u8; SALT_LEN],
        request: &mut [u8],
    ) -> Option<usize> {
        let (keys, flags, engine) = (self.keys(), self.flags(), self.engine);
        let mut writer = Writer::new(request);
        writer.bytes(&question.bytes);
        question.put_id(id, writer.written())?;
        // The default context, of the agent itself.
        writer.element(tag::OCTETS, &[]);
        writer.element(tag::OCTETS, engine.id());
        writer.wrap(tag::SEQUENCE, 0);
        let salt = match keys {
            Some(keys) if flags & PRIV != 0 => {
                keys.encrypt(engine.boots(), time, salt, writer.written());
                writer.wrap(tag::OCTETS, 0);
                &salt[..]
            }
            _ => &[],
        };
        let data = writer.len();
        writer.element(tag::OCTETS, salt);
        let after_code = writer.len();
        let code_len = keys.map_or(0, Keys::code_len);
        writer.element(tag::OCTETS, [0; MAX_CODE].get(..code_len)?);
        writer.element(tag::OCTETS, self.user);
        writer.int(time);
        writer.int(engine.boots());
        writer.element(tag::OCTETS, engine.id());
        writer.wrap(tag::SEQUENCE, data);
        writer.wrap(tag::OCTETS, data);
        let parameters = writer.len();
        writer.int(SECURITY_MODEL);
        writer.element(tag::OCTETS, &[flags | REPORTABLE]);
        writer.int(MAX_MESSAGE as u32);
        writer.int(id);
        writer.wrap(tag::SEQUENCE, parameters);
        writer.int(VERSION);
        writer.wrap(tag::SEQUENCE, 0);
        let len = writer.finish()?;
        if let Some(keys) = keys {
            let code = keys.code(&[request.get(..len)?]);
            let end = len.checked_sub(after_code)?;
            let place = request.get_mut(end.checked_sub(code_len)?..end)?;
            place.copy_from_slice(code.get(..code_len)?);
        }
        Some(len)
    }
}

/// A reply, read as far as that needs no key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    whole: &'a [u8],
    /// msgID.
    pub(super) id: u32,
    flags: u8,
    pub(super) engine_id: &'a [u8],
    pub(super) boots: u32,
    pub(super) time: u32,
    user: &'a [u8],
    code: &'a [u8],
    salt: &'a [u8],
    /// Tag and contents of the scoped PDU, or of its encrypted form.
    data: (u8, &'a [u8]),
}

/// What was wrong with a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotAuthentic;

impl<'a> Message<'a> {
    /// None: not a message of version 3 with the User-based Security Model.
    pub(super) fn read(whole: &'a [u8]) -> Option<Self> {
        let mut datagram = Reader::new(whole);
        let mut message = datagram.within(tag::SEQUENCE)?;
        datagram.end()?;
        if message.unsigned()? != VERSION {
            return None;
        }
        let mut header = message.within(tag::SEQUENCE)?;
        let (id, _max_size) = (header.unsigned()?, header.unsigned()?);
        let [flags] = *header.expect(tag::OCTETS)? else { return None };
        if header.unsigned()? != SECURITY_MODEL {
            return None;
        }
        header.end()?;
        let mut security = message.within(tag::OCTETS)?;
        let mut parameters = security.within(tag::SEQUENCE)?;
        security.end()?;
        let engine_id = parameters.expect(tag::OCTETS)?;
        let (boots, time) = (parameters.unsigned()?, parameters.unsigned()?);
        let user = parameters.expect(tag::OCTETS)?;
        let code = parameters.expect(tag::OCTETS)?;
        let salt = parameters.expect(tag::OCTETS)?;
        parameters.end()?;
        let data = message.any()?;
        message.end()?;
        let expected = if flags & PRIV == 0 { tag::SEQUENCE } else { tag::OCTETS };
        let levels = matches!(flags & (AUTH | PRIV), 0 | AUTH | 3);
        (data.0 == expected && levels).then_some(Self {
            whole,
            id,
            flags,
            engine_id,
            boots,
            time,
            user,
            code,
            salt,
            data,
        })
    }

    /// Whether it is protected as `sender`'s messages are, and names the same user and agent.
    pub(super) fn answers(&self, sender: &Sender<'_>) -> bool {
        let same = self.user == sender.user && self.engine_id == sender.engine.id();
        same && self.flags & (AUTH | PRIV) == sender.flags()
    }

    /// Whether anyone may have sent it.
    pub(super) fn is_plain(&self) -> bool {
        self.flags & AUTH == 0
    }

    /// Checks the code and decrypts into `buffer` what is encrypted, both by `keys`; returns the PDU. Without a code,
    /// nothing is checked.
    ///
    /// The comparison is not constant-time: its duration reveals only the code of a message that the agent has already
    /// sent.
    pub(super) fn open<'b>(
        &self,
        keys: Option<&Keys>,
        buffer: &'b mut [u8; MAX_MESSAGE],
    ) -> Result<Option<Pdu<'b>>, NotAuthentic>
    where
        'a: 'b,
    {
        let mut scoped = self.data.1;
        if self.flags & AUTH != 0 {
            let keys = keys.ok_or(NotAuthentic)?;
            self.authenticate(keys).ok_or(NotAuthentic)?;
            if self.flags & PRIV != 0 {
                let Some(plain) = self.decrypt(keys, buffer) else { return Ok(None) };
                scoped = plain;
            }
        }
        Ok(read_scoped(scoped, self.engine_id))
    }

    fn authenticate(&self, keys: &Keys) -> Option<()> {
        let len = keys.code_len();
        // The code is a part of the message.
        let start = self.code.as_ptr().addr().checked_sub(self.whole.as_ptr().addr())?;
        let (before, rest) = self.whole.split_at_checked(start)?;
        let after = rest.get(self.code.len()..)?;
        let zeros = [0; MAX_CODE];
        let code = keys.code(&[before, zeros.get(..len)?, after]);
        (self.code == code.get(..len)?).then_some(())
    }

    /// The contents of the scoped PDU.
    fn decrypt<'b>(&self, keys: &Keys, buffer: &'b mut [u8; MAX_MESSAGE]) -> Option<&'b [u8]> {
        let plain = buffer.get_mut(..self.data.1.len())?;
        plain.copy_from_slice(self.data.1);
        let salt = *self.salt.first_chunk().filter(|_| self.salt.len() == SALT_LEN)?;
        if !keys.is_private() {
            return None;
        }
        keys.decrypt(self.boots, self.time, salt, plain);
        // CFB needs no padding, yet RFC 3826 has agents that add some; what follows the element is not read.
        Reader::new(plain).expect(tag::SEQUENCE)
    }
}

/// The PDU of a scoped PDU whose context is the agent's own.
fn read_scoped<'a>(contents: &'a [u8], engine_id: &[u8]) -> Option<Pdu<'a>> {
    let mut scoped = Reader::new(contents);
    let (context_engine, context) = (scoped.expect(tag::OCTETS)?, scoped.expect(tag::OCTETS)?);
    (context_engine == engine_id && context.is_empty()).then(|| Pdu::read(scoped)).flatten()
}
