//! Parses keys from the bytes that a terminal sends.
//!
//! ```text
//!  a          Char        ^L         Control        ESC [ A     Up        ESC [ 5 ~   PageUp
//!  ESC        Escape, if nothing follows            ESC O A     Up, of a terminal in application mode
//! ```
//! Unknown sequences are skipped as a whole, so that no part of one is read as a key.

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// With Ctrl, in lower case.
    Control(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

const ESCAPE: u8 = 0x1b;
/// Longest sequence to wait for. Terminals do not send longer ones.
const MAX_SEQUENCE: usize = 32;

/// Bytes received that are not a complete key yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    rest: Vec<u8>,
}

/// The meaning of the first bytes.
enum Found {
    /// A key of this many bytes.
    Key(Key, usize),
    /// This many bytes that are not a key.
    Nothing(usize),
    /// The start of a sequence.
    Incomplete,
}

impl Input {
    /// The keys that these bytes complete.
    pub(super) fn keys(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.rest.extend_from_slice(bytes);
        let (mut keys, mut at) = (Vec::new(), 0);
        while at < self.rest.len() {
            match first(&self.rest[at..]) {
                Found::Key(key, length) => {
                    keys.push(key);
                    at += length;
                }
                Found::Nothing(length) => at += length,
                Found::Incomplete if self.rest.len() - at > MAX_SEQUENCE => at = self.rest.len(),
                Found::Incomplete => break,
            }
        }
        self.rest.drain(..at);
        keys
    }

    /// Is a lone escape pending? Then bytes that follow soon belong to it.
    pub(super) fn is_escape(&self) -> bool {
        self.rest == [ESCAPE]
    }

    /// Nothing followed: it was the Escape key.
    pub(super) fn escape(&mut self) -> Key {
        self.rest.clear();
        Key::Escape
    }
}

fn first(bytes: &[u8]) -> Found {
    match bytes {
        [ESCAPE] => Found::Incomplete,
        [ESCAPE, b'[', sequence @ ..] => control_sequence(sequence),
        [ESCAPE, b'O', rest @ ..] => match rest.first() {
            None => Found::Incomplete,
            Some(last) => cursor(*last).map_or(Found::Nothing(3), |key| Found::Key(key, 3)),
        },
        // The key, and another typed right after it; or Alt with a key, which is not used here.
        [ESCAPE, ESCAPE, ..] => Found::Key(Key::Escape, 1),
        [ESCAPE, _, ..] => Found::Nothing(2),
        [b'\r' | b'\n', ..] => Found::Key(Key::Enter, 1),
        [b'\t', ..] => Found::Key(Key::Tab, 1),
        [0x7f | 0x08, ..] => Found::Key(Key::Backspace, 1),
        [byte @ 1..=0x1a, ..] => Found::Key(Key::Control((b'a' + byte - 1).into()), 1),
        [0..0x20, ..] => Found::Nothing(1),
        _ => character(bytes),
    }
}

/// Parses what follows `ESC [`: parameters, then one final byte that gives the function (ECMA-48, 5.4).
fn control_sequence(sequence: &[u8]) -> Found {
    let Some(end) = sequence.iter().position(|byte| (0x40..0x7f).contains(byte)) else {
        return Found::Incomplete;
    };
    let length = end + 3;
    let key = match (&sequence[..end], sequence[end]) {
        (b"", b'Z') => Some(Key::BackTab),
        (b"", last) => cursor(last),
        (b"1" | b"7", b'~') => Some(Key::Home),
        (b"4" | b"8", b'~') => Some(Key::End),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        _ => None,
    };
    key.map_or(Found::Nothing(length), |key| Found::Key(key, length))
}

const fn cursor(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        _ => return None,
    })
}

/// A UTF-8 character.
fn character(bytes: &[u8]) -> Found {
    let some = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(some) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&some[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return error.error_len().map_or(Found::Incomplete, Found::Nothing),
    };
    match valid.chars().next() {
        Some(c) => Found::Key(Key::Char(c), c.len_utf8()),
        None => Found::Nothing(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        Input::default().keys(bytes)
    }

    #[test]
    fn letters_controls_and_characters_of_several_bytes() {
        assert_eq!(keys(b"aQ?"), [Key::Char('a'), Key::Char('Q'), Key::Char('?')]);
        assert_eq!(keys(b"\x03\x1a\x0c"), [Key::Control('c'), Key::Control('z'), Key::Control('l')]);
        assert_eq!(keys(b"\r\t\x7f\x08"), [Key::Enter, Key::Tab, Key::Backspace, Key::Backspace]);
        assert_eq!(keys("é€x".as_bytes()), [Key::Char('é'), Key::Char('€'), Key::Char('x')]);
        assert_eq!(keys(b"\xffx"), [Key::Char('x')]);
    }

    #[test]
    fn sequences_of_common_terminals() {
        for (bytes, key) in [
            (&b"\x1b[A"[..], Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[C", Key::Right),
            (b"\x1b[D", Key::Left),
            (b"\x1b[H", Key::Home),
            (b"\x1b[1~", Key::Home),
            (b"\x1b[F", Key::End),
            (b"\x1b[4~", Key::End),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1b[Z", Key::BackTab),
        ] {
            assert_eq!(keys(bytes), [key]);
            // The same in pieces.
            let mut input = Input::default();
            let piecewise: Vec<Key> = bytes.iter().flat_map(|byte| input.keys(&[*byte])).collect();
            assert_eq!(piecewise, [key]);
        }
    }

    #[test]
    fn unknown_sequences_are_skipped_whole() {
        // Shift with an arrow, F5, a mouse event, Alt with q, a reply of the terminal.
        for bytes in [&b"\x1b[1;2A"[..], b"\x1b[15~", b"\x1b[<0;10;10M", b"\x1bq", b"\x1b[24;80R", b"\x1bOP"]
        {
            assert_eq!(keys(&[bytes, b"x"].concat()), [Key::Char('x')], "{bytes:?}");
        }
        let mut endless = Input::default();
        assert_eq!(endless.keys(&[b"\x1b[", &[b'1'; 100][..]].concat()), []);
        assert_eq!(endless.keys(b"x"), [Key::Char('x')]);
    }

    #[test]
    fn escape_is_a_key_when_nothing_follows() {
        let mut input = Input::default();
        assert_eq!(input.keys(b"\x1b"), []);
        assert!(input.is_escape());
        assert_eq!(input.escape(), Key::Escape);
        assert_eq!(input.keys(b"["), [Key::Char('[')]);
        assert_eq!(keys(b"\x1b\x1b[A"), [Key::Escape, Key::Up]);
    }

    #[test]
    fn arbitrary_bytes_are_accepted() {
        // Every pair of bytes, alone and after an escape.
        for pair in 0..=u16::MAX {
            let [a, b] = pair.to_be_bytes();
            let mut input = Input::default();
            let _ = input.keys(&[a, b]);
            let _ = input.keys(&[ESCAPE, a, b, b'~']);
            assert!(input.rest.len() <= MAX_SEQUENCE);
        }
    }
}
