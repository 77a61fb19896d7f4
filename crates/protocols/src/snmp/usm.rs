//! The User-based Security Model: keys, authentication codes and encryption (RFC 3414, 7860, 3826).
//!
//! ```text
//! password ── a MiB of it, hashed ──▸ Ku ── hashed with the engine ID ──▸ the key for this agent
//! code      HMAC of the whole message, with zeros in the code's place; its first bytes
//! cipher    AES-128 in CFB mode; the IV is boots | time | salt
//! ```

use std::fmt;
use std::str::FromStr;

use aes::Aes128;
use aes::cipher::{InnerIvInit, KeyInit as _};
use hmac::{Hmac, Mac as _};
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

/// A user of version 3.
#[derive(Debug, Clone)]
pub struct User {
    /// Name, 1 to 32 bytes.
    pub name: String,
    /// How its messages are authenticated, if they are.
    pub auth: Option<Auth>,
}

/// Authentication, with or without privacy.
#[derive(Clone)]
pub struct Auth {
    /// The hash of the codes and of the keys.
    pub hash: Hash,
    /// The password, at least 8 bytes.
    pub password: String,
    /// Password of AES-128, if messages are encrypted.
    pub privacy: Option<String>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("hash", &self.hash)
            .field("private", &self.privacy.is_some())
            .finish_non_exhaustive()
    }
}

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// SHA-1, of RFC 3414.
    Sha1,
    /// SHA-224, of RFC 7860 as those below.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// Bytes of its codes on the wire (RFC 3414, 7.3.1; RFC 7860, 4.1).
    #[must_use]
    pub const fn code_len(self) -> usize {
        match self {
            Self::Sha1 => 12,
            Self::Sha224 => 16,
            Self::Sha256 => 24,
            Self::Sha384 => 32,
            Self::Sha512 => 48,
        }
    }
}

impl FromStr for Hash {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "sha" | "sha1" => Ok(Self::Sha1),
            "sha224" => Ok(Self::Sha224),
            "sha256" => Ok(Self::Sha256),
            "sha384" => Ok(Self::Sha384),
            "sha512" => Ok(Self::Sha512),
            _ => Err(()),
        }
    }
}

/// Longest code, bytes.
pub(super) const MAX_CODE: usize = 48;
/// Bytes of the salt in a message (RFC 3826, 3.1.2.1).
pub(super) const SALT_LEN: usize = 8;

