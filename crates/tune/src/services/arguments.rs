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
