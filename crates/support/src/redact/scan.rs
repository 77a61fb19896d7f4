//! Finds private data in any text.
//!
//! ```text
//!  runs of  0-9 A-Z a-z . : -        addresses, link-layer addresses, identifiers, interfaces named after an address
//!  words    delimited by anything but letters, digits and _    names of this host and of its users
//!  paths    below home directories
//!  serials  the value after `serial...=`
//! ```
//! It errs on the side of replacing: a four-part version number is taken for an address. Files of the kernel's own
//! numbers are therefore not scanned.

use std::net::{IpAddr, Ipv4Addr};

use super::{Kind, Redactor};

/// Characters that end a path in a text.
const ENDS: &[char] = &[' ', '\t', '\n', '\0', '"', '\'', ',', ';', ')', ']', '}', '\\'];

/// Replaces everything that is found.
pub(super) fn scan(redactor: &mut Redactor, text: &str) -> String {
    let text = serials(redactor, text);
    let text = homes(redactor, &text);
    let text = words(redactor, &text);
    let mut found = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let in_run = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-');
    while let Some(start) = rest.find(in_run) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c| !in_run(c)).unwrap_or(from.len());
        let (run_, after) = from.split_at(end);
        found.push_str(before);
        found.push_str(&run(redactor, run_));
        rest = after;
    }
    found + rest
}

/// One run: replaced as a whole, else part by part.
fn run(redactor: &mut Redactor, run: &str) -> String {
    // Without the period of a sentence or the colon of a label.
    let whole = run.trim_matches(['.', ':']);
    let at = run.find(whole).unwrap_or(0);
    // In "::1" and "fe80::" the colons belong to the address.
    if let Some(found) = known(redactor, run) {
        return found;
    }
    if whole.len() < run.len() && !whole.is_empty() {
        let (before, after) = (&run[..at], &run[at + whole.len()..]);
        return format!("{before}{}{after}", self::run(redactor, whole));
    }
    // An address after a label (`src:2001:db8::1`), before a port, in a range.
    for (at, sign) in run.char_indices().filter(|(_, c)| matches!(c, ':' | '-')) {
        if let Some(tail) = known(redactor, &run[at + 1..]) {
            return format!("{}{sign}{tail}", self::run(redactor, &run[..at]));
        }
    }
    for (at, sign) in run.char_indices().rev().filter(|(_, c)| matches!(c, ':' | '-')) {
        if let Some(head) = known(redactor, &run[..at]) {
            return format!("{head}{sign}{}", self::run(redactor, &run[at + 1..]));
        }
    }
    run.split_inclusive([':', '-'])
        .map(|part| {
            let bare = part.trim_end_matches([':', '-']);
            let found = known(redactor, bare).unwrap_or_else(|| between_dots(redactor, bare));
            found + &part[bare.len()..]
        })
        .collect()
}

/// Four numbers in a row within dotted text, and identifiers.
fn between_dots(redactor: &mut Redactor, run: &str) -> String {
    let parts: Vec<&str> = run.split('.').collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < parts.len() {
        let four = parts.get(at..at + 4).and_then(|four| four.join(".").parse::<Ipv4Addr>().ok());
        match four {
            Some(address) => {
                found.push(redactor.address(address.into()).to_string());
                at += 4;
            }
            None => {
                found.push(token(redactor, parts[at]).unwrap_or_else(|| parts[at].to_owned()));
                at += 1;
            }
        }
    }
    found.join(".")
}

/// The replacement of a run as a whole, if it is known.
fn known(redactor: &mut Redactor, run: &str) -> Option<String> {
    if let Some(found) = link(redactor, run).or_else(|| uuid(redactor, run)).or_else(|| token(redactor, run))
    {
        return Some(found);
    }
    let address: IpAddr = run.parse().ok()?;
    let other = redactor.address(address);
    // An unchanged address keeps its spelling: the `0::` of a control group parses as an address too.
    Some(if other == address { run.to_owned() } else { other.to_string() })
}

