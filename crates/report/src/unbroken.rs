//! Commands within a text: no line ends in one.

/// A space at which no line is broken.
pub(crate) const UNBROKEN: char = '\u{a0}';

/// `text` as one word of a text that gets wrapped: a command that is broken is two when it is copied.
pub(crate) fn unbroken(text: &str) -> String {
    text.replace(' ', UNBROKEN.encode_utf8(&mut [0; 4]))
}
