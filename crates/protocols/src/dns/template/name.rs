//! Names as text, in the presentation format of master files (RFC 1035, 5.1), to their form in messages.

/// Longest name in a message, bytes, the root's zero included (RFC 1035, 3.1).
pub(super) const MAX_NAME: usize = 255;
/// Longest label, bytes.
const MAX_LABEL: usize = 63;

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum NameError {
    #[error("the name is empty: write `.` for the root")]
    Empty,
    #[error("the name has an empty label: two dots in a row, or a dot in front")]
    EmptyLabel,
    #[error("a label has more than {MAX_LABEL} bytes")]
    LongLabel,
    #[error("the name has more than {MAX_NAME} bytes in a message")]
    Long,
    #[error("a backslash must be followed by one character, or by three digits up to 255")]
    Escape,
}

/// Writes the name `text` to `wire`, which is cleared first. Names are absolute, with or without the final dot; `\.` is
/// a dot within a label, `\065` the byte 65. Case is kept.
pub(in super::super) fn write(text: &[u8], wire: &mut Vec<u8>) -> Result<(), NameError> {
    wire.clear();
    match text {
        [] => return Err(NameError::Empty),
        b"." => {
            wire.push(0);
            return Ok(());
        }
        _ => {}
    }
    let mut rest = text;
    while !rest.is_empty() {
        rest = write_label(rest, wire)?;
        // The root's zero comes behind it.
        if wire.len() >= MAX_NAME {
            return Err(NameError::Long);
        }
    }
    wire.push(0);
    Ok(())
}

/// Writes the first label of `text`; returns what follows its dot.
fn write_label<'a>(text: &'a [u8], wire: &mut Vec<u8>) -> Result<&'a [u8], NameError> {
    let (at, mut rest) = (wire.len(), text);
    wire.push(0);
    let end = loop {
        let byte = match rest {
            [] => break rest,
            [b'.', after @ ..] => break after,
            [b'\\', after @ ..] => {
                let (byte, after) = escaped(after)?;
                rest = after;
                byte
            }
            [byte, after @ ..] => {
                rest = after;
                *byte
            }
        };
        wire.push(byte);
        if wire.len() - at > 1 + MAX_LABEL {
            return Err(NameError::LongLabel);
        }
    };
    let len = wire.len() - at - 1;
    if len == 0 {
        return Err(NameError::EmptyLabel);
    }
    // At most 63.
    wire[at] = len as u8;
    Ok(end)
}

/// The byte behind a backslash, and what follows.
fn escaped(text: &[u8]) -> Result<(u8, &[u8]), NameError> {
    match text {
        [a, b, c, rest @ ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
            let value = [a, b, c].iter().fold(0, |value, digit| value * 10 + u16::from(**digit - b'0'));
            u8::try_from(value).map(|byte| (byte, rest)).map_err(|_| NameError::Escape)
        }
        [byte, rest @ ..] if !byte.is_ascii_digit() => Ok((*byte, rest)),
        _ => Err(NameError::Escape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> Result<Vec<u8>, NameError> {
        let mut wire = vec![9];
        write(text.as_bytes(), &mut wire).map(|()| wire)
    }

    #[test]
    fn names_are_written_as_in_messages() {
        assert_eq!(wire(".").unwrap(), [0]);
        assert_eq!(wire("a").unwrap(), b"\x01a\0");
        assert_eq!(wire("wWw.Example.org").unwrap(), b"\x03wWw\x07Example\x03org\0");
        assert_eq!(wire("example.org."), wire("example.org"));
        assert_eq!(wire(r"a\.b.c\\\065\000").unwrap(), b"\x03a.b\x04c\\A\0\0");
        assert_eq!(wire("_x._udp.*").unwrap(), b"\x02_x\x04_udp\x01*\0");
    }

    #[test]
    fn limits_are_exact() {
        let label = "l".repeat(63);
        assert_eq!(wire(&label).unwrap().len(), 65);
        assert_eq!(wire(&format!("{label}l")), Err(NameError::LongLabel));
        // Three labels of 64 bytes each, one of 62, and the root: 255.
        let longest = format!("{label}.{label}.{label}.{}", "l".repeat(61));
        assert_eq!(wire(&longest).unwrap().len(), MAX_NAME);
        assert_eq!(wire(&format!("{longest}l")), Err(NameError::Long));
        assert_eq!(wire(&format!("{longest}.l")), Err(NameError::Long));
    }

    #[test]
    fn each_fault_is_named() {
        for (text, error) in [
            ("", NameError::Empty),
            ("..", NameError::EmptyLabel),
            (".a", NameError::EmptyLabel),
            ("a..b", NameError::EmptyLabel),
            (r"a\", NameError::Escape),
            (r"a\25", NameError::Escape),
            (r"a\256", NameError::Escape),
            (r"a\1x5", NameError::Escape),
        ] {
            assert_eq!(wire(text), Err(error), "{text}");
        }
    }
}
