//! The names and the `NAME OPERATOR VALUE` items of a users file, as FreeRADIUS 3.2 reads them (its `pair.c` and
//! `token.c`).
//!
//! ```text
//! bob\x   Cleartext-Password := hel#lo     ─▸ name `bob\x`, item with the value `hel`, comment `lo`
//! ├─name─┤├───item──────────────┤└comment
//!         Reply-Message = a\nb, Class = "0x00" ─▸ two items; a comma between two, and at the end if the next line goes on
//! ```
//! A value without quotes ends at a blank, a comma and at FreeRADIUS's signs (`#(){};<>=` and operators); after it must
//! come a comma, a comment or the end.

/// Operators, those that begin others last.
const OPERATORS: &[&str] = &[":=", "+=", "-=", "==", "=~", "=*", "!=", "!~", "!*", "<=", ">=", "=", "<", ">"];

/// `NAME OPERATOR VALUE`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub(super) name: &'a str,
    pub(super) operator: &'static str,
    pub(super) value: Value,
}

/// A value as it is written, without its quotes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Value {
    raw: String,
    quote: Option<char>,
}

impl Value {
    /// A value without quotes.
    #[cfg(test)]
    pub(super) fn plain(text: &str) -> Self {
        Self { raw: text.to_owned(), quote: None }
    }

    /// For values that are no texts: FreeRADIUS leaves the escapes in them as they are.
    pub(super) fn raw(&self) -> &str {
        &self.raw
    }

    /// The text that it stands for.
    ///
    /// # Errors
    /// An escape that FreeRADIUS does not know, or an octet that is no ASCII.
    pub(super) fn text(&self) -> Result<String, String> {
        let (mut found, mut rest) = (String::new(), self.raw.as_str());
        while let Some((before, behind)) = rest.split_once('\\') {
            found.push_str(before);
            let (c, len) = self.escaped(behind)?;
            found.push(c);
            rest = &behind[len..];
        }
        Ok(found + rest)
    }

    /// The character that an escape stands for, and the length of what follows the backslash.
    fn escaped(&self, text: &str) -> Result<(char, usize), String> {
        let single = self.quote == Some('\'');
        let first = text.chars().next().ok_or("a backslash at the end is written \\\\")?;
        let simple = match first {
            '\\' => Some('\\'),
            '\'' if single => Some('\''),
            '"' if !single => Some('"'),
            'n' if !single => Some('\n'),
            'r' if !single => Some('\r'),
            't' if !single => Some('\t'),
            _ => None,
        };
        if let Some(c) = simple {
            return Ok((c, 1));
        }
        let octal =
            text.get(..3).filter(|digits| !single && digits.bytes().all(|digit| digit.is_ascii_digit()));
        match octal.map(|digits| u8::from_str_radix(digits, 8)) {
            Some(Ok(byte)) if byte.is_ascii() => Ok((byte.into(), 3)),
            Some(_) => {
                Err(format!("\\{} is no octet below 128: write the value as 0x and its octets", &text[..3]))
            }
            // As in DOMAIN\user.
            None if self.quote.is_none() => Ok(('\\', 0)),
            None => Err(format!("\\{} is no escape: a backslash is written \\\\", first.escape_debug())),
        }
    }
}

/// How the items of a line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With a comma: the next line goes on.
    Comma,
    /// Without one, or with a comment.
    Whole,
}

/// The name that a user's line begins with, and what follows it. Without quotes it ends at a blank or a comma.
///
/// # Errors
/// A quote is not closed, or has a backslash: what it means there depends on the version.
pub(super) fn name(line: &str) -> Result<(String, &str), String> {
    let Some(quote) = line.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        let end = line.find(|c| is_blank(c) || c == ',').unwrap_or(line.len());
        return Ok((line[..end].to_owned(), &line[end..]));
    };
    let (raw, rest) = quoted(&line[1..], quote)?;
    if raw.contains('\\') {
        return Err(
            "a backslash in the quotes of a user's name: leave out the quotes or the backslash".into()
        );
    }
    Ok((raw, rest))
}

/// The items of a line, or of what follows the name.
///
/// # Errors
/// What is wrong with them.
pub(super) fn items(line: &str) -> Result<(Vec<Item<'_>>, End), String> {
    let (mut items, mut rest) = (Vec::new(), line.trim_start_matches(is_blank));
    if is_end(rest) {
        return Ok((items, End::Whole));
    }
    loop {
        let (item, behind) = item(rest)?;
        let behind = behind.trim_start_matches(is_blank);
        if is_end(behind) {
            items.push(item);
            return Ok((items, End::Whole));
        }
        let Some(behind) = behind.strip_prefix(',') else {
            return Err(misplaced(&item, behind));
        };
        items.push(item);
        rest = behind.trim_start_matches(is_blank);
        if is_end(rest) {
            return Ok((items, if rest.is_empty() { End::Comma } else { End::Whole }));
        }
    }
}

