use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

fn sh(folder: &Path, script: &str) -> bool {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).current_dir(folder).stderr(Stdio::null());
    shell.status().unwrap().success()
}

#[test]
fn of_a_changed_line_only_key_and_value_are_shown() {
    let server = "server:\n\tserver-count: 2 # of s3cret\n\treuseport: \"yes\"\nkey:\n\tsecret: s3cret";
    let edited = server.replace("count: 2", "count: 4");
    assert_eq!(shown(server, &edited), "@@ -2 +2 @@\n-\tserver-count: 2…\n+\tserver-count: 4…\n");
    let cases = [
        // A new line beside secrets, and one behind a last line without an end.
        ("key s3cret\n", "key s3cret\nserver:\n    a: 1\n", "@@ -1,0 +2,2 @@\n+server:\n+    a: 1\n"),
        ("key s3cret", "key s3cret\nserver:\n    a: 1\n", "@@ -1,0 +2,2 @@\n+server:\n+    a: 1\n"),
        ("a\nkey s3cret\nb\n", "a\n  n: 4\nkey s3cret\nb\n", "@@ -1,0 +2 @@\n+  n: 4\n"),
        // Several on a line.
        (
            "module(load=\"imudp\" Secret=\"s3cret\")\n",
            "module(load=\"imudp\" Secret=\"s3cret\" threads=\"2\")\n",
            "@@ -1 +1 @@\n-…\n+… threads=\"2\")\n",
        ),
        (
            "o { key \"s3cret\"; udp-receive-buffer 0; pass s3cret; };\n",
            "o { key \"s3cret\"; udp-receive-buffer 4096; pass s3cret; };\n",
            "@@ -1 +1 @@\n-…udp-receive-buffer 0…\n+…udp-receive-buffer 4096…\n",
        ),
        ("OPTIONS=\"-k s3cret -n 2\"\n", "OPTIONS=\"-k s3cret -n 4\"\n", "@@ -1 +1 @@\n-…-n 2\"\n+…-n 4\"\n"),
        ("r = \"1\"\n", "r = \"12\"\n", "@@ -1 +1 @@\n-r = \"1\"\n+r = \"12\"\n"),
        ("", "a\n", "@@ -0,0 +1 @@\n+a\n"),
        // New lines around one that changes.
        (
            "s:\n  n: 1 # s3cret\n",
            "s:\n  r: yes\n  n: 2 # s3cret\n  b: 4\n",
            "@@ -1,0 +2 @@\n+  r: yes\n@@ -2 +3 @@\n-  n: 1…\n+  n: 2…\n@@ -2,0 +4 @@\n+  b: 4\n",
        ),
    ];
    for (old, new, shown_as) in cases {
        assert_eq!(shown(old, new), shown_as, "{old:?}");
        // Nor when it is undone.
        for text in [shown(old, new), shown(new, old), spliced("x", old, new), spliced("x", new, old)] {
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}

#[test]
fn a_spliced_file_is_the_new_one_and_another_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let name = "it's $(touch pwned)\\;.conf";
    let path = folder.path().join(name);
    let (old, new) = ("a: 1\nsecret: x\nb: 2", "a: 1\nn: 'q'\nsecret: x\nb: 3\n");
    fs::write(&path, old).unwrap();
    assert!(sh(folder.path(), &spliced(name, old, new)));
    assert_eq!(fs::read_to_string(&path).unwrap(), new);
    assert!(sh(folder.path(), &spliced(name, new, old)));
    fs::write(&path, "other").unwrap();
    assert!(!sh(folder.path(), &spliced(name, old, new)));
    assert_eq!(fs::read_to_string(&path).unwrap(), "other");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else was done");
}

/// Texts that try to end whatever they are in.
fn texts() -> impl Strategy<Value = String> {
    let lines = prop_oneof![
        Just("UDPATH".to_owned()),
        Just("'; touch pwned; '".to_owned()),
        Just("$(touch pwned)`touch pwned`".to_owned()),
        Just("\\' \\\\ %s %n \\0".to_owned()),
        Just("a: 1".to_owned()),
        Just("-n\r".to_owned()),
        Just(String::new()),
        "[ -~]{0,12}",
        "\\PC{0,8}",
        any::<String>(),
    ];
    (proptest::collection::vec(lines, 0..8), prop_oneof![Just("\n"), Just("\r\n")])
        .prop_map(|(lines, end)| lines.join(end))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn texts_arrive_byte_for_byte_and_nothing_else_runs(old in texts(), new in texts()) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let script = printed(&new) + " > file";
        prop_assert!(sh(folder.path(), &script));
        prop_assert_eq!(fs::read(&file).unwrap(), new.as_bytes());
        fs::write(&file, &old).unwrap();
        let script = spliced("file", &old, &new);
        prop_assert!(sh(folder.path(), &script), "{}", script);
        prop_assert_eq!(fs::read(&file).unwrap(), new.as_bytes());
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let visible = |text: &str| text.chars().all(|one| !one.is_control() || matches!(one, '\n' | '\t'));
        prop_assert!(visible(&printed(&new)) && visible(&shown(&old, &new)));
    }
}
