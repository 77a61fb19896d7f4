//! Service parameters of SVCB and HTTPS (RFC 9460, 2.1, and appendix A for lists with escapes).
//!
//! ```text
//! alpn="h2,f\\\\oo\\,bar"     key and value ─▸ escapes of a text ─▸ escapes of a list ─▸ h2 and f\oo,bar, in the order of keys
//! key65399=hello no-default-alpn
//! ```

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use domain::utils::base64;

use super::super::text::Token;
use super::{number, unescaped};

/// Keys by name (IANA's registry).
const KEYS: [&str; 9] =
    ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp"];
const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;

/// The parameters in wire form.
///
/// # Errors
/// What is wrong with which.
pub(super) fn wire(tokens: &[Token<'_>]) -> Result<Vec<u8>, String> {
    let mut params = BTreeMap::new();
    let mut rest = tokens;
    while let Some((token, mut after)) = rest.split_first() {
        let shown = token.shown();
        let text = token.text;
        let (key, mut value) = match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        // As in BIND, a parameter may follow the end of a quoted value at once.
        let mut glued = after.first().is_some_and(|next| next.joined);
        if let (Some(b""), Some((next, further))) = (value, after.split_first())
            && next.quoted
            && next.joined
        {
            (value, after, glued) = (Some(next.text), further, false);
        }
        if token.quoted || glued {
            return Err(format!("{shown}: a quote begins after `=` only"));
        }
        let (key, named) =
            key_of(key).ok_or_else(|| format!("{shown}: an unknown key; others are written key65399=..."))?;
        let value =
            value.map(|text| unescaped(text).ok_or_else(|| format!("{shown}: an escape that is none")));
        let value = value.transpose()?;
        let data = if named { data(key, value) } else { Some(value.unwrap_or_default()) };
        let data = data.filter(|data| is_value(key, data));
        let data = data.ok_or_else(|| format!("{shown}: not such a value"))?;
        if params.insert(key, data).is_some() {
            return Err(format!("{shown}: the key is there twice"));
        }
        rest = after;
    }
    complete(&params)?;
    let mut wire = Vec::new();
    for (key, data) in params {
        let len = u16::try_from(data.len()).map_err(|_| "a value longer than 65,535 bytes".to_owned())?;
        wire.extend(key.to_be_bytes());
        wire.extend(len.to_be_bytes());
        wire.extend(data);
    }
    Ok(wire)
}

/// A key's number, and whether it was given by its name.
fn key_of(text: &[u8]) -> Option<(u16, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(at) = KEYS.iter().position(|name| *name == text) {
        return Some((u16::try_from(at).ok()?, true));
    }
    let digits = text.strip_prefix("key").filter(|digits| *digits == "0" || !digits.starts_with('0'))?;
    number(digits).map(|key| (key, false))
}

/// The value of a key that is known, in wire form.
fn data(key: u16, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let text = |value: Option<Vec<u8>>| value.filter(|value| !value.is_empty());
    match key {
        MANDATORY => {
            let keys: Option<Vec<u16>> =
                list(&text(value)?)?.iter().map(|key| key_of(key).map(|(key, _)| key)).collect();
            let mut keys = keys?;
            keys.sort_unstable();
            let (len, first) = (keys.len(), keys[0]);
            keys.dedup();
            (keys.len() == len && first != MANDATORY)
                .then(|| keys.into_iter().flat_map(u16::to_be_bytes).collect())
        }
        ALPN => {
            let mut data = Vec::new();
            for protocol in list(&text(value)?)? {
                data.push(u8::try_from(protocol.len()).ok().filter(|len| *len > 0)?);
                data.extend(protocol);
            }
            Some(data)
        }
        NO_DEFAULT_ALPN | 8 => value.is_none_or(|value| value.is_empty()).then(Vec::new),
        3 => Some(number::<u16>(std::str::from_utf8(&value?).ok()?)?.to_be_bytes().to_vec()),
        4 => addresses(&text(value)?, |address: Ipv4Addr| address.octets().to_vec()),
        // Empty too, as BIND, NSD and Knot take it.
        5 => base64::decode(std::str::from_utf8(&value.unwrap_or_default()).ok()?).ok(),
        6 => addresses(&text(value)?, |address: Ipv6Addr| address.octets().to_vec()),
        _ => text(value),
    }
}

/// Whether they are the value of this key in wire form (RFC 9460, 7 and 8; RFC 9461; RFC 9540), however it was written.
fn is_value(key: u16, data: &[u8]) -> bool {
    match key {
        MANDATORY => {
            let (keys, rest) = data.as_chunks::<2>();
            // In order, none twice, and not itself.
            rest.is_empty()
                && keys.first().is_some_and(|key| *key != [0, 0])
                && keys.is_sorted_by(|a, b| a < b)
        }
        ALPN => are_protocols(data),
        NO_DEFAULT_ALPN | 8 => data.is_empty(),
        3 => data.len() == 2,
        4 => !data.is_empty() && data.len().is_multiple_of(4),
        6 => !data.is_empty() && data.len().is_multiple_of(16),
        7 => std::str::from_utf8(data).is_ok_and(has_query),
        _ => true,
    }
}

/// Whether a path is a relative URI template with the variable `dns` (RFC 9461, 5).
fn has_query(path: &str) -> bool {
    let expressions = path.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let mut variables = expressions.flat_map(|(expression, _)| {
        expression.trim_start_matches(|sign: char| !sign.is_alphanumeric()).split(',')
    });
    path.starts_with('/') && variables.any(|name| name == "dns")
}

/// Whether these are parameters in wire form: keys in order, each with its value, and all that must be there.
pub(in super::super) fn are_right(mut data: &[u8]) -> bool {
    let mut params = BTreeMap::new();
    while let Some(([k0, k1, l0, l1], rest)) = data.split_first_chunk::<4>() {
        let key = u16::from_be_bytes([*k0, *k1]);
        let Some((value, after)) = rest.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1]))) else {
            return false;
        };
        if params.last_key_value().is_some_and(|(last, _)| *last >= key) || !is_value(key, value) {
            return false;
        }
        params.insert(key, value.to_vec());
        data = after;
    }
    data.is_empty() && complete(&params).is_ok()
}

