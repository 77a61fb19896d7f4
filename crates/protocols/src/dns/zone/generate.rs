//! `$GENERATE`: records of a template and numbers, as BIND has it.
//!
//! ```text
//! $GENERATE 1-3/2 host-$ 300 A 192.0.2.${10,0,d}
//!           └ numbers 1, 3    `$`: the number; `${offset,width,base}`: more, padded, in base d, o, x or X
//!           ─▸ host-1 300 A 192.0.2.11, host-3 300 A 192.0.2.13       `\$` is a dollar sign
//! ```

use super::text::Token;

/// Most records of one directive. Fewer: a network's reverse zone is refused; more: a mistake takes all memory.
const MAX: u64 = 1 << 20;

/// A directive's template.
pub(super) struct Template {
    first: u32,
    last: u32,
    step: u32,
    /// The record, with its numbers to be written.
    record: Vec<u8>,
}

impl Template {
    /// Of the tokens after `$GENERATE`.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub(super) fn new(tokens: &[Token<'_>]) -> Result<Self, String> {
        const EXPECTED: &str = "expected `$GENERATE FIRST-LAST[/STEP] NAME [TTL] [IN] TYPE DATA`";
        let [range, record @ ..] = tokens else { return Err(EXPECTED.into()) };
        if record.len() < 3 {
            return Err(EXPECTED.into());
        }
        let text = range.shown();
        let parsed = || {
            let (numbers, step) = text.split_once('/').unwrap_or((&text, "1"));
            let (first, last) = numbers.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?, step.parse().ok().filter(|step| *step > 0)?))
        };
        let (first, last, step): (u32, u32, u32) =
            parsed().filter(|(first, last, _)| first <= last).ok_or_else(|| {
                format!("`{text}` is no range of numbers: expected FIRST-LAST[/STEP], such as 1-254")
            })?;
        let count = u64::from((last - first) / step) + 1;
        if count > MAX {
            return Err(format!("{count} records of one $GENERATE: at most {MAX}"));
        }
        let mut line = Vec::new();
        for (at, token) in record.iter().enumerate() {
            line.extend((!line.is_empty()).then_some(b' '));
            if token.quoted && ends_with_type(&record[..at]) && at + 1 == record.len() {
                line.extend(unquoted(token.text));
                continue;
            }
            line.extend(token.quoted.then_some(b'"'));
            line.extend_from_slice(token.text);
            line.extend(token.quoted.then_some(b'"'));
        }
        let template = Self { first, last, step, record: line };
        template.substitute(i64::from(first)).map(|_| template)
    }

    /// The numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        (self.first..=self.last).step_by(self.step as usize)
    }

    /// The text of one record.
    pub(super) fn text(&self, number: u32) -> Vec<u8> {
        // Checked with the first number.
        self.substitute(i64::from(number)).unwrap_or_default()
    }

    fn substitute(&self, number: i64) -> Result<Vec<u8>, String> {
        let mut text = Vec::with_capacity(self.record.len() + 8);
        let mut at = 0;
        while let Some(byte) = self.record.get(at) {
            match (byte, self.record.get(at + 1)) {
                (b'\\', Some(b'$')) => {
                    text.push(b'$');
                    at += 2;
                }
                (b'\\', Some(next)) => {
                    text.extend_from_slice(&[b'\\', *next]);
                    at += 2;
                }
                // BIND's older way to write one.
                (b'$', Some(b'$')) => {
                    text.push(b'$');
                    at += 2;
                }
                (b'$', Some(b'{')) => {
                    let rest = &self.record[at + 2..];
                    let end = rest.iter().position(|byte| *byte == b'}').ok_or("a `${` without `}`")?;
                    let modifier = String::from_utf8_lossy(&rest[..end]).into_owned();
                    text.extend_from_slice(modified(number, &modifier)?.as_bytes());
                    at += 3 + end;
                }
                (b'$', _) => {
                    text.extend_from_slice(number.to_string().as_bytes());
                    at += 1;
                }
                _ => {
                    text.push(*byte);
                    at += 1;
                }
            }
        }
        Ok(text)
    }
}

/// Whether the last of these tokens is the type of their record, so that its data follow.
fn ends_with_type(before: &[Token<'_>]) -> bool {
    let Some((_, rest)) = before.split_first() else { return false };
    let is_before_type = |token: &&Token<'_>| {
        token.text.first().is_some_and(u8::is_ascii_digit)
            || ["IN", "CH", "HS"].iter().any(|class| token.is(class))
    };
    rest.iter().skip_while(is_before_type).count() == 1
}

/// What is in the quotes around all of the data: BIND's form for data of several fields. Quotes in it have a backslash.
fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        let escaped = if byte == b'\\' { rest.next() } else { None };
        bytes.extend((escaped != Some(b'"')).then_some(byte));
        bytes.extend(escaped);
    }
    bytes
}

