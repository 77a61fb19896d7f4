//! rsyslog.

use super::*;

#[test]
fn what_rsyslogd_reads_is_what_rsyslogd_prints() {
    let oracle = Oracle {
        server: "rsyslog",
        program: "rsyslogd",
        generate: configuration,
        values: printed,
        cases: 60,
    };
    oracle.consult();
}

/// The blocks of parameters in its debugging output, which are in its own form. It starts with a configuration that has
/// errors, so what it says counts.
fn printed(oracle: &Oracle, main: &Path) -> Option<Values> {
    let folder = start_of(main);
    let main = main.display().to_string();
    let checked = oracle.run(folder, &["-N1", "-f", &main]);
    let said = String::from_utf8_lossy(&checked.stderr);
    if !checked.status.success() || said.lines().any(|line| line.contains("error during parsing")) {
        return None;
    }
    Some(debugged(oracle, folder, &main))
}

/// What it takes, also of a configuration with errors.
fn debugged(oracle: &Oracle, folder: &Path, main: &str) -> Values {
    let output = oracle.run(folder, &["-dN1", "-f", main]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut modules: Vec<BTreeMap<&str, &str>> = Vec::new();
    let mut inputs: Vec<BTreeMap<&str, &str>> = Vec::new();
    let mut block = None;
    for line in text.lines() {
        if line.ends_with("module (global) param blk for imudp:") {
            modules.push(BTreeMap::new());
            block = Some(true);
        } else if line.ends_with("input param blk in imudp:") {
            inputs.push(BTreeMap::new());
            block = Some(false);
        } else if let Some((_, parameter)) = line.split_once("rainerscript.c: ") {
            let Some((key, value)) = parameter.split_once(": ") else { continue };
            let of = match block {
                Some(true) => modules.last_mut(),
                Some(false) => inputs.last_mut(),
                None => None,
            };
            if let Some(of) = of.filter(|_| value != "(unset)") {
                of.insert(key, value);
            }
        } else if line.contains("rsconf.c: cnf:global") || line.contains("modules.c:") {
            block = None;
        }
    }
    let value = |knob: &KnobProfile| {
        let of = if knob.section == "module" { &modules } else { &inputs };
        let key = knob.key().to_ascii_lowercase();
        of.iter().map(|block| block.get(key.as_str()).map(|value| (*value).to_owned())).collect()
    };
    oracle.knobs().map(|knob| (knob.name.as_str(), value(knob))).collect()
}

/// It says so, and starts nevertheless.
#[test]
fn of_a_module_that_is_loaded_twice_the_first_counts() {
    let oracle =
        Oracle { server: "rsyslog", program: "rsyslogd", generate: configuration, values: printed, cases: 0 };
    if !oracle.is_installed() {
        return;
    }
    for modules in [
        "module(load=\"imudp\") module(load=\"imudp\" threads=\"4\")",
        "module(load=\"imudp.so\" threads=\"2\")\nmodule(load=\"imudp\" threads=\"4\" batchSize=\"64\")",
        "module(load=\"imudp\" threads=\"2\")\nmodule(load=\"IMUDP\" threads=\"4\")",
        "module(load=\"IMUDP\" threads=\"4\")\nmodule(load=\"imudp\" threads=\"2\")",
        "module(load=\"imudp\" threads=\"4\" config.enabled=\"off\")\nmodule(load=\"imudp\" threads=\"2\")",
        "module(load=\"IMUDP\" threads=\"4\")",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("rsyslog.conf");
        let inputs =
            "input(type=\"IMUDP\" port=\"5514\")\ninput(type=\"imudp\" port=\"5515\" rcvbufSize=\"1m\")\n";
        // Without its module an input is none.
        let inputs = if modules.contains("\"imudp") { inputs } else { "" };
        fs::write(&main, format!("*.* /dev/null\n{modules}\n{inputs}")).unwrap();
        let theirs = debugged(&oracle, folder.path(), &main.display().to_string());
        let service = oracle.service(&main);
        oracle.agree(&service, &oracle.read(&service), &theirs, &|| modules.to_owned());
    }
}

fn configuration(tree: &mut Tree) -> PathBuf {
    let load = tree.chance.one(&["load=\"imudp\"", "load=\"imudp.so\""]);
    let module = object(
        tree,
        "module",
        load,
        &[("threads", &["2", "3"]), ("batchSize", &["64", "010", "128"]), ("TimeRequery", &["4", "8"])],
    );
    let mut text = String::from("*.* /dev/null\n");
    if tree.chance.once_in(3) {
        text += "module(load=\"impstats\" interval=\"60\")\n";
    }
    text += &placed(tree, &module, 0);
    // Without an input it is rejected.
    for number in 0..1 + tree.chance.below(3) {
        let enabled = if number == 0 {
            ""
        } else {
            tree.chance.one(&["", " config.enabled=\"off\"", " Config.Enabled=\"on\""])
        };
        let kind = tree.chance.one(&["type=\"imudp\"", "Type = \"imudp\"", "type=\"IMUDP\""]);
        let port = tree.chance.one(&[
            "port=\"5514\"",
            "port=[\"5515\", \"5516\"]",
            "port=\"5517\" name=\"a\\\"b)\"",
        ]);
        let sizes: &[&str] = &["1m", "64k", "1M", "200K", "100000", "010", "1G"];
        let input = object(tree, "input", &format!("{kind} {port}{enabled}"), &[("rcvbufSize", sizes)]);
        text += &placed(tree, &input, 0);
        text += tree.chance.one(&[
            "",
            "# input(type=\"imudp\" port=\"1\" rcvbufSize=\"1k\")\n",
            "/* input(type=\"imudp\" port=\"2\")\n*/\n",
            "\n:msg, contains, \"input(a\" /dev/null\n",
            "if $msg contains 'input(' then { action(type=\"omfile\" file=\"/dev/null\") }\n",
            "# goes on \\\n  input(type=\"imudp\" port=\"3\" rcvbufSize=\"2k\")\n",
        ]);
    }
    tree.write_main("rsyslog.conf", &text)
}

fn object(tree: &mut Tree, name: &str, first: &str, parameters: &[(&str, &[&str])]) -> String {
    let name = if tree.chance.once_in(4) { name.to_uppercase() } else { name.to_owned() };
    let mut all = vec![first.to_owned()];
    for (key, values) in parameters {
        if tree.chance.once_in(2) {
            let value = tree.chance.one(values);
            let key = if tree.chance.once_in(4) { key.to_lowercase() } else { (*key).to_owned() };
            all.insert(
                tree.chance.below(all.len() + 1),
                format!("{key}{}\"{value}\"", tree.chance.one(&["=", " = "])),
            );
        }
    }
    let separator =
        tree.chance.one(&[" ", "\n  ", " # x\n  ", " /* y */ ", " \\\n  ", "\\ \t\n", " \\\n \\\r\n "]);
    let open = tree.chance.one(&["(", " (", "( ", "\n("]);
    let mut text = format!("{name}{open}{})", all.join(separator));
    // Within any word or string; of its lines, only the last can end without (it is told the line's number then, in the
    // midst of an object).
    if !separator.trim_start_matches(' ').starts_with(['\n', '#']) && tree.chance.once_in(2) {
        let begin = text.find('(').unwrap() + 1;
        text.insert_str(
            begin + tree.chance.below(text.len() - begin),
            tree.chance.one(&["\\\n", "\\\n    "]),
        );
    }
    text
}

/// The object, in this file or in one that is included.
fn placed(tree: &mut Tree, object: &str, depth: usize) -> String {
    let end = tree.chance.one(&["\n", " ", " # z\n"]);
    if depth > 2 || tree.chance.once_in(2) {
        return format!("{object}{end}");
    }
    let inside = placed(tree, object, depth + 1);
    let here = tree.folder.display().to_string();
    let name = tree.name("inc");
    match tree.chance.below(5) {
        0 => {
            tree.write(&name, &format!("{inside}\n"));
            format!("\n$IncludeConfig {here}/{name}\n")
        }
        1 => {
            tree.write(&name, &format!("{inside}\n"));
            format!("include(file=\"{here}/{name}\"){end}")
        }
        2 => {
            tree.write(&format!("{name}/b.conf"), &format!("{inside}\n"));
            tree.write(&format!("{name}/c.txt"), "input(type=\"imudp\" port=\"9\")\n");
            let rest = tree.chance.one(&["*.conf", "*.conf # drop-ins", "[^c].conf\t#x"]);
            format!("\n$includeconfig {name}/{rest}\n")
        }
        3 => {
            tree.write(&format!("{name}/b"), &format!("{inside}\n"));
            format!("\n$IncludeConfig {here}/{name}/\n")
        }
        _ => {
            tree.write(&name, &format!("{inside}\n"));
            format!(
                "include(file=\"{here}/none\" mode=\"optional\") include(mode=\"optional\" file=\"{here}/{name}\")\n"
            )
        }
    }
}
