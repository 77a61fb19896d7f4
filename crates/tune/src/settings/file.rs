//! Whole files that keep a change across a boot. Created only by [`crate::persist`], never requested by name.

use udpath_host::shell::quoted;

use super::row::{Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind};
use super::{Setting, Value};
use crate::changed::printed;

/// A whole file.
pub(super) static FILE: Row = Row {
    name: "file",
    part: PartKind::Whole,
    value: ValueKind::File,
    access: Access::Object,
    phase: Phase::Files,
    cost: Cost::None,
    scope: Scope::Host,
    on_reset: OnReset::Kept,
    writers: &[],
    shell: Shell::Line(|setting, value| match setting {
        Setting::File(path) => shell(path, value),
        _ => String::new(),
    }),
    page: "",
    security: Security::AskedElsewhere,
    extra: Extra::NONE,
};

/// The command that gives a file this text, or removes it.
pub(super) fn shell(path: &str, value: &Value) -> String {
    match value {
        Value::File(Some(text)) => format!("{} > {}", printed(text), quoted(path)),
        _ => format!("rm -f {}", quoted(path)),
    }
}
