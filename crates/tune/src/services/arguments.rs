//! The arguments of a running server.

use std::io;

use udpath_files::kernel;

use super::ServiceError;

/// Most bytes that are read. No server needs more; a process chooses the length of its own, up to 64 GiB of mapped memory.
pub(super) const MAX: usize = 64 << 10;

/// The command line of a process: each argument ends with a NUL.
///
/// # Errors
/// The process is gone, or has a longer one: what is behind the limit would be missing.
pub(super) fn command_line(pid: u32) -> Result<Vec<u8>, ServiceError> {
    let failed = |cause| ServiceError::Process { pid, cause };
    let bytes = kernel::start(format!("/proc/{pid}/cmdline"), MAX + 1).map_err(failed)?;
    if bytes.len() > MAX {
        return Err(failed(io::Error::other(format!("its command line is longer than {MAX} bytes"))));
    }
    Ok(bytes)
}

/// The arguments after the program's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    words: Vec<String>,
    /// Letters of options without a value: they may stand before another one in a word, `-dc FILE`.
    switches: &'static str,
}

impl Arguments {
    /// From `/proc/PID/cmdline`: each ends with a NUL.
    pub(super) fn read(text: &str, switches: &'static str) -> Self {
        let mut end = text.len().min(MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let words = text[..end].trim_end_matches('\0').split('\0').skip(1).map(str::to_owned);
        Self { words: words.collect(), switches }
    }

    /// As [`Self::option`].
    pub(super) fn any(&self, names: &[String]) -> Option<&str> {
        self.option(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The value of the last of these options: `-c FILE`, `-cFILE`, `-dc FILE`, `--config FILE` or `--config=FILE`.
    pub(super) fn option(&self, names: &[&str]) -> Option<&str> {
        let mut found = None;
        for (at, word) in self.words.iter().enumerate() {
            for name in names {
                let value = match self.after(word, name) {
                    Some("") => self.words.get(at + 1).map(String::as_str),
                    Some(rest) if name.starts_with("--") => rest.strip_prefix('='),
                    attached => attached,
                };
                found = value.or(found);
            }
        }
        found
    }

    /// Whether one of these options is there, with a value or without.
    pub(super) fn has(&self, names: &[String]) -> bool {
        self.words.iter().any(|word| {
            names.iter().any(|name| {
                self.after(word, name)
                    .is_some_and(|rest| !name.starts_with("--") || rest.is_empty() || rest.starts_with('='))
            })
        })
    }

    /// What follows an option in a word: of `-c`, `FILE` in `-cFILE` and in `-dcFILE`, nothing in `-c`.
    fn after<'a>(&self, word: &'a str, name: &str) -> Option<&'a str> {
        let letter = name.strip_prefix('-').filter(|letter| letter.len() == 1 && !word.starts_with("--"));
        let Some(letter) = letter else { return word.strip_prefix(name) };
        let rest = word
            .strip_prefix('-')?
            .trim_start_matches(|other| !letter.contains(other) && self.switches.contains(other));
        rest.strip_prefix(letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_in_every_form() {
        let of = |text: &str| Arguments::read(&text.replace(' ', "\0"), "dx");
        for text in [
            "knotd -c /a",
            "knotd -c/a -d",
            "knotd --config /a",
            "knotd --config=/a",
            "knotd -c /b -c /a",
            "knotd -dc /a",
            "knotd -dxc/a",
            "knotd -xd -dc /a",
        ] {
            assert_eq!(of(text).option(&["-c", "--config"]), Some("/a"), "{text}");
        }
        for text in [
            "knotd",
            "knotd --configuration=/a",
            "knotd -c",
            "/a",
            "knotd -dyc /a",
            "knotd -d c /a",
            "knotd --dc /a",
        ] {
            assert_eq!(of(text).option(&["--config", "-c"]), None, "{text}");
        }
        assert_eq!(Arguments::read(&"é".repeat(MAX), "").words, Vec::<String>::new());
        let has = |text: &str| of(text).has(&["-C".to_owned(), "--confdb".to_owned()]);
        assert!(
            has("knotd -C /a") && has("knotd -dC/a") && has("knotd --confdb=/a") && has("knotd --confdb /a")
        );
        assert!(!has("knotd -c C") && !has("knotd --confdbs=/a") && !has("knotd"));
    }
}
