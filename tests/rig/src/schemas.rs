//! Checks documents against docs/schemas. [`crate::Run`] and [`crate::Said`] do it with everything that a test has a
//! program print, so that a test that reads a document need not ask for it.
//!
//! ```text
//! stdout ─▸ JSON, whole or a document per line ─▸ each object with a field "schema": "udpath.NAME/VERSION"
//!                                                 ─▸ docs/schemas/NAME-VERSION.json, compiled once per process
//! ```

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use boon::{Compiler, Schemas};
use include_dir::{Dir, include_dir};
use serde_json::Value;

/// The schemas. In the program: an emulated machine has the tests, but not the repository.
static FOLDER: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../docs/schemas");

/// The start of the name of each of our documents.
const OURS: &str = "udpath.";

/// Asserts that each document of udpath in `text` conforms to its schema; `shown` names the run in the failure message.
/// Text that is not JSON is not a document; neither is the last line of a program that was killed.
///
/// # Panics
/// A document has no schema, or differs from it.
pub fn check_documents(shown: &str, text: &str) {
    if let Err(why) = checked(text) {
        panic!("{shown}: {why}");
    }
}

/// The document that a program has printed, as [`check_documents`] wants it.
///
/// # Panics
/// It is not JSON, or has no schema, or differs from it.
#[track_caller]
#[must_use]
pub fn json(printed: impl AsRef<[u8]>) -> Value {
    let text = String::from_utf8_lossy(printed.as_ref());
    check_documents("the program", &text);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn checked(text: &str) -> Result<(), String> {
    if !text.trim_start().starts_with(['{', '[']) {
        return Ok(());
    }
    match serde_json::from_str::<Value>(text) {
        Ok(whole) => visit(&whole),
        Err(_) => {
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).try_for_each(|one| visit(&one))
        }
    }
}

/// Also documents within others: those that `history export` prints.
fn visit(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("schema").and_then(Value::as_str)
                && name.starts_with(OURS)
            {
                conforms(name, value)?;
            }
            fields.values().try_for_each(visit)
        }
        Value::Array(values) => values.iter().try_for_each(visit),
        _ => Ok(()),
    }
}

/// The compiled schemas by the names of their documents.
static COMPILED: LazyLock<Mutex<(Schemas, HashMap<String, boon::SchemaIndex>)>> =
    LazyLock::new(Mutex::default);

fn conforms(name: &str, document: &Value) -> Result<(), String> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let (schemas, known) = &mut *compiled;
    let index = match known.get(name) {
        Some(index) => *index,
        None => {
            let index = compile(name, schemas)?;
            known.insert(name.to_owned(), index);
            index
        }
    };
    schemas.validate(document, index).map_err(|error| format!("not as docs/schemas says: {error:#}"))
}

fn compile(name: &str, schemas: &mut Schemas) -> Result<boon::SchemaIndex, String> {
    let file = format!("{}.json", name[OURS.len()..].replace('/', "-"));
    let found = FOLDER.get_file(&file);
    let found = found.ok_or_else(|| format!("{name} has no docs/schemas/{file} (make schemas)"))?;
    let schema =
        serde_json::from_slice(found.contents()).map_err(|error| format!("docs/schemas/{file}: {error}"))?;
    let mut compiler = Compiler::new();
    let refused = |error| format!("docs/schemas/{file}: {error:#}");
    compiler.add_resource(&file, schema).map_err(refused)?;
    compiler.compile(&file, schemas).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        checked(text).expect_err("a wrong document")
    }

    #[test]
    fn what_is_no_document_of_ours_passes() {
        for text in
            ["", "no JSON", "{\"schema\": 7}", "{\"schema\": \"other/1\"}", "[1, 2]", "{\"cut off\": "]
        {
            assert_eq!(checked(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn wrong_documents_are_found() {
        let good = r#"{"schema":"udpath.undo/1","id":3,"complete":true,"left":[],"ended":[],"untold":[],"gone_with_boot":[]}"#;
        assert_eq!(checked(good), Ok(()));
        assert!(why(&good.replace("true", "\"yes\"")).contains("/complete"));
        assert!(why(&good.replace("\"id\":3,", "")).contains("id"));
        assert!(why(&good.replace("undo/1", "undo/9")).contains("has no docs/schemas/undo-9.json"));
        // One line among several, and one document within another.
        let bad = good.replace("\"left\":[]", "\"left\":[{}]");
        assert!(why(&format!("{good}\n{bad}\n")).contains("/left/0"));
        assert!(why(&format!("{{\"id\":1,\"result\":{bad}}}")).contains("/left/0"));
    }
}
