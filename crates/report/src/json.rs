//! Reads and writes results as JSON. The `schema` field identifies a document; it is checked first, so that a wrong
//! file is reported as such, not as "missing field `version`".

mod header;

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use udpath_advise::result::{self as boost, BoostResult};
use udpath_advise::{PROFILE_SCHEMA, ProfileResult};
use udpath_experiment::outcome::{self as experiment, ExperimentResult};
use udpath_load::result::{self as load, LoadResult};

use crate::file::{InputError, read_input};

/// Largest document read, bytes. A result of a hundred rungs with full histograms takes 2 MiB; without a limit, a
/// device or an endless pipe given by mistake would fill the memory.
const LARGEST: u64 = 256 * 1024 * 1024;

/// A result read from a file, by its schema.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// Output of `udpath boost --json`.
    Boost(BoostResult),
    /// Output of `udpath load --json`.
    Load(LoadResult),
    /// Output of `udpath profile --json`.
    Profile(ProfileResult),
    /// Output of `udpath experiment --json`.
    Experiment(ExperimentResult),
}

impl Document {
    /// The verb that writes such results.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Boost(_) => "boost",
            Self::Load(_) => "load",
            Self::Profile(_) => "profile",
            Self::Experiment(_) => "experiment",
        }
    }
}

/// Why a file cannot be read as a result.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It is empty.
    #[error("{name} is empty: expected {EXPECTED}")]
    Empty {
        /// The file.
        name: String,
    },
    /// It is truncated.
    #[error("{name} is truncated at line {line}, column {column}; write it again with --json")]
    Truncated {
        /// The file.
        name: String,
        /// Last line, from 1.
        line: usize,
        /// Last column, from 1.
        column: usize,
    },
    /// It is not JSON.
    #[error("{name} is not JSON (expected {EXPECTED})")]
    NotJson {
        /// The file.
        name: String,
        /// The parser's error, with its position.
        #[source]
        cause: serde_json::Error,
    },
    /// It is JSON without a schema.
    #[error("{name} has no \"schema\" field: expected {EXPECTED}")]
    NoSchema {
        /// The file.
        name: String,
    },
    /// It is JSON of another kind, or of another version.
    #[error("{name} has the schema \"{found}\": expected {EXPECTED}{hint}")]
    OtherSchema {
        /// The file.
        name: String,
        /// Its schema.
        found: String,
        /// A possible reason.
        hint: &'static str,
    },
    /// It has a known schema but does not conform to it.
    #[error("{name} does not match its schema {schema}: {}", without_controls(cause))]
    Malformed {
        /// The file.
        name: String,
        /// Its schema.
        schema: &'static str,
        /// The invalid field, with its position. Not the source: it quotes the file, and is printed without control
        /// characters.
        cause: serde_json::Error,
    },
}