/// A keyed hash: copying it costs less than keying it again.
#[derive(Clone)]
enum Keyed {
    Sha1(Hmac<Sha1>),
    Sha224(Hmac<Sha224>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

/// A user's keys for one agent.
#[derive(Clone)]
pub(super) struct Keys {
    keyed: Keyed,
    code_len: usize,
    cipher: Option<Aes128>,
}

impl Keys {
    /// Takes milliseconds: hashing the passwords is slow by intent. None if a hash yields no key, which none does.
    pub(super) fn new(auth: &Auth, engine_id: &[u8]) -> Option<Self> {
        let key = localized(auth.hash, &auth.password, engine_id);
        let keyed = match auth.hash {
            Hash::Sha1 => Keyed::Sha1(Hmac::new_from_slice(&key).ok()?),
            Hash::Sha224 => Keyed::Sha224(Hmac::new_from_slice(&key).ok()?),
            Hash::Sha256 => Keyed::Sha256(Hmac::new_from_slice(&key).ok()?),
            Hash::Sha384 => Keyed::Sha384(Hmac::new_from_slice(&key).ok()?),
            Hash::Sha512 => Keyed::Sha512(Hmac::new_from_slice(&key).ok()?),
        };
        let cipher = auth.privacy.as_ref().map(|password| {
            // The first 128 bits of a key made with the same hash (RFC 3826, 1.2).
            Aes128::new_from_slice(localized(auth.hash, password, engine_id).get(..16)?).ok()
        });
        let cipher = match cipher {
            Some(cipher) => Some(cipher?),
            None => None,
        };
        Some(Self { keyed, code_len: auth.hash.code_len(), cipher })
    }

    /// Bytes of a code.
    pub(super) fn code_len(&self) -> usize {
        self.code_len
    }

    /// Whether messages are encrypted.
    pub(super) fn is_private(&self) -> bool {
        self.cipher.is_some()
    }

    /// The code of a message that consists of these parts; its first [`Keys::code_len`] bytes are sent.
    pub(super) fn code(&self, parts: &[&[u8]]) -> [u8; MAX_CODE] {
        macro_rules! code {
            ($keyed:expr) => {{
                let mut keyed = $keyed.clone();
                parts.iter().for_each(|part| keyed.update(part));
                first(&keyed.finalize().into_bytes())
            }};
        }
        match &self.keyed {
            Keyed::Sha1(keyed) => code!(keyed),
            Keyed::Sha224(keyed) => code!(keyed),
            Keyed::Sha256(keyed) => code!(keyed),
            Keyed::Sha384(keyed) => code!(keyed),
            Keyed::Sha512(keyed) => code!(keyed),
        }
    }

    /// Encrypts in place.
    pub(super) fn encrypt(&self, boots: u32, time: u32, salt: [u8; SALT_LEN], data: &mut [u8]) {
        if let Some(cipher) = &self.cipher {
            cfb_mode::Encryptor::inner_iv_init(cipher, &iv(boots, time, salt).into()).encrypt(data);
        }
    }

    /// Decrypts in place.
    pub(super) fn decrypt(&self, boots: u32, time: u32, salt: [u8; SALT_LEN], data: &mut [u8]) {
        if let Some(cipher) = &self.cipher {
            cfb_mode::Decryptor::inner_iv_init(cipher, &iv(boots, time, salt).into()).decrypt(data);
        }
    }
}

/// The first bytes of a code.
fn first(code: &[u8]) -> [u8; MAX_CODE] {
    let mut first = [0; MAX_CODE];
    first.iter_mut().zip(code).for_each(|(to, from)| *to = *from);
    first
}

/// The initialization vector (RFC 3826, 3.1.2.1).
fn iv(boots: u32, time: u32, salt: [u8; SALT_LEN]) -> [u8; 16] {
    let [[b0, b1, b2, b3], [t0, t1, t2, t3]] = [boots.to_be_bytes(), time.to_be_bytes()];
    let [s0, s1, s2, s3, s4, s5, s6, s7] = salt;
    [b0, b1, b2, b3, t0, t1, t2, t3, s0, s1, s2, s3, s4, s5, s6, s7]
}

/// The key of a password for an agent (RFC 3414, 2.6 and A.2).
fn localized(hash: Hash, password: &str, engine_id: &[u8]) -> Vec<u8> {
    match hash {
        Hash::Sha1 => localized_by::<Sha1>(password, engine_id),
        Hash::Sha224 => localized_by::<Sha224>(password, engine_id),
        Hash::Sha256 => localized_by::<Sha256>(password, engine_id),
        Hash::Sha384 => localized_by::<Sha384>(password, engine_id),
        Hash::Sha512 => localized_by::<Sha512>(password, engine_id),
    }
}

fn localized_by<D: Digest>(password: &str, engine_id: &[u8]) -> Vec<u8> {
    /// Bytes of the repeated password that are hashed (RFC 3414, A.2.1).
    const REPEATED: usize = 1 << 20;
    const BLOCK: usize = 64;
    let mut of_user = D::new();
    let mut endless = password.bytes().cycle();
    for _ in 0..REPEATED / BLOCK {
        let mut block = [0; BLOCK];
        block.iter_mut().zip(&mut endless).for_each(|(to, from)| *to = from);
        of_user.update(block);
    }
    let of_user = of_user.finalize();
    D::new().chain_update(&of_user).chain_update(engine_id).chain_update(&of_user).finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 3414, A.3.2.
    #[test]
    fn keys_are_those_of_the_standards_example() {
        let engine_id = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        let key = localized(Hash::Sha1, "maplesyrup", &engine_id);
        assert_eq!(hex(&key), "6695febc9288e36282235fc7151f128497b38f3f");
    }

    /// RFC 2202, test case 2 (SHA-1), and RFC 4231, test case 2.
    #[test]
    fn codes_are_those_of_the_standards_examples() {
        let keyed = [
            Keyed::Sha1(Hmac::new_from_slice(b"Jefe").unwrap()),
            Keyed::Sha224(Hmac::new_from_slice(b"Jefe").unwrap()),
            Keyed::Sha256(Hmac::new_from_slice(b"Jefe").unwrap()),
        ];
        let expected = [
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            "a30e01098bc6dbbf45690f3a7e9e6d0f8bbea2a39e6148008fd05e44",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ];
        for (keyed, expected) in keyed.into_iter().zip(expected) {
            let keys = Keys { keyed, code_len: 12, cipher: None };
            let code = keys.code(&[b"what do ya ", b"", b"want for nothing?"]);
            assert_eq!(hex(&code[..expected.len() / 2]), expected);
        }
    }

    /// NIST SP 800-38A, F.3.13: CFB128-AES128, its first block and a part of the second.
    #[test]
    fn ciphertexts_are_those_of_the_standards_example() {
        let key = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
        let keys = Keys {
            keyed: Keyed::Sha1(Hmac::new_from_slice(b"unused").unwrap()),
            code_len: 12,
            cipher: Some(Aes128::new(&key.into())),
        };
        let plain = 0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a_u128.to_be_bytes();
        let (boots, time, salt) = (0x0001_0203, 0x0405_0607, [8, 9, 10, 11, 12, 13, 14, 15]);
        let mut data = [&plain[..], &[0xae, 0x2d, 0x8a]].concat();
        keys.encrypt(boots, time, salt, &mut data);
        assert_eq!(hex(&data), "3b3fd92eb72dad20333449f8e83cfb4ac8a645");
        keys.decrypt(boots, time, salt, &mut data);
        assert_eq!(hex(&data), "6bc1bee22e409f96e93d7e117393172aae2d8a");
    }

    #[test]
    fn a_users_passwords_are_not_shown() {
        let auth = Auth { hash: Hash::Sha1, password: "maplesyrup".into(), privacy: Some("honeydew".into()) };
        let shown = format!("{auth:?}");
        assert!(shown.contains("Sha1") && !shown.contains("maple") && !shown.contains("honey"), "{shown}");
    }
}
