//! Writes docs/schemas: a JSON Schema for each document that the program prints, made from the type that prints it, and
//! compares those files, and the table of docs/schemas.md, with the types.
//!
//! ```text
//! DOCUMENTS ─▸ schemars ─▸ docs/schemas/NAME-VERSION.json ─▸ udpath_rig checks the outputs of every test against it
//! ```
//! Schemas describe what is written, not what is accepted. They allow further fields: a later program of the same
//! version may add some.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};
use udpath_advise::{comparison, diagnosis, result as boost};
use udpath_fleet::machines;
use udpath_load::{result as load, search};
use udpath_profile::difference;
use udpath_report::predict;

use crate::verbs;

/// A document: its name with version, its one-line description, and the types that print it.
type Document = (&'static str, &'static str, &'static [fn(&mut SchemaGenerator) -> Schema]);

/// Set to write the files instead of comparing them: `make schemas`.
const WRITE: &str = "UDPATH_WRITE_SCHEMAS";

/// All documents, by name.
const DOCUMENTS: &[Document] = &[
    (verbs::apply::SCHEMA, "`apply --json`: what was changed", &[of::<verbs::apply::Document<'_>>]),
    (boost::SCHEMA, "`boost --json`: the rungs, or what helps a running server", &[of::<boost::BoostResult>]),
    (
        udpath_model::CAPACITY_SCHEMA,
        "`capacity --json`: what each configuration would carry",
        &[of::<udpath_model::CapacityResult>],
    ),
    (comparison::SCHEMA, "`compare --json`: two results", &[of::<comparison::CompareResult>]),
    (
        udpath_model::costs::COSTS_SCHEMA,
        "`capacity --calibrate --json`: what each step of a datagram's path costs",
        &[of::<udpath_model::Costs>],
    ),
    (
        diagnosis::DIAGNOSIS_SCHEMA,
        "`diagnose --json`: what limits the service",
        &[of::<diagnosis::Diagnosis>],
    ),
    (
        udpath_report::CHANGE_SCHEMA,
        "`diagnose --watch --json`: one line per change",
        &[of::<udpath_report::ChangeLine<'_>>],
    ),
    (
        udpath_experiment::SCHEMA,
        "`experiment --json`: the published experiments, repeated",
        &[of::<udpath_experiment::ExperimentResult>],
    ),
    (search::SCHEMA, "`load --find-max --json`: the highest rate that holds", &[of::<search::FindMax>]),
    (
        machines::FLEET_SCHEMA,
        "`fleet report --json`: what machines have in common",
        &[of::<machines::FleetReport>],
    ),
    (udpath_history::SCHEMA, "`history --json`: the kept results", &[of::<udpath_history::Listing>]),
    (verbs::lab::SCHEMA, "`lab list --json`: the labs", &[of::<verbs::lab::Document>]),
    (load::SCHEMA, "`load --json`, `merge --json`: rate, latency and losses", &[of::<load::LoadResult>]),
    (udpath_advise::MAP_SCHEMA, "`show --json`: the path of a datagram", &[of::<udpath_advise::MapResult>]),
    (
        udpath_multiply::SCHEMA,
        "`multiply --json`: the instances of one server, or with `--list` of all",
        &[of::<udpath_multiply::Status>, of::<verbs::multiply::List<'_>>],
    ),
    (
        udpath_tune::plan::SCHEMA,
        "`plan --json`: changes; `apply` reads it",
        &[of::<udpath_tune::plan::Document>],
    ),
    (
        udpath_tune::policy::SCHEMA,
        "`policy list --json`, `policy show --json`: policies and their effect",
        &[of::<udpath_tune::policy::PolicyReport>],
    ),
    (
        predict::SCHEMA,
        "`predict --json`: the path of a flow, the source ports that reach it, or the spread of many flows",
        &[
            of::<predict::PathDocument<'_>>,
            of::<predict::PortsDocument<'_>>,
            of::<predict::SpreadDocument<'_>>,
        ],
    ),
    (
        udpath_advise::PROFILE_SCHEMA,
        "`profile --json`: where CPU time goes",
        &[of::<udpath_advise::ProfileResult>],
    ),
    (difference::SCHEMA, "`profile --diff --json`: two profiles", &[of::<difference::Difference>]),
    (verbs::serve::SCHEMA, "`serve --json`: the counters at the end", &[of::<verbs::serve::Document<'_>>]),
    (
        udpath_host::snapshot::SCHEMA,
        "`show --snapshot`: everything that was read, uninterpreted",
        &[of::<udpath_host::Snapshot>],
    ),
    (
        udpath_tune::status::SCHEMA,
        "`status --json`: the applies in effect",
        &[of::<udpath_tune::status::Status>],
    ),
    (udpath_support::SCHEMA, "`support --json`: what a capture contains", &[of::<udpath_support::Manifest>]),
    (
        TABLES,
        "`predict --tables`: the tables of a device, which it reads",
        &[of::<udpath_steer::predict::Tables>],
    ),
    (
        udpath_report::top::SCHEMA,
        "`top --json`: the machine during one interval",
        &[of::<udpath_report::top::Top>],
    ),
    (verbs::undo::SCHEMA, "`undo --json`: what was restored", &[of::<verbs::undo::Document<'_>>]),
];

/// The one value of `udpath_steer::predict::Schema`.
const TABLES: &str = "udpath.tables/1";

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema of a document as JSON.
fn schema((name, about, types): &Document) -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let types: Vec<Schema> = types.iter().map(|of| of(&mut generator)).collect();
    let mut definitions = generator.take_definitions(true);
    for of in &types {
        let target =
            of.get("$ref").and_then(Value::as_str).unwrap_or_else(|| panic!("{name} has no named type"));
        let definition = &mut definitions[target.strip_prefix("#/$defs/").unwrap()];
        definition["properties"]["schema"] = json!({ "const": name });
    }
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "description": about,
        "$defs": definitions,
    });
    match &*types {
        [only] => schema["$ref"] = only.get("$ref").cloned().unwrap(),
        several => schema["anyOf"] = json!(several),
    }
    plain(&mut schema);
    schema
}

/// Descriptions are doc comments: links to Rust items become the items' names.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// `udpath.boost/2` is in `boost-2.json`.
fn file(name: &str) -> String {
    format!("{}.json", name.trim_start_matches("udpath.").replace('/', "-"))
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let wanted: BTreeMap<String, String> = DOCUMENTS
        .iter()
        .map(|document| (file(document.0), serde_json::to_string_pretty(&schema(document)).unwrap() + "\n"))
        .collect();
    assert_eq!(wanted.len(), DOCUMENTS.len(), "two documents have one name");
    if std::env::var_os(WRITE).is_some() {
        let _ = fs::remove_dir_all(folder());
        fs::create_dir_all(folder()).unwrap();
        for (file, text) in &wanted {
            fs::write(folder().join(file), text).unwrap();
        }
    }
    let found: BTreeMap<String, String> = fs::read_dir(folder())
        .unwrap()
        .flatten()
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    let names: Vec<&String> = wanted.keys().collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), names, "docs/schemas has other files: run `make schemas`");
    for (file, text) in &wanted {
        assert!(found[file] == *text, "docs/schemas/{file} is not what the types say: run `make schemas`");
    }
}

#[test]
fn the_page_lists_each_document() {
    let page = fs::read_to_string(folder().with_extension("md")).unwrap();
    let wanted: Vec<String> = DOCUMENTS
        .iter()
        .map(|(name, about, _)| {
            let link = format!("https://github.com/udpath/udpath/blob/main/docs/schemas/{}", file(name));
            format!("| [{name}]({link}) | {about} |")
        })
        .collect();
    let found: Vec<&str> = page.lines().filter(|line| line.starts_with("| [udpath.")).collect();
    assert_eq!(found, wanted, "the table of docs/schemas.md");
}

/// Every schema allows null where an `Option` is written, and names what is always there.
#[test]
fn a_schema_says_what_is_always_written() {
    #[derive(JsonSchema, serde::Serialize)]
    struct Sample {
        schema: &'static str,
        rate: f64,
        note: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u8>,
    }
    let made = schema(&("udpath.sample/1", "a sample", &[of::<Sample>]));
    let sample = &made["$defs"]["Sample"];
    assert_eq!(sample["required"], json!(["schema", "rate", "note"]));
    assert_eq!(sample["properties"]["schema"], json!({ "const": "udpath.sample/1" }));
    assert_eq!(sample["properties"]["note"]["type"], json!(["string", "null"]));
    let fields: Map<String, Value> = serde_json::from_value(sample["properties"].clone()).unwrap();
    assert_eq!(fields.len(), 4);
}