/// Whether only a comment follows.
pub(super) fn is_end(text: &str) -> bool {
    text.is_empty() || text.starts_with('#')
}

/// What stands between words. `\r`: a line of a file from Windows ends with it.
pub(super) fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t' || c == '\r'
}

fn item(text: &str) -> Result<(Item<'_>, &str), String> {
    let (name, rest) = text.split_at(attribute(text));
    if name.is_empty() {
        return Err(format!("expected NAME := VALUE, but found {}", shown(text)));
    }
    let named = name.escape_debug();
    let rest = rest.trim_start_matches(is_blank);
    let Some(operator) = OPERATORS.iter().copied().find(|operator| rest.starts_with(operator)) else {
        return Err(format!("expected := after {named}, but {}", instead(rest)));
    };
    let (value, rest) = value(rest[operator.len()..].trim_start_matches(is_blank))
        .map_err(|reason| format!("{named} {operator}: {reason}"))?;
    Ok((Item { name, operator, value }, rest))
}

/// The length of the attribute's name that the text begins with.
fn attribute(text: &str) -> usize {
    let ends = |(at, c): (usize, char)| {
        !(c.is_alphanumeric() || "-_./:".contains(c))
            || OPERATORS.iter().any(|operator| text[at..].starts_with(operator))
    };
    text.char_indices().find(|place| ends(*place)).map_or(text.len(), |(at, _)| at)
}

/// The value that the text begins with, and what follows it. The errors do not repeat it: it may be a password.
fn value(text: &str) -> Result<(Value, &str), String> {
    match text.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (raw, rest) = quoted(&text[1..], quote)?;
            if quote == '"' && raw.contains('%') {
                return Err("what follows a % between double quotes may be expanded for each request, which is not done here: write \
                            a fixed text, between single quotes if it has a percent sign"
                    .into());
            }
            Ok((Value { raw, quote: Some(quote) }, rest))
        }
        Some('`') => Err("programs are not run for a value".into()),
        None => Err("the line ends: expected a value".into()),
        _ => {
            let end =
                text.char_indices().find(|(at, _)| ends_word(&text[*at..])).map_or(text.len(), |(at, _)| at);
            if text[end..].starts_with('{') && text[..end].ends_with('%') {
                return Err(
                    "%{...} would be expanded for each request, which is not done here: write a fixed text"
                        .into(),
                );
            }
            match end {
                0 => Err(format!("expected a value, but found {}: quote one that has it", shown(text))),
                _ => Ok((Value { raw: text[..end].to_owned(), quote: None }, &text[end..])),
            }
        }
    }
}

/// Whether a word without quotes ends here.
fn ends_word(text: &str) -> bool {
    text.starts_with(|c| is_blank(c) || ",#(){};".contains(c))
        || OPERATORS.iter().any(|operator| text.starts_with(operator))
}

/// Why what follows the value of `item` is wrong.
fn misplaced(item: &Item<'_>, behind: &str) -> String {
    let name = item.name.escape_debug();
    let sign = behind.chars().next().filter(|_| ends_word(behind));
    match sign {
        Some(sign) => format!("{name}: a value with `{sign}` needs quotes"),
        None => format!("expected a comma before {}", shown(behind)),
    }
}

/// The text up to the closing quote, with its escapes, and what follows it.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut escape = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escape => escape = false,
            '\\' => escape = true,
            _ if c == quote => return Ok((text[..at].to_owned(), &text[at + 1..])),
            _ => {}
        }
    }
    Err("a quote is not closed on this line".into())
}

fn instead(text: &str) -> String {
    if is_end(text) { "the line ends".to_owned() } else { format!("found {}", shown(text)) }
}

