//! Numbers of bytes, as people write them.

/// A number with `k`, `m` or `g` for the powers of 1024, small or capital: `4m`. None of anything else, or of too much.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (digits, scale) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    count(digits)?.checked_mul(scale)
}

/// A whole number of digits alone: `parse` would accept a sign.
pub(crate) fn count(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_suffix() {
        for (text, number) in
            [("65536", 65536), ("4m", 4 << 20), ("8M", 8 << 20), ("1k", 1024), ("2G", 2 << 30)]
        {
            assert_eq!(bytes(text), Some(number), "{text}");
        }
        for bad in ["", "m", "4 m", "-1", "+1", "4mm", "4\u{b5}", "99999999999999999999g", "99999999999g"] {
            assert_eq!(bytes(bad), None, "{bad:?}");
        }
        assert_eq!((count("4"), count("4m"), count("")), (Some(4), None, None));
    }
}