/// serde's error, which quotes the file, without terminal control characters.
fn without_controls(cause: &serde_json::Error) -> String {
    cause.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The accepted documents, for error messages.
const EXPECTED: &str = "a result of udpath boost, load, profile or experiment (schema udpath.boost/2, udpath.load/1, udpath.profile/2 or \
     udpath.experiment/1)";

/// Reads the result in the file `path`; `-` is standard input.
///
/// # Errors
/// See [`ReadError`].
pub fn read(path: &Path) -> Result<Document, ReadError> {
    let (name, bytes) = read_input(path, LARGEST)?;
    parse(&bytes, &name)
}

/// Like [`read`]; also returns the text, without the spaces around it: figures in it have all their digits, those of
/// the document may differ in the last one.
///
/// # Errors
/// See [`ReadError`].
pub fn read_with_text(path: &Path) -> Result<(Document, String), ReadError> {
    let (name, bytes) = read_input(path, LARGEST)?;
    let document = parse(&bytes, &name)?;
    Ok((document, String::from_utf8_lossy(bytes.trim_ascii()).into_owned()))
}

/// Parses one document; `name` is its name in errors.
///
/// # Errors
/// See [`ReadError`].
pub fn parse(bytes: &[u8], name: &str) -> Result<Document, ReadError> {
    let name = name.to_owned();
    if bytes.trim_ascii().is_empty() {
        return Err(ReadError::Empty { name });
    }
    let found = match header::schema(bytes) {
        Ok(Some(found)) => found,
        Ok(None) => return Err(ReadError::NoSchema { name }),
        Err(e) if e.classify() == Category::Eof => {
            return Err(ReadError::Truncated { name, line: e.line(), column: e.column() });
        }
        Err(cause) => return Err(ReadError::NotJson { name, cause }),
    };
    match found.as_str() {
        boost::SCHEMA => typed(bytes, name, boost::SCHEMA).map(Document::Boost),
        load::SCHEMA => typed(bytes, name, load::SCHEMA).map(Document::Load),
        PROFILE_SCHEMA => typed(bytes, name, PROFILE_SCHEMA).map(Document::Profile),
        experiment::SCHEMA => typed(bytes, name, experiment::SCHEMA).map(Document::Experiment),
        other => {
            let ours = ["udpath.boost/", "udpath.load/", "udpath.profile/", "udpath.experiment/"]
                .iter()
                .any(|kind| other.starts_with(kind));
            let hint = match (ours, other.starts_with("udpath.")) {
                (true, _) => "; it was written by another version of udpath",
                (false, true) => "; udpath report does not render this kind of result",
                (false, false) => "",
            };
            // The name comes from the file and goes into one sentence: no line breaks, limited length.
            let found = other.chars().filter(|c| !c.is_control()).take(60).collect();
            Err(ReadError::OtherSchema { name, found, hint })
        }
    }
}

/// Parses the text a second time, into its type. What its header skipped may not be JSON.
fn typed<T: DeserializeOwned>(bytes: &[u8], name: String, schema: &'static str) -> Result<T, ReadError> {
    serde_json::from_slice(bytes).map_err(|cause| match cause.classify() {
        Category::Syntax => ReadError::NotJson { name, cause },
        _ => ReadError::Malformed { name, schema, cause },
    })
}

/// One line of JSON with a line break. Non-finite figures become `null`.
#[must_use]
pub fn to_json<T: Serialize>(result: &T) -> String {
    // The result types contain only strings, numbers, lists and options; none of those can fail.
    let mut text =
        serde_json::to_string(result).unwrap_or_else(|e| format!("{{\"error\":{:?}}}", e.to_string()));
    text.push('\n');
    text
}

/// JSON on several lines, for readers.
#[must_use]
pub fn to_pretty_json<T: Serialize>(result: &T) -> String {
    let text = serde_json::to_string_pretty(result);
    text.unwrap_or_else(|e| format!("{{\"error\":{:?}}}", e.to_string())) + "\n"
}

#[cfg(test)]
mod tests {
    use error_reporter::Report;

    use super::*;

    fn error(text: &str) -> String {
        Report::new(parse(text.as_bytes(), "x.json").expect_err("not a result")).to_string()
    }

    #[test]
    fn each_wrong_file_gets_its_own_sentence() {
        assert!(
            error("").starts_with(
                "x.json is empty: expected a result of udpath boost, load, profile or experiment"
            )
        );
        assert!(error(" \n").starts_with("x.json is empty"));
        assert!(
            error("{\"schema\":\"udpath.boost/2\",\"rungs\":[{")
                .contains("is truncated at line 1, column 37")
        );
        let html = error("<html>");
        assert!(html.starts_with(
            "x.json is not JSON (expected a result of udpath boost, load, profile or experiment"
        ));
        assert!(html.ends_with(": expected value at line 1 column 1"), "{html}");
        assert!(error("{}").contains("has no \"schema\" field"));
        for other in ["[1]", "3", "-1.5", "true", "null", "\"udpath.load/1\""] {
            assert!(error(other).contains("has no \"schema\" field"), "{other}");
        }
        assert!(error("{\"schema\":7}").contains("has no \"schema\" field"));
        assert!(error("{\"schema\":\"udpath.boost/1\"}").ends_with("written by another version of udpath"));
        assert!(error("{\"schema\":\"udpath.serve/1\"}").ends_with("does not render this kind of result"));
        assert!(error("{\"schema\":\"a\\nb\"}").contains("the schema \"ab\": expected"));
        assert!(
            error("{\"schema\":\"udpath.load/1\"}")
                .contains("schema udpath.load/1: missing field `protocol`")
        );
        assert!(parse(b"\xff\xfe{", "x.json").is_err());
        // What the header skips.
        let text = b"{\"schema\":\"udpath.load/1\",\"protocol\":\"\xff\"}";
        let error = parse(text, "x.json").expect_err("not a result");
        assert!(error.to_string().contains("is not JSON"), "{error}");
    }

    #[test]
    fn numbers_out_of_range_do_not_get_in() {
        assert!(error("{\"schema\":\"udpath.load/1\",\"tps\":1e999}").contains("out of range"));
    }
}