/// The first word or sign of a text, as a message shows it: without control characters.
fn shown(text: &str) -> String {
    let first = text.chars().next().map_or(0, char::len_utf8);
    let end = match OPERATORS.iter().find(|operator| text.starts_with(**operator)) {
        Some(operator) => operator.len(),
        None => text
            .char_indices()
            .skip(1)
            .find(|(at, _)| ends_word(&text[*at..]))
            .map_or(text.len(), |(at, _)| at),
    };
    format!("`{}`", text[..end.max(first)].escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What FreeRADIUS 3.2.1 sends for `Reply-Message = VALUE`; `None`: it refuses the file.
    #[test]
    fn values_are_freeradius_s() {
        for (value, sent) in [
            ("a#b", Some("a")),
            (r"a\nb", Some("a\nb")),
            (r"a\tb", Some("a\tb")),
            (r"a\b", Some(r"a\b")),
            (r"a\\b", Some(r"a\b")),
            (r"a\101b", Some("aAb")),
            (r"a\x41", Some(r"a\x41")),
            (r#"a\"b"#, Some("a\"b")),
            (r"a\'b", Some(r"a\'b")),
            ("a%b", Some("a%b")),
            ("%u", Some("%u")),
            ("100%", Some("100%")),
            ("a+b", Some("a+b")),
            ("a'b", Some("a'b")),
            ("a\"b", Some("a\"b")),
            ("a`b", Some("a`b")),
            ("a!b", Some("a!b")),
            ("a:b", Some("a:b")),
            ("a~b|c&d*e-f", Some("a~b|c&d*e-f")),
            ("&User-Name", Some("&User-Name")),
            ("172.16.3.33+", Some("172.16.3.33+")),
            ("$a", Some("$a")),
            ("@a", Some("@a")),
            ("/a/", Some("/a/")),
            ("é", Some("é")),
            ("-a # b", Some("-a")),
            ("'%{User-Name}'", Some("%{User-Name}")),
            (r"'a\'b'", Some("a'b")),
            (r"'a\\b'", Some(r"a\b")),
            ("\"a#b\"", Some("a#b")),
            (r#""a\101""#, Some("aA")),
            (r#""a\\""#, Some("a\\")),
            ("%{User-Name}", None),
            ("a(b", None),
            ("a)b", None),
            ("a{b", None),
            ("a}b", None),
            ("a;b", None),
            ("a=b", None),
            ("a<b", None),
            ("a>b", None),
            ("a:=b", None),
            ("a+=b", None),
            ("a!=b", None),
            ("a=~b", None),
            ("a=*b", None),
            ("=a", None),
            ("#b", None),
            ("(a", None),
            ("a b", None),
            ("${a}", None),
            (r"a\", None),
            (r"a\ b", None),
            ("\"a\"b", None),
            ("\"a\" b", None),
            (r#""abc\""#, None),
            ("", None),
        ] {
            let line = format!("\tReply-Message = {value}\n");
            let read = items(line.trim_end_matches('\n')).and_then(|(items, end)| {
                assert_eq!((items.len(), end), (1, End::Whole), "{value}");
                items[0].value.text()
            });
            assert_eq!(read.as_deref().ok(), sent, "{value}: {read:?}");
        }
    }

    #[test]
    fn items_end_with_a_comma_or_a_comment() {
        let read = |line| items(line).map(|(items, end)| (items.len(), end));
        assert_eq!(read("\tA = 1, B := 2"), Ok((2, End::Whole)));
        assert_eq!(read("\tA=1,B+=2,"), Ok((2, End::Comma)));
        assert_eq!(read("A = 1 , \r"), Ok((1, End::Comma)));
        // A comment behind the comma ends the list.
        assert_eq!(read("A = 1, # more"), Ok((1, End::Whole)));
        assert_eq!(read(" # nothing"), Ok((0, End::Whole)));
        let (found, _) = items("Tunnel-Type:1:=VLAN").unwrap();
        assert_eq!((found[0].name, found[0].operator), ("Tunnel-Type:1", ":="));
        for (line, reason) in [
            (", A = 1", "expected NAME := VALUE, but found `,`"),
            ("A = 1,, B = 2", "expected NAME := VALUE, but found `,`"),
            ("&A = 1", "expected NAME := VALUE, but found `&A`"),
            ("A = 1 B = 2", "expected a comma before `B`"),
            ("A", "expected := after A, but the line ends"),
            ("A 1", "expected := after A, but found `1`"),
            ("A =", "A =: the line ends: expected a value"),
            ("A = a;b", "A: a value with `;` needs quotes"),
            ("A = (b", "A =: expected a value, but found `(b`: quote one that has it"),
            ("A = %{b}", "A =: %{...} would be expanded"),
            ("A = \"%{b}\"", "A =: what follows a % between double quotes"),
            ("A = `b`", "A =: programs are not run"),
            ("A = \"b", "A =: a quote is not closed"),
        ] {
            let error = items(line).unwrap_err();
            assert!(error.starts_with(reason), "{line}: {error}");
        }
    }

    #[test]
    fn a_name_ends_at_a_blank_or_a_comma() {
        for (line, read) in [
            ("bob\tA := 1", ("bob", "\tA := 1")),
            ("b#o=b\"\\x", ("b#o=b\"\\x", "")),
            ("bob,x", ("bob", ",x")),
            ("'b b' A", ("b b", " A")),
            ("\"b'b\"A", ("b'b", "A")),
        ] {
            assert_eq!(name(line), Ok((read.0.to_owned(), read.1)));
        }
        assert!(name("\"b\\tb\" A").unwrap_err().starts_with("a backslash in the quotes"));
        assert!(name("\"b").unwrap_err().starts_with("a quote is not closed"));
    }
}
