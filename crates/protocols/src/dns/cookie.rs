//! DNS cookies (RFC 7873): a client that shows ours received a reply before, so it does not forge its address.
//!
//! ```text
//! option 10:   client cookie, 8 bytes | version 1 | 0 0 0 | time, 4 bytes | SipHash-2-4 of all before and the client's address
//! ```
//! The server cookie is that of RFC 9018, so that servers of different make can share an address, and the server keeps
//! nothing.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher24;

/// Bytes of a client's and of a server's cookie.
const CLIENT: usize = 8;
const SERVER: usize = 16;
/// Bytes of the option in a reply, with its code and length.
pub(super) const OPTION: usize = 4 + CLIENT + SERVER;
/// How old a server cookie may be, and how far ahead of our clock, in seconds (RFC 9018, 4.3).
const MAX_AGE: i32 = 3600;
const MAX_AHEAD: i32 = 300;
/// A cookie this old is valid, and replaced, in seconds.
const RENEW_AGE: i32 = 1800;

/// Keys: the first makes cookies, and all accept them, so that the key can be changed.
#[derive(Clone)]
pub(super) struct Secrets(Vec<[u8; 16]>);

/// The cookie for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cookie {
    /// The data of the option.
    pub(super) data: [u8; CLIENT + SERVER],
    /// Whether the client showed a valid cookie of ours.
    pub(super) proven: bool,
}

/// Longest file of secrets, in bytes: two lines need 66, and comments are no part of it.
const MAX_FILE: u64 = 4096;

/// Why a file has no secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A line is no secret.
    #[error("{}:{line}: expected 32 hexadecimal digits, such as `openssl rand -hex 16` prints", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line.
        line: usize,
    },
    /// It has none, or too many.
    #[error("{}: {count} secrets: expected 1, or 2 to change it: the new one, then the old one", file.display())]
    Count {
        /// The file.
        file: PathBuf,
        /// How many.
        count: usize,
    },
}

