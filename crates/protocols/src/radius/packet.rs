//! The packet of RFC 2865, 3: read with every length checked, written within a bound.
//!
//! ```text
//!   0  code 1   1  identifier 1   2  length 2   4  authenticator 16   20  attributes: kind 1 | length 1 | value ...
//! ```
//! Numbers are big endian. What follows the packet's length in a datagram is padding.

/// Bytes of the header.
pub(super) const HEADER: usize = 20;
/// Bytes of an authenticator, and of any MD5 digest.
pub(super) const DIGEST: usize = 16;
/// Longest packet (RFC 2865, 3).
pub const MAX_LEN: usize = 4096;
/// Longest value of an attribute: its length has one byte and counts kind and length.
pub(super) const MAX_VALUE: usize = 253;
/// Of an attribute's kind and length.
const PREFIX: usize = 2;

/// What a packet is (RFC 2865, 3; RFC 5997).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u8);

impl Code {
    /// May this user in?
    pub const ACCESS_REQUEST: Self = Self(1);
    /// Yes.
    pub const ACCESS_ACCEPT: Self = Self(2);
    /// No.
    pub const ACCESS_REJECT: Self = Self(3);
    /// A session began, continues or ended (RFC 2866).
    pub const ACCOUNTING_REQUEST: Self = Self(4);
    /// Noted.
    pub const ACCOUNTING_RESPONSE: Self = Self(5);
    /// Only with an answer to this.
    pub const ACCESS_CHALLENGE: Self = Self(11);
    /// Are you there? (RFC 5997)
    pub const STATUS_SERVER: Self = Self(12);
}

/// The kind of an attribute: those that server or load look at; `dictionary.rs` has those that only pass through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind(pub u8);

impl Kind {
    /// Name of the user.
    pub const USER_NAME: Self = Self(1);
    /// The password, hidden with the secret (PAP).
    pub const USER_PASSWORD: Self = Self(2);
    /// Identifier and digest of the password and a challenge (CHAP).
    pub const CHAP_PASSWORD: Self = Self(3);
    /// Text for the user.
    pub const REPLY_MESSAGE: Self = Self(18);
    /// What a server wants to see again with the answer to its challenge.
    pub const STATE: Self = Self(24);
    /// Name of the access server.
    pub const NAS_IDENTIFIER: Self = Self(32);
    /// What a proxy wants to see again in the reply.
    pub const PROXY_STATE: Self = Self(33);
    /// Start, stop or in between (RFC 2866).
    pub const ACCT_STATUS_TYPE: Self = Self(40);
    /// Names a session (RFC 2866).
    pub const ACCT_SESSION_ID: Self = Self(44);
    /// The challenge of CHAP, unless it is the request's authenticator.
    pub const CHAP_CHALLENGE: Self = Self(60);
    /// A part of an EAP packet (RFC 3579).
    pub const EAP_MESSAGE: Self = Self(79);
    /// HMAC-MD5 of the whole packet (RFC 3579, 3.2).
    pub const MESSAGE_AUTHENTICATOR: Self = Self(80);
}

/// A packet whose attributes fill it exactly.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    authenticator: &'a [u8; DIGEST],
}

/// Why a datagram is not a RADIUS packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than a header, or its length is not 20 to 4096 or more than there is.
    #[error("the packet's length is wrong")]
    Length,
    /// An attribute's length is below 2 or leads out of the packet.
    #[error("an attribute's length is wrong")]
    Attribute,
}

impl<'a> Packet<'a> {
    /// Reads a datagram; ignores padding.
    ///
    /// # Errors
    /// Which length is wrong.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, PacketError> {
        let (header, _) = datagram.split_first_chunk::<HEADER>().ok_or(PacketError::Length)?;
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let bytes = datagram.get(..len).filter(|_| len <= MAX_LEN).ok_or(PacketError::Length)?;
        let (_, authenticator) = header.split_last_chunk::<DIGEST>().ok_or(PacketError::Length)?;
        let mut rest = bytes.get(HEADER..).ok_or(PacketError::Length)?;
        while let Some((.., after)) = split(rest) {
            rest = after;
        }
        if rest.is_empty() { Ok(Self { bytes, authenticator }) } else { Err(PacketError::Attribute) }
    }

    /// What it is.
    #[must_use]
    pub fn code(&self) -> Code {
        Code(self.bytes[0])
    }

    /// Distinguishes the requests of one source port.
    #[must_use]
    pub fn identifier(&self) -> u8 {
        self.bytes[1]
    }

    /// Of a request: random, or a digest. Of a reply: a digest over both.
    #[must_use]
    pub fn authenticator(&self) -> &'a [u8; DIGEST] {
        self.authenticator
    }

    /// The packet without padding.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The attributes in order.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'a>> + use<'a> {
        let mut rest = self.bytes.get(HEADER..).unwrap_or_default();
        let mut at = HEADER;
        std::iter::from_fn(move || {
            let (kind, value, after) = split(rest)?;
            let attribute = Attribute { kind, value, at: at + PREFIX };
            at += PREFIX + value.len();
            rest = after;
            Some(attribute)
        })
    }
}

/// An attribute of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// What it is.
    pub kind: Kind,
    /// 0 to 253 bytes.
    pub value: &'a [u8],
    /// Where the value begins in the packet.
    pub at: usize,
}

