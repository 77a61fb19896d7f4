//! Compiles the C baseline that the runtime is measured against.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bare_echo.c");
    let program = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bare_echo");
    let done = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg("bare_echo.c")
        .status()
        .unwrap_or_else(|error| panic!("cannot run cc: {error}; `make setup` installs it"));
    assert!(done.success(), "cc could not compile bare_echo.c ({done})");
    println!("cargo::rustc-env=BARE_ECHO={}", program.display());
}
