//! What the entries of a master file say: directives change the state, records become lines of one form that `domain`
//! reads.
//!
//! ```text
//! $TTL 1d                          default TTL, in units               ─▸ state
//! $ORIGIN example.org.             what relative names end with        ─▸ state
//! www IN MX 10 @                   ─▸ www.example.org. 86400 IN MX 10 example.org.
//! ```
//! `domain` has gaps here (`@` in data, units, quoted file names, mnemonics), so that it gets absolute owners, a TTL in
//! seconds, a class and names without `@`. What the data of each type may be remains its matter.
//!
//! A record without a TTL has that of `$TTL`, else of the record before it (RFC 1035, 5.1; RFC 2308, 4). If neither is
//! there, an SOA's minimum becomes that of `$TTL` (as in BIND); before an SOA it is an hour (as in NSD). An included
//! file begins with the includer's origin, owner and TTLs. Its `$TTL` holds after it too, as in BIND and NSD 4.6 (not
//! in Knot); its origin, its owners and the TTLs of its records do not. Without any `$TTL` the three differ in what
//! follows: BIND has the TTL of the included file's last record, NSD an hour.

use std::path::PathBuf;

use domain::base::iana::Rtype;

use super::super::template::name;
use super::faults::Fault;
use super::fields;
use super::text::{Place, Token};
use super::types;

/// TTL of a record if nothing says one, seconds: NSD's. Shorter: caches ask more often; longer: a mistake lasts longer.
const DEFAULT_TTL: u32 = 3_600;
/// Longest TTL in seconds; a greater one counts as 0 (RFC 2181, 8).
const MAX_TTL: u32 = i32::MAX as u32;

/// What holds for the entries that follow.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// An absolute name in text form.
    origin: Option<Vec<u8>>,
    /// Of `$TTL`.
    default_ttl: Option<u32>,
    /// Of the record before.
    last_ttl: Option<u32>,
    /// Of the record before, absolute.
    owner: Option<Vec<u8>>,
}

/// What an entry says beyond the state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It changed the state.
    Nothing,
    /// A record, appended to the lines.
    Record,
    /// A file to read here, with an origin of its own.
    Include { file: PathBuf, origin: Option<Vec<u8>> },
    /// Records to be made of a template: the tokens after `$GENERATE`.
    Generate,
}

impl State {
    /// At the beginning of a zone, with its name if that is known.
    pub(super) fn new(origin: Option<Vec<u8>>) -> Self {
        Self { origin, ..Self::default() }
    }

    /// At the beginning of a file that is included here.
    pub(super) fn inside(&self, origin: Option<Vec<u8>>) -> Self {
        Self { origin: origin.or_else(|| self.origin.clone()), ..self.clone() }
    }

    /// After the file that ended with `inner`.
    pub(super) fn after(&mut self, inner: Self) {
        self.default_ttl = inner.default_ttl;
    }

