//! A real result of a load, and others made of it: later, faster, on another kernel.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use udpath_rig::Run;

/// The result of one run in a lab of its own.
pub(crate) fn measured() -> &'static Value {
    static RESULT: OnceLock<Value> = OnceLock::new();
    RESULT.get_or_init(|| {
        let ended = Run::new(&["load", "echo", "--lab", "-d", "1s", "--json"]).finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        serde_json::from_str(&ended.out).expect("stdout is one JSON document")
    })
}

/// The same load at `tps`, steady for 10 s, measured at `at` under `kernel`.
pub(crate) fn steady(tps: f64, at: u64, kernel: &str) -> Value {
    let mut result = measured().clone();
    result["seconds"] = 10.0.into();
    result["tps"] = tps.into();
    let slices = (0..10).map(|slice| tps * (1.0 + 0.002 * f64::from(slice % 3)));
    result["series"] = serde_json::json!({"slice": 1.0, "tps": slices.collect::<Vec<_>>()});
    result["origin"]["at"] = at.into();
    result["origin"]["kernel"] = kernel.into();
    result
}

/// Writes a result into a folder; its path.
pub(crate) fn written(folder: &Path, name: &str, result: &Value) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, result.to_string()).unwrap();
    path
}
