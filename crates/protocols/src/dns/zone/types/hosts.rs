//! The texts of types whose fields say what follows them: WKS (RFC 1035, 3.4.2), AMTRELAY (RFC 8777, 4.3), HIP (RFC
//! 8005, 6).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use domain::utils::{base16, base64};

use super::super::text::Token;
use super::{bitmap, number};

/// Makes a name absolute, in wire form.
pub(super) type ToName<'a> = &'a dyn Fn(&Token<'_>) -> Result<Vec<u8>, String>;

/// Services with a name, of those that RFC 1010 has for WKS. Others are written as numbers: names elsewhere differ from
/// machine to machine.
const SERVICES: [(&str, u16); 12] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("time", 37),
    ("domain", 53),
    ("tftp", 69),
    ("finger", 79),
    ("http", 80),
    ("pop3", 110),
    ("nntp", 119),
];

/// `ADDRESS PROTOCOL PORT...`
pub(super) fn services(tokens: &[Token<'_>]) -> Result<Vec<u8>, String> {
    let [address, protocol, ports @ ..] = tokens else {
        return Err("an address, a protocol and ports such as 192.0.2.1 tcp 25 53".into());
    };
    let address: Ipv4Addr = address.shown().parse().map_err(|_| "an IPv4 address".to_owned())?;
    let protocol = match protocol.shown().to_ascii_lowercase().as_str() {
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        text => number(text),
    };
    let mut wire = address.octets().to_vec();
    wire.push(protocol.ok_or("a protocol: tcp, udp, icmp or a number")?);
    let port = |token: &Token<'_>| {
        let text = token.shown();
        let named = SERVICES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        named.map(|(_, port)| *port).or_else(|| number(&text))
    };
    let ports: Option<BTreeSet<u16>> = ports.iter().map(port).collect();
    let ports = ports.ok_or("ports such as 25 (few have names here)")?;
    if let Some(last) = ports.last() {
        let start = wire.len();
        wire.resize(start + usize::from(last / 8) + 1, 0);
        bitmap::set(&mut wire[start..], ports.iter().copied());
    }
    Ok(wire)
}

/// `PRECEDENCE DISCOVERY TYPE RELAY`
pub(super) fn relay(tokens: &[Token<'_>], to_name: ToName<'_>) -> Result<Vec<u8>, String> {
    let [precedence, discovery, kind, relay] = tokens else {
        return Err("precedence, 0 or 1, a type and a relay such as 10 0 1 192.0.2.1".into());
    };
    let precedence: u8 = number(&precedence.shown()).ok_or("a number from 0 to 255")?;
    let discovery: u8 =
        number(&discovery.shown()).filter(|bit| *bit <= 1).ok_or("0 or 1 after the precedence")?;
    let kind: u8 = number(&kind.shown()).ok_or("a relay's type from 0 to 3")?;
    let text = relay.shown();
    let relay = match kind {
        0 if relay.is(".") => Vec::new(),
        0 => return Err("a dot for no relay".into()),
        1 => text.parse::<Ipv4Addr>().map_err(|_| "an IPv4 address".to_owned())?.octets().to_vec(),
        2 => text.parse::<Ipv6Addr>().map_err(|_| "an IPv6 address".to_owned())?.octets().to_vec(),
        3 => to_name(relay)?,
        _ => return Err("a relay's type from 0 to 3".into()),
    };
    let mut wire = vec![precedence, discovery << 7 | kind];
    wire.extend(relay);
    Ok(wire)
}

/// `ALGORITHM IDENTITY KEY SERVER...`
pub(super) fn identity(tokens: &[Token<'_>], to_name: ToName<'_>) -> Result<Vec<u8>, String> {
    let [algorithm, identity, key, servers @ ..] = tokens else {
        return Err("an algorithm, an identity in hexadecimal digits, a key in base 64".into());
    };
    let algorithm: u8 = number(&algorithm.shown()).ok_or("an algorithm's number")?;
    let identity = base16::decode_vec(&identity.shown()).ok().filter(|bytes| !bytes.is_empty());
    let identity = identity.ok_or("an identity in hexadecimal digits")?;
    let key: Vec<u8> = base64::decode(&key.shown())
        .ok()
        .filter(|key: &Vec<u8>| !key.is_empty())
        .ok_or("a key in base 64")?;
    let len = u8::try_from(identity.len()).map_err(|_| "an identity of at most 255 bytes".to_owned())?;
    let key_len = u16::try_from(key.len()).map_err(|_| "a key of at most 65,535 bytes".to_owned())?;
    let mut wire = vec![len, algorithm];
    wire.extend(key_len.to_be_bytes());
    wire.extend(identity);
    wire.extend(key);
    for server in servers {
        wire.extend(to_name(server)?);
    }
    Ok(wire)
}