/// `02:00:00:00:00:01`, with dashes, or of more bytes.
fn link(redactor: &mut Redactor, run: &str) -> Option<String> {
    let sign = if run.contains(':') { ':' } else { '-' };
    let pairs: Vec<&str> = run.split(sign).collect();
    let hexadecimal = |pair: &&str| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
    if pairs.len() < 6 || !pairs.iter().all(hexadecimal) {
        return dotted(redactor, run);
    }
    let bytes: Vec<u8> = pairs.iter().filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
    let pairs: Vec<String> = redactor.link(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(pairs.join(&sign.to_string()))
}

/// `0200.0000.0001`, as `.link` files may have it.
fn dotted(redactor: &mut Redactor, run: &str) -> Option<String> {
    let parts: Vec<&str> = run.split('.').collect();
    if parts.len() != 3 || !parts.iter().all(|part| part.len() == 4) {
        return None;
    }
    let found = redactor.link(&hexadecimal(&parts.concat())?);
    let digits: Vec<String> = found.chunks(2).map(digits).collect();
    Some(digits.join("."))
}

/// `9c2f3a5e-0b1d-4c6f-8a7e-1d2c3b4a5f60`.
fn uuid(redactor: &mut Redactor, run: &str) -> Option<String> {
    let parts: Vec<&str> = run.split('-').collect();
    if parts.iter().map(|part| part.len()).ne([8, 4, 4, 4, 12]) {
        return None;
    }
    let found = redactor.identifier(&hexadecimal(&parts.concat())?, run);
    let text = digits(&found);
    let cut = [0, 8, 12, 16, 20, 32].windows(2).map(|ends| &text[ends[0]..ends[1]]).collect::<Vec<_>>();
    Some(cut.join("-"))
}

/// An identifier of a container or machine, or an interface that is named after its address (`enx0200000000a1`).
fn token(redactor: &mut Redactor, token: &str) -> Option<String> {
    if matches!(token.len(), 32 | 40 | 64) && token.bytes().any(|byte| byte.is_ascii_digit()) {
        return Some(digits(&redactor.identifier(&hexadecimal(token)?, token)));
    }
    let (kind, address) = token.split_at_checked(3).filter(|(kind, _)| kind.ends_with('x'))?;
    if address.len() != 12 || !kind.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    let found = redactor.link(&hexadecimal(address)?);
    Some(format!("{kind}{}", digits(&found)))
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let digits = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits { (0..text.len()).step_by(2).map(pair).collect() } else { None }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names of this host and its users.
fn words(redactor: &mut Redactor, text: &str) -> String {
    let mut text = text.to_owned();
    for (kind, word, other) in redactor.words.clone() {
        text = replaced(&text, &word, &other, || redactor.note(kind, &word, &other));
    }
    text
}

/// Replaces every occurrence of a whole word, case-insensitively.
pub(super) fn replaced(text: &str, word: &str, other: &str, mut noted: impl FnMut()) -> String {
    let lower = text.to_ascii_lowercase();
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in lower.match_indices(&word.to_ascii_lowercase()) {
        let end = at + word.len();
        let alone = !text[..at].ends_with(inside) && !text[end..].starts_with(inside);
        if alone && at >= done {
            found.push_str(&text[done..at]);
            found.push_str(other);
            noted();
            done = end;
        }
    }
    found + &text[done..]
}

/// Paths below home directories: the owner's name and all components up to the last are replaced.
fn homes(redactor: &mut Redactor, text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let homes = redactor.homes.clone();
        let first = homes.iter().filter_map(|(home, owner)| Some((rest.find(home.as_str())?, home, owner)));
        let Some((at, home, owner)) = first.min_by_key(|(at, home, _)| (*at, std::cmp::Reverse(home.len())))
        else {
            return found + rest;
        };
        let path = &rest[at..];
        let path = &path[..path.find(ENDS).unwrap_or(path.len())];
        found.push_str(&rest[..at]);
        rest = &rest[at + path.len()..];
        let below = &path[home.len()..];
        // `/home/` is shared: the next component is the owner.
        let (owner, below) = match owner {
            Some(owner) if below.is_empty() || below.starts_with('/') => {
                (owner.clone(), below.trim_start_matches('/'))
            }
            None => {
                let (name, below) = below.split_once('/').unwrap_or((below, ""));
                (redactor.user(name), below)
            }
            // `/root` in `/rootfs` is not a home.
            Some(_) => {
                found.push_str(path);
                continue;
            }
        };
        let last = below.rsplit('/').next().unwrap_or_default();
        let other = match (owner.is_empty(), last.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => format!("/home/{owner}"),
            (false, false) => format!("/home/{owner}/{last}"),
        };
        if other != path {
            redactor.note(Kind::HomePath, path, &other);
        }
        found.push_str(&other);
    }
}

/// `ATTRS{serial}=="..."`, `ID_SERIAL_SHORT=...`.
fn serials(redactor: &mut Redactor, text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut found = String::with_capacity(text.len());
    let mut done = 0;
    for (at, word) in lower.match_indices("serial") {
        let after = at + word.len();
        let key =
            text[after..].find(|c: char| !(c.is_ascii_alphabetic() || matches!(c, '_' | '}'))).unwrap_or(0);
        let sign = after + key;
        let value = text[sign..].trim_start_matches(['=', '"']);
        let start = text.len() - value.len();
        let end = start + value.find(ENDS).unwrap_or(value.len());
        if at < done || start == sign || !text[sign..].starts_with('=') || start == end {
            continue;
        }
        redactor.note(Kind::Identifier, &text[start..end], "serial");
        found.push_str(&text[done..start]);
        found.push_str("serial");
        done = end;
    }
    found + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    fn redactor() -> Redactor {
        let identity = Identity {
            hosts: vec!["ns1.example.org".into(), "ns1".into()],
            users: vec![("ada".into(), "/home/ada".into()), ("bob".into(), "/data/bob".into())],
        };
        Redactor::new(&[7; 16], &identity, false)
    }

    #[test]
    fn addresses_are_found_anywhere_in_a_text() {
        let mut redactor = redactor();
        let four = redactor.text("192.0.2.1");
        let six = redactor.text("2001:db8::1");
        assert_ne!((four.as_str(), six.as_str()), ("192.0.2.1", "2001:db8::1"));
        for (text, wanted) in [
            ("192.0.2.1:53", format!("{four}:53")),
            ("[2001:db8::1]:53", format!("[{six}]:53")),
            ("src:192.0.2.1:53", format!("src:{four}:53")),
            ("src:2001:db8::1", format!("src:{six}")),
            ("from-192.0.2.1.", format!("from-{four}.")),
            ("192.0.2.1-192.0.2.1", format!("{four}-{four}")),
            ("192.0.2.1/24, 2001:db8::1/64", format!("{four}/24, {six}/64")),
            ("a.192.0.2.1.b", format!("a.{four}.b")),
            ("fe80::%eth0", "fe80::%eth0".to_owned()),
        ] {
            let found = redactor.text(text);
            // The type of a link-local address is kept, the rest is not.
            let same = if text.starts_with("fe80") { found.starts_with("fe80::") } else { found == wanted };
            assert!(same, "{text}: {found}, not {wanted}");
        }
    }

    #[test]
    fn lookalikes_are_unchanged() {
        let mut redactor = redactor();
        for text in [
            "0::/user.slice\n",
            "4:cpu,cpuacct:/\n",
            "0000:3b:00.0",
            "127.0.0.1:53 [::1]:53 0.0.0.0",
            "12:30:00",
            "10-default.link",
            "ens1 enxyz ns10 xns1 ns1_a bobby",
            "ATTR{serial_number_of_nothing}",
            "",
        ] {
            assert_eq!(redactor.text(text), text);
        }
    }

    #[test]
    fn names_homes_and_identifiers() {
        let mut redactor = redactor();
        for (text, wanted) in [
            ("at NS1.example.org, ns1: ada's", "at host-1, host-2: user-1's"),
            ("/home/ada/src/x/server --f", "/home/user-1/server --f"),
            ("/home/carol", "/home/user-3"),
            ("/data/bob/a/b", "/home/user-2/b"),
            ("/root/x/run.sh /rootfs/x", "/home/root/run.sh /rootfs/x"),
            (
                r#"ATTRS{serial}=="ABC-1", ID_SERIAL_SHORT=XYZ"#,
                r#"ATTRS{serial}=="serial", ID_SERIAL_SHORT=serial"#,
            ),
        ] {
            assert_eq!(redactor.text(text), wanted);
        }
        let id = "0f".repeat(32);
        let other = redactor.text(&format!("docker-{id}.scope"));
        assert!(other.len() == 77 && !other.contains(&id), "{other}");
        let uuid = "9c2f3a5e-0b1d-4c6f-8a7e-1d2c3b4a5f60";
        let other = redactor.text(uuid);
        assert!(other != uuid && other.len() == uuid.len() && other.as_bytes()[8] == b'-', "{other}");
        let (link, named) = (redactor.text("00:16:3e:01:02:03"), redactor.text("enx00163e010203"));
        assert_eq!(named, format!("enx{}", link.replace(':', "")));
        assert_eq!(redactor.text("00-16-3E-01-02-03"), link.replace(':', "-"));
        assert_eq!(redactor.text("0016.3e01.0203").replace('.', ""), link.replace(':', ""));
    }
}
