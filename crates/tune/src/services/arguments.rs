//! The arguments of a running server.

use std::io;

use udpath_files::kernel;

use super::ServiceError;

/// Most bytes that are read. No server needs more; a process chooses the length of its own, up to 64 GiB of mapped
/// memory.
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
    /// Letters of options without a value: they may stand before another one in a word, `-dc FILE`, and any other
    /// letter takes the rest of its word, or the next one. Empty: not known, so that no word is taken for another
    /// option's value.
    switches: &'static str,
}

/// What the words are, as getopt(3) and getopt_long(3) read them.
#[derive(Debug, Clone, Copy)]
enum Item<'a> {
    /// A letter, and its value if it may have one.
    Letter(char, Option<&'a str>),
    /// `--name`, the value after its `=`, and the next word.
    Long(&'a str, Option<&'a str>, Option<&'a str>),
    /// A word that belongs to no option.
    Operand(&'a str),
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

    /// The value of the last of these options: `-c FILE`, `-cFILE`, `-dc FILE`, `--config FILE`, `--config=FILE` or,
    /// shortened as far as the server understands it, `--conf=FILE`.
    pub(super) fn option(&self, names: &[&str]) -> Option<&str> {
        let mut values = self.items(names).into_iter().filter_map(|item| match item {
            Item::Letter(letter, value) if names.iter().any(|name| is_letter(name, letter)) => value,
            Item::Long(long, value, next) if names.iter().any(|name| is_long(name, long)) => value.or(next),
            _ => None,
        });
        values.next_back()
    }

    /// Whether one of these options is there, with a value or without.
    pub(super) fn has(&self, names: &[String]) -> bool {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.items(&names).into_iter().any(|item| match item {
            Item::Letter(letter, _) => names.iter().any(|name| is_letter(name, letter)),
            Item::Long(long, ..) => names.iter().any(|name| is_long(name, long)),
            Item::Operand(_) => false,
        })
    }

    /// The words that belong to no option.
    pub(super) fn operands(&self) -> Vec<&str> {
        let words = self.items(&[]).into_iter().filter_map(|item| match item {
            Item::Operand(word) => Some(word),
            _ => None,
        });
        words.collect()
    }

    /// All in order. `asked`: the options with a value that are asked for; of other long options it is not known
    /// whether they have one.
    fn items<'a>(&'a self, asked: &[&str]) -> Vec<Item<'a>> {
        let mut items = Vec::new();
        let mut words = self.words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                items.extend(words.map(Item::Operand));
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let takes = value.is_none() && asked.iter().any(|asked| is_long(asked, name));
                let next = if takes { words.next() } else { None };
                items.push(Item::Long(name, value, next));
                continue;
            }
            let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                items.push(Item::Operand(word));
                continue;
            };
            let mut letters = letters.chars();
            while let Some(letter) = letters.next() {
                if self.switches.contains(letter) {
                    items.push(Item::Letter(letter, None));
                    continue;
                }
                let known = !self.switches.is_empty() || asked.iter().any(|asked| is_letter(asked, letter));
                let value = match letters.as_str() {
                    "" if known => words.next(),
                    "" => None,
                    rest => Some(rest),
                };
                items.push(Item::Letter(letter, value));
                break;
            }
        }
        items
    }
}

/// Whether `-c` is this letter.
fn is_letter(name: &str, letter: char) -> bool {
    name.strip_prefix('-').is_some_and(|rest| rest.chars().eq([letter]))
}

/// Whether `--config` is meant by this name without dashes. getopt_long(3) takes what begins only one of the server's
/// options for it; a server does not start with what begins several.
fn is_long(name: &str, given: &str) -> bool {
    name.strip_prefix("--").is_some_and(|name| !given.is_empty() && name.starts_with(given))
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
            "knotd --conf /a",
            "knotd --confi=/a -x",
            "knotd -y -c -c /a",
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
            "knotd -y -c",
            "knotd -- -c /a",
        ] {
            assert_eq!(of(text).option(&["--config", "-c"]), None, "{text}");
        }
        assert_eq!(Arguments::read(&"é".repeat(MAX), "").words, Vec::<String>::new());
        let has = |text: &str| of(text).has(&["-C".to_owned(), "--confdb".to_owned()]);
        assert!(
            has("knotd -C /a") && has("knotd -dC/a") && has("knotd --confdb=/a") && has("knotd --confdb /a")
        );
        assert!(has("knotd --confd /a") && has("knotd --confd=/a"));
        assert!(!has("knotd -c C") && !has("knotd --confdbs=/a") && !has("knotd") && !has("knotd -y -C"));
    }

    #[test]
    fn words_that_belong_to_no_option() {
        let of = |words: &[&str]| Arguments::read(&words.join("\0"), "dx").operands().join("|");
        assert_eq!(of(&["chronyd", "-x", "port 123", "-d", "-u", "root", "allow"]), "port 123|allow");
        assert_eq!(of(&["chronyd", "-dxuroot", "-f", "/x", "--help"]), "");
        assert_eq!(of(&["chronyd", "--", "-x", "port 1"]), "-x|port 1");
        assert_eq!(of(&["chronyd"]), "");
        // Not known which options have a value: a word may be one.
        let unknown = Arguments::read("nfcapd\0-D\0-B\x005", "");
        assert_eq!((unknown.option(&["-B"]), unknown.has(&["-D".to_owned()])), (Some("5"), true));
    }
}
