//! Programs that outlive the process that attached them, and what tracers count.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod locks;
mod policy;
mod selection;
