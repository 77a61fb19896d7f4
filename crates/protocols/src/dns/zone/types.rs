//! The text of record types that `domain` does not read, or not whole, field by field, as their documents have it.
//!
//! ```text
//! AFSDB 1 db       [U16, Name]        ─▸ wire form of the data; `entry` writes it as `\# LENGTH HEX`
//! ```

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::str::FromStr;

use domain::base::Name;
use domain::base::iana::Rtype;
use domain::utils::{base16, base64};

use super::fields;
use super::text::Token;

mod bitmap;
mod hosts;
mod location;
mod params;
mod prefixes;

pub(super) use self::params::are_right as are_params;

/// A field of a type's text.
#[derive(Clone, Copy)]
enum Field {
    U8,
    U16,
    U32,
    /// A DNSSEC algorithm, number or mnemonic.
    Algorithm,
    /// A certificate's type, number or mnemonic (RFC 4398, 2.1).
    Certificate,
    /// A name, which the caller has made absolute.
    Name,
    /// A character string.
    String,
    /// One character string or more, to the end.
    Strings,
    /// A character string that need not be there, at the end.
    LastString,
    /// A text without a length, in one word (RFC 7553).
    Text,
    Ipv4,
    /// Hexadecimal bytes joined by `-`, so many (RFC 7043).
    Eui(usize),
    /// Four groups of hexadecimal digits (RFC 6742).
    Locator,
    /// Base 64, to the end.
    Base64,
    /// Hexadecimal digits, to the end.
    Hex,
    /// `0x` and hexadecimal digits with dots anywhere (RFC 1706).
    Nsap,
    /// A place on the earth (RFC 1876).
    Location,
    /// Address prefixes (RFC 3123).
    Prefixes,
    /// Service parameters (RFC 9460).
    Params,
    /// Types by their names (RFC 7477).
    Types,
    /// An address and its services (RFC 1035).
    Services,
    /// A multicast relay (RFC 8777).
    Relay,
    /// A host's identity (RFC 8005).
    Identity,
}

/// The fields of a type that is read here.
fn fields_of(rtype: Rtype) -> Option<&'static [Field]> {
    use Field::{
        Algorithm, Base64, Certificate, Eui, Hex, Identity, Ipv4, LastString, Location, Locator, Name, Nsap,
        Params, Prefixes, Relay, Services, String, Strings, Text, Types, U8, U16, U32,
    };

    Some(match rtype {
        Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP => &[U16, Name],
        Rtype::PX => &[U16, Name, Name],
        Rtype::TALINK => &[Name, Name],
        Rtype::NSAPPTR => &[Name],
        Rtype::X25 => &[String],
        Rtype::ISDN => &[String, LastString],
        Rtype::SPF | Rtype::NINFO | Rtype::AVC | Rtype::RESINFO | Rtype::WALLET => &[Strings],
        Rtype::WKS => &[Services],
        Rtype::AMTRELAY => &[Relay],
        Rtype::HIP => &[Identity],
        Rtype::CSYNC => &[U32, U16, Types],
        Rtype::EID | Rtype::NIMLOC => &[Hex],
        Rtype::GPOS => &[String, String, String],
        Rtype::EUI48 => &[Eui(6)],
        Rtype::EUI64 => &[Eui(8)],
        Rtype::NID | Rtype::L64 => &[U16, Locator],
        Rtype::L32 => &[U16, Ipv4],
        Rtype::URI => &[U16, U16, Text],
        Rtype::CERT => &[Certificate, U16, Algorithm, Base64],
        Rtype::DHCID => &[Base64],
        Rtype::SMIMEA => &[U8, U8, U8, Hex],
        Rtype::DLV | Rtype::TA => &[U16, Algorithm, U8, Hex],
        Rtype::KEY | Rtype::RKEY => &[U16, U8, Algorithm, Base64],
        Rtype::NSAP => &[Nsap],
        Rtype::LOC => &[Location],
        Rtype::APL => &[Prefixes],
        Rtype::SVCB | Rtype::HTTPS => &[U16, Name, Params],
        _ => return None,
    })
}

/// The type as it is written in files. `domain` leaves out a hyphen.
pub(super) fn name(rtype: Rtype) -> String {
    if rtype == Rtype::NSAPPTR { "NSAP-PTR".to_owned() } else { rtype.to_string() }
}

/// The type of this name.
pub(super) fn named(text: &str) -> Option<Rtype> {
    if text.eq_ignore_ascii_case("NSAP-PTR") { Some(Rtype::NSAPPTR) } else { text.parse().ok() }
}

/// Whether the text of this type is read here.
pub(super) fn is_read(rtype: Rtype) -> bool {
    fields_of(rtype).is_some()
}

