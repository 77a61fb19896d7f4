//! The file of a mix: a part per line.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;

use udpath_load::ends;
use udpath_load::plan::{MAX_SIZE, Mode};

use super::{ENGINES, ENTRY};
use crate::{OptionError, OptionSpec, Options, PROTOCOLS, ProtocolEntry, find};

/// Longest file, bytes; longer ones are not read to their end.
const MAX_FILE: u64 = 1 << 20;
/// Most parts.
const MAX_PARTS: usize = 100;
/// Largest weight.
const MAX_WEIGHT: u64 = 1_000_000;

/// A line: what it asks for, not made yet.
#[derive(Debug)]
pub(super) struct Part {
    /// Its line in the file.
    pub(super) line: usize,
    pub(super) weight: u64,
    pub(super) entry: &'static ProtocolEntry,
    pub(super) target: SocketAddr,
    /// Payload of a request, if the line has `--size`.
    pub(super) size: Option<usize>,
    pub(super) options: Options,
}

/// Why a file is not a mix.
#[derive(Debug, thiserror::Error)]
pub(super) enum MixError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("the file has more than 1 MiB")]
    Long,
    #[error("no parts in the file: write one per line, such as `70 dns 192.0.2.1:53 --queries FILE`")]
    Empty,
    #[error("line {0}: more than {MAX_PARTS} parts")]
    TooMany(usize),
    #[error("line {line}: {reason}")]
    Line { line: usize, reason: String },
    #[error("line {line}: {error}")]
    Option { line: usize, error: OptionError },
    #[error("the weights need more than {0} flows: use weights with a common divisor, such as 70, 20 and 10")]
    Weights(u64),
}

/// Reads the parts of the file at `path`.
pub(super) fn read(path: &Path) -> Result<Vec<Part>, MixError> {
    let mut text = String::new();
    udpath_files::input(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE { Err(MixError::Long) } else { parse(&text) }
}

fn parse(text: &str) -> Result<Vec<Part>, MixError> {
    let mut parts = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let line = at + 1;
        let mut words = text.split_whitespace().take_while(|word| !word.starts_with('#')).peekable();
        if words.peek().is_none() {
            continue;
        }
        if parts.len() == MAX_PARTS {
            return Err(MixError::TooMany(line));
        }
        parts.push(part(line, words).map_err(|reason| MixError::Line { line, reason })?);
    }
    if parts.is_empty() { Err(MixError::Empty) } else { Ok(parts) }
}

fn part<'a>(line: usize, mut words: impl Iterator<Item = &'a str>) -> Result<Part, String> {
    let mut next =
        |what: &str| words.next().ok_or_else(|| format!("no {what}: write WEIGHT PROTOCOL ADDR:PORT"));
    let weight = next("weight")?;
    let weight = weight
        .parse()
        .ok()
        .filter(|weight| (1..=MAX_WEIGHT).contains(weight))
        .ok_or_else(|| format!("invalid weight {}: expected 1 to {MAX_WEIGHT}", weight.escape_debug()))?;
    let entry = protocol(next("protocol")?)?;
    let target = next("target")?;
    let target = ends::target(target).map_err(|why| why.replacen("address", "target", 1))?;
    let mut part = Part { line, weight, entry, target, size: None, options: Options::default() };
    while let Some(word) = words.next() {
        option(&mut part, word, &mut words)?;
    }
    Ok(part)
}

fn protocol(name: &str) -> Result<&'static ProtocolEntry, String> {
    let fits = |entry: &ProtocolEntry| {
        entry.modes.contains(&Mode::Rr)
            && ENGINES.iter().all(|engine| entry.engines.contains(engine))
            && entry.name != ENTRY.name
    };
    find(name).filter(|entry| fits(entry)).ok_or_else(|| {
        let known: Vec<_> = PROTOCOLS.iter().filter(|entry| fits(entry)).map(|entry| entry.name).collect();
        format!("unknown protocol {}: expected {}", name.escape_debug(), known.join(", "))
    })
}

