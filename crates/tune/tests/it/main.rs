//! The tests of this crate from outside, in one program.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod apply;
mod device;
mod docs;
#[path = "../door/mod.rs"]
mod door;
#[path = "../lab/mod.rs"]
mod lab;
mod persisted;
mod process;
mod selection;
mod services;
mod settings;
