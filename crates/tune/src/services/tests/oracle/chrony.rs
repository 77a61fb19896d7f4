//! chrony.

use super::*;

#[test]
fn what_chronyd_reads_is_what_chronyd_prints() {
    let oracle = Oracle {
        server: "chrony",
        program: "/var/cache/udpath/chronyd",
        generate: configuration,
        values: printed,
        cases: 120,
    };
    oracle.consult();
}

/// It prints the lines of all files in order; of a key, the last counts.
fn printed(oracle: &Oracle, main: &Path) -> Option<Values> {
    let output = oracle.run(start_of(main), &["-p", "-f", &main.display().to_string()]);
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |knob: &KnobProfile| {
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            let is = words.next().is_some_and(|key| key.eq_ignore_ascii_case(knob.key()));
            is.then(|| words.collect::<Vec<_>>().join(" "))
        };
        let last = text.lines().rev().find_map(of);
        if knob.kind == Kind::Flag { last.map(|_| "yes".to_owned()) } else { last }
    };
    Some(oracle.knobs().map(|knob| (knob.name.as_str(), vec![value(knob)])).collect())
}

fn configuration(tree: &mut Tree) -> PathBuf {
    let mut text = lines(tree, 0);
    if tree.chance.once_in(3) {
        fs::create_dir_all(tree.folder.join("conf.d")).unwrap();
        text += &format!("confdir {}/conf.d\n", tree.folder.display());
    }
    tree.write_main("chrony.conf", &text)
}

fn lines(tree: &mut Tree, depth: usize) -> String {
    let mut text = String::new();
    for _ in 0..1 + tree.chance.below(6) {
        let line = match tree.chance.below(10) {
            0..2 => "clientloglimit 100000".to_owned(),
            2..4 => {
                let port = tree.chance.one(&["5", "123", "0", "4123"]);
                format!("{}{port}", tree.chance.one(&["port ", "PORT\t", "Port   "]))
            }
            4 => tree.chance.one(&["noclientlog", "NoClientLog", "\tnoclientlog"]).to_owned(),
            5 => tree
                .chance
                .one(&["ratelimit interval 1 burst 16", "RateLimit  interval\t2", "ratelimit"])
                .to_owned(),
            6 => tree.chance.one(&["! port 7", "; port 8", "# port 9", "  % noclientlog"]).to_owned(),
            7 => tree
                .chance
                .one(&["makestep 1 3", "local stratum 10", "allow 10.0.0.0/8", "cmdport 0"])
                .to_owned(),
            _ if depth < 3 => include(tree, depth),
            _ => String::new(),
        };
        let end = tree.chance.one(&["\n", "\n", "\n\n", " \t\n"]);
        text += &format!("{}{line}{end}", tree.chance.one(&["", " ", "\t"]));
    }
    text
}

fn include(tree: &mut Tree, depth: usize) -> String {
    let inside = lines(tree, depth + 1);
    let here = tree.folder.display().to_string();
    let name = tree.name("inc");
    match tree.chance.below(5) {
        0 => {
            tree.write(&name, &inside);
            format!("Include {here}/{name}")
        }
        1 => {
            tree.write(&name, &inside);
            let between = lines(tree, 3);
            format!("include {here}/{name}\n{between}include {name}")
        }
        2 => {
            let (one, other) = (lines(tree, 3), lines(tree, 3));
            // Of two folders the files are read as of one, and of two with one name only the first.
            tree.write(&format!("{name}/2.conf"), &inside);
            tree.write(&format!("{name}/3.conf"), &one);
            tree.write(&format!("{name}/4.txt"), "no configuration");
            tree.write(&format!("{name}-other/1.conf"), &other);
            tree.write(&format!("{name}-other/3.conf"), "port 77\nnoclientlog\n");
            format!("confdir {here}/{name} {here}/none   {here}/{name}-other")
        }
        3 => {
            let other = lines(tree, 3);
            tree.write(&format!("{name}/b.conf"), &inside);
            tree.write(&format!("{name}/a.conf"), &other);
            let pattern = tree.chance.one(&["*.conf", "[^c].conf", "[[:alpha:]].conf", "\\a.conf"]);
            format!("include {here}/{name}/{pattern}")
        }
        _ => format!("include {here}/none*\nconfdir {here}/none"),
    }
}
