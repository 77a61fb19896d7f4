//! Unbound and NSD.

use super::*;

/// Keys and values as the server of the configuration accepts them.
struct Words {
    rest: &'static str,
    numbers: &'static [&'static str],
    bytes: &'static [&'static str],
    /// Lines that set no knob.
    others: &'static [&'static str],
    /// Another clause.
    clause: &'static str,
    single_quotes: bool,
    capitals: bool,
    toplevel: bool,
}

const UNBOUND: Words = Words {
    // Users and folders of the machine do not matter here.
    rest: "server:\n  username: \"\"\n  chroot: \"\"\n  pidfile: \"\"\n",
    numbers: &["3", "17", "0100", "\"5\"", "7#c", "8;", "9x", "'+6'", "\" 4 m\""],
    bytes: &["4m", "8M", "\"1k\"", "65536", "2mb", "'3 K'", "0"],
    others: &[
        "verbosity: 1",
        "identity: \"a # KEY: 5\"",
        "identity: 'say \" # KEY: 6'",
        "identity: \"b \\\" KEY: 7\"",
        "version: a#b",
        "interface: fe80::1",
        "interface:\n ::1",
        "access-control: 10.0.0.0/8 allow",
        "access-control: 10.0.0.0/8\n\tallow",
        "local-data: \"example. A 10.0.0.1\"",
    ],
    clause: "remote-control:",
    single_quotes: true,
    capitals: false,
    toplevel: true,
};

const NSD: Words = Words {
    rest: "server:\n  username: \"\"\n",
    numbers: &["3", "17", "010", "\"5\""],
    bytes: &["65536", "\"1000\"", "00070000"],
    others: &[
        "verbosity: 1",
        "identity: \"a # KEY: 5\"",
        "identity: it's",
        "identity: \"b \\\" KEY: 7\"",
        "version: a#b",
        "ip-address: fe80::1",
        "ip-address:\n ::1",
        "cpu-affinity: 0 1\n 2",
    ],
    clause: "remote-control:",
    single_quotes: false,
    capitals: true,
    toplevel: false,
};

#[test]
fn what_unbound_reads_is_what_unbound_checkconf_prints() {
    let oracle = Oracle {
        server: "unbound",
        program: "unbound-checkconf",
        generate: |tree| configuration(tree, &UNBOUND, "unbound"),
        values: printed,
        cases: 40,
    };
    oracle.consult();
}

#[test]
fn what_nsd_reads_is_what_nsd_checkconf_prints() {
    let oracle = Oracle {
        server: "nsd",
        program: "nsd-checkconf",
        generate: |tree| configuration(tree, &NSD, "nsd"),
        values: printed,
        cases: 40,
    };
    oracle.consult();
}

/// One value at a time.
fn printed(oracle: &Oracle, main: &Path) -> Option<Values> {
    let folder = start_of(main);
    let mut values = Values::new();
    // nsd-checkconf does not print the CPUs.
    for knob in oracle.knobs().filter(|knob| knob.kind != Kind::Text) {
        let output = oracle.run(folder, &["-o", knob.key(), &main.display().to_string()]);
        if !output.status.success() {
            return None;
        }
        let value = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        // 0: what NSD asks for by itself (server.c).
        let own = oracle.server == "nsd" && knob.kind == Kind::Bytes && value == "0";
        values.insert(&knob.name, vec![Some(value).filter(|_| !own)]);
    }
    Some(values)
}

fn configuration(tree: &mut Tree, words: &Words, server: &'static str) -> PathBuf {
    let mut text = words.rest.to_owned();
    // A folder for files of their own, where new lines go.
    if tree.chance.once_in(3) {
        let folder = tree.folder.join("drop.d");
        fs::create_dir_all(&folder).unwrap();
        let include = format!("include: \"{}/*.conf\"\n", folder.display());
        // Within another clause, a file with a clause of its own would change what the next line belongs to.
        let (include, ends) = match tree.chance.once_in(3) {
            true => (
                format!("{}\n  {include}  control-enable: no\nserver:\n", words.clause),
                format!("{}\n", words.clause),
            ),
            false => (include, String::new()),
        };
        text += &include;
        if tree.chance.once_in(2) {
            let inside = body(tree, words, server, 2);
            tree.write("drop.d/x.conf", &format!("server:\n{inside}{ends}"));
        }
    }
    text += &body(tree, words, server, 0);
    tree.write_main("main.conf", &text)
}

