//! BIND. A statement stands once, and so does `options`.

use super::*;

#[test]
fn what_named_reads_is_what_named_checkconf_prints() {
    let oracle = Oracle {
        server: "bind9",
        program: "named-checkconf",
        generate: configuration,
        values: printed,
        cases: 80,
    };
    oracle.consult();
}

fn printed(oracle: &Oracle, main: &Path) -> Option<Values> {
    let output = oracle.run(start_of(main), &["-p", &main.display().to_string()]);
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    // Its own form: one statement on a line, those of `options` indented once.
    let lines = text.lines().skip_while(|line| *line != "options {").skip(1).take_while(|line| *line != "};");
    let lines: Vec<&str> = lines.collect();
    let value = |knob: &KnobProfile| {
        let statements = lines.iter().filter_map(|line| line.strip_prefix('\t')?.split_once(' '));
        let mut own = statements.filter(|(key, _)| *key == knob.key());
        own.next().map(|(_, value)| value.trim_end_matches(';').to_owned())
    };
    Some(oracle.knobs().map(|knob| (knob.name.as_str(), vec![value(knob)])).collect())
}

fn configuration(tree: &mut Tree) -> PathBuf {
    let mut statements: Vec<String> = Vec::new();
    for (key, values) in [
        ("udp-receive-buffer", &["4000", "0x1000", "010000", "70000"][..]),
        ("udp-send-buffer", &["5000", "0X2000", "07000"]),
        ("reuseport", &["yes", "no", "TRUE", "false", "1", "0"]),
    ] {
        if tree.chance.once_in(3) {
            continue;
        }
        let key = if tree.chance.once_in(4) { key.to_uppercase() } else { key.to_owned() };
        let value = tree.chance.one(values);
        let between = tree.chance.one(&[" ", "\t", "\n  ", " /* 1; */ ", " // 2;\n", " # 3;\n"]);
        let end = tree.chance.one(&[";", " ;", "# 4;\n;", " // 5;\n;", " /* } */;", "\n\n;"]);
        statements.push(format!("{key}{between}{value}{end}"));
    }
    for other in [
        "version \"a; udp-receive-buffer 1; // x\"",
        "server-id \"a\\\" { udp-send-buffer 2; \"",
        "listen-on port 5300 { 127.0.0.1; }",
        "# udp-receive-buffer 3;\nrecursion no",
        "/* udp-send-buffer 4;\n reuseport no; } */ minimal-responses yes",
    ] {
        if tree.chance.once_in(2) {
            statements.push(format!("{other};"));
        }
    }
    for at in (1..statements.len()).rev() {
        let other = tree.chance.below(at + 1);
        statements.swap(at, other);
    }
    let inside = parted(tree, &statements, 0);
    let name = if tree.chance.once_in(4) { "OPTIONS" } else { "options" };
    let open = tree.chance.one(&[" {", "{\n", "\n{", " /* { */ { // x\n"]);
    let options = format!("{name}{open}{inside}}};\n");
    let before = tree.chance.one(&[
        "",
        "acl options { 10.0.0.0/8; };\n",
        "// options { udp-receive-buffer 5; };\n",
        "logging { channel options { file \"x\"; }; };\n",
    ]);
    let after = tree.chance.one(&["", "view x { match-clients { any; }; recursion no; };\n", "# x"]);
    let options = match tree.chance.below(3) {
        0 => {
            let path = tree.write("named.conf.options", &options);
            let include = tree.chance.one(&["include", "INCLUDE"]);
            format!("{include} \"{}\" ;\n", path.display())
        }
        _ => options,
    };
    tree.write_main("named.conf", &format!("{before}{options}{after}"))
}

/// The statements, some of them in included files.
fn parted(tree: &mut Tree, statements: &[String], depth: usize) -> String {
    let here = tree.folder.display().to_string();
    let separator = |tree: &mut Tree| tree.chance.one(&["\n\t", " ", "\n", "\n  // y\n"]);
    let cut = tree.chance.below(statements.len() + 1);
    let (own, others) = statements.split_at(cut);
    let mut text = String::new();
    for statement in own {
        text += separator(tree);
        text += statement;
    }
    if others.is_empty() || depth > 2 {
        text += &others.join("\n");
        return text + "\n";
    }
    let inside = parted(tree, others, depth + 1);
    let name = tree.name("inc");
    text += "\n";
    text += &match tree.chance.below(4) {
        0 => {
            tree.write(&name, &inside);
            format!("include \"{here}/{name}\";")
        }
        1 => {
            tree.write(&name, &inside);
            // Beneath the folder that named has changed to; files that follow name theirs as a whole or beneath it,
            // too.
            format!("include \"{name}\" ;")
        }
        2 => {
            tree.write(&format!("{name}/a.conf"), &inside);
            let pattern = tree.chance.one(&["*.conf", "[^b].conf", "[[:alpha:]].conf"]);
            format!("include\n \"{here}/{name}/{pattern}\"; # z")
        }
        _ => {
            tree.write(&format!("sub{name}/inc"), &inside);
            // What follows is beneath it.
            match depth {
                0 if !inside.contains("include \"inc") => {
                    format!("directory \"{here}/sub{name}\"; include \"inc\";")
                }
                _ => format!("include \"sub{name}/inc\";"),
            }
        }
    };
    text + "\n"
}
