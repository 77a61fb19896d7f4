//! A few configurations that were chosen, for each knob.

use super::*;

/// A key's value by a server's own checker.
fn by_checker(checker: &str, key: &str, config: &Path) -> Option<String> {
    let output = Command::new(checker).args(["-o", key]).arg(config).output();
    let required = env::var_os("UDPATH_REQUIRE_ALL").is_some();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            assert!(!required, "{checker}: {error}; `scripts/setup.sh test` installs it");
            return None;
        }
    };
    assert!(output.status.success(), "{checker} {key}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// Whether two values of a knob are the same.
fn same(knob: &KnobProfile, one: &str, other: &str) -> bool {
    match knob.kind {
        Kind::Count | Kind::Bytes => {
            let number = |text| knob.kind.number(text, numbers::Numbers::default());
            number(one) == number(other)
        }
        Kind::Switch | Kind::Flag => Kind::is_on(one) == Kind::is_on(other),
        Kind::Interface | Kind::Text => one == other,
    }
}

#[test]
fn values_are_those_that_the_servers_own_checker_prints() {
    // Lines in any order, in clauses and includes, set more than once; and none at all: the defaults of the installed
    // version.
    let texts = [
        "server:\n",
        "server:\n  KEY: 3\n",
        "server:\n  KEY: 3\n  KEY: 5\n",
        "server:\n  KEY: 3\n  include: INC\n",
        "server:\n  include: INC\n  KEY: 3\n",
        "include: TOP\nserver:\n  KEY: 4\ninclude: INC\n",
        "server: KEY: 8 verbosity: 1\n",
        "include: TOP\nKEY: 6\n",
    ];
    let mut compared = 0;
    for (name, checker) in [("unbound", "unbound-checkconf"), ("nsd", "nsd-checkconf")] {
        let profile = Profile::named(name).unwrap();
        for knob in profile.knobs.iter().filter(|knob| matches!(knob.kind, Kind::Count | Kind::Bytes)) {
            for text in texts {
                let folder = tempfile::tempdir().unwrap();
                let path = |name: &str| folder.path().join(name).display().to_string();
                let (inc, top) = (path("inc"), path("top"));
                fs::write(&inc, format!("  {}: 7\n", knob.key())).unwrap();
                fs::write(&top, format!("server:\n  {}: 9\n", knob.key())).unwrap();
                let text = text.replace("KEY", knob.key()).replace("INC", &inc).replace("TOP", &top);
                // Users, zones and certificates of the machine do not matter here.
                let rest = if name == "nsd" {
                    "server:\n  username: \"\"\n"
                } else {
                    "server:\n  username: \"\"\n  chroot: \"\"\n"
                };
                let main = path("main.conf");
                fs::write(&main, format!("{rest}{text}")).unwrap();
                let Some(theirs) = by_checker(checker, knob.key(), main.as_ref()) else { return };
                // 0: what NSD asks for by itself (server.c).
                let theirs = if name == "nsd" && theirs == "0" { knob.default.clone() } else { theirs };
                let reader = Reader::own("/".as_ref()).unwrap();
                let config = Config::read(&reader, &main, profile.format, None).unwrap();
                let found = config.find(&knob.section, knob.key());
                let ours =
                    config.in_effect(&found).map_or(knob.default.as_str(), |found| &found.directive.value);
                assert!(
                    same(knob, ours, &theirs),
                    "{name} {}: {ours}, by {checker} {theirs}\n{text}",
                    knob.name
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn values_of_bind_are_those_that_its_checker_prints() {
    let texts = [
        "options { KEY 3000; };\n",
        "options { include \"INC\"; };\n",
        "// KEY 1;\noptions {\n  /* KEY 2; */ KEY 4000; # KEY 3;\n};\n",
        "include \"TOP\";\n",
        "options { directory \"/tmp\"; };\nview \"x\" { match-clients { any; }; };\n",
        "options { listen-on port 5300 { 127.0.0.1; }; KEY 5000; };\n",
    ];
    let profile = Profile::named("bind9").unwrap();
    let mut compared = 0;
    for knob in profile.knobs.iter().filter(|knob| knob.section == "options" && knob.kind == Kind::Bytes) {
        for text in texts {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name).display().to_string();
            let (inc, top, main) = (path("inc"), path("top"), path("main.conf"));
            fs::write(&inc, format!("{} 7000;\n", knob.key())).unwrap();
            fs::write(&top, format!("options {{ {} 9000; }};\n", knob.key())).unwrap();
            fs::write(&main, text.replace("KEY", knob.key()).replace("INC", &inc).replace("TOP", &top))
                .unwrap();
            let output = Command::new("named-checkconf").args(["-p", &main]).output();
            let Ok(output) = output else {
                assert!(
                    env::var_os("UDPATH_REQUIRE_ALL").is_none(),
                    "`scripts/setup.sh test` installs bind9"
                );
                return;
            };
            assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stdout));
            let printed = String::from_utf8(output.stdout).unwrap();
            let theirs = printed
                .lines()
                .find_map(|line| line.trim().strip_prefix(knob.key())?.trim().strip_suffix(';'));
            let reader = Reader::own("/".as_ref()).unwrap();
            let config = Config::read(&reader, &main, profile.format, None).unwrap();
            let found = config.find(&knob.section, knob.key());
            let ours = config.in_effect(&found).map(|found| found.directive.value.as_str());
            assert_eq!(ours, theirs, "{}: {text}", knob.name);
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared}");
}
