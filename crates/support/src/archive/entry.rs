//! One entry of an archive: its name and contents, within limits, and why an archive is rejected.

use std::io::Read;
use std::path::{Component, Path};

/// Maximum length of a name, bytes, as for any path (`PATH_MAX`).
pub(super) const NAME: usize = 4096;

/// An archive that is not a valid capture.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It cannot be read, or is not an archive.
    #[error("cannot read it: {0}; expected a .tar.gz written by `udpath support`")]
    Unreadable(String),
    /// It has an entry that no capture contains.
    #[error("its entry '{name}' {why}; no capture contains such an entry, so the archive was rejected")]
    Hostile {
        /// The entry's name, without control characters.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is too large when unpacked.
    #[error("it unpacks to more than {0}, which no capture does, so the archive was rejected")]
    Bomb(String),
}

impl From<std::io::Error> for ArchiveError {
    fn from(error: std::io::Error) -> Self {
        // An error may quote the bad data, so remove terminal control characters.
        Self::Unreadable(printable(&error.to_string()))
    }
}

fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The contents of an entry, unless it is too long.
pub(super) fn short(
    entry: &mut tar::Entry<'_, impl Read>,
    most: u64,
    what: &str,
) -> Result<Vec<u8>, ArchiveError> {
    // A header may claim any length; the actual data decides.
    let length = entry.size().min(most);
    let mut bytes = Vec::with_capacity(length.min(1 << 16) as usize);
    entry.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(hostile(
            &String::from_utf8_lossy(&entry.path_bytes()),
            &format!("has {what} ({most} bytes)"),
        ));
    }
    Ok(bytes)
}

pub(super) fn hostile(name: &str, why: &str) -> ArchiveError {
    ArchiveError::Hostile { name: printable(name), why: why.to_owned() }
}

/// An entry's name without `.` components and without leading and trailing slashes.
pub(super) fn name(bytes: &[u8]) -> Result<String, ArchiveError> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    if text.len() > NAME {
        return Err(hostile(&text, "has a name longer than any path"));
    }
    let mut name = String::new();
    for component in Path::new(&text).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => {
                let part = part.to_str().unwrap_or_default();
                if part.contains(['\0', char::REPLACEMENT_CHARACTER]) {
                    return Err(hostile(&text, "is not UTF-8"));
                }
                if !name.is_empty() {
                    name.push('/');
                }
                name.push_str(part);
            }
            _ => return Err(hostile(&text, "points out of the archive")),
        }
    }
    Ok(name)
}
