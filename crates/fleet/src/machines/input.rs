//! One file: a capture, or JSON that `udpath show --json` printed, alone or among the facts that Ansible's `--tree`
//! writes.
//!
//! JSON of `show --snapshot` is not read: the rules that make findings of a snapshot rely on what its readers
//! guarantee, which no one does for a file.

use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use udpath_advise::{Finding, MAP_SCHEMA, MapResult};
use udpath_host::Snapshot;
use udpath_host::map::{Map, Selection};
use udpath_support::{Capture, CaptureError};

use super::facts::{self, Facts};
use super::result::Source;

/// Largest JSON, bytes. That of 128 queues and 10,000 sockets takes 8 MiB. Lower: such a machine is refused. Higher: a
/// wrong file uses more memory before it is refused; there are two at once.
const LARGEST: u64 = 32 << 20;
/// Most characters of an error that quotes the file: a line or two.
const QUOTED: usize = 200;
/// The first bytes of gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What a file says about its machine.
#[derive(Debug)]
pub(super) struct Seen {
    /// When, milliseconds since 1970.
    pub(super) taken: u64,
    /// What the file is.
    pub(super) source: Source,
    /// Its facts.
    pub(super) facts: Facts,
    /// What is wrong with it.
    pub(super) findings: Vec<Finding>,
}

/// Why a file says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("it is empty")]
    Empty,
    #[error("it is neither a capture (.tar.gz) nor JSON of `udpath show --json`")]
    Foreign,
    #[error("it has more than {} MiB, which no JSON of `udpath show --json` has", LARGEST >> 20)]
    TooLarge,
    #[error("it is not whole JSON of `udpath show --json`: {0}")]
    Json(String),
    #[error("it has the schema \"{0}\": expected {MAP_SCHEMA} (`udpath show --json`)")]
    Schema(String),
    #[error("it has no \"schema\" field: expected {MAP_SCHEMA} (`udpath show --json`)")]
    NoSchema,
}

/// The field that says what a document is.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
    ansible_facts: Option<IgnoredAny>,
}

/// What Ansible writes of the module `udpath.udpath.facts` (`ansible ... --tree DIR`).
#[derive(Deserialize)]
struct Gathered {
    ansible_facts: Named,
}

#[derive(Deserialize)]
struct Named {
    udpath: Whole,
}

#[derive(Deserialize)]
struct Whole {
    map: MapResult,
}

/// Reads a file, or the folder of a capture.
pub(super) fn read(path: &Path) -> Result<Seen, InputError> {
    if path.is_dir() {
        return Ok(of_capture(&Capture::open(path)?));
    }
    let mut file = udpath_files::input(path)?;
    let mut first = Vec::new();
    file.by_ref().take(GZIP.len() as u64).read_to_end(&mut first)?;
    if first == GZIP {
        return Ok(of_capture(&Capture::open(path)?));
    }
    if first.first().is_some_and(|byte| *byte != b'{' && !byte.is_ascii_whitespace()) {
        return Err(InputError::Foreign);
    }
    let mut text = first;
    file.take(LARGEST).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(InputError::TooLarge);
    }
    of_json(&text)
}

fn of_capture(capture: &Capture) -> Seen {
    let now = Snapshot::read(&*capture.now());
    let earlier = capture.earlier().map(|earlier| Snapshot::read(&*earlier));
    // The whole of a machine is always there.
    let (map, findings) = match MapResult::new(&now, earlier.as_ref(), &Selection::All) {
        Ok(MapResult { map, findings, .. }) => (map, findings),
        Err(_) => (Map::whole(&now, earlier.as_ref()), Vec::new()),
    };
    let mut facts = facts::of_map(&map);
    facts.add_snapshot(&now);
    Seen { taken: now.taken, source: Source::Capture, facts, findings }
}

/// Reads JSON.
pub(super) fn of_json(text: &[u8]) -> Result<Seen, InputError> {
    if text.trim_ascii().is_empty() {
        return Err(InputError::Empty);
    }
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(InputError::Foreign);
    }
    let head: Head = parsed(text)?;
    match head.schema.as_deref() {
        Some(MAP_SCHEMA) => Ok(of_map(parsed(text)?)),
        Some(other) => Err(InputError::Schema(other.chars().take(64).filter(|c| !c.is_control()).collect())),
        None if head.ansible_facts.is_some() => {
            let gathered: Gathered = parsed(text)?;
            Ok(of_map(gathered.ansible_facts.udpath.map))
        }
        None => Err(InputError::NoSchema),
    }
}

fn of_map(result: MapResult) -> Seen {
    let MapResult { map, findings, .. } = result;
    Seen { taken: map.taken, source: Source::Map, facts: facts::of_map(&map), findings }
}

fn parsed<T: for<'a> Deserialize<'a>>(text: &[u8]) -> Result<T, InputError> {
    // The error quotes the file: not all of it, and without control characters.
    let plain = |error: serde_json::Error| -> String {
        error.to_string().chars().take(QUOTED).map(|c| if c.is_control() { ' ' } else { c }).collect()
    };
    serde_json::from_slice(text).map_err(|error| InputError::Json(plain(error)))
}
