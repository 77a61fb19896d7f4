//! Names and types of the attributes that a users file may add to a reply (RFC 2865, 5; RFC 2869; RFC 3162; RFC 4818).
//!
//! Every other attribute can be given by number, as in FreeRADIUS: `Attr-26 = 0x00000009...`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::items::Value;
use super::packet::{Kind, MAX_VALUE};

/// How a value is written in the file and in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    /// Text as it is.
    Text,
    /// `0x` and hexadecimal digits, or text as it is.
    Octets,
    /// `0x` and hexadecimal digits.
    Hex,
    /// A number of 32 bits, or the name of one.
    Integer(&'static [(&'static str, u32)]),
    /// An IPv4 address.
    Address,
    /// An IPv6 address.
    Address6,
    /// An IPv6 prefix.
    Prefix6,
}

const SERVICES: &[(&str, u32)] = &[
    ("Login-User", 1),
    ("Framed-User", 2),
    ("Callback-Login-User", 3),
    ("Callback-Framed-User", 4),
    ("Outbound-User", 5),
    ("Administrative-User", 6),
    ("NAS-Prompt-User", 7),
];

const ATTRIBUTES: &[(&str, u8, Type)] = &[
    ("Service-Type", 6, Type::Integer(SERVICES)),
    ("Framed-Protocol", 7, Type::Integer(&[("PPP", 1), ("SLIP", 2)])),
    ("Framed-IP-Address", 8, Type::Address),
    ("Framed-IP-Netmask", 9, Type::Address),
    (
        "Framed-Routing",
        10,
        Type::Integer(&[("None", 0), ("Broadcast", 1), ("Listen", 2), ("Broadcast-Listen", 3)]),
    ),
    ("Filter-Id", 11, Type::Text),
    ("Framed-MTU", 12, Type::Integer(&[])),
    ("Framed-Compression", 13, Type::Integer(&[("None", 0), ("Van-Jacobson-TCP-IP", 1)])),
    ("Login-IP-Host", 14, Type::Address),
    ("Reply-Message", 18, Type::Text),
    ("Framed-Route", 22, Type::Text),
    ("Class", 25, Type::Octets),
    ("Session-Timeout", 27, Type::Integer(&[])),
    ("Idle-Timeout", 28, Type::Integer(&[])),
    ("Termination-Action", 29, Type::Integer(&[("Default", 0), ("RADIUS-Request", 1)])),
    ("Acct-Interim-Interval", 85, Type::Integer(&[])),
    ("Framed-Pool", 88, Type::Text),
    ("Framed-IPv6-Prefix", 97, Type::Prefix6),
    ("Framed-IPv6-Route", 99, Type::Text),
    ("Framed-IPv6-Pool", 100, Type::Text),
    ("Delegated-IPv6-Prefix", 123, Type::Prefix6),
    ("Framed-IPv6-Address", 168, Type::Address6),
];

/// Attributes that the server computes or that belong into requests.
const RESERVED: [Kind; 8] = [
    Kind::USER_PASSWORD,
    Kind::CHAP_PASSWORD,
    Kind::STATE,
    Kind::PROXY_STATE,
    Kind::CHAP_CHALLENGE,
    Kind::EAP_MESSAGE,
    Kind::MESSAGE_AUTHENTICATOR,
    Kind::ACCT_STATUS_TYPE,
];

/// Appends attribute `name` with the value `written` to `attributes`, as in a packet.
///
/// # Errors
/// No such attribute, or not a value of it.
pub(super) fn append(name: &str, written: &Value, attributes: &mut Vec<u8>) -> Result<(), String> {
    let known = ATTRIBUTES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    let (kind, form) = match known {
        Some((_, kind, form)) => (*kind, *form),
        None => (by_number(name)?, Type::Hex),
    };
    let text = match form {
        Type::Text => &written.text().map_err(|reason| format!("{}: {reason}", name.escape_debug()))?,
        _ => written.raw(),
    };
    let value = value(form, text).map_err(|expected| {
        format!("\"{}\" is not a value of {}: expected {expected}", text.escape_debug(), name.escape_debug())
    })?;
    if value.is_empty() || value.len() > MAX_VALUE {
        let len = value.len();
        return Err(format!("{} has a value of {len} bytes: expected 1 to {MAX_VALUE}", name.escape_debug()));
    }
    attributes.extend([kind, value.len() as u8 + 2]);
    attributes.extend(value);
    Ok(())
}

/// The kind of `Attr-NUMBER`.
fn by_number(name: &str) -> Result<u8, String> {
    let digits = name.split_at_checked(5).filter(|(prefix, _)| prefix.eq_ignore_ascii_case("Attr-"));
    let number = digits.and_then(|(_, number)| number.parse::<u8>().ok()).filter(|kind| *kind > 0);
    let Some(kind) = number else {
        let name = name.escape_debug();
        return Err(format!(
            "unknown attribute {name}; for one without a name here, write Attr-NUMBER = 0xHEX"
        ));
    };
    if RESERVED.contains(&Kind(kind)) {
        return Err(format!("{name} cannot be set: the server computes it, or it belongs into requests"));
    }
    Ok(kind)
}

