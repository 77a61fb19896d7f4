//! Secrets in a server's files: none of the verbs that show a change of a file shows one, and the shell lines that they
//! print make the same change, byte for byte.

use std::fs;

use udpath_rig::{Ended, TIMEOUT, awaited};

use super::{Nsd, apply_with, ended};

/// A key of TSIG, as nsd.conf has it; and words beside the knob that is changed, and at the end of the file, which has
/// no newline.
const SECRETS: [&str; 3] = ["c2VjcmV0LXRzaWcta2V5", "s3cret-beside", "s3cret-at-the-end"];

/// A server whose main file has secrets, and sets the knob itself.
fn with_secrets(name: &str) -> (Nsd, String) {
    let nsd = Nsd::start(name);
    let conf = fs::read_to_string(nsd.path("etc/nsd.conf")).unwrap();
    let conf = conf.lines().filter(|line| !line.starts_with("include:")).collect::<Vec<_>>().join("\n");
    let [key, beside, end] = SECRETS;
    let conf = conf.replacen("server:\n", &format!("server:\n  server-count: 1 # {beside}\n"), 1);
    let conf = format!("{conf}\nkey:\n  name: k\n  algorithm: hmac-sha256\n  secret: \"{key}\"\n# {end}");
    fs::write(nsd.path("etc/nsd.conf"), &conf).unwrap();
    (nsd, conf)
}

/// Checks that it has no secret, but says this.
fn hides(shown: &Ended, says: &str) {
    ended(shown, 0, "");
    for text in [&shown.out, &shown.err] {
        assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    }
    assert!(shown.out.contains(says), "{}", shown.out);
}

/// Runs lines that a verb has printed, as root would.
fn typed(nsd: &Nsd, lines: &str) {
    let mut shell = nsd.lab.machine("server").unwrap().command("/bin/sh");
    let output = shell.args(["-e", "-c", lines]).env_remove("UDPATH_TEST_RUN").output().unwrap();
    assert!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
    awaited("nsd to answer", TIMEOUT, || nsd.answers().then_some(()));
}

#[test]
fn no_verb_shows_a_secret_of_a_file_that_it_changes() {
    udpath_lab::needs_root!();
    let (nsd, before) = with_secrets("services-secret");
    let restart = nsd.restart();
    let now = || fs::read_to_string(nsd.path("etc/nsd.conf")).unwrap();
    let knob = "service:5300:server-count=2";
    let plan = ["plan", "--set", knob, "--restart", restart.as_str()];
    hides(&nsd.run(&plan), "+  server-count: 2…");
    let json = nsd.run(&[&plan[..], &["--json"]].concat());
    hides(&json, "-  server-count: 1…");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let change = &json["changes"][0];
    assert!(change["from"].is_null() && change["to"].is_null(), "{change}");
    assert_eq!(change["file"]["old_sha256"].as_str().map(str::len), Some(64));
    hides(&nsd.run(&["plan", "--service", "5300", "--json"]), "reuseport: yes");
    let lines = nsd.run(&[&plan[..], &["--shell"]].concat());
    hides(&lines, "sha256sum");

    // Typed, the lines do what apply does.
    typed(&nsd, &lines.out);
    let after = before.replace("server-count: 1", "server-count: 2");
    assert_eq!(now(), after);
    fs::write(nsd.path("etc/nsd.conf"), &before).unwrap();
    let applied = nsd.run(&[&apply_with(&restart)[..], &["--json"]].concat());
    hides(&applied, "config:");
    assert_eq!(now(), after);
    hides(&nsd.run(&["status"]), "config:");
    hides(&nsd.run(&["status", "--json"]), "config:");
    let lines = nsd.run(&["undo", "--print"]);
    hides(&lines, "sha256sum");
    typed(&nsd, &lines.out);
    assert_eq!(now(), before);
}

#[test]
fn a_line_of_a_file_ends_no_shell_line() {
    udpath_lab::needs_root!();
    let (nsd, conf) = with_secrets("services-heredoc");
    let pwned = nsd.path("pwned");
    // A comment goes on to the end of its line, so that nsd takes all of it; the shell would not.
    let here = pwned.display();
    let before = format!(
        "{conf}\n#\rUDPATH\r\n# UDPATH\n#'; touch {here}; '\n#$(touch {here})`touch {here}`\n# %s \\\n"
    );
    fs::write(nsd.path("etc/nsd.conf"), &before).unwrap();
    let restart = nsd.restart();
    let plan = ["plan", "--shell", "--set", "service:5300:server-count=2", "--restart", restart.as_str()];
    typed(&nsd, &nsd.run(&plan).out);
    let after = before.replace("server-count: 1", "server-count: 2");
    assert_eq!(fs::read_to_string(nsd.path("etc/nsd.conf")).unwrap(), after);
    fs::write(nsd.path("etc/nsd.conf"), &before).unwrap();
    ended(&nsd.run(&apply_with(&restart)), 0, "applied and verified");
    let undo = nsd.run(&["undo", "--print"]);
    ended(&undo, 0, "");
    typed(&nsd, &undo.out);
    assert_eq!(fs::read_to_string(nsd.path("etc/nsd.conf")).unwrap(), before);
    assert!(!pwned.exists());
}
