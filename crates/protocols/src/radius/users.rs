//! The users, in a subset of the format of FreeRADIUS's `users` file, so that one file serves both servers and the
//! load.
//!
//! ```text
//! # NAME   how to check, in one line; then indented lines with attributes of the Access-Accept
//! bob      Cleartext-Password := "hello"
//!          Reply-Message = "Hello, bob", Session-Timeout = 3600
//! carol    Cleartext-Password := "hello", One-Time-Code := "123456"
//! mallory  Auth-Type := Reject
//! ```
//! `One-Time-Code` is not FreeRADIUS's: after the right password, the server challenges the user for this code. Users
//! that are not in the file are rejected.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::dictionary;
use super::items::{self, End, Item};
use super::packet::{DIGEST, MAX_VALUE};
use super::secret::MAX_PASSWORD;
use super::text::{self, FileError, LineError};
use crate::misfits::Misfits;

/// Most bytes of attributes per user. More: replies leave no room for a long list of Proxy-States, and become
/// fragments. Less: long lists of routes and filters do not fit.
const MAX_ATTRIBUTES: usize = 2048;

/// Users by name.
#[derive(Debug, Clone, Default)]
pub struct Users {
    list: Vec<User>,
    by_name: HashMap<Box<[u8]>, u32>,
}

/// A user.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Its name, 1 to 253 bytes.
    pub name: Box<[u8]>,
    /// What a request with the right password gets.
    pub verdict: Verdict,
    /// The password, at most 128 bytes; empty with [`Verdict::Reject`].
    pub(super) password: Box<[u8]>,
    /// Attributes of the Access-Accept, as in a packet.
    pub(super) attributes: Box<[u8]>,
}

/// What a request with the right password gets.
#[derive(Clone, PartialEq, Eq)]
pub enum Verdict {
    /// An Access-Accept.
    Accept,
    /// An Access-Reject: the user is locked out.
    Reject,
    /// An Access-Challenge, and the request that returns its State with this code an Access-Accept.
    Challenge {
        /// The code.
        code: Box<[u8]>,
    },
}

/// The file with the users of [`Users::example`].
pub(super) const EXAMPLE: &str = "bob Cleartext-Password := \"hello\"\n";

impl Users {
    /// Number of users.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Reads a file of users.
    ///
    /// # Errors
    /// The file cannot be read, or all lines that are wrong.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        text::read(path, Self::all_of)
    }

    /// Reads a file of users, and leaves out those with a wrong line. Returns how many lines were wrong, and which.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read_valid(path: &Path) -> Result<(Self, Misfits), FileError> {
        text::read(path, |text| Ok::<_, LineError>(Self::from_lines(text)))
    }

    /// Users from the text of a file.
    ///
    /// # Errors
    /// The lines that are wrong, and why.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        Self::all_of(text).map_err(|error| error.to_string())
    }

    fn all_of(text: &[u8]) -> Result<Self, Misfits> {
        let (users, misfits) = Self::from_lines(text);
        if misfits.is_empty() { Ok(users) } else { Err(misfits) }
    }

    /// The users whose lines all fit, and the lines that do not.
    fn from_lines(text: &[u8]) -> (Self, Misfits) {
        let mut builder = Builder::default();
        for numbered in text::lines(text) {
            let read = numbered.and_then(|(line, text)| {
                builder.line(line, text).map_err(|reason| LineError { line, reason })
            });
            if let Err(error) = read {
                builder.spoilt = true;
                builder.misfits.add(&error);
            }
        }
        builder.finish()
    }

    /// The user of a server and of a load without a file: one of FreeRADIUS's examples.
    #[must_use]
    pub fn example() -> Self {
        let bob = User {
            name: (*b"bob").into(),
            verdict: Verdict::Accept,
            password: (*b"hello").into(),
            attributes: [].into(),
        };
        Self { by_name: HashMap::from([(bob.name.clone(), 0)]), list: vec![bob] }
    }

    fn add(&mut self, user: User) -> Result<(), String> {
        let index = u32::try_from(self.list.len()).map_err(|_| "more than 2^32 users".to_owned())?;
        if self.by_name.contains_key(&user.name) {
            return Err(format!("user {} is already in the file", user.name.escape_ascii()));
        }
        self.by_name.insert(user.name.clone(), index);
        self.list.push(user);
        Ok(())
    }

    /// The user with this name.
    #[inline]
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&User> {
        self.list.get(*self.by_name.get(name)? as usize)
    }

    /// All of them, in the order of the file.
    #[must_use]
    pub fn all(&self) -> &[User] {
        &self.list
    }
}

impl std::fmt::Debug for User {
    /// Without password and code.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "User({})", self.name.escape_ascii())
    }
}

/// The users of a file as far as it was read.
#[derive(Default)]
struct Builder {
    users: Users,
    /// The entry in progress and the line it began on.
    current: Option<(usize, Entry)>,
    /// A line of that entry is wrong.
    spoilt: bool,
    /// The line its attributes ended on or go on behind, and how; not known behind a wrong one.
    last: Option<(usize, End)>,
    /// Names with an entry that is wrong: what FreeRADIUS would say of them is not known.
    unknown: HashSet<Box<[u8]>>,
    misfits: Misfits,
}

