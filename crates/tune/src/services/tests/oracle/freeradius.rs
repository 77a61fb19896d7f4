//! FreeRADIUS.

use super::*;

/// What it needs, and a line that shows the knob of the thread pool: `-XC` does not start one.
const REST: &str = "own_buffer = 40000\nown_threads = \"7\"\nown_requests = 4000\nsecurity {\n\tallow_vulnerable_openssl = yes\n}\n";
const SHOWS: &str = "checkrad = ${thread[pool].max_servers}\n";

#[test]
fn what_freeradius_reads_is_what_freeradius_prints() {
    let oracle = Oracle {
        server: "freeradius",
        program: "/var/cache/udpath/freeradius/usr/sbin/freeradius",
        generate: configuration,
        values: printed,
        cases: 40,
    };
    oracle.consult();
}

fn printed(oracle: &Oracle, main: &Path) -> Option<Values> {
    let folder = main.parent().unwrap();
    let output = oracle.run(folder, &["-XC", "-d", &folder.display().to_string()]);
    let text = String::from_utf8(output.stdout).unwrap();
    if !output.status.success() {
        return None;
    }
    let value = |line: &str, key: &str| {
        let (found, value) = line.split_once(" = ")?;
        (found.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
    };
    let (mut sockets, mut plain): (Vec<BTreeMap<String, String>>, BTreeMap<&str, String>) =
        Default::default();
    let mut inside = false;
    for line in text.lines() {
        if line.trim_end().ends_with('{') {
            if line.starts_with("listen") {
                sockets.push(BTreeMap::new());
                inside = true;
            }
        } else if line == "}" {
            inside = false;
        } else if let Some(socket) = sockets.last_mut().filter(|_| inside) {
            for key in ["type", "port", "recv_buff"] {
                socket.extend(value(line, key).map(|value| (key.to_owned(), value)));
            }
        } else {
            for key in ["max_requests", "checkrad"] {
                plain.extend(value(line, key).map(|value| (key, value)));
            }
        }
    }
    // It prints those outside of `server` first.
    sockets.sort_by(|one, other| one["port"].cmp(&other["port"]));
    sockets.retain(|socket| matches!(&*socket["type"].to_lowercase(), "auth" | "acct" | "auth+acct"));
    let buffers = sockets.into_iter().map(|mut socket| socket.remove("recv_buff")).collect();
    let threads = plain.remove("checkrad").filter(|_| text.contains("checkrad = \""));
    let mut values =
        Values::from([("recv_buff", buffers), ("max_requests", vec![plain.remove("max_requests")])]);
    // Without a thread pool that says it, there is nothing to refer to.
    if let Some(threads) = threads.filter(|threads| threads.bytes().all(|byte| byte.is_ascii_digit())) {
        values.insert("max_servers", vec![Some(threads)]);
    }
    Some(values)
}

fn configuration(tree: &mut Tree) -> PathBuf {
    let mut sections: Vec<String> = Vec::new();
    for _ in 0..tree.chance.below(3) {
        sections.push(requests(tree));
    }
    // A folder's files have the order that the file system has.
    if tree.chance.once_in(3) {
        let folder = tree.name("requests");
        for name in ["b", "a", "d", "c"] {
            let text = requests(tree);
            tree.write(&format!("{folder}/{name}"), &text);
        }
        sections.push(format!("$INCLUDE ${{confdir}}/{folder}/\n"));
    }
    // Of several thread pools the server takes the first, but the line that refers to one takes the last.
    {
        let lines =
            items(tree, "max_servers", &["3", "4", "\"5\"", "'6'", "${own_threads}", "\"${own_threads}\""]);
        let mut lines = lines;
        if !lines.iter().any(|line| line.starts_with("max_servers")) {
            lines.push("max_servers = 9".to_owned());
        }
        let section = section(tree, "thread pool", &lines);
        sections.push(section);
    }
    for _ in 0..1 + tree.chance.below(3) {
        let mut lines = items(
            tree,
            "recv_buff",
            &[
                "10000",
                "20000",
                "\"30000\"",
                "010000",
                "0x1000",
                "${own_buffer}",
                "\"${own_buffer}\"",
                "64k",
                "40000#x",
            ],
        );
        let kind =
            tree.chance.one(&["auth", "\"acct\"", "auth+acct", "'auth'", "acct", "AUTH", "\"Auth+Acct\""]);
        lines.insert(tree.chance.below(lines.len() + 1), format!("type = {kind}"));
        lines.insert(tree.chance.below(lines.len() + 1), "ipaddr = 127.0.0.1".to_owned());
        // One of the section's own comes before that of the file, if it has been read.
        if tree.chance.once_in(3) {
            lines.insert(tree.chance.below(lines.len() + 1), "own_buffer = 50000".to_owned());
        }
        lines.insert(tree.chance.below(lines.len() + 1), "port = PORT".to_owned());
        let listen = section(tree, "listen", &lines);
        let name = tree.name("server");
        sections.push(match tree.chance.below(3) {
            0 => listen,
            1 => format!("server {name} {{\n{listen}}}\n"),
            _ => format!(
                "server {name} {{\n{listen}\tauthorize {{\n\t\tif (&User-Name == \"a #{{\") {{\n\t\t\tupdate reply {{\n\t\t\t\tReply-Message := \"}}\"\n\t\t\t}}\n\t\t}} else {{\n\
                 \t\t\tupdate reply {{ Reply-Message := \"x {{\" }}\n\t\t}}\n\t\tif (&User-Name =~ /^b{{2}}#c/) {{\n\t\t\tupdate reply {{ Reply-Message := \"c\" }}\n\t\t}}\n\t}}\n}}\n"
            ),
        });
    }
    for at in (1..sections.len()).rev() {
        let other = tree.chance.below(at + 1);
        sections.swap(at, other);
    }
    let mut text = String::new();
    for (section, port) in sections.iter().zip(5000..) {
        text += &included(tree, &section.replace("PORT", &format!("{port}")), 0);
    }
    tree.write("radiusd.conf", &format!("{REST}{text}{SHOWS}"))
}

fn requests(tree: &mut Tree) -> String {
    let key = tree.chance.one(&["max_requests", "max_requests", "# max_requests", "Max_Requests"]);
    let operator = tree.chance.one(&[" = ", "=", " := ", "\t=\t", " = \\\n  "]);
    // Values between its limits.
    let value = tree.chance.one(&[
        "1000",
        "\"2000\"",
        "'3000'",
        "02000",
        "0x1000",
        "${own_requests}",
        "\"${own_requests}\"",
        "2000k",
        "4000;",
        "5000#x",
    ]);
    let end = tree.chance.one(&["", " # 5", ",", " , "]);
    format!("{key}{operator}{value}{end}\n")
}

/// A few items, some of them of the key.
fn items(tree: &mut Tree, key: &str, values: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..tree.chance.below(3) {
        let value = tree.chance.one(values);
        let operator = tree.chance.one(&[" = ", "=", " := "]);
        lines.push(format!("{key}{operator}{value}"));
    }
    if tree.chance.once_in(3) {
        lines.push(format!("#{key} = 1"));
    }
    if key == "max_servers" {
        lines.push("start_servers = 2".to_owned());
    }
    lines
}

fn section(tree: &mut Tree, name: &str, lines: &[String]) -> String {
    // In one line, with commas.
    if tree.chance.once_in(2) {
        let items: Vec<&str> =
            lines.iter().filter(|line| !line.starts_with('#')).map(String::as_str).collect();
        return format!("{name} {{ {} }}\n", items.join(", "));
    }
    let mut text = format!("{name}{}\n", tree.chance.one(&[" {", "\t{  # x", " { "]));
    let mut lines = lines.to_vec();
    if tree.chance.once_in(3) {
        // The last lines are in a file of their own.
        let rest: Vec<String> = lines.split_off(tree.chance.below(lines.len() + 1));
        // Ports are known later.
        let (ports, rest): (Vec<String>, Vec<String>) =
            rest.into_iter().partition(|line| line.contains("PORT"));
        lines.extend(ports);
        let file = tree.name("part");
        tree.write(&file, &rest.iter().map(|line| format!("{line}\n")).collect::<String>());
        lines.push(format!("$INCLUDE ${{confdir}}/{file}"));
    }
    for line in lines {
        let end = match line.starts_with(['#', '$']) {
            true => "\n",
            false => tree.chance.one(&["\n", "\n", " # y\n", ",\n"]),
        };
        text += &format!("\t{line}{end}");
    }
    text + "}\n"
}

/// The section as it is, or in a file that is included.
fn included(tree: &mut Tree, section: &str, depth: usize) -> String {
    if depth > 2 || tree.chance.once_in(2) {
        return section.to_owned();
    }
    let inside = included(tree, section, depth + 1);
    let name = tree.name("inc");
    match tree.chance.below(4) {
        0 => {
            tree.write(&name, &inside);
            // Two sockets of one text.
            let times = if section.starts_with("listen") { 2 } else { 1 };
            format!("$INCLUDE ${{confdir}}/{name}\n").repeat(times)
        }
        1 => {
            tree.write(&name, &inside);
            format!("$include \"{}/{name}\"   # z\n", tree.folder.display())
        }
        2 => {
            // Beneath the file that names it; a folder in the folder is passed over.
            tree.write(&format!("{name}/a"), "$INCLUDE sub/part\n");
            tree.write(&format!("{name}/sub/part"), &inside);
            tree.write(&format!("{name}/.b"), "no configuration {");
            tree.write(&format!("{name}/c~"), "no configuration {");
            format!("$INCLUDE ${{confdir}}/{name}/\n")
        }
        _ => {
            tree.write(&name, &inside);
            format!("$-INCLUDE ${{confdir}}/none\n$-INCLUDE ${{confdir}}/{name}\n")
        }
    }
}