/// Lines in the clause `server:`, which holds at their end, too.
fn body(tree: &mut Tree, words: &Words, server: &'static str, depth: usize) -> String {
    let knobs: Vec<&KnobProfile> =
        Profile::named(server).unwrap().knobs.iter().filter(|knob| knob.kind != Kind::Text).collect();
    let mut text = String::new();
    for _ in 0..1 + tree.chance.below(6) {
        let knob = knobs[tree.chance.below(knobs.len())];
        let line = match tree.chance.below(9) {
            0..4 => {
                let value = match knob.kind {
                    Kind::Count => tree.chance.one(words.numbers),
                    Kind::Bytes => tree.chance.one(words.bytes),
                    _ => tree.chance.one(&["yes", "no", "\"yes\"", "\"no\""]),
                };
                let value = value.replace('\'', if words.single_quotes { "'" } else { "\"" });
                let key = match words.capitals && tree.chance.once_in(4) {
                    true => knob.key().to_uppercase(),
                    false => knob.key().to_owned(),
                };
                let between = tree.chance.one(&[" ", "\t", "\n    ", " # KEY: 4\n\n  ", "  "]);
                format!("{key}:{between}{value}")
            }
            4 => format!("# {}: 99", knob.key()),
            5 => tree.chance.one(words.others).replace("KEY", knob.key()),
            6 => {
                let clause = words.clause;
                let again = if words.capitals && tree.chance.once_in(3) { "SERVER:" } else { "server:" };
                format!("{clause}\n  control-enable: no\n{again}")
            }
            _ if depth < 3 => include(tree, words, server, depth),
            _ => "server:".to_owned(),
        };
        // A comment ends with its line; anything else may be followed by more.
        let end = match line.starts_with('#') || line.contains("include") {
            true => "\n",
            false => tree.chance.one(&["\n", "\n", " # the end\n", " ", "\n\n\t", "\r\n"]),
        };
        let begin = tree.chance.one(&["  ", "\t", "", "    "]);
        text += &format!("{begin}{line}{end}");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn include(tree: &mut Tree, words: &Words, server: &'static str, depth: usize) -> String {
    let inside = body(tree, words, server, depth + 1);
    let here = tree.folder.display().to_string();
    match tree.chance.below(7) {
        0 => {
            let name = tree.name("inc");
            tree.write(&name, &inside);
            format!("include: {here}/{name}")
        }
        1 => {
            let name = tree.name("inc");
            tree.write(&name, &inside);
            format!("include: \"{name}\"")
        }
        2 => {
            // Twice: the second time after a line of its own.
            let name = tree.name("inc");
            tree.write(&name, &inside);
            let between = body(tree, words, server, 3);
            format!("include: {here}/{name}\n{between}include: \"{here}/{name}\"")
        }
        3 => {
            let folder = tree.name("d");
            tree.write(&format!("{folder}/b.conf"), &inside);
            let other = body(tree, words, server, depth + 1);
            tree.write(&format!("{folder}/a.conf"), &other);
            tree.write(&format!("{folder}/c.txt"), "no: configuration");
            tree.write(&format!("{folder}/.hidden.conf"), "no: configuration");
            let pattern = tree.chance.one(&[
                "*.conf",
                "[ab].conf",
                "?.conf",
                "[^c].conf",
                "[[:alpha:]].conf",
                "{b,a}.conf",
                "{b,[a]}*.conf",
                "\\[ab].conf",
            ]);
            format!("include: \"{here}/{folder}/{pattern}\"")
        }
        4 => format!("include: \"{here}/none*.conf\""),
        5 if words.toplevel => {
            let name = tree.name("top");
            tree.write(&name, &format!("server:\n{inside}"));
            format!("include-toplevel: \"{here}/{name}\"\nserver:")
        }
        // It begins in the clause of this file, and its own holds on after it.
        _ => {
            let name = tree.name("inc");
            tree.write(&name, &format!(" control-enable: no\nserver:\n{inside}"));
            format!("{}\ninclude: {here}/{name}", words.clause)
        }
    }
}