impl Secrets {
    /// A new random secret, known to this process only.
    pub(super) fn random() -> std::io::Result<Self> {
        let mut secret = [0; 16];
        // Up to 256 bytes come whole (getrandom(2)).
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self(vec![secret]))
    }

    /// The secrets of a file, one per line.
    pub(super) fn read(file: &Path) -> Result<Self, SecretError> {
        let text = udpath_files::text(file, MAX_FILE)
            .map_err(|source| SecretError::Read { file: file.to_owned(), source })?;
        let mut secrets = Vec::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let secret = digits(text.trim().as_bytes());
            secrets.push(secret.ok_or_else(|| SecretError::Line { file: file.to_owned(), line })?);
        }
        match secrets.len() {
            1 | 2 => Ok(Self(secrets)),
            count => Err(SecretError::Count { file: file.to_owned(), count }),
        }
    }

    /// The cookie for the reply to a client that sent the data `asked`, 8 or 16 to 40 bytes; `now`: seconds since the
    /// Unix epoch. `None` if it is shorter.
    pub(super) fn reply(&self, asked: &[u8], client: IpAddr, now: u32) -> Option<Cookie> {
        let (own, theirs) = asked.split_first_chunk::<CLIENT>()?;
        let shown = theirs.first_chunk::<SERVER>().filter(|_| theirs.len() == SERVER);
        let age = shown.and_then(|shown| self.age(*own, *shown, client, now));
        let mut data = [0; CLIENT + SERVER];
        data[..CLIENT].copy_from_slice(own);
        match (age, shown) {
            (Some(age), Some(shown)) if age <= RENEW_AGE => data[CLIENT..].copy_from_slice(shown),
            _ => {
                let made = make(self.0.first()?, *own, client, now);
                data[CLIENT..].copy_from_slice(&made);
            }
        }
        Some(Cookie { data, proven: age.is_some() })
    }

    /// Seconds since we made this cookie for this client; `None` if we did not, or too long ago.
    fn age(&self, own: [u8; CLIENT], shown: [u8; SERVER], client: IpAddr, now: u32) -> Option<i32> {
        let [1, _, _, _, t0, t1, t2, t3, ..] = shown else { return None };
        let made = u32::from_be_bytes([t0, t1, t2, t3]);
        // Serial number arithmetic (RFC 1982): the clock's 32 bits wrap in 2106.
        let age = now.wrapping_sub(made) as i32;
        let known = self.0.iter().any(|secret| make(secret, own, client, made) == shown);
        (known && (-MAX_AHEAD..=MAX_AGE).contains(&age)).then_some(age)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// The server cookie made at a time.
fn make(secret: &[u8; 16], own: [u8; CLIENT], client: IpAddr, time: u32) -> [u8; SERVER] {
    let mut input = [0; 32];
    input[..CLIENT].copy_from_slice(&own);
    input[CLIENT] = 1;
    input[12..16].copy_from_slice(&time.to_be_bytes());
    let len = match client {
        IpAddr::V4(v4) => {
            input[16..20].copy_from_slice(&v4.octets());
            20
        }
        IpAddr::V6(v6) => {
            input[16..].copy_from_slice(&v6.octets());
            32
        }
    };
    let hash = SipHasher24::new_with_key(secret).hash(&input[..len]);
    let mut cookie = [0; SERVER];
    cookie[..8].copy_from_slice(&input[CLIENT..16]);
    cookie[8..].copy_from_slice(&hash.to_le_bytes());
    cookie
}

fn digits(text: &[u8]) -> Option<[u8; 16]> {
    let mut secret = [0; 16];
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if text.len() != 32 {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(text.as_chunks::<2>().0) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(text: &str) -> Secrets {
        Secrets(vec![digits(text.as_bytes()).unwrap()])
    }

    fn bytes(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..][..2], 16).unwrap()).collect()
    }

    /// RFC 9018, A.1 to A.3.
    #[test]
    fn the_test_vectors_come_out() {
        let secrets = secrets("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let client = "198.51.100.100".parse().unwrap();
        let first = secrets.reply(&bytes("2464c4abcf10c957"), client, 1_559_731_985).unwrap();
        let expected = bytes("2464c4abcf10c957010000005cf79f111f8130c3eee29480");
        assert_eq!((&first.data[..], first.proven), (&expected[..], false));
        // The same a little later, and a new one for one half an hour old.
        let again = secrets.reply(&first.data, client, 1_559_731_985 + 600).unwrap();
        assert_eq!((again.data, again.proven), (first.data, true));
        let renewed = secrets.reply(&first.data, client, 1_559_734_385).unwrap();
        let expected = bytes("2464c4abcf10c957010000005cf7a871d4a564a1442aca77");
        assert_eq!((&renewed.data[..], renewed.proven), (&expected[..], true));
    }

    #[test]
    fn only_our_own_recent_cookies_prove_an_address() {
        let secrets = secrets("00112233445566778899aabbccddeeff");
        let (client, now) = ("2001:db8::1".parse().unwrap(), 1_000_000);
        let good = secrets.reply(&[7; 8], client, now).unwrap().data;
        let proven = |data: &[u8], client: IpAddr, now: u32| secrets.reply(data, client, now).unwrap().proven;
        assert!(
            proven(&good, client, now)
                && proven(&good, client, now + 3600)
                && proven(&good, client, now - 300)
        );
        assert!(!proven(&good, client, now + 3601) && !proven(&good, client, now - 301));
        assert!(!proven(&good, "2001:db8::2".parse().unwrap(), now), "another client");
        assert!(!proven(&good[..16], client, now), "a server cookie of another length");
        for bit in 0..8 * good.len() {
            let mut wrong = good;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!proven(&wrong, client, now), "bit {bit}");
        }
        assert!(secrets.reply(&good[..7], client, now).is_none());
    }

    #[test]
    fn a_new_secret_accepts_the_old_ones_cookies() {
        let (client, now) = ("192.0.2.1".parse().unwrap(), 5000);
        let old = Secrets::random().unwrap();
        let shown = old.reply(&[1; 8], client, now).unwrap().data;
        let both = Secrets([Secrets::random().unwrap().0, old.0].concat());
        assert!(both.reply(&shown, client, now).unwrap().proven);
        assert!(!Secrets::random().unwrap().reply(&shown, client, now).unwrap().proven);
    }

    #[test]
    fn files_of_secrets_have_one_or_two() {
        let read = |text: &str| {
            let file = super::super::zone::file(text);
            let path = file.path().display().to_string();
            Secrets::read(file.path())
                .map(|secrets| secrets.0.len())
                .map_err(|error| error.to_string().replace(&path, "F"))
        };
        let good = "00112233445566778899aabbccddeeff\n";
        assert_eq!(read(good), Ok(1));
        assert_eq!(read(&format!("{good}\n  {good}")), Ok(2));
        assert!(read("").unwrap_err().starts_with("F: 0 secrets"));
        assert!(read(&good.repeat(3)).unwrap_err().starts_with("F: 3 secrets"));
        assert!(read(&format!("{good}0011\n")).unwrap_err().starts_with("F:2: expected 32"));
        assert!(read(&"é".repeat(16)).unwrap_err().starts_with("F:1: "));
    }
}
