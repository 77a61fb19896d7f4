//! Knot.

use super::*;

#[test]
fn what_knotd_reads_is_what_knotc_prints() {
    let oracle =
        Oracle { server: "knot", program: "knotc", generate: configuration, values: printed, cases: 50 };
    oracle.consult();
}

/// What a database has into which the configuration was imported.
fn printed(oracle: &Oracle, main: &Path) -> Option<Values> {
    let database = tempfile::tempdir().unwrap();
    let database = database.path().display().to_string();
    let main = main.display().to_string();
    let run = |arguments: &[&str]| {
        let output =
            oracle.run(Path::new(&main).parent().unwrap(), &[&["-C", &database], arguments].concat());
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    run(&["conf-import", &main, "+nopurge"]).or_else(|| run(&["conf-import", &main]))?;
    let text = run(&["conf-export"])?;
    // Its own form: `key: "value"`, the lines of a section indented.
    let (mut found, mut section) = (BTreeMap::new(), "");
    for line in text.lines() {
        match line.strip_suffix(':').filter(|name| !name.starts_with(' ')) {
            Some(name) => section = name,
            None => {
                if let Some((key, value)) = line.trim().split_once(": ") {
                    found.insert((section, key.to_owned()), value.trim_matches('"').to_owned());
                }
            }
        }
    }
    let value = |knob: &KnobProfile| found.get(&(knob.section.as_str(), knob.key().to_owned())).cloned();
    Some(oracle.knobs().map(|knob| (knob.name.as_str(), vec![value(knob)])).collect())
}

fn configuration(tree: &mut Tree) -> PathBuf {
    let text = sections(tree, 0);
    tree.write("knot.conf", &text)
}

fn sections(tree: &mut Tree, depth: usize) -> String {
    let mut text = String::new();
    for _ in 0..1 + tree.chance.below(4) {
        text += &match tree.chance.below(8) {
            0..3 => {
                let lines: &[(&str, &[&str])] = &[
                    ("udp-workers", &["3", "\"4\"", "010", "[5]", "[ \"6\" ]", "[3, 5]", "[ 7,\"8\" , 3 ]"]),
                    ("socket-affinity", &["on", "off", "True", "\"FALSE\""]),
                    ("identity", &["\"a # udp-workers: 7\"", "\"b \\\" # c\"", "\"x: y\""]),
                    ("listen", &["127.0.0.1@5300", "[ 127.0.0.1@5301 , ::1@5301 ]"]),
                ];
                section(tree, "server", lines)
            }
            3..5 => {
                let lines: &[(&str, &[&str])] = &[
                    ("listen", &["lo", "\"lo\"", "[lo]", "[ \"lo\" ]", "[lo, \"lo\"]"]),
                    ("route-check", &["on", "false"]),
                ];
                section(tree, "xdp", lines)
            }
            5 => {
                let lines: &[(&str, &[&str])] = &[("storage", &["/tmp", "\"/tmp\""]), ("file", &["\"%s\""])];
                section(tree, "template", lines).replacen("template:\n", "template:\n  - id: default\n", 1)
            }
            6 => "# server:\n#    udp-workers: 9\n\n".to_owned(),
            _ if depth < 3 => include(tree, depth),
            _ => "\n".to_owned(),
        };
    }
    text
}

/// A section; all its lines are indented alike.
fn section(tree: &mut Tree, name: &str, lines: &[(&str, &[&str])]) -> String {
    let indent = if name == "template" { "    " } else { tree.chance.one(&[" ", "  ", "    "]) };
    let head = if name == "template" { "" } else { tree.chance.one(&["", " ", "  # x"]) };
    let mut text = format!("{name}:{head}\n");
    for _ in 0..1 + tree.chance.below(3) {
        let (key, values) = lines[tree.chance.below(lines.len())];
        let value = tree.chance.one(values);
        let colon = tree.chance.one(&[": ", " : ", ":   "]);
        let end = tree.chance.one(&["\n", "\n", "   # y: z\n", "\n\n", "\n  # udp-workers: 8\n", "\r\n"]);
        text += &format!("{indent}{key}{colon}{value}{end}");
    }
    text
}

fn include(tree: &mut Tree, depth: usize) -> String {
    let inside = sections(tree, depth + 1);
    let here = tree.folder.display().to_string();
    let name = tree.name("inc");
    match tree.chance.below(6) {
        0 => {
            tree.write(&name, &inside);
            let begin_end = tree.chance.one(&["", "[]", "[\"\"]", "[  ]"]);
            let (begin, end) = begin_end.split_at(begin_end.len() / 2);
            format!("include: {begin}{here}/{name}{end}\n")
        }
        1 => {
            tree.write(&name, &inside);
            let between = sections(tree, 3);
            format!("include: \"{here}/{name}\"\n{between}include: {here}/{name} # again\n")
        }
        2 => {
            // Beneath the file that names it.
            tree.write(&format!("{name}/main"), "include: other\n");
            tree.write(&format!("{name}/other"), &inside);
            format!("include: {here}/{name}/main\n")
        }
        3 => {
            let other = sections(tree, 3);
            tree.write(&format!("{name}/b.conf"), &inside);
            tree.write(&format!("{name}/a.conf"), &other);
            tree.write(&format!("{name}/.c.conf"), "no configuration");
            tree.write(&format!("{name}-folder/x"), "server:\n    udp-workers: 9\n");
            // A folder is passed over.
            format!("include: \"{here}/{name}/[^x]*.conf\"\ninclude: {here}/{name}-folder\n")
        }
        4 => {
            // Each in its place; a pattern as anywhere.
            let other = sections(tree, 3);
            tree.write(&format!("{name}/a, b.conf"), &inside);
            tree.write(&format!("{name}/c.conf"), &other);
            let list = [format!("\"{here}/{name}/a, b.conf\""), format!("{here}/{name}/c*.conf")];
            let (first, last) = if tree.chance.once_in(2) { (0, 1) } else { (1, 0) };
            let between = tree.chance.one(&[",", ", ", " , "]);
            format!("include: [{}{between}{}] # c\n", list[first], list[last])
        }
        _ => format!("include: {here}/none*\n"),
    }
}
