//! The tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod compare;
mod experiment;
mod fixture;
mod fleet_report;
mod html;
mod json;
#[path = "../../../host/tests/machines/mod.rs"]
mod machines;
mod map;
mod recorded;
#[path = "../../../profile/tests/rings/mod.rs"]
mod rings;
mod terminal;
mod top;