/// The bytes of a value; otherwise what was expected.
fn value(form: Type, text: &str) -> Result<Vec<u8>, String> {
    match form {
        Type::Text => Ok(text.into()),
        Type::Octets | Type::Hex => match text.strip_prefix("0x") {
            // FreeRADIUS resolves no escape here.
            None if text.contains('\\') => Err("0x and hexadecimal digits where it has a backslash".into()),
            None if form == Type::Octets => Ok(text.into()),
            None => Err("0x and hexadecimal digits, since its type is not known by its number".into()),
            Some(digits) => hex(digits).ok_or_else(|| "an even number of hexadecimal digits after 0x".into()),
        },
        Type::Integer(names) => {
            let named =
                names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| *number);
            // As FreeRADIUS reads it.
            let hexadecimal = || u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            let number = named.or_else(|| text.parse().ok()).or_else(hexadecimal);
            number.map(|number: u32| number.to_be_bytes().into()).ok_or_else(|| {
                let names: String = names.iter().map(|(name, _)| format!(" or {name}")).collect();
                format!("0 to {}{names}", u32::MAX)
            })
        }
        Type::Address => {
            let address = text.parse::<Ipv4Addr>().map_err(|_| "an IPv4 address")?;
            Ok(address.octets().into())
        }
        Type::Address6 => {
            let address = text.parse::<Ipv6Addr>().map_err(|_| "an IPv6 address")?;
            Ok(address.octets().into())
        }
        Type::Prefix6 => prefix(text).ok_or_else(|| "an IPv6 prefix such as 2001:db8:7::/48".into()),
    }
}

/// An IPv6 prefix: a zero byte, its length in bits, and as many bytes as it needs (RFC 3162, 2.3).
fn prefix(text: &str) -> Option<Vec<u8>> {
    let (address, len) = text.split_once('/')?;
    let (address, len) =
        (address.parse::<Ipv6Addr>().ok()?, len.parse::<u8>().ok().filter(|len| *len <= 128)?);
    // The bits behind the prefix are 0, as FreeRADIUS sends them.
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    let used = (address.to_bits() & mask).to_be_bytes().into_iter().take(usize::from(len).div_ceil(8));
    Some([0, len].into_iter().chain(used).collect())
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    let (pairs, []) = digits.as_deref()?.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(name: &str, text: &str) -> Result<Vec<u8>, String> {
        let mut attributes = Vec::new();
        append(name, &Value::plain(text), &mut attributes).map(|()| attributes)
    }

    #[test]
    fn values_have_the_form_of_their_attribute() {
        for (name, text, bytes) in [
            ("Reply-Message", "Hello", &b"\x12\x07Hello"[..]),
            ("Session-Timeout", "3600", &[27, 6, 0, 0, 14, 16]),
            ("Session-Timeout", "0xe10", &[27, 6, 0, 0, 14, 16]),
            ("service-type", "framed-user", &[6, 6, 0, 0, 0, 2]),
            ("Service-Type", "4000000000", &[6, 6, 0xee, 0x6b, 0x28, 0]),
            ("Framed-IP-Address", "192.0.2.10", &[8, 6, 192, 0, 2, 10]),
            ("Class", "0x00fF", &[25, 4, 0, 255]),
            ("Class", "gold", b"\x19\x06gold"),
            ("Attr-26", "0x00000009", &[26, 6, 0, 0, 0, 9]),
            ("Framed-IPv6-Prefix", "2001:db8:7::/48", &[97, 10, 0, 48, 0x20, 1, 0xd, 0xb8, 0, 7]),
            ("Delegated-IPv6-Prefix", "::/0", &[123, 4, 0, 0]),
            ("Framed-IPv6-Prefix", "2001:db8:7::1/47", &[97, 10, 0, 47, 0x20, 1, 0xd, 0xb8, 0, 6]),
            ("attr-25", "0x61", &[25, 3, 0x61]),
        ] {
            assert_eq!(encoded(name, text).as_deref(), Ok(bytes), "{name} {text}");
        }
        assert_eq!(encoded("Framed-IPv6-Address", "::1").map(|bytes| bytes.len()), Ok(18));
    }

    #[test]
    fn wrong_names_and_values_are_named() {
        for (name, text, reason) in [
            (
                "Colour",
                "1",
                "unknown attribute Colour; for one without a name here, write Attr-NUMBER = 0xHEX",
            ),
            (
                "Attr-256",
                "1",
                "unknown attribute Attr-256; for one without a name here, write Attr-NUMBER = 0xHEX",
            ),
            ("Attr-80", "0x00", "Attr-80 cannot be set: the server computes it, or it belongs into requests"),
            ("Idle-Timeout", "-1", "\"-1\" is not a value of Idle-Timeout: expected 0 to 4294967295"),
            (
                "Framed-Protocol",
                "x",
                "\"x\" is not a value of Framed-Protocol: expected 0 to 4294967295 or PPP or SLIP",
            ),
            (
                "Framed-IP-Address",
                "::1",
                "\"::1\" is not a value of Framed-IP-Address: expected an IPv4 address",
            ),
            (
                "Class",
                "0x123",
                "\"0x123\" is not a value of Class: expected an even number of hexadecimal digits after 0x",
            ),
            (
                "Attr-25",
                "abc",
                "\"abc\" is not a value of Attr-25: expected 0x and hexadecimal digits, since its type is not known by its number",
            ),
            (
                "Class",
                "a\\n",
                "\"a\\\\n\" is not a value of Class: expected 0x and hexadecimal digits where it has a backslash",
            ),
            ("Filter-Id", "", "Filter-Id has a value of 0 bytes: expected 1 to 253"),
            (
                "Framed-IPv6-Prefix",
                "::/129",
                "\"::/129\" is not a value of Framed-IPv6-Prefix: expected an IPv6 prefix such as 2001:db8:7::/48",
            ),
        ] {
            assert_eq!(encoded(name, text), Err(reason.to_owned()));
        }
        assert_eq!(encoded("Class", &"x".repeat(253)).map(|bytes| bytes.len()), Ok(255));
        encoded("Class", &"x".repeat(254)).unwrap_err();
    }
}
