//! A shared secret and what is computed with it: RFC 2865, 3 and 5.2; RFC 2866, 3; RFC 3579, 3.2.
//!
//! ```text
//! Message-Authenticator    HMAC-MD5(secret; the packet, its own value 0, its authenticator that of the request)
//! reply's authenticator    MD5(code, identifier, length, request's authenticator, attributes, secret)
//! accounting request's     the same with 0 for the request's authenticator
//! hidden password          c1 = p1 xor MD5(secret, request's authenticator), c2 = p2 xor MD5(secret, c1), ...
//! ```
//! The states of both digests after the secret are computed once; a packet costs copies of them.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use super::packet::{DIGEST, HEADER};

/// Longest password that PAP can carry (RFC 2865, 5.2).
pub(super) const MAX_PASSWORD: usize = 128;

/// A secret shared by a client and its server.
#[derive(Clone)]
pub struct Secret {
    bytes: Box<[u8]>,
    /// HMAC-MD5 keyed with it.
    keyed: Hmac<Md5>,
    /// MD5 of it, to be continued.
    begun: Md5,
}

impl Secret {
    /// A secret of any length; RFC 2865 asks for 16 bytes or more, hard to guess.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { bytes: secret.into(), keyed: keyed(secret), begun: Md5::new().chain_update(secret) }
    }

    /// The Message-Authenticator of `packet`, whose value is at `at`, in reply to a request with `authenticator`, or of
    /// that request. `None` if the value does not lie within the packet.
    fn message_authenticator(
        &self,
        packet: &[u8],
        authenticator: &[u8; DIGEST],
        at: usize,
    ) -> Option<[u8; DIGEST]> {
        let (header, attributes) = packet.split_at_checked(HEADER)?;
        let (before, rest) = attributes.split_at_checked(at.checked_sub(HEADER)?)?;
        let after = rest.get(DIGEST..)?;
        let mac = self.keyed.clone().chain_update(header.first_chunk::<4>()?).chain_update(authenticator);
        let mac = mac.chain_update(before).chain_update([0; DIGEST]).chain_update(after);
        Some(mac.finalize().into_bytes().into())
    }

    /// Whether the Message-Authenticator of `packet` at `at` is right. In constant time.
    #[must_use]
    pub fn has_signed(&self, packet: &[u8], authenticator: &[u8; DIGEST], at: usize) -> bool {
        let (expected, found) = (self.message_authenticator(packet, authenticator, at), packet.get(at..));
        let found = found.and_then(<[u8]>::first_chunk::<DIGEST>);
        expected.zip(found).is_some_and(|(expected, found)| bool::from(expected.ct_eq(found)))
    }

    /// Writes the Message-Authenticator of `packet` at `at`; `None` if it does not lie within the packet.
    #[must_use]
    pub fn sign(&self, packet: &mut [u8], authenticator: &[u8; DIGEST], at: usize) -> Option<()> {
        let signature = self.message_authenticator(packet, authenticator, at)?;
        packet.get_mut(at..)?.first_chunk_mut::<DIGEST>().map(|place| *place = signature)
    }

    /// The authenticator of `packet`, a reply to a request with `authenticator`, or an accounting request, with 0.
    /// `None` if it is shorter than a header.
    fn digest(&self, packet: &[u8], authenticator: &[u8; DIGEST]) -> Option<[u8; DIGEST]> {
        let (header, attributes) = packet.split_at_checked(HEADER)?;
        let digest = Md5::new().chain_update(header.first_chunk::<4>()?).chain_update(authenticator);
        Some(digest.chain_update(attributes).chain_update(&self.bytes).finalize().into())
    }

    /// Whether the authenticator of `packet` is right, a reply to a request with `authenticator`, or an accounting
    /// request, with 0. In constant time.
    #[must_use]
    pub fn has_authenticated(&self, packet: &[u8], authenticator: &[u8; DIGEST]) -> bool {
        let found = packet.get(HEADER - DIGEST..).and_then(<[u8]>::first_chunk::<DIGEST>);
        let expected = self.digest(packet, authenticator);
        expected.zip(found).is_some_and(|(expected, found)| bool::from(expected.ct_eq(found)))
    }

    /// Writes the authenticator of a reply or accounting request; `None` if it is shorter than a header.
    #[must_use]
    pub fn authenticate(&self, packet: &mut [u8], authenticator: &[u8; DIGEST]) -> Option<()> {
        let digest = self.digest(packet, authenticator)?;
        packet.get_mut(HEADER - DIGEST..)?.first_chunk_mut::<DIGEST>().map(|place| *place = digest)
    }

    /// The next 16 bytes that a password is hidden with.
    fn mask(&self, previous: &[u8; DIGEST]) -> [u8; DIGEST] {
        self.begun.clone().chain_update(previous).finalize().into()
    }

    /// Hides a password, which fills `password` with zeros at its end, in place. Its length is a multiple of 16.
    pub fn hide(&self, password: &mut [u8], authenticator: &[u8; DIGEST]) {
        let mut previous = *authenticator;
        for block in password.as_chunks_mut::<DIGEST>().0 {
            *block = xor(block, &self.mask(&previous));
            previous = *block;
        }
    }

    /// The password hidden in `hidden`, with zeros after its end; `None` unless its length is one of RFC 2865, 5.2.
    #[must_use]
    pub fn reveal(&self, hidden: &[u8], authenticator: &[u8; DIGEST]) -> Option<[u8; MAX_PASSWORD]> {
        let (blocks, []) = hidden.as_chunks::<DIGEST>() else { return None };
        if blocks.is_empty() || hidden.len() > MAX_PASSWORD {
            return None;
        }
        let mut password = [0; MAX_PASSWORD];
        let mut previous = authenticator;
        for (block, place) in blocks.iter().zip(password.as_chunks_mut::<DIGEST>().0) {
            *place = xor(block, &self.mask(previous));
            previous = block;
        }
        Some(password)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// HMAC-MD5 with this key.
pub(super) fn keyed(key: &[u8]) -> Hmac<Md5> {
    // Any length is a key of HMAC (RFC 2104, 2); the error is of other constructions.
    Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()))
}

