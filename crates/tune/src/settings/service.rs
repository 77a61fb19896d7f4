//! The configuration of a server, and the restart that makes it effective. Created only by [`crate::services`].

use super::row::{Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind};
use super::{Setting, Value, file};

/// A file of a server's configuration.
pub(super) static CONFIG: Row = Row {
    name: "config",
    part: PartKind::Whole,
    value: ValueKind::File,
    access: Access::Object,
    phase: Phase::Files,
    cost: Cost::None,
    scope: Scope::Host,
    on_reset: OnReset::Kept,
    writers: &["an editor", "an upgrade of the package"],
    shell: Shell::Line(|setting, value| match setting {
        Setting::Config(path) => file::shell(path, value),
        _ => String::new(),
    }),
    page: "",
    security: Security::AskedElsewhere,
    extra: Extra::NONE,
};

/// A restart. What configuration a running server has read is not visible, so the value is never known.
pub(super) static RESTART: Row = Row {
    name: "restart",
    part: PartKind::Whole,
    value: ValueKind::Text,
    access: Access::Object,
    phase: Phase::Restart,
    cost: Cost::Restarts,
    scope: Scope::Host,
    on_reset: OnReset::Kept,
    writers: &[],
    shell: Shell::Line(|setting, value| match setting {
        Setting::Restart(restart) => restart.shell(value),
        _ => String::new(),
    }),
    page: "",
    security: Security::AskedElsewhere,
    extra: Extra { assumed: Some(|| Value::Words("the old configuration".to_owned())), ..Extra::NONE },
};
