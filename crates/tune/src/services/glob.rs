//! The patterns of glob(3), as servers give them to it: names are bytes, and no locale is asked.
//!
//! ```text
//! [^x]*.conf  [!x]*.conf      all but x...          [[:digit:]]*     classes of letters
//! \*.conf                     the file named *      {a,b}*.conf      NSD and Unbound: a*.conf, then b*.conf
//! ```
//! (The crate `glob` reads `[^x]`, classes and backslashes otherwise, and finds nothing.)

/// Most patterns that braces make of one. NSD and Unbound need a handful. Lower: an include is reported as not read.
/// Higher: `{a,b}{a,b}...` takes longer.
const MAX_ALTERNATIVES: usize = 512;

/// A part of a pattern between slashes.
#[derive(Debug)]
pub(super) struct Part(Vec<Token>);

#[derive(Debug)]
enum Token {
    Byte(u8),
    /// `?`
    One,
    /// `*`
    Many,
    /// `[...]`, or all but these.
    Set(bool, Vec<Item>),
}

#[derive(Debug, Clone, Copy)]
enum Item {
    Range(u8, u8),
    Class(fn(&u8) -> bool),
}

/// The patterns that one with braces stands for, in the order in which glob(3) with GLOB_BRACE looks for them.
///
/// # Errors
/// They are too many.
pub(super) fn alternatives(pattern: &str) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    // The one that is expanded next is the last.
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        let Some((begin, commas, end)) = braces(&pattern) else {
            done.push(pattern);
            continue;
        };
        let starts = std::iter::once(begin).chain(commas.iter().copied()).map(|at| at + 1);
        let ends = commas.iter().copied().chain([end]);
        let inside = starts
            .zip(ends)
            .map(|(from, to)| [&pattern[..begin], &pattern[from..to], &pattern[end + 1..]].concat());
        let inside: Vec<String> = inside.collect();
        open.extend(inside.into_iter().rev());
        if done.len() + open.len() > MAX_ALTERNATIVES {
            return Err(format!("its braces stand for more than {MAX_ALTERNATIVES} patterns"));
        }
    }
    Ok(done)
}

/// Where the first braces of a pattern begin, are separated, and end. None: it has none, or they do not end, and then
/// glob(3) takes them as they stand. So are `{}`.
fn braces(pattern: &str) -> Option<(usize, Vec<usize>, usize)> {
    let (mut begin, mut depth, mut commas) = (None, 0_usize, Vec::new());
    let mut letters = pattern.bytes().enumerate();
    while let Some((at, byte)) = letters.next() {
        match (byte, begin) {
            (b'\\', _) => _ = letters.next(),
            (b'{', None) if pattern[at..].starts_with("{}") => _ = letters.next(),
            (b'{', None) => begin = Some(at),
            (b'{', Some(_)) => depth += 1,
            (b'}', Some(begin)) if depth == 0 => return Some((begin, commas, at)),
            (b'}', Some(_)) => depth -= 1,
            (b',', Some(_)) if depth == 0 => commas.push(at),
            _ => {}
        }
    }
    None
}

/// Whether a path is a pattern, or has a letter that is taken as it stands.
pub(super) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// A part of a path without its backslashes: each takes the next letter as it stands.
pub(super) fn plain(part: &str) -> String {
    let mut letters = part.chars();
    let mut plain = String::with_capacity(part.len());
    while let Some(letter) = letters.next() {
        plain.extend(if letter == '\\' { letters.next().or(Some(letter)) } else { Some(letter) });
    }
    plain
}

