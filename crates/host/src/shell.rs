//! Words of commands that people paste: none of them is more than a word to a shell, whatever text of somebody else is
//! in it.

/// A word for a POSIX shell, quoted where it needs it. What a shell gives the command is the text itself.
#[must_use]
pub fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./,:=+@%".contains(&byte);
    // zsh replaces a word that begins with an equals sign.
    if !text.is_empty() && !text.starts_with('=') && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_quotes_has_them() {
        for plain in ["eth0:rps/rx-0=0-3", "/etc/nsd.conf", "a@b.service", "100%", "-j4"] {
            assert_eq!(quoted(plain), plain);
        }
        for (text, word) in
            [("", "''"), ("a b", "'a b'"), ("a'b", r"'a'\''b'"), ("*", "'*'"), ("=a", "'=a'"), ("~", "'~'")]
        {
            assert_eq!(quoted(text), word);
        }
    }
}
