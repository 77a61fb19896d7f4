//! Whom the server answers: a secret per network, chosen by the longest prefix of the source address.
//!
//! ```text
//! # PREFIX        SECRET            exception
//! 192.0.2.7       "a secret"
//! 10.0.0.0/8      xyzzy5461
//! 2001:db8::/32   another-secret    no-message-authenticator
//! ```
//! A lookup costs a binary search for each length of prefix in the file, from the longest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use super::DEFAULT_SECRET;
use super::secret::Secret;
use super::text::{self, FileError, LineError, Token};

/// The word of a file that makes the Message-Authenticator optional.
const EXCEPTION: &str = "no-message-authenticator";

/// A network whose hosts share a secret with the server.
#[derive(Debug, Clone)]
pub struct Client {
    /// The secret.
    pub secret: Secret,
    /// Whether an Access-Request without Message-Authenticator is dropped. Without this, an attacker between client and
    /// server can forge replies (CVE-2024-3596).
    pub needs_message_authenticator: bool,
}

/// The clients of a server.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    v4: Networks,
    v6: Networks,
}

/// Networks of one family by length of prefix, from the longest.
#[derive(Debug, Clone, Default)]
struct Networks(Vec<(u32, Vec<(u128, Client)>)>);

impl Clients {
    /// Reads a file of clients.
    ///
    /// # Errors
    /// The file cannot be read, or the line that is wrong.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        text::read(path, Self::from_lines)
    }

    /// Clients from the text of a file.
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        Self::from_lines(text).map_err(|error| error.to_string())
    }

    fn from_lines(text: &[u8]) -> Result<Self, LineError> {
        let mut all = BTreeMap::new();
        for numbered in text::lines(text) {
            let (line, text) = numbered?;
            let failed = |reason| LineError { line, reason };
            let Some((prefix, client)) = client(text).map_err(failed)? else { continue };
            if let Some((first, _)) = all.get(&prefix) {
                return Err(failed(format!("{prefix} is already on line {first}")));
            }
            all.insert(prefix, (line, client));
        }
        let mut clients = Self::default();
        // Sorted by family, from the longest prefix, and by network: each length is one sorted list.
        for (prefix, (_, client)) in all {
            let networks = if prefix.v6 { &mut clients.v6.0 } else { &mut clients.v4.0 };
            let entry = (prefix.network, client);
            match networks.last_mut() {
                Some((host_bits, list)) if *host_bits == prefix.host_bits => list.push(entry),
                _ => networks.push((prefix.host_bits, vec![entry])),
            }
        }
        Ok(clients)
    }

    /// Clients on this host, with the secret of FreeRADIUS's examples: of a server without a file.
    #[must_use]
    pub fn local() -> Self {
        let client =
            || Client { secret: Secret::new(DEFAULT_SECRET.as_bytes()), needs_message_authenticator: true };
        let networks = |host_bits, network| Networks(vec![(host_bits, vec![(network, client())])]);
        Self { v4: networks(24, 127 << 24), v6: networks(0, 1) }
    }

    /// Number of networks.
    pub(super) fn count(&self) -> usize {
        [&self.v4, &self.v6].iter().flat_map(|networks| &networks.0).map(|(_, list)| list.len()).sum()
    }

    /// The client that `address` belongs to.
    #[inline]
    #[must_use]
    pub fn find(&self, address: IpAddr) -> Option<&Client> {
        let (networks, bits) = match address {
            IpAddr::V4(v4) => (&self.v4, u128::from(v4.to_bits())),
            IpAddr::V6(v6) => (&self.v6, v6.to_bits()),
        };
        networks.0.iter().find_map(|(host_bits, list)| {
            let network = clear(bits, *host_bits);
            let place = list.binary_search_by_key(&network, |(network, _)| *network).ok()?;
            list.get(place).map(|(_, client)| client)
        })
    }
}

/// A network, in the order of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    v6: bool,
    /// Bits after the prefix.
    host_bits: u32,
    network: u128,
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.v6 {
            write!(f, "{}/{}", std::net::Ipv6Addr::from_bits(self.network), 128 - self.host_bits)
        } else {
            write!(f, "{}/{}", std::net::Ipv4Addr::from_bits(self.network as u32), 32 - self.host_bits)
        }
    }
}

impl Prefix {
    /// An address, or an address and the length of its prefix.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{}` is not a network; expected ADDRESS or ADDRESS/LENGTH", text.escape_debug());
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (v6, bits, width) = match address {
            IpAddr::V4(v4) => (false, u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (true, v6.to_bits(), 128),
        };
        let len = len.map_or(Ok(width), |len| len.parse().map_err(|_| wrong()))?;
        let host_bits = u32::checked_sub(width, len)
            .ok_or_else(|| format!("prefix length {len} is too long for {address}: at most {width}"))?;
        let found = Self { v6, host_bits, network: clear(bits, host_bits) };
        if found.network != bits {
            return Err(format!("{text} has bits set after its prefix; did you mean {found}?"));
        }
        Ok(found)
    }
}