/// The data in wire form. `absolute` makes names absolute.
///
/// # Errors
/// Which field is wrong, and what is expected there.
pub(super) fn wire(
    rtype: Rtype,
    tokens: &[Token<'_>],
    absolute: impl Fn(&Token<'_>) -> Result<Vec<u8>, String>,
) -> Result<Vec<u8>, String> {
    let mut wire = Vec::new();
    let mut rest = tokens;
    // What is wrong with a name says more than that another one is expected.
    let why = Cell::new(None);
    let absolute = |token: &Token<'_>| absolute(token).inspect_err(|wrong| why.set(Some(wrong.clone())));
    for field in fields_of(rtype).unwrap_or_default() {
        rest = field.append(rest, &absolute, &mut wire).map_err(|expected| {
            if let Some(why) = why.take() {
                return format!("{}: {why}", name(rtype));
            }
            let found =
                rest.first().map_or_else(|| "the end".to_owned(), |token| format!("`{}`", token.shown()));
            format!("{}: expected {expected}, found {found}", name(rtype))
        })?;
    }
    match rest.first() {
        None => Ok(wire),
        Some(extra) => Err(format!("{}: `{}` is too much: remove it", name(rtype), extra.shown())),
    }
}

impl Field {
    /// Appends the field that `tokens` begin with; returns the tokens after it.
    fn append<'a, 't>(
        self,
        tokens: &'a [Token<'t>],
        absolute: &impl Fn(&Token<'_>) -> Result<Vec<u8>, String>,
        wire: &mut Vec<u8>,
    ) -> Result<&'a [Token<'t>], String> {
        let to_name = |token: &Token<'_>| {
            let name = absolute(token)?;
            let name = std::str::from_utf8(&name).ok().and_then(|name| Name::<Vec<u8>>::from_str(name).ok());
            name.map(Name::into_octets).ok_or_else(|| Self::Name.expected())
        };
        if self.append_all(tokens, &to_name, wire)? {
            return Ok(&[]);
        }
        if matches!(self, Self::LastString) && tokens.is_empty() {
            return Ok(tokens);
        }
        let (token, rest) = tokens.split_first().ok_or_else(|| self.expected())?;
        let text = token.shown();
        let wrong = || self.expected();
        match self {
            Self::U8 => wire.push(number(&text).ok_or_else(wrong)?),
            Self::U16 => wire.extend(number::<u16>(&text).ok_or_else(wrong)?.to_be_bytes()),
            Self::U32 => wire.extend(number::<u32>(&text).ok_or_else(wrong)?.to_be_bytes()),
            Self::Algorithm => {
                wire.push(number(&text).or_else(|| fields::algorithm_number(token.text)).ok_or_else(wrong)?);
            }
            Self::Certificate => {
                wire.extend(number(&text).or_else(|| certificate(&text)).ok_or_else(wrong)?.to_be_bytes());
            }
            Self::Name => wire.extend(to_name(token)?),
            Self::String | Self::LastString => append_string(token, wire).ok_or_else(wrong)?,
            Self::Text => {
                wire.extend(unescaped(token.text).ok_or_else(wrong)?);
            }
            Self::Ipv4 => wire.extend(text.parse::<Ipv4Addr>().map_err(|_| wrong())?.octets()),
            Self::Eui(len) => {
                let bytes: Option<Vec<u8>> = text.split('-').map(hex_byte).collect();
                wire.extend(bytes.filter(|bytes| bytes.len() == len).ok_or_else(wrong)?);
            }
            Self::Locator => {
                let group = |group: &str| {
                    let digits =
                        (1..=4).contains(&group.len()) && group.bytes().all(|byte| byte.is_ascii_hexdigit());
                    digits.then(|| u16::from_str_radix(group, 16).ok()).flatten()
                };
                let groups: Option<Vec<u16>> = text.split(':').map(group).collect();
                let groups = groups.filter(|groups| groups.len() == 4).ok_or_else(wrong)?;
                wire.extend(groups.into_iter().flat_map(u16::to_be_bytes));
            }
            Self::Nsap => {
                let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).ok_or_else(wrong)?;
                let bytes = base16::decode_vec(&digits.replace('.', "")).map_err(|_| wrong())?;
                wire.extend_from_slice(&Some(bytes).filter(|bytes| !bytes.is_empty()).ok_or_else(wrong)?);
            }
            Self::Strings | Self::Base64 | Self::Hex | Self::Location | Self::Prefixes | Self::Params => {}
            Self::Types | Self::Services | Self::Relay | Self::Identity => {}
        }
        Ok(rest)
    }

    /// Appends a field of all tokens to the end; `false` if it is another one.
    fn append_all(
        self,
        tokens: &[Token<'_>],
        to_name: hosts::ToName<'_>,
        wire: &mut Vec<u8>,
    ) -> Result<bool, String> {
        let wrong = || self.expected();
        let joined = || tokens.iter().map(Token::shown).collect::<String>();
        let some = |bytes: Vec<u8>| Some(bytes).filter(|bytes| !bytes.is_empty()).ok_or_else(wrong);
        match self {
            Self::Base64 => wire.extend(some(base64::decode(&joined()).map_err(|_| wrong())?)?),
            Self::Hex => wire.extend(some(base16::decode_vec(&joined()).map_err(|_| wrong())?)?),
            Self::Location => wire.extend(location::wire(tokens).ok_or_else(wrong)?),
            Self::Params => {
                let params = params::wire(tokens);
                wire.extend(params.map_err(|why| format!("{} ({why})", self.expected()))?);
            }
            Self::Prefixes => {
                for token in tokens {
                    wire.extend(prefixes::wire(&token.shown()).ok_or_else(wrong)?);
                }
            }
            Self::Types => {
                let types: Option<BTreeSet<u16>> =
                    tokens.iter().map(|token| named(&token.shown()).map(Rtype::to_int)).collect();
                wire.extend(bitmap::wire(&types.ok_or_else(wrong)?));
            }
            Self::Services => wire.extend(hosts::services(tokens)?),
            Self::Relay => wire.extend(hosts::relay(tokens, to_name)?),
            Self::Identity => wire.extend(hosts::identity(tokens, to_name)?),
            Self::Strings => {
                if tokens.is_empty() {
                    return Err(wrong());
                }
                tokens.iter().try_for_each(|token| append_string(token, wire)).ok_or_else(wrong)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What belongs there, for a message.
    fn expected(self) -> String {
        let what = match self {
            Self::U8 => "a number from 0 to 255",
            Self::U16 => "a number from 0 to 65535",
            Self::U32 => "a number from 0 to 4294967295",
            Self::Algorithm => "an algorithm such as 8 or RSASHA256",
            Self::Certificate => "a certificate's type such as 1 or PKIX",
            Self::Name => "a name",
            Self::String | Self::Strings | Self::LastString => "a text of at most 255 bytes",
            Self::Text => "a text",
            Self::Ipv4 => "an IPv4 address",
            Self::Eui(6) => "six bytes such as 00-00-5e-00-53-2a",
            Self::Eui(_) => "eight bytes such as 00-00-5e-ef-10-00-00-2a",
            Self::Locator => "four groups of hexadecimal digits such as 2001:db8:1140:1000",
            Self::Base64 => "base 64",
            Self::Hex => "hexadecimal digits",
            Self::Nsap => "0x and hexadecimal digits",
            Self::Location => "a location such as 52 22 23.000 N 4 53 32.000 E -2.00m",
            Self::Prefixes => "prefixes such as 1:192.0.2.0/24 or !2:2001:db8::/32",
            Self::Params => "parameters such as alpn=h2,h3 port=443",
            Self::Types => "types such as A NS AAAA",
            Self::Services => "an address, a protocol and ports",
            Self::Relay => "a relay",
            Self::Identity => "an identity",
        };
        what.to_owned()
    }
}

/// A number in digits alone.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn hex_byte(text: &str) -> Option<u8> {
    // One digit is enough for BIND and NSD.
    let digits = matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u8::from_str_radix(text, 16).ok()).flatten()
}

/// A certificate's type by its mnemonic (RFC 4398, 2.1).
fn certificate(text: &str) -> Option<u16> {
    const TYPES: [(&str, u16); 10] = [
        ("PKIX", 1),
        ("SPKI", 2),
        ("PGP", 3),
        ("IPKIX", 4),
        ("ISPKI", 5),
        ("IPGP", 6),
        ("ACPKIX", 7),
        ("IACPKIX", 8),
        ("URI", 253),
        ("OID", 254),
    ];
    TYPES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, number)| *number)
}

/// A character string: its length, and what its escapes stand for.
fn append_string(token: &Token<'_>, wire: &mut Vec<u8>) -> Option<()> {
    let text = unescaped(token.text)?;
    wire.push(u8::try_from(text.len()).ok()?);
    wire.extend_from_slice(&text);
    Some(())
}

/// What a text's escapes stand for (RFC 1035, 5.1): `\DDD` a byte, `\X` the letter itself.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if *byte != b'\\' {
            bytes.push(*byte);
            at += 1;
            continue;
        }
        let next = *text.get(at + 1)?;
        if next.is_ascii_digit() {
            let digits = text.get(at + 1..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
            let value = digits.iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(digit - b'0'));
            bytes.push(u8::try_from(value).ok()?);
            at += 4;
        } else {
            bytes.push(next);
            at += 2;
        }
    }
    Some(bytes)
}
