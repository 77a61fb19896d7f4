//! The project's own checks find what they are for: each on a tree that breaks its rule, and on one that keeps it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The check of circles, of a crate with these files.
fn circles(files: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join("src").join(name), text).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/circles.py");
    Command::new("python3").arg(script).arg(folder.path()).output().expect("python3")
}

#[test]
fn a_circle_of_files_is_found() {
    let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
    let a = ("a.rs", "use crate::b::B;\npub struct A(B);\n");
    let c = ("c.rs", "pub struct C;\npub const LEN: usize = 1;\n");
    // Each needs the next one: by a list, by a path where it is used, through what a module above re-exports.
    for b in ["use crate::{a::A, c::C};\npub struct B(A, C);", "pub struct B(super::a::A);"] {
        let found = circles(&[lib, a, ("b.rs", b), c]);
        let said = String::from_utf8_lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(1), "{b}");
        assert!(said.contains("2 files need each other") && said.contains("b -> a"), "{said}");
    }
    let through = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n");
    let found = circles(&[through, a, ("b.rs", "use crate::A;\npub struct B(A);"), c]);
    assert_eq!(found.status.code(), Some(1));
    // Tests, comments, texts, and what is only handed on are no need.
    let b = "use crate::c::C;\n// crate::a::A\npub struct B(C);\npub use crate::a::A;\npub const S: &str = \"crate::a::A\";\n\
             #[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
    let fine = circles(&[lib, a, ("b.rs", b), c]);
    assert_eq!(fine.status.code(), Some(0), "{}", String::from_utf8_lossy(&fine.stderr));
}