/// `bits` without the lowest `host_bits`.
fn clear(bits: u128, host_bits: u32) -> u128 {
    bits & u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

/// The client of a line; `None` if it is blank.
fn client(line: &str) -> Result<Option<(Prefix, Client)>, String> {
    let mut tokens = text::tokens(line)?.into_iter();
    let Some(prefix) = tokens.next() else { return Ok(None) };
    let prefix = match prefix {
        Token::Word(text) | Token::Quoted(text) => Prefix::parse(&text)?,
        other => return Err(format!("expected a network instead of {other}")),
    };
    let secret = tokens.next().ok_or_else(|| format!("{prefix} has no secret"))?;
    let secret = match secret {
        Token::Word(text) | Token::Quoted(text) if !text.is_empty() => text,
        // A secret may have any character, so its text is not printed.
        Token::Quoted(_) => return Err(format!("the secret of {prefix} is empty")),
        _ => return Err(format!("quote the secret of {prefix}: it has characters with a meaning here")),
    };
    let needs_message_authenticator = match tokens.next() {
        None => true,
        Some(Token::Word(word)) if word == EXCEPTION => false,
        Some(Token::Word(_)) => {
            return Err(format!(
                "expected {EXCEPTION} or nothing after the secret of {prefix}; quote a secret with spaces"
            ));
        }
        Some(_) => {
            return Err(format!("quote the secret of {prefix}: it has characters with a meaning here"));
        }
    };
    if tokens.next().is_some() {
        return Err(format!("expected nothing after {EXCEPTION}"));
    }
    Ok(Some((prefix, Client { secret: Secret::new(secret.as_bytes()), needs_message_authenticator })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the secrets `candidates` the client at `address` has: a secret shows itself only by what it signs.
    fn secret_of(clients: &Clients, address: &str, candidates: &[&str]) -> Option<String> {
        let client = clients.find(address.parse().unwrap())?;
        let mut packet = [0; 20];
        client.secret.authenticate(&mut packet, &[0; 16]).unwrap();
        let same = |text: &&&str| Secret::new(text.as_bytes()).has_authenticated(&packet, &[0; 16]);
        Some((*candidates.iter().find(same).expect("one of them")).to_owned())
    }

    #[test]
    fn the_longest_prefix_counts() {
        let text =
            b"# comment\n\n10.0.0.0/8 a\n10.1.0.0/16 \"b c\" # more\n10.1.2.3 d no-message-authenticator\n\
                     10.1.2.0/24 e\n10.200.0.0/16 f\n2001:db8::/32 g\n2001:db8::7/128 h\n0.0.0.0/0 i\n";
        let clients = Clients::parse(text).unwrap();
        let secrets = ["a", "b c", "d", "e", "f", "g", "h", "i"];
        for (address, secret) in [
            ("10.2.0.1", "a"),
            ("10.1.9.9", "b c"),
            ("10.1.2.3", "d"),
            ("10.1.2.4", "e"),
            ("10.200.1.1", "f"),
            ("11.0.0.1", "i"),
            ("2001:db8::6", "g"),
            ("2001:db8::7", "h"),
        ] {
            assert_eq!(secret_of(&clients, address, &secrets).as_deref(), Some(secret), "{address}");
            let needs = clients.find(address.parse().unwrap()).unwrap().needs_message_authenticator;
            assert_eq!(needs, secret != "d", "{address}");
        }
        assert!(clients.find("2001:db9::1".parse().unwrap()).is_none());
        let without_default = Clients::parse(b"10.0.0.0/8 a").unwrap();
        assert!(without_default.find("11.0.0.1".parse().unwrap()).is_none());
        assert!(without_default.find("::a00:1".parse().unwrap()).is_none(), "families are apart");
    }

    #[test]
    fn without_a_file_this_host_is_the_client() {
        let clients = Clients::local();
        for address in ["127.0.0.1", "127.255.0.9", "::1"] {
            assert_eq!(secret_of(&clients, address, &["testing123"]).as_deref(), Some("testing123"));
        }
        for address in ["128.0.0.1", "126.0.0.1", "::2", "::", "10.0.0.1"] {
            assert!(clients.find(address.parse().unwrap()).is_none(), "{address}");
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, reason) in [
            ("\n10.0.0.0/8", "line 2: 10.0.0.0/8 has no secret"),
            ("ten secret", "line 1: `ten` is not a network; expected ADDRESS or ADDRESS/LENGTH"),
            ("10.0.0.0/x s", "line 1: `10.0.0.0/x` is not a network; expected ADDRESS or ADDRESS/LENGTH"),
            ("10.0.0.0/33 s", "line 1: prefix length 33 is too long for 10.0.0.0: at most 32"),
            ("::/129 s", "line 1: prefix length 129 is too long for ::: at most 128"),
            ("10.0.0.1/8 s", "line 1: 10.0.0.1/8 has bits set after its prefix; did you mean 10.0.0.0/8?"),
            ("10.0.0.0/8 a\n10.0.0.0/8 b", "line 2: 10.0.0.0/8 is already on line 1"),
            ("10.0.0.1 \"\"", "line 1: the secret of 10.0.0.1/32 is empty"),
            (
                "10.0.0.1 a,b",
                "line 1: quote the secret of 10.0.0.1/32: it has characters with a meaning here",
            ),
            (
                "10.0.0.1 a b",
                "line 1: expected no-message-authenticator or nothing after the secret of 10.0.0.1/32; \
                 quote a secret with spaces",
            ),
            (
                "10.0.0.1 a no-message-authenticator b",
                "line 1: expected nothing after no-message-authenticator",
            ),
            ("10.0.0.1 \"a", "line 1: a quote is not closed on this line"),
            (", a", "line 1: expected a network instead of `,`"),
        ] {
            assert_eq!(Clients::parse(text.as_bytes()).map(|_| ()), Err(reason.to_owned()));
        }
    }
}