/// What a client sends to prove a password by CHAP (RFC 2865, 5.3; RFC 1994, 4.1).
pub(super) fn chap(identifier: u8, password: &[u8], challenge: &[u8]) -> [u8; DIGEST] {
    Md5::new().chain_update([identifier]).chain_update(password).chain_update(challenge).finalize().into()
}

fn xor(one: &[u8; DIGEST], other: &[u8; DIGEST]) -> [u8; DIGEST] {
    (u128::from_ne_bytes(*one) ^ u128::from_ne_bytes(*other)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::packet::Packet;
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// RFC 2865, 7.1: nemo logs in with the password "arctangent", the secret is "xyzzy5461".
    const REQUEST: &str = "01 00 00 38 0f 40 3f 94 73 97 80 57 bd 83 d5 cb 98 f4 22 7a 01 06 6e 65 6d 6f \
        02 12 0d be 70 8d 93 d4 13 ce 31 96 e4 3f 78 2a 0a ee 04 06 c0 a8 01 10 05 06 00 00 00 03";
    const ACCEPT: &str = "02 00 00 26 86 fe 22 0e 76 24 ba 2a 10 05 f6 bf 9b 55 e0 b2 06 06 00 00 00 01 \
        0f 06 00 00 00 00 0e 06 c0 a8 01 03";

    #[test]
    fn the_examples_of_rfc_2865_section_7() {
        let secret = Secret::new(b"xyzzy5461");
        let (request, accept) = (bytes(REQUEST), bytes(ACCEPT));
        let packet = Packet::decode(&request).unwrap();
        let hidden = packet.attributes().nth(1).unwrap().value;
        let password = secret.reveal(hidden, packet.authenticator()).unwrap();
        assert_eq!((&password[..10], &password[10..]), (&b"arctangent"[..], &[0; 118][..]));
        let mut again = password[..16].to_vec();
        secret.hide(&mut again, packet.authenticator());
        assert_eq!(again, hidden);
        assert!(secret.has_authenticated(&accept, packet.authenticator()));
        let mut signed = accept.clone();
        signed[4..20].fill(0);
        secret.authenticate(&mut signed, packet.authenticator()).unwrap();
        assert_eq!(signed, accept);

        // 7.2: flopsy logs in by CHAP.
        let request = bytes(
            "01 01 00 47 2a ee 86 f0 8d 0d 55 96 9c a5 97 8e 0d 33 67 a2 01 08 66 6c 6f 70 73 79 \
             03 13 16 e9 75 57 c3 16 18 58 95 f2 93 ff 63 44 07 72 75 04 06 c0 a8 01 10 05 06 00 00 00 14 \
             06 06 00 00 00 02 07 06 00 00 00 01",
        );
        let accept = bytes(
            "02 01 00 38 15 ef bc 7d ab 26 cf a3 dc 34 d9 c0 3c 86 01 a4 06 06 00 00 00 02 07 06 00 00 00 01 \
             08 06 ff ff ff fe 0a 06 00 00 00 02 0d 06 00 00 00 01 0c 06 00 00 05 dc",
        );
        let packet = Packet::decode(&request).unwrap();
        assert_eq!(packet.attributes().count(), 6);
        assert!(secret.has_authenticated(&accept, packet.authenticator()));

        // 7.3: a challenge. The reply's authenticator covers the request's, whose state is then returned.
        let request = bytes(
            "01 02 00 39 f3 a4 7a 1f 6a 6d 76 71 0b 94 7a b9 30 41 a0 39 01 07 6d 6f 70 73 79 \
             02 12 33 65 75 73 77 82 89 b5 70 88 5e 15 08 48 25 c5 04 06 c0 a8 01 10 05 06 00 00 00 07",
        );
        let challenge = bytes(
            "0b 02 00 4e 36 f3 c8 76 4a e8 c7 11 57 40 3c 0c 71 ff 9c 45 12 30 43 68 61 6c 6c 65 6e 67 65 20 \
             33 32 37 36 39 34 33 30 2e 20 20 45 6e 74 65 72 20 72 65 73 70 6f 6e 73 65 20 61 74 20 70 72 6f \
             6d 70 74 2e 18 0a 33 32 37 36 39 34 33 30",
        );
        let packet = Packet::decode(&request).unwrap();
        let password =
            secret.reveal(packet.attributes().nth(1).unwrap().value, packet.authenticator()).unwrap();
        assert!(password.starts_with(b"challenge\0"), "{password:?}");
        assert!(secret.has_authenticated(&challenge, packet.authenticator()));
    }

    #[test]
    fn any_changed_bit_is_found() {
        let secret = Secret::new(b"xyzzy5461");
        let (request, accept) = (bytes(REQUEST), bytes(ACCEPT));
        let authenticator = Packet::decode(&request).unwrap().authenticator().to_owned();
        let mut signed = [&accept[..], &[80, 18], &[0; 16]].concat();
        signed[3] += 18;
        let at = accept.len() + 2;
        secret.sign(&mut signed, &authenticator, at).unwrap();
        assert!(secret.has_signed(&signed, &authenticator, at));
        assert!(!Secret::new(b"xyzzy5462").has_signed(&signed, &authenticator, at));
        for bit in 0..signed.len() * 8 {
            let mut damaged = signed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // Its own authenticator is not part of what a reply's Message-Authenticator covers.
            let covered = !(32..160).contains(&bit);
            assert_eq!(secret.has_signed(&damaged, &authenticator, at), !covered, "bit {bit}");
        }
        for bit in 0..accept.len() * 8 {
            let mut damaged = accept.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.has_authenticated(&damaged, &authenticator), "bit {bit}");
        }
        for at in [0, 19, signed.len() - 15, usize::MAX] {
            assert!(!secret.has_signed(&signed, &authenticator, at), "{at}");
        }
    }

    #[test]
    fn passwords_of_every_length_return() {
        let secret = Secret::new(
            b"a secret that is longer than the block of MD5, which has 64 bytes; so it is hashed",
        );
        for len in 1..=MAX_PASSWORD {
            let password: Vec<u8> = (1..=len as u8).collect();
            let mut hidden = password.clone();
            hidden.resize(len.next_multiple_of(DIGEST), 0);
            secret.hide(&mut hidden, &[7; 16]);
            let revealed = secret.reveal(&hidden, &[7; 16]).unwrap();
            assert!(
                revealed[..len] == password[..] && revealed[len..].iter().all(|byte| *byte == 0),
                "{len}"
            );
        }
        for len in [0, 1, 15, 17, 127, 144] {
            assert!(secret.reveal(&vec![0; len], &[7; 16]).is_none(), "{len}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new(b"xyzzy")), "Secret");
    }
}
