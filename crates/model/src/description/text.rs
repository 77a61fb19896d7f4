//! Descriptions as text: TOML files, and single values as `--set` has them.

use thiserror::Error;
use toml::{Table, Value};

use super::Description;

/// Longest file, bytes: a description has some forty lines.
pub const MAX_TOML_LEN: usize = 64 * 1024;

/// Why a text is not a description.
#[derive(Debug, Error)]
pub enum TextError {
    /// Not TOML, an unknown key, or a value of another type; with its place.
    #[error("{0}")]
    Toml(String),
    /// Not `KEY=VALUE`.
    #[error("{0:?} is not KEY=VALUE, such as cores=8")]
    NoValue(String),
    /// Not a key of a description.
    #[error("there is no key {key:?}; the keys are {}", keys().join(", "))]
    NoKey {
        /// What was given.
        key: String,
    },
    /// Not a value of this key.
    #[error("invalid value {value:?} of {key}: {why}")]
    Value {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What would be valid.
        why: String,
    },
}

/// The keys of a description, in alphabetical order.
#[must_use]
pub fn keys() -> Vec<String> {
    table(&Description::default()).into_iter().map(|(key, _)| key).collect()
}

impl Description {
    /// Reads a TOML file; keys that it leaves out have their defaults.
    ///
    /// # Errors
    /// Not TOML, a key that there is not, or a value of another type.
    pub fn from_toml(text: &str) -> Result<Self, TextError> {
        toml::from_str(text).map_err(|error| TextError::Toml(one_line(&error, text)))
    }

    /// This one with a value changed, as `KEY=VALUE`: `cores=8`, `io=reuseport`, `rps=["0-3"]`, `irqs=0-3`.
    ///
    /// # Errors
    /// Not that form, a key that there is not, or a value of another type.
    pub fn with(&self, assignment: &str) -> Result<Self, TextError> {
        let parts = assignment.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let (key, value) = parts.ok_or_else(|| TextError::NoValue(assignment.to_owned()))?;
        let mut table = table(self);
        let Some(place) = table.get_mut(key) else { return Err(TextError::NoKey { key: key.to_owned() }) };
        *place = read(value, place);
        Self::try_from_table(table).map_err(|why| TextError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            why,
        })
    }

    fn try_from_table(table: Table) -> Result<Self, String> {
        Value::Table(table).try_into().map_err(|error: toml::de::Error| error.message().trim().to_owned())
    }
}

fn table(description: &Description) -> Table {
    Table::try_from(description).unwrap_or_default()
}

/// A value as TOML would have it; text needs no quotes, and numbers take the form of what they replace.
fn read(text: &str, replaced: &Value) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
    let value = parsed.and_then(|mut table| table.remove("value"));
    match (value, replaced) {
        (Some(Value::Integer(number)), Value::Float(_)) => Value::Float(number as f64),
        // A release such as 6.12, or the CPU list "3".
        (Some(Value::Float(_) | Value::Integer(_)), Value::String(_)) | (None, _) => {
            Value::String(text.to_owned())
        }
        (Some(value), _) => value,
    }
}

/// An error and its place, without the lines of the file around it.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim().replace('\n', "; ");
    match error.span() {
        Some(span) => {
            let line = text.get(..span.start).map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {message}")
        }
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Io;

    #[test]
    fn files_and_single_values_say_the_same() {
        let file =
            "cores = 8\nio = \"shared\"\nrps = [\"0-3\"]\nkernel = \"4.6.3\"\nspeed = 0.5\nirqs = \"0-1\"";
        let read = Description::from_toml(file).unwrap();
        let mut set = Description::default();
        for part in ["cores=8", "io = shared", "rps=[\"0-3\"]", "kernel=4.6", "speed=0.5", "irqs=0-1"] {
            set = set.with(part).unwrap();
        }
        assert_eq!(read, set);
        assert_eq!((read.cores, read.io, read.irqs.len()), (8, Io::Shared, 2));
        assert_eq!(set.with("speed=1").unwrap().speed, 1.0);
        assert_eq!(set.with("irqs=3").unwrap().irqs.first(), Some(3));
    }

    #[test]
    fn errors_name_the_place_and_what_would_be_right() {
        let file = |text: &str| Description::from_toml(text).unwrap_err().to_string();
        assert!(
            file("cores = 8\ncoers = 9").starts_with("line 2: unknown field `coers`"),
            "{}",
            file("\ncoers=9")
        );
        assert!(file("cores = \"many\"").starts_with("line 1: invalid type"), "{}", file("cores = \"many\""));
        assert!(file("cores = ").starts_with("line 1:"));
        let set = |text: &str| Description::default().with(text).unwrap_err().to_string();
        assert!(set("cores").contains("is not KEY=VALUE"));
        assert!(
            set("coers=9").contains("there is no key \"coers\"; the keys are ")
                && set("coers=9").contains("cores")
        );
        assert!(
            set("io=fast").contains("invalid value \"fast\" of io: unknown variant `fast`"),
            "{}",
            set("io=fast")
        );
        assert!(set("cores=-1").contains("of cores: "), "{}", set("cores=-1"));
        assert!(set("kernel=six").contains("expected a release"), "{}", set("kernel=six"));
    }
}