/// Takes the option `word`, and its value from `words`.
fn option<'a>(part: &mut Part, word: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<(), String> {
    let (name, joined) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let mut value = || joined.or_else(|| words.next()).ok_or_else(|| format!("{name} needs a value"));
    if name == "--size" {
        let value = value()?;
        let size = value.parse().ok().filter(|size| (1..=MAX_SIZE).contains(size));
        part.size =
            Some(size.ok_or_else(|| format!("invalid --size {value}: expected 1 to {MAX_SIZE} bytes"))?);
        return Ok(());
    }
    let own = part.entry.load_options;
    let spec: Option<&OptionSpec> = own.iter().find(|spec| name.strip_prefix("--") == Some(spec.name));
    let spec = spec.ok_or_else(|| {
        let known: String = own.iter().map(|spec| format!(", --{}", spec.name)).collect();
        format!("unknown option {} of {}: expected --size{known}", word.escape_debug(), part.entry.name)
    })?;
    match spec.value {
        Some(_) => part.options.push(spec, value()?),
        None if joined.is_some() => return Err(format!("{name} has no value")),
        None => part.options.push(spec, ""),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_part() {
        let text = "# weight protocol target\n\n70 dns 192.0.2.1:53 --names 10 --name=h{}.example --verify # mixed\n \
                    30\techo [2001:db8::1]:7 --size 64\n";
        let parts = parse(text).unwrap();
        let dns = &parts[0];
        assert_eq!((dns.line, dns.weight, dns.entry.name, dns.size), (3, 70, "dns", None));
        assert_eq!(dns.target, "192.0.2.1:53".parse().unwrap());
        let mut options = Options::default();
        for (name, value) in [("names", "10"), ("name", "h{}.example"), ("verify", "")] {
            options.push(dns.entry.load_options.iter().find(|spec| spec.name == name).unwrap(), value);
        }
        assert_eq!(dns.options, options);
        let echo = &parts[1];
        assert_eq!((echo.line, echo.weight, echo.entry.name, echo.size), (4, 30, "echo", Some(64)));
        assert_eq!(parts.len(), 2);
    }

    #[test]
    fn each_fault_is_named() {
        for (text, expected) in [
            ("", "no parts in the file"),
            ("# nothing", "no parts in the file"),
            ("0 echo 192.0.2.1:7", "line 1: invalid weight 0: expected 1 to 1000000"),
            ("\necho 192.0.2.1:7", "line 2: invalid weight echo"),
            ("1", "line 1: no protocol"),
            ("1 echo", "line 1: no target"),
            ("1 sink 192.0.2.1:7", "line 1: unknown protocol sink: expected echo, ntp"),
            ("1 mix 192.0.2.1:7", "line 1: unknown protocol mix"),
            ("1 echo localhost:7", "line 1: invalid target `localhost:7`: expected ADDR:PORT"),
            (
                "1 echo [fe80::1]:7",
                "line 1: `[fe80::1]:7` is link-local: add its interface, such as [fe80::1%eth0]:7",
            ),
            (
                "1 echo [fe80::1%none]:7",
                "line 1: invalid target `[fe80::1%none]:7`: this machine has no interface `none`",
            ),
            ("1 echo 192.0.2.1:7 --size", "line 1: --size needs a value"),
            ("1 echo 192.0.2.1:7 --size 0", "line 1: invalid --size 0: expected 1 to"),
            ("1 echo 192.0.2.1:7 --queries q", "line 1: unknown option --queries of echo: expected --size"),
            ("1 dns 192.0.2.1:7 --verify=1", "line 1: --verify has no value"),
            ("1 dns 192.0.2.1:7 verify", "line 1: unknown option verify of dns"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let many = "1 echo 192.0.2.1:7\n".repeat(MAX_PARTS + 1);
        assert!(matches!(parse(&many), Err(MixError::TooMany(line)) if line == MAX_PARTS + 1));
        assert!(matches!(read(Path::new("/nonexistent")), Err(MixError::Read(_))));
        assert!(matches!(read(Path::new("/dev/zero")), Err(MixError::Long)));
    }
}
