//! The users, in a subset of the format of FreeRADIUS's `users` file, so that one file serves both servers and the load.
//!
//! ```text
//! # NAME   how to check, in one line; then indented lines with attributes of the Access-Accept
//! bob      Cleartext-Password := "hello"
//!          Reply-Message = "Hello, bob", Session-Timeout = 3600
//! carol    Cleartext-Password := "hello", One-Time-Code := "123456"
//! mallory  Auth-Type := Reject
//! ```
//! `One-Time-Code` is not FreeRADIUS's: after the right password, the server challenges the user for this code. Users that
//! are not in the file are rejected.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::dictionary;
use super::packet::{DIGEST, MAX_VALUE};
use super::secret::MAX_PASSWORD;
use super::text::{self, FileError, LineError, Token};
use crate::misfits::Misfits;

/// Most bytes of attributes per user. More: replies leave no room for a long list of Proxy-States, and become fragments.
/// Less: long lists of routes and filters do not fit.
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
    /// Names with an entry that is wrong: what FreeRADIUS would say of them is not known.
    unknown: HashSet<Box<[u8]>>,
    misfits: Misfits,
}

impl Builder {
    /// Takes a line; says what is wrong with it.
    fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        let tokens = text::tokens(text);
        if tokens.as_ref().is_ok_and(Vec::is_empty) {
            return Ok(());
        }
        if text.starts_with(char::is_whitespace) {
            let before = "attributes before the first user: begin a user's line with the name";
            let (_, entry) = self.current.as_mut().ok_or(before)?;
            return entry.reply(tokens?);
        }
        self.end_entry();
        let mut entry = Entry::default();
        let checked = tokens.and_then(|tokens| entry.begin(tokens));
        self.current = Some((line, entry));
        checked
    }

    fn end_entry(&mut self) {
        let spoilt = std::mem::take(&mut self.spoilt);
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
    fn begin(&mut self, tokens: Vec<Token>) -> Result<(), String> {
        let mut tokens = tokens.into_iter();
        let name = tokens.next().and_then(Token::text).ok_or("expected the name of a user")?;
        self.name.clone_from(&name);
        if name == "DEFAULT" {
            return Err("DEFAULT is not supported: users that are not in the file are rejected".into());
        }
        if name.is_empty() || name.len() > MAX_VALUE {
            return Err(format!("a user's name has {} bytes: expected 1 to {MAX_VALUE}", name.len()));
        }
        for Item { name, operator, value } in items(tokens)? {
            if operator != ":=" {
                return Err(format!("{} {operator}: expected :=", name.escape_debug()));
            }
            let text = |value: String| {
                let fits = (1..=MAX_PASSWORD).contains(&value.len()) && !value.contains('\0');
                let expected = format!("{name} must have 1 to {MAX_PASSWORD} bytes, none of them 0");
                fits.then_some(value).ok_or(expected)
            };
            match name.as_str() {
                "Cleartext-Password" => self.password = Some(text(value)?),
                "One-Time-Code" => self.code = Some(text(value)?),
                "Auth-Type" if value == "Reject" => self.reject = true,
                "Auth-Type" => return Err(format!("Auth-Type {}: expected Reject", value.escape_debug())),
                _ => {
                    return Err(format!(
                        "cannot check {}: expected Cleartext-Password, One-Time-Code or Auth-Type; attributes of the reply \
                         begin on the next line, indented",
                        name.escape_debug()
                    ));
                }
            }
        }
        Ok(())
    }

    /// A line of reply items.
    fn reply(&mut self, tokens: Vec<Token>) -> Result<(), String> {
        for Item { name, operator, value } in items(tokens.into_iter())? {
            if !["=", ":=", "+="].contains(&operator.as_str()) {
                return Err(format!("{} {operator}: expected =, := or +=", name.escape_debug()));
            }
            dictionary::append(&name, &value, &mut self.attributes)?;
        }
        if self.attributes.len() > MAX_ATTRIBUTES {
            return Err(format!("more than {MAX_ATTRIBUTES} bytes of attributes for one user"));
        }
        Ok(())
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

/// `NAME OPERATOR VALUE`.
struct Item {
    name: String,
    operator: String,
    value: String,
}

/// Items between commas; one at the end of the line is optional.
fn items(tokens: impl Iterator<Item = Token>) -> Result<Vec<Item>, String> {
    let (mut items, mut tokens) = (Vec::new(), tokens.peekable());
    while tokens.peek().is_some() {
        let instead = |token: Option<Token>| match token {
            Some(token) => format!("found {token}"),
            None => "the line ends".to_owned(),
        };
        let name = match tokens.next() {
            Some(Token::Word(name)) => name,
            other => return Err(format!("expected NAME := VALUE, but {}", instead(other))),
        };
        let operator = match tokens.next() {
            Some(Token::Operator(operator)) => operator,
            other => {
                return Err(format!("expected := after {}, but {}", name.escape_debug(), instead(other)));
            }
        };
        let value = match tokens.next() {
            Some(Token::Word(value)) if value.starts_with('`') => {
                return Err(format!("{}: programs are not run for a value", name.escape_debug()));
            }
            Some(Token::Quoted(value)) => {
                unexpanded(value).map_err(|reason| format!("{}: {reason}", name.escape_debug()))?
            }
            Some(Token::Word(value) | Token::Literal(value)) => value,
            other => {
                let name = name.escape_debug();
                return Err(format!("expected a value after {name} {operator}, but {}", instead(other)));
            }
        };
        items.push(Item { name, operator, value });
        match tokens.next() {
            None | Some(Token::Comma) => {}
            Some(other) => return Err(format!("expected a comma before {other}")),
        }
    }
    Ok(items)
}

/// The text between double quotes, of which FreeRADIUS may expand `%{...}` and `%` with a letter for each request. The error does not
/// repeat it: it may be a password.
fn unexpanded(text: String) -> Result<String, String> {
    if text.contains('%') {
        return Err("what follows a % between double quotes may be expanded for each request, which is not done here: write a fixed \
                    text, between single quotes if it has a percent sign"
            .into());
    }
    Ok(text)
}

/// Bytes of a password that is hidden (RFC 2865, 5.2).
pub(super) fn padded(password: usize) -> usize {
    password.next_multiple_of(DIGEST).max(DIGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_freeradius_is_read() {
        let text = b"# users\n\nbob\tCleartext-Password := \"hello\"\n\tReply-Message := \"Hello, bob\",\n\
            \tSession-Timeout = 3600, Idle-Timeout = 60,\n\n\"carol smith\" Cleartext-Password := \"h\\\"i\", \
            One-Time-Code := 123456\n        Class += 0x01\nmallory Auth-Type := Reject # out\n";
        let users = Users::parse(text).unwrap();
        let names: Vec<_> = users.all().iter().map(|user| &*user.name).collect();
        assert_eq!(names, [&b"bob"[..], b"carol smith", b"mallory"]);
        let bob = users.find(b"bob").unwrap();
        assert_eq!((&*bob.password, bob.verdict == Verdict::Accept), (&b"hello"[..], true));
        assert_eq!(*bob.attributes, *b"\x12\x0cHello, bob\x1b\x06\x00\x00\x0e\x10\x1c\x06\x00\x00\x00\x3c");
        let carol = users.find(b"carol smith").unwrap();
        assert_eq!(*carol.password, *b"h\"i");
        assert!(
            carol.verdict == Verdict::Challenge { code: (*b"123456").into() }
                && *carol.attributes == [25, 3, 1]
        );
        assert!(users.find(b"mallory").unwrap().verdict == Verdict::Reject);
        assert!(users.find(b"Bob").is_none() && users.find(b"").is_none());
        assert!(!format!("{users:?}").contains("hello"));
        assert_eq!(Users::parse(b"").unwrap().all(), []);
    }

    /// Quotes, escapes and expansions of a file that FreeRADIUS 3 reads; what it expands is not sent as it stands.
    #[test]
    fn quotes_are_freeradius_s() {
        let text = b"a Cleartext-Password := 'it\\'s %{User-Name}'\n\tReply-Message := 'goodbye'\n\
            b Cleartext-Password := \"x\"\n\tReply-Message = \"all\\tdone\"\n";
        let users = Users::parse(text).unwrap();
        assert_eq!(*users.find(b"a").unwrap().password, *b"it's %{User-Name}");
        assert_eq!(*users.find(b"a").unwrap().attributes, *b"\x12\x09goodbye");
        assert_eq!(*users.find(b"b").unwrap().attributes, *b"\x12\x0aall\tdone");
        for (text, reason) in [
            (
                "a Cleartext-Password := x\n Reply-Message := \"Hello, %{User-Name}\"",
                "line 2: Reply-Message: what follows a %",
            ),
            ("a Cleartext-Password := \"%u\"", "line 1: Cleartext-Password: what follows a %"),
            (
                "a Cleartext-Password := x\n Reply-Message := `/bin/date`",
                "line 2: Reply-Message: programs are not run",
            ),
            ("a Cleartext-Password := \"\\d\"", "line 1: \\d is no escape: a backslash is written \\\\"),
        ] {
            let error = Users::parse(text.as_bytes()).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    /// A file as FreeRADIUS comes with: all lines that do not fit are listed at once, and the users that fit can be used.
    #[test]
    fn all_misfits_are_listed_and_may_be_left_out() {
        let text = b"bob\tCleartext-Password := \"hello\"\n\tReply-Message := \"Hello, %{User-Name}\"\n\
            doug  Cleartext-Password := \"goodbye\"\n      Reply-Message := 'goodbye', Fall-Through = Yes\n\
            doug\n      Filter-Id = \"std.ppp\"\n\"John Doe\"\tCleartext-Password := \"hello\"\n\
            lameuser\tAuth-Type := Reject\n\tReply-Message = \"Your account has been disabled.\"\n\
            steve\tService-Type == Framed-User, Cleartext-Password := \"testing\"\n\tService-Type = Framed-User,\n\
            \tFramed-IP-Address = 172.16.3.33+,\nold\tCleartext-Password == \"x\"\nmac\tCrypt-Password := \"$1$abc$\"\n\
            DEFAULT\tFramed-Protocol == PPP\n\tFramed-Protocol = PPP\nann Cleartext-Password := y\nno-one\n";
        let (users, misfits) = Users::from_lines(text);
        let names: Vec<_> = users.all().iter().map(|user| &*user.name).collect();
        assert_eq!(names, [&b"John Doe"[..], b"ann"]);
        let lines: Vec<String> = Users::parse(text)
            .unwrap_err()
            .split("; ")
            .filter(|part| part.starts_with("line "))
            .map(|part| part.split(':').next().unwrap().to_owned())
            .collect();
        assert_eq!(lines, [2, 4, 5, 8, 10, 12, 13, 14, 15, 18].map(|line| format!("line {line}")));
        let hint = misfits.hint(users.count(), "users").unwrap();
        assert!(hint.starts_with("10 lines left out, 2 users used: line 2: "), "{hint}");
    }

    #[test]
    fn wrong_lines_are_named() {
        let long = format!("{} Cleartext-Password := x", "n".repeat(254));
        let many = format!("bob Cleartext-Password := x\n{}", "\tClass = aaaaaaaaaaaaaaaa\n".repeat(200));
        for (text, reason) in [
            (" Class = 1", "line 1: attributes before the first user: begin a user's line with the name"),
            ("\nbob", "line 2: user bob has no password: expected Cleartext-Password := \"...\""),
            ("bob\n\nalice Cleartext-Password := x", "line 1: user bob has no password"),
            ("bob Cleartext-Password == x", "line 1: Cleartext-Password ==: expected :="),
            ("bob Cleartext-Password := \"\"", "line 1: Cleartext-Password must have 1 to 128 bytes"),
            (
                "bob User-Password := x",
                "line 1: cannot check User-Password: expected Cleartext-Password, One-Time-Code",
            ),
            (
                "bob Cleartext-Password :=",
                "line 1: expected a value after Cleartext-Password :=, but the line ends",
            ),
            ("bob Cleartext-Password", "line 1: expected := after Cleartext-Password, but the line ends"),
            ("bob := x", "line 1: expected NAME := VALUE, but found `:=`"),
            ("bob Cleartext-Password := x y", "line 1: expected a comma before `y`"),
            ("bob Auth-Type := Accept", "line 1: Auth-Type Accept: expected Reject"),
            ("DEFAULT Auth-Type := Reject", "line 1: DEFAULT is not supported"),
            (
                "m Auth-Type := Reject\n Class = 1",
                "line 1: user m is always rejected: remove the rest of the entry",
            ),
            ("m Auth-Type := Reject, Cleartext-Password := x", "line 1: user m is always rejected"),
            ("b Cleartext-Password := x\nb Cleartext-Password := y", "line 2: user b is already in the file"),
            ("b Cleartext-Password := x\n Colour = 1", "line 2: unknown attribute Colour"),
            ("b Cleartext-Password := x\n Class == 1", "line 2: Class ==: expected =, := or +="),
            (&long, "line 1: a user's name has 254 bytes: expected 1 to 253"),
            (&many, "line 115: more than 2048 bytes of attributes for one user"),
        ] {
            let error = Users::parse(text.as_bytes()).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