impl Part {
    /// Reads a part of a pattern.
    ///
    /// # Errors
    /// It has something that only the server's locale explains, or that nothing does.
    pub(super) fn new(part: &str) -> Result<Self, String> {
        let bytes = part.as_bytes();
        let (mut tokens, mut at) = (Vec::new(), 0);
        while let Some(byte) = bytes.get(at) {
            at += 1;
            let token = match byte {
                b'?' => Token::One,
                b'*' if matches!(tokens.last(), Some(Token::Many)) => continue,
                b'*' => Token::Many,
                b'\\' => {
                    let next = bytes.get(at).copied();
                    at += 1;
                    Token::Byte(next.unwrap_or(b'\\'))
                }
                // Without its end it is a bracket.
                b'[' => match set(&bytes[at..])? {
                    Some((not, items, len)) => {
                        at += len;
                        Token::Set(not, items)
                    }
                    None => Token::Byte(b'['),
                },
                byte => Token::Byte(*byte),
            };
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Whether a name matches: a dot at its beginning only a dot.
    pub(super) fn matches(&self, name: &str) -> bool {
        if name.starts_with('.') && !matches!(self.0.first(), Some(Token::Byte(b'.'))) {
            return false;
        }
        let name = name.as_bytes();
        let (mut token, mut at) = (0, 0);
        // Where the last `*` is, and where what follows it was last looked for.
        let mut many: Option<(usize, usize)> = None;
        loop {
            match (self.0.get(token), name.get(at)) {
                (None, None) => return true,
                (Some(Token::Many), _) => {
                    many = Some((token, at));
                    token += 1;
                }
                (Some(one), Some(byte)) if one.is(*byte) => (token, at) = (token + 1, at + 1),
                _ => match many.filter(|(_, from)| *from < name.len()) {
                    Some((star, from)) => {
                        many = Some((star, from + 1));
                        (token, at) = (star + 1, from + 1);
                    }
                    None => return false,
                },
            }
        }
    }
}

impl Token {
    /// Whether it is this byte.
    fn is(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::One => true,
            Self::Many => false,
            Self::Set(not, items) => {
                let within = items.iter().any(|item| match item {
                    Item::Range(from, to) => (*from..=*to).contains(&byte),
                    Item::Class(is) => is(&byte),
                });
                within != *not
            }
        }
    }
}

/// The set whose bracket stands before these bytes: whether it is negated, its items, and its length with the closing
/// bracket. None: it has no end.
#[allow(clippy::type_complexity, reason = "of one caller")]
fn set(bytes: &[u8]) -> Result<Option<(bool, Vec<Item>, usize)>, String> {
    let not = matches!(bytes.first(), Some(b'!' | b'^'));
    let first = usize::from(not);
    let (mut items, mut at) = (Vec::new(), first);
    loop {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b']') if at > first => return Ok(Some((not, items, at + 1))),
            Some(b'[') if bytes.get(at + 1) == Some(&b':') => {
                let Some(len) = bytes[at..].windows(2).position(|two| two == b":]") else { return Ok(None) };
                items.push(Item::Class(class(&bytes[at + 2..at + len])?));
                at += len + 2;
                continue;
            }
            Some(_) => {}
        }
        let Some((from, next)) = letter(&bytes[at..])? else { return Ok(None) };
        at += next;
        // A hyphen at the end is one.
        let range = bytes.get(at) == Some(&b'-') && bytes.get(at + 1).is_some_and(|next| *next != b']');
        let mut to = from;
        if range {
            let Some((last, next)) = letter(&bytes[at + 1..])? else { return Ok(None) };
            to = last;
            at += 1 + next;
        }
        items.push(Item::Range(from, to));
    }
}

/// The letter of a set that stands first, and how long it is: `x`, `\x`, `[.x.]` or `[=x=]`.
fn letter(bytes: &[u8]) -> Result<Option<(u8, usize)>, String> {
    Ok(match bytes {
        [b'\\', byte, ..] => Some((*byte, 2)),
        [b'[', mark @ (b'.' | b'='), byte, end, b']', ..] if mark == end => Some((*byte, 5)),
        [b'[', b'.' | b'=', ..] => return Err("it has a collating element, which is the locale's".to_owned()),
        [byte, ..] => Some((*byte, 1)),
        [] => None,
    })
}