    /// Reads a record that `$GENERATE` made: its owner is never a directive, and not that of the lines that follow, as
    /// in BIND.
    pub(super) fn generated(
        &mut self,
        place: Place,
        tokens: &[Token<'_>],
        lines: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let Some((first, rest)) = tokens.split_first() else {
            return Err(Fault::of_record(place.line, "a record without an owner"));
        };
        let owner = self.with_origin(first).map_err(|reason| Fault::of_record(place.line, reason))?;
        self.record(place, &owner, rest, lines)
    }

    /// Reads an entry; a record is appended to `lines` as one line.
    pub(super) fn read(
        &mut self,
        place: Place,
        tokens: &[Token<'_>],
        lines: &mut Vec<u8>,
    ) -> Result<Said, Fault> {
        let fault = |reason: String| Fault::of_zone(place.line, reason);
        let Some((first, rest)) = tokens.split_first() else { return Ok(Said::Nothing) };
        if !first.quoted && first.text.starts_with(b"$") {
            if place.indented {
                // No type's name begins so. What it was to change is not known: the records that follow may be others.
                let shown = first.shown();
                return Err(fault(format!(
                    "{shown} is indented: remove the space, a directive begins its line"
                )));
            }
            return self.directive(first, rest).map_err(fault);
        }
        let (owner, rest) = if place.indented {
            let owner = self.owner.clone();
            (owner.ok_or_else(|| fault("a line without an owner, and no record before it".into()))?, tokens)
        } else {
            (self.with_origin(first).map_err(fault)?, rest)
        };
        let read = self.record(place, &owner, rest, lines);
        // Of the lines that follow too, if this one is left out.
        self.owner = Some(owner);
        read.map(|()| Said::Record)
    }

    fn directive(&mut self, name: &Token<'_>, rest: &[Token<'_>]) -> Result<Said, String> {
        let shown = String::from_utf8_lossy(name.text).to_ascii_uppercase();
        match (shown.as_str(), rest) {
            ("$ORIGIN", [origin]) => self.origin = Some(self.absolute(origin)?),
            ("$ORIGIN", _) => return Err("expected `$ORIGIN NAME`".into()),
            ("$TTL", [ttl]) => {
                let seconds = fields::seconds(ttl.text).ok_or("expected `$TTL TIME`, such as 3600 or 1h")?;
                self.default_ttl = Some(limited(seconds));
            }
            ("$TTL", _) => return Err("expected `$TTL TIME`, such as 3600 or 1h".into()),
            ("$INCLUDE", [file] | [file, _]) => {
                let origin = rest.get(1).map(|origin| self.absolute(origin)).transpose()?;
                return Ok(Said::Include { file: path(file.text), origin });
            }
            ("$INCLUDE", _) => return Err("expected `$INCLUDE FILE [ORIGIN]`".into()),
            ("$GENERATE", _) => return Ok(Said::Generate),
            _ => {
                return Err(format!(
                    "unknown directive {shown}: expected $ORIGIN, $TTL, $INCLUDE or $GENERATE"
                ));
            }
        }
        Ok(Said::Nothing)
    }

    /// Appends `OWNER TTL IN TYPE DATA`.
    fn record(
        &mut self,
        place: Place,
        owner: &[u8],
        rest: &[Token<'_>],
        lines: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let of_record = |reason: String| Fault::of_record(place.line, reason);
        // The TTL may hold for what follows.
        let of_zone = |reason: String| Fault::of_zone(place.line, reason);
        let (mut ttl, mut class, mut at) = (None, false, 0);
        let rtype = loop {
            let Some(token) = rest.get(at) else {
                return Err(of_zone("a record without a type: expected NAME [TTL] [IN] TYPE DATA".into()));
            };
            at += 1;
            if ttl.is_none() && !token.quoted && token.text.first().is_some_and(u8::is_ascii_digit) {
                let seconds = fields::seconds(token.text);
                let reason = || of_zone(format!("`{}` is no TTL: expected 3600 or 1h", token.shown()));
                ttl = Some(seconds.ok_or_else(reason)?);
                self.last_ttl = ttl.map(limited);
            } else if !class && (token.is("IN") || token.is("CLASS1")) {
                class = true;
            } else if ["CH", "HS", "CS", "ANY", "NONE"].iter().any(|other| token.is(other)) || is_class(token)
            {
                return Err(of_record(format!("class {}: only IN is served", token.shown())));
            } else {
                break rtype_of(token).map_err(of_record)?;
            }
        };
        let data = &rest[at..];
        // The last field of an SOA.
        let minimum = data.get(6).filter(|_| rtype == Rtype::SOA).and_then(|last| fields::seconds(last.text));
        if ttl.or(self.default_ttl).or(self.last_ttl).is_none() {
            self.default_ttl = minimum.map(limited);
        }
        let ttl = limited(ttl.or(self.default_ttl).or(self.last_ttl).unwrap_or(DEFAULT_TTL));
        // Lines without an owner of their own have this one, too: each is left out, and nothing else.
        checked(owner).map_err(of_record)?;
        let start = lines.len();
        // `domain` would take it for a directive.
        lines.extend(owner.starts_with(b"$").then_some(b'\\'));
        lines.extend_from_slice(owner);
        lines.extend_from_slice(format!(" {ttl} IN {rtype}").as_bytes());
        self.last_ttl = Some(ttl);
        if let Err(reason) = self.data(rtype, data, lines) {
            lines.truncate(start);
            return Err(of_record(reason));
        }
        lines.push(b'\n');
        Ok(())
    }

    /// Appends the data.
    fn data(&self, rtype: Rtype, data: &[Token<'_>], lines: &mut Vec<u8>) -> Result<(), String> {
        let generic = data.first().is_some_and(|token| token.is("\\#"));
        if !generic && types::is_read(rtype) {
            let wire = types::wire(rtype, data, |token| self.absolute(token))?;
            let digits: String = wire.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.extend_from_slice(format!(" \\# {} {digits}", wire.len()).as_bytes());
            return Ok(());
        }
        let is = |places: &[usize], at: usize| !generic && places.contains(&at);
        let names = match rtype {
            // The gateway is a name if its type says so (RFC 4025, 2.5).
            Rtype::IPSECKEY if data.get(1).is_none_or(|kind| kind.text != b"3") => &[],
            _ => fields::names(rtype),
        };
        for (at, token) in data.iter().enumerate() {
            if !generic && token.quoted && token.text.is_empty() && !fields::may_be_empty(rtype, at) {
                return Err(format!(
                    "{}: `\"\"` where a value belongs: write it, or remove the record",
                    types::name(rtype)
                ));
            }
            lines.push(b' ');
            let number = if generic {
                None
            } else if fields::algorithm(rtype) == Some(at) {
                fields::algorithm_number(token.text).map(u32::from)
            } else if fields::digest(rtype) == Some(at) {
                fields::digest_number(token.text).map(u32::from)
            } else if is(fields::times(rtype), at) {
                fields::seconds(token.text)
            } else {
                None
            };
            if let Some(number) = number {
                lines.extend_from_slice(number.to_string().as_bytes());
            } else if is(names, at) {
                lines.extend_from_slice(&self.absolute(token)?);
            } else {
                token.append(lines);
            }
        }
        Ok(())
    }

    /// A name as an absolute one, whose labels may be such.
    fn absolute(&self, token: &Token<'_>) -> Result<Vec<u8>, String> {
        let name = self.with_origin(token)?;
        checked(&name)?;
        Ok(name)
    }

    /// A name with the origin behind it, if it is relative.
    fn with_origin(&self, token: &Token<'_>) -> Result<Vec<u8>, String> {
        let missing = || {
            format!(
                "missing origin for the relative name {}: begin with a line `$ORIGIN example.org.`, end the name with a dot, or load the file as `--zone \
                 NAME=FILE`",
                token.shown()
            )
        };
        if token.is("@") {
            return self.origin.clone().ok_or_else(missing);
        }
        let mut name = Vec::new();
        let plain = Token { quoted: false, ..*token };
        plain.append(&mut name);
        if name.is_empty() {
            return Err("an empty name".into());
        }
        if !ends_with_dot(&name) {
            let origin = self.origin.as_ref().ok_or_else(missing)?;
            name.push(b'.');
            if origin != b"." {
                name.extend_from_slice(origin);
            }
        }
        Ok(name)
    }
}

impl Token<'_> {
    /// Appends it as `domain` reads it: what is not printable becomes `\DDD`.
    pub(super) fn append(&self, line: &mut Vec<u8>) {
        let quote = |line: &mut Vec<u8>| line.extend(self.quoted.then_some(b'"'));
        quote(line);
        let mut escaped = false;
        for byte in self.text {
            match byte {
                // A letter after a backslash is itself.
                0x21..=0x7e => line.push(*byte),
                b' ' if self.quoted || escaped => line.push(*byte),
                _ => {
                    // The backslash before it is written anew.
                    line.truncate(line.len() - usize::from(escaped));
                    line.extend_from_slice(format!("\\{byte:03}").as_bytes());
                }
            }
            escaped = *byte == b'\\' && !escaped;
        }
        quote(line);
    }

    /// For a message.
    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(self.text).into_owned()
    }
}

fn limited(seconds: u32) -> u32 {
    if seconds > MAX_TTL { 0 } else { seconds }
}

/// Whether it is a class by number, `CLASS3`.
fn is_class(token: &Token<'_>) -> bool {
    let number =
        token.text.get(5..).filter(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    !token.quoted && number.is_some() && token.text[..5].eq_ignore_ascii_case(b"CLASS")
}

fn rtype_of(token: &Token<'_>) -> Result<Rtype, String> {
    let text = token.shown();
    match types::named(&text) {
        Some(rtype) if !token.quoted => Ok(rtype),
        _ => Err(format!(
            "unknown type {text}: types without a name here are written TYPE65280 \\# LENGTH HEX"
        )),
    }
}

/// Whether a name in text form is one: `domain` ends it at an empty label, and drops what follows.
fn checked(name: &[u8]) -> Result<(), String> {
    name::write(name, &mut Vec::new()).map_err(|why| format!("`{}`: {why}", String::from_utf8_lossy(name)))
}

/// Whether the last dot is not escaped.
fn ends_with_dot(name: &[u8]) -> bool {
    let before = name.iter().rev().skip(1).take_while(|byte| **byte == b'\\').count();
    name.last() == Some(&b'.') && before % 2 == 0
}

/// A file's name: escapes stand for their byte.
fn path(text: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;

    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.extend(if *byte == b'\\' { rest.next().copied() } else { Some(*byte) });
    }
    std::ffi::OsString::from_vec(bytes).into()
}