fn addresses<A: FromStr>(text: &[u8], octets: impl Fn(A) -> Vec<u8>) -> Option<Vec<u8>> {
    let all = list(text)?;
    let one = |text: &Vec<u8>| std::str::from_utf8(text).ok()?.parse().ok().map(&octets);
    all.iter().map(one).collect::<Option<Vec<_>>>().map(|all| all.concat())
}

/// The parts between commas; a backslash before a comma or a backslash stands for that.
fn list(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b',' => parts.push(Vec::new()),
            b'\\' => {
                let next = bytes.next().filter(|next| matches!(next, b',' | b'\\'))?;
                parts.last_mut()?.push(*next);
            }
            byte => parts.last_mut()?.push(*byte),
        }
    }
    Some(parts)
}

/// Whether what must be there with others is there with them (RFC 9460, 7.1.1 and 8).
fn complete(params: &BTreeMap<u16, Vec<u8>>) -> Result<(), String> {
    if params.contains_key(&NO_DEFAULT_ALPN) && !params.contains_key(&ALPN) {
        return Err("no-default-alpn without alpn".to_owned());
    }
    let mandatory = params.get(&MANDATORY).map(|keys| keys.as_chunks::<2>().0).unwrap_or_default();
    match mandatory.iter().map(|key| u16::from_be_bytes(*key)).find(|key| !params.contains_key(key)) {
        None => Ok(()),
        Some(key) => {
            let name =
                KEYS.get(usize::from(key)).map_or_else(|| format!("key{key}"), |name| (*name).to_owned());
            Err(format!("{name} is mandatory and not there"))
        }
    }
}

/// Whether it is a list of protocols, each with its length and none empty.
fn are_protocols(mut data: &[u8]) -> bool {
    let any = !data.is_empty();
    while let Some((&len, after)) = data.split_first() {
        match after.get(usize::from(len)..) {
            Some(rest) if len > 0 => data = rest,
            _ => return false,
        }
    }
    any
}
