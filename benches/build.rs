//! Compiles the C baseline that the runtime is measured against, and tells the program how it was built itself.

use std::env;
use std::path::{Path, PathBuf};
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
    // OUT_DIR is target/PROFILE/build/PACKAGE/out; PROFILE itself says "release" of every profile that inherits it.
    let profile =
        program.ancestors().nth(4).and_then(Path::file_name).expect("OUT_DIR has a profile").to_owned();
    println!("cargo::rustc-env=BENCH_PROFILE={}", profile.display());
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let version = Command::new(&rustc).arg("--version").output().expect("rustc prints its version");
    println!("cargo::rustc-env=BENCH_RUSTC={}", String::from_utf8_lossy(&version.stdout).trim());
}