impl Builder {
    /// Takes a line; says what is wrong with it.
    fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        if items::is_end(text.trim_start_matches(items::is_blank)) {
            return Ok(());
        }
        if text.starts_with([' ', '\t']) {
            let before = "attributes before the first user: begin a user's line with the name";
            let (_, entry) = self.current.as_mut().ok_or(before)?;
            if let Some((last, End::Whole)) = self.last.take() {
                return Err(format!(
                    "the attributes end on line {last}: write a comma at its end, and no comment behind it, if more follow"
                ));
            }
            let end = entry.reply(text)?;
            self.last = Some((line, end));
            return Ok(());
        }
        self.end_entry();
        let mut entry = Entry::default();
        let checked = entry.begin(text);
        self.current = Some((line, entry));
        checked
    }

    fn end_entry(&mut self) {
        let mut spoilt = std::mem::take(&mut self.spoilt);
        if let Some((line, End::Comma)) = self.last.take() {
            let reason = "a comma behind the last attribute: remove it, or indent the next line".into();
            self.misfits.add(&LineError { line, reason });
            spoilt = true;
        }
        let Some((line, entry)) = self.current.take() else { return };
        let name: Box<[u8]> = entry.name.as_bytes().into();
        if !spoilt {
            match entry.end().and_then(|user| self.users.add(user)) {
                Ok(()) => return,
                Err(reason) => self.misfits.add(&LineError { line, reason }),
            }
        }
        self.unknown.insert(name);
    }

    fn finish(mut self) -> (Users, Misfits) {
        self.end_entry();
        let Self { mut users, unknown, misfits, .. } = self;
        if !unknown.is_empty() {
            let list = std::mem::take(&mut users).list;
            for user in list.into_iter().filter(|user| !unknown.contains(&user.name)) {
                // Each name is there once.
                let _ = users.add(user);
            }
        }
        (users, misfits)
    }
}

const PASSWORD: &str = "Cleartext-Password";
const CODE: &str = "One-Time-Code";
/// What can be checked, in any case.
const CHECKS: [&str; 3] = [PASSWORD, CODE, "Auth-Type"];

/// A user as far as it was read.
#[derive(Default)]
struct Entry {
    name: String,
    password: Option<String>,
    code: Option<String>,
    reject: bool,
    attributes: Vec<u8>,
}

impl Entry {
    /// The name and the check items of its line.
    fn begin(&mut self, line: &str) -> Result<(), String> {
        let (name, rest) = items::name(line)?;
        self.name.clone_from(&name);
        if name == "DEFAULT" {
            return Err("DEFAULT is not supported: users that are not in the file are rejected".into());
        }
        if name.eq_ignore_ascii_case("$INCLUDE") {
            return Err("$INCLUDE is not supported: put all users into one file".into());
        }
        if name.is_empty() || name.len() > MAX_VALUE {
            return Err(format!("a user's name has {} bytes: expected 1 to {MAX_VALUE}", name.len()));
        }
        let (items, end) = items::items(rest)?;
        items.into_iter().try_for_each(|item| self.check(&item))?;
        if end == End::Comma {
            return Err("a comma behind the last check item: remove it; attributes of the reply begin on the next line".into());
        }
        Ok(())
    }

    fn check(&mut self, Item { name, operator, value }: &Item<'_>) -> Result<(), String> {
        let known = CHECKS.iter().copied().find(|known| known.eq_ignore_ascii_case(name)).ok_or_else(|| {
            format!(
                "cannot check {}: only the password is checked: expected Cleartext-Password, One-Time-Code or Auth-Type; \
                 attributes of the reply begin on the next line, indented",
                name.escape_debug()
            )
        })?;
        if *operator != ":=" {
            return Err(format!("{known} {operator}: expected :="));
        }
        let value = value.text().map_err(|reason| format!("{known}: {reason}"))?;
        let text = |value: String| {
            let fits = (1..=MAX_PASSWORD).contains(&value.len()) && !value.contains('\0');
            let expected = format!("{known} must have 1 to {MAX_PASSWORD} bytes, none of them 0");
            fits.then_some(value).ok_or(expected)
        };
        match known {
            // FreeRADIUS compares with the first.
            PASSWORD => _ = self.password.get_or_insert(text(value)?),
            CODE if self.code.is_some() => return Err(format!("a second {CODE}: remove one")),
            CODE => self.code = Some(text(value)?),
            _ if value.eq_ignore_ascii_case("Reject") => self.reject = true,
            _ => return Err(format!("Auth-Type {}: expected Reject", value.escape_debug())),
        }
        Ok(())
    }

    /// A line of reply items.
    fn reply(&mut self, line: &str) -> Result<End, String> {
        let (items, end) = items::items(line)?;
        for Item { name, operator, value } in items {
            if !["=", ":=", "+="].contains(&operator) {
                return Err(format!("{} {operator}: expected =, := or +=", name.escape_debug()));
            }
            dictionary::append(name, &value, &mut self.attributes)?;
        }
        if self.attributes.len() > MAX_ATTRIBUTES {
            return Err(format!("more than {MAX_ATTRIBUTES} bytes of attributes for one user"));
        }
        Ok(end)
    }

    fn end(self) -> Result<User, String> {
        let Self { name, password, code, reject, attributes } = self;
        let shown = name.escape_debug();
        let verdict = match (reject, code) {
            (true, None) if password.is_none() && attributes.is_empty() => Verdict::Reject,
            (true, _) => {
                return Err(format!("user {shown} is always rejected: remove the rest of the entry"));
            }
            (false, Some(code)) => Verdict::Challenge { code: code.into_bytes().into() },
            (false, None) => Verdict::Accept,
        };
        let password = match password {
            None if !reject => {
                return Err(format!("user {shown} has no password: expected Cleartext-Password := \"...\""));
            }
            password => password.unwrap_or_default(),
        };
        let [name, password] = [name, password].map(|text| text.into_bytes().into());
        Ok(User { name, verdict, password, attributes: attributes.into() })
    }
}

/// Bytes of a password that is hidden (RFC 2865, 5.2).
pub(super) fn padded(password: usize) -> usize {
    password.next_multiple_of(DIGEST).max(DIGEST)
}

#[cfg(test)]
mod tests;