fn class(name: &[u8]) -> Result<fn(&u8) -> bool, String> {
    Ok(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return Err(format!("there is no class [:{}:]", String::from_utf8_lossy(name))),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn braces_stand_for_their_parts_in_order() {
        for (pattern, expected) in [
            ("a{b,c}d", "abd acd"),
            ("{b,a}{1,2}", "b1 b2 a1 a2"),
            ("{{a,b},x}*", "a* b* x*"),
            ("{a}", "a"),
            ("a{,b}", "a ab"),
            ("{}a", "{}a"),
            ("{a,b", "{a,b"),
            ("a}", "a}"),
            ("\\{a,b}", "\\{a,b}"),
            ("{a\\,b,c}", "a\\,b c"),
        ] {
            assert_eq!(alternatives(pattern).unwrap().join(" "), expected, "{pattern}");
        }
        assert!(alternatives(&"{a,b}".repeat(12)).unwrap_err().contains("more than 512"));
    }

    #[test]
    fn what_matches_and_what_is_not_known() {
        for (pattern, names) in [
            ("[^x]*.conf", "a.conf 1a.conf"),
            ("[!x]*.conf", "a.conf 1a.conf"),
            ("[[:digit:]]*", "1a.conf"),
            ("\\*", "*"),
            ("[]a]*", "a.conf ]"),
            ("[\\]a]*", "a.conf ]"),
            ("[a", "[a"),
            ("[[.a.]]*", "a.conf"),
            (".*", ".b"),
            ("?", "* ]"),
            ("[b-a]", ""),
        ] {
            let part = Part::new(pattern).unwrap();
            let all = ["*", "1a.conf", "a.conf", "x.conf", ".b", "]", "[a"];
            let mut found: Vec<&str> = all.into_iter().filter(|name| part.matches(name)).collect();
            let mut names: Vec<&str> = names.split_whitespace().collect();
            found.sort_unstable();
            names.sort_unstable();
            assert_eq!(found, names, "{pattern}");
        }
        assert!(Part::new("[[:nope:]]").unwrap_err().contains("[:nope:]"));
        assert!(Part::new("[[.hyphen.]]").unwrap_err().contains("collating"));
        assert_eq!(plain("a\\*\\\\b\\"), "a*\\b\\");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// find(1) has the fnmatch(3) that is part of glob(3).
        #[test]
        fn as_the_c_library_does(
            patterns in prop::collection::vec("[]a-c^!*?\\\\.-]{0,3}(\\[[!^]?[]a-c.-]{1,3}\\])?[a-c*?]{0,2}", 8),
            names in prop::collection::btree_set("[]a-c.^!*?\\\\-]{1,4}", 1..12),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let names: BTreeSet<String> = names.into_iter().filter(|name| name != "." && name != "..").collect();
            for name in &names {
                std::fs::write(folder.path().join(name), "").unwrap();
            }
            // A backslash at the end escapes nothing, and implementations differ.
            for pattern in patterns.iter().filter(|pattern| !pattern.ends_with('\\') && !pattern.is_empty()) {
                let mut find = Command::new("find");
                find.current_dir(folder.path()).env("LC_ALL", "C").args([".", "-mindepth", "1", "-name", pattern]);
                let output = find.args(["-printf", "%f\n"]).output().unwrap();
                let theirs: BTreeSet<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
                let Ok(part) = Part::new(pattern) else { continue };
                // find has no rule for a dot at the beginning.
                let is_shown = |name: &&String| !name.starts_with('.');
                let ours: BTreeSet<String> = names.iter().filter(|name| part.matches(name)).filter(is_shown).cloned().collect();
                let theirs: BTreeSet<String> = theirs.iter().filter(is_shown).cloned().collect();
                prop_assert_eq!(ours, theirs, "{}", pattern);
            }
        }
    }
}
