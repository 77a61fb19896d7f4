//! The arguments of a running server.

/// Most bytes that are read: the kernel's own limit is far higher, but no server needs more.
pub(super) const MAX: usize = 64 << 10;

/// The arguments after the program's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    words: Vec<String>,
}

impl Arguments {
    /// From `/proc/PID/cmdline`: each ends with a NUL.
    pub(super) fn read(text: &str) -> Self {
        let mut end = text.len().min(MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let words = text[..end].trim_end_matches('\0').split('\0').skip(1).map(str::to_owned);
        Self { words: words.collect() }
    }

    /// As [`Self::option`].
    pub(super) fn any(&self, names: &[String]) -> Option<&str> {
        self.option(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The value of the last of these options: `-c FILE`, `-cFILE`, `--config FILE` or `--config=FILE`.
    pub(super) fn option(&self, names: &[&str]) -> Option<&str> {
        let mut found = None;
        for (at, word) in self.words.iter().enumerate() {
            for name in names {
                let attached = word.strip_prefix(name).filter(|rest| !rest.is_empty());
                let value = match attached {
                    None if word == name => self.words.get(at + 1).map(String::as_str),
                    Some(rest) if name.starts_with("--") => rest.strip_prefix('='),
                    attached => attached,
                };
                found = value.or(found);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_in_every_form() {
        let of = |text: &str| Arguments::read(&text.replace(' ', "\0"));
        for text in
            ["knotd -c /a", "knotd -c/a -d", "knotd --config /a", "knotd --config=/a", "knotd -c /b -c /a"]
        {
            assert_eq!(of(text).option(&["-c", "--config"]), Some("/a"), "{text}");
        }
        for text in ["knotd", "knotd --configuration=/a", "knotd -c", "/a"] {
            assert_eq!(of(text).option(&["--config", "-c"]), None, "{text}");
        }
        assert_eq!(Arguments::read(&"é".repeat(MAX)).words, Vec::<String>::new());
    }
}
