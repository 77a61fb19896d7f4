//! The tests of this crate from outside, in one program.

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
