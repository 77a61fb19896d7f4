//! Words for a shell, given to the shells of the machine.

use std::process::Command;

use proptest::prelude::*;
use udpath_host::shell::quoted;

/// What the shell makes of a line: each word that it gives a command, ended by NUL.
fn words(shell: &str, line: &str) -> Vec<String> {
    let output = Command::new(shell).args(["-c", &format!("printf '%s\\0' {line}")]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{shell} {line:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Names of processes, paths and control groups have any character but NUL; those that a shell obeys are tried
    /// most.
    #[test]
    fn a_shell_gives_back_the_text(
        texts in prop::collection::vec(r#"([-'"\\$`;&|<>(){}\[\]*?!#~=%^, \t\n\r\x1ba-z0-9]|[^\x00]){0,20}"#, 1..4),
    ) {
        let line = texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" ");
        for shell in ["sh", "bash"] {
            prop_assert_eq!(&words(shell, &line), &texts);
        }
    }
}
