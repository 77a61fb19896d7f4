//! What the program was built from, for `udpath --version --verbose`: the compiler, the target, and for a release the
//! commit.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=UDPATH_COMMIT");
    let compiler = env::var("RUSTC").ok().and_then(|rustc| first_line(&rustc, &["--version"]));
    println!("cargo::rustc-env=UDPATH_COMPILER={}", compiler.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=UDPATH_TARGET={}", env::var("TARGET").as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=UDPATH_COMMIT={}", commit());
}

/// From `UDPATH_COMMIT`, which a build without Git sets, or from Git. A development build has none: it would be linked
/// again after each commit.
fn commit() -> String {
    if let Ok(commit) = env::var("UDPATH_COMMIT") {
        return commit;
    }
    if env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return "development build".into();
    }
    let git = |arguments: &[&str]| first_line("git", arguments);
    // Written by each commit and each checkout.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into())
}

/// The first line of what a command prints; `None` if it fails.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.lines().next()?.to_owned();
    output.status.success().then_some(line)
}