/// A number by `offset[,width[,base]]`.
fn modified(number: i64, modifier: &str) -> Result<String, String> {
    let wrong = || format!("`${{{modifier}}}`: expected `${{OFFSET[,WIDTH[,d|o|x|X|n|N]]}}`");
    let mut parts = modifier.split(',');
    let offset: i64 = parts.next().and_then(|offset| offset.parse::<i32>().ok()).ok_or_else(wrong)?.into();
    let width: usize = parts.next().map_or(Some(0), |width| width.parse().ok()).ok_or_else(wrong)?;
    let base = parts.next().unwrap_or("d");
    if parts.next().is_some() || width > 255 {
        return Err(wrong());
    }
    let value = number + offset;
    if base == "d" {
        return Ok(format!("{value:0width$}"));
    }
    // Of a negative number the digits of its 32 bits, as in BIND.
    let value = u64::try_from(value).unwrap_or(u64::from(value as u32));
    Ok(match base {
        "o" => format!("{value:0width$o}"),
        "x" => format!("{value:0width$x}"),
        "X" => format!("{value:0width$X}"),
        "n" | "N" => nibbles(value, width, base == "N"),
        _ => return Err(wrong()),
    })
}

/// Hexadecimal digits from the last, each a label, for IPv6's reverse zones; `width` counts digits and dots.
fn nibbles(mut value: u64, width: usize, upper: bool) -> String {
    let mut text = String::new();
    loop {
        let digit = value & 0xf;
        text += &if upper { format!("{digit:X}") } else { format!("{digit:x}") };
        value >>= 4;
        if value == 0 && text.len() >= width {
            return text;
        }
        text.push('.');
        if value == 0 && text.len() >= width {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::Scanner;
    use super::*;

    fn made(text: &str) -> Result<Vec<String>, String> {
        let mut tokens = Vec::new();
        Scanner::new(text.as_bytes(), 1).next(&mut tokens).unwrap().unwrap();
        let template = Template::new(&tokens)?;
        let texts = template.numbers().map(|number| String::from_utf8(template.text(number)).unwrap());
        Ok(texts.collect())
    }

    #[test]
    fn numbers_are_written_into_the_template() {
        assert_eq!(made("1-2 h$ A 10.0.0.$").unwrap(), ["h1 A 10.0.0.1", "h2 A 10.0.0.2"]);
        assert_eq!(
            made("7-9/2 h${0,3} 60 IN TXT \"n $ \\$\"").unwrap(),
            ["h007 60 IN TXT n 7 $", "h009 60 IN TXT n 9 $"]
        );
        assert_eq!(made("10-10 ${-3} CNAME ${16,4,x}.${0,0,X}.${8,0,o}").unwrap(), ["7 CNAME 001a.A.22"]);
        assert_eq!(
            made("1-5/4 ${-4,3} A ${-4,3,x}.${-4,3,o}").unwrap(),
            ["-03 A fffffffd.37777777775", "001 A 001.001"]
        );
        assert_eq!(made("18-18 ${0,3,n} PTR a").unwrap(), ["2.1 PTR a"]);
    }

    /// As BIND 9.18 serves them: it has no other form for data of several fields.
    #[test]
    fn quotes_around_all_of_the_data_are_none_of_the_data() {
        for (text, record) in [
            ("MX \"$ h$\"", "MX 1 h1"),
            ("0 IN SRV \"0 0 $ h$\"", "0 IN SRV 0 0 1 h1"),
            ("CAA \"0 issue \\\"ca$\\\"\"", "CAA 0 issue \"ca1\""),
            ("TXT \"\\\"a b\\\" $\"", "TXT \"a b\" 1"),
            ("TYPE65400 \"\\# 1 0$\"", "TYPE65400 \\# 1 01"),
            // Two strings are data of two fields as they are.
            ("TXT \"a b\" \"$\"", "TXT \"a b\" \"1\""),
        ] {
            assert_eq!(made(&format!("1-1 q {text}")).unwrap(), [format!("q {record}")], "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, words) in [
            ("1-2 h$ A", "expected `$GENERATE"),
            ("2-1 h$ A 1", "no range"),
            ("1-2/0 h$ A 1", "no range"),
            ("1 h$ A 1", "no range"),
            ("0-4294967295 h$ A 1", "at most"),
            ("1-2 h${ A 1", "without `}`"),
            ("1-2 h${a} A 1", "expected `${OFFSET"),
            ("1-2 h${0,1,z} A 1", "expected `${OFFSET"),
        ] {
            assert!(made(text).is_err_and(|why| why.contains(words)), "{text}: {:?}", made(text));
        }
    }
}