/// Kind and value of the first attribute, and what follows it; `None` at the end and where a length is wrong.
fn split(attributes: &[u8]) -> Option<(Kind, &[u8], &[u8])> {
    let (&[kind, len], _) = attributes.split_first_chunk::<PREFIX>()?;
    let (attribute, rest) = attributes.split_at_checked(usize::from(len))?;
    Some((Kind(kind), attribute.get(PREFIX..)?, rest))
}

/// Writes a packet into a buffer. Every method returns `None` when the packet would exceed the buffer or [`MAX_LEN`].
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Begins a packet with these fields.
    #[must_use]
    pub fn new(
        buffer: &'a mut [u8],
        code: Code,
        identifier: u8,
        authenticator: &[u8; DIGEST],
    ) -> Option<Self> {
        let room = buffer.len().min(MAX_LEN);
        let mut writer = Self { buffer: buffer.get_mut(..room)?, len: 0 };
        // The length is known in the end.
        writer.raw(&[code.0, identifier, 0, 0])?;
        writer.raw(authenticator)?;
        Some(writer)
    }

    /// Appends an attribute.
    #[must_use]
    pub fn attribute(&mut self, kind: Kind, value: &[u8]) -> Option<()> {
        let len = u8::try_from(value.len() + PREFIX).ok()?;
        self.raw(&[kind.0, len])?;
        self.raw(value)
    }

    /// Appends a Message-Authenticator to be signed later; returns where its value begins.
    #[must_use]
    pub fn message_authenticator(&mut self) -> Option<usize> {
        let at = self.len + PREFIX;
        self.attribute(Kind::MESSAGE_AUTHENTICATOR, &[0; DIGEST])?;
        Some(at)
    }

    /// Appends whole attributes.
    #[must_use]
    pub fn raw(&mut self, bytes: &[u8]) -> Option<()> {
        let place = self.buffer.get_mut(self.len..)?.get_mut(..bytes.len())?;
        place.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// Writes the length; returns the packet, to be signed.
    #[must_use]
    pub fn finish(self) -> Option<&'a mut [u8]> {
        let packet = self.buffer.get_mut(..self.len)?;
        let len = u16::try_from(self.len).ok()?;
        packet.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = [0xff; 100];
        let mut writer = Writer::new(&mut buffer, Code::ACCESS_REQUEST, 7, &[9; 16]).unwrap();
        writer.attribute(Kind::USER_NAME, b"bob").unwrap();
        assert_eq!(writer.message_authenticator(), Some(27));
        writer.attribute(Kind::STATE, b"").unwrap();
        let bytes = writer.finish().unwrap().to_vec();
        assert_eq!(bytes.len(), 20 + 5 + 18 + 2);
        for padding in [0, 1, 50] {
            let datagram = [&bytes[..], &vec![0xee; padding]].concat();
            let packet = Packet::decode(&datagram).unwrap();
            assert_eq!((packet.code(), packet.identifier()), (Code::ACCESS_REQUEST, 7));
            assert_eq!((packet.authenticator(), packet.bytes()), (&[9; 16], &bytes[..]));
            let found: Vec<_> =
                packet.attributes().map(|one| (one.kind.0, one.value.to_vec(), one.at)).collect();
            assert_eq!(found, [(1, b"bob".to_vec(), 22), (80, vec![0; 16], 27), (24, vec![], 45)]);
        }
    }

    #[test]
    fn wrong_lengths_are_named() {
        let packet = |len: u16, attributes: &[u8]| {
            let mut bytes = vec![1, 2];
            bytes.extend(len.to_be_bytes());
            bytes.extend([0; 16]);
            bytes.extend(attributes);
            Packet::decode(&bytes).map(|packet| packet.attributes().count())
        };
        assert_eq!(packet(20, &[]), Ok(0));
        assert_eq!(packet(22, &[1, 2]), Ok(1));
        assert_eq!(packet(20, &[1, 2]), Ok(0), "padding");
        for (len, attributes) in [(0, &[][..]), (19, &[]), (21, &[]), (4097, &[0; 5000])] {
            assert_eq!(packet(len, attributes), Err(PacketError::Length), "{len}");
        }
        for wrong in [&[1][..], &[1, 0], &[1, 1], &[1, 3], &[1, 2, 1], &[1, 3, 7, 1, 255]] {
            assert_eq!(packet(20 + wrong.len() as u16, wrong), Err(PacketError::Attribute), "{wrong:?}");
        }
        assert_eq!(Packet::decode(&[0; 19]).map(|_| ()), Err(PacketError::Length));
    }

    #[test]
    fn nothing_is_written_beyond_the_bounds() {
        let mut buffer = vec![0; 10_000];
        let begin = |buffer: &'static mut [u8]| Writer::new(buffer, Code::ACCESS_ACCEPT, 0, &[0; 16]);
        assert!(begin(vec![0; 19].leak()).is_none());
        let mut writer = Writer::new(&mut buffer, Code::ACCESS_ACCEPT, 0, &[0; 16]).unwrap();
        assert_eq!(writer.attribute(Kind::STATE, &[0; 254]), None);
        while writer.attribute(Kind::STATE, &[0; MAX_VALUE]).is_some() {}
        let packet = writer.finish().unwrap();
        assert!(packet.len() <= MAX_LEN && packet.len() > MAX_LEN - 255);
    }
}
