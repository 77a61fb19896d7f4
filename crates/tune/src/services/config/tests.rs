use std::fs;

use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn patterns_folders_and_circles() {
    let root = folder(&[
        (
            "etc/s/s.conf",
            "server:\n  a: 1\ninclude: \"/etc/s/d/*.conf\"\ninclude: more/*\ninclude: /etc/s/gone\n",
        ),
        ("etc/s/d/2.conf", "server:\n  a: 2\n"),
        ("etc/s/d/1.conf", "include: /etc/s/s.conf\n"),
        ("etc/s/d/3.txt", "server:\n  a: 3\n"),
        ("etc/s/more/x", "server:\n  a: 4\n"),
        ("etc/s/more/.hidden", "server:\n  a: 5\n"),
    ]);
    let reader = Reader::own(root.path()).unwrap().started_in("/etc/s");
    let config = Config::read(&reader, "/etc/s/s.conf", Format::Clauses, None).unwrap();
    let paths: Vec<&str> = config.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["/etc/s/s.conf", "/etc/s/d/1.conf", "/etc/s/d/2.conf", "/etc/s/more/x"]);
    let values: Vec<&str> =
        config.find("server", "a").iter().map(|found| found.directive.value.as_str()).collect();
    assert_eq!(values, ["1", "2", "4"]);
    assert!(
        config.unread.len() == 1 && config.unread[0].starts_with("/etc/s/gone: No such"),
        "{:?}",
        config.unread
    );
    assert_eq!(config.drop_in.as_deref(), Some("/etc/s/d/udpath.conf"));
}

/// Path, line and value of a key's lines, in the order in which they are read.
fn lines(format: Format, files: &[(&str, &str)], (section, key): (&str, &str)) -> Vec<String> {
    let root = folder(files);
    let main = format!("/{}", files[0].0);
    let reader = Reader::own(root.path()).unwrap().started_in(folder_of(&main));
    let config = Config::read(&reader, &main, format, None).unwrap();
    assert_eq!(config.unread, Vec::<String>::new());
    let found = config.find(section, key);
    let shown = |one: &Found<'_>| {
        let path = &config.files[one.file].path;
        format!("{path}:{}={}", one.directive.line, one.directive.value)
    };
    let mut all: Vec<String> = found.iter().map(shown).collect();
    all.extend(config.in_effect(&found).map(|one| format!("in effect: {}", shown(&one))));
    all
}

#[test]
fn an_include_has_the_place_and_the_clause_of_its_line() {
    let unbound: &[(&str, &str)] = &[
        (
            "u/u.conf",
            "server:\n  num-threads: 2\n  include: /u/d/*.conf\n  num-threads: 3\ninclude: /u/more\n  num-threads: 9\n",
        ),
        ("u/d/1.conf", "# no clause of its own\nnum-threads: 8\n"),
        ("u/d/2.conf", "num-threads: 7\n"),
        ("u/more", "  num-threads: 4\nremote-control:\n  num-threads: 5\n"),
    ];
    assert_eq!(
        lines(Format::Clauses, unbound, ("server", "num-threads")),
        [
            "/u/u.conf:2=2",
            "/u/d/1.conf:2=8",
            "/u/d/2.conf:1=7",
            "/u/u.conf:4=3",
            "/u/more:1=4",
            "in effect: /u/more:1=4",
        ]
    );
    // The clause of the included file holds on after it.
    assert_eq!(
        lines(Format::Clauses, unbound, ("remote-control", "num-threads")),
        ["/u/more:3=5", "/u/u.conf:6=9", "in effect: /u/u.conf:6=9",]
    );
    let knot: &[(&str, &str)] = &[
        ("k/k.conf", "include: [\"b, c\", a]\nserver:\n  udp-workers: [2, \"5\"]\n"),
        ("k/a", "server:\n  udp-workers: 3\n"),
        ("k/b, c", "server:\n  udp-workers: 4\n"),
    ];
    assert_eq!(
        lines(Format::Indented, knot, ("server", "udp-workers")),
        ["/k/b, c:2=4", "/k/a:2=3", "/k/k.conf:3=2", "/k/k.conf:3=5", "in effect: /k/k.conf:3=5"]
    );
    let bind: &[(&str, &str)] = &[
        ("b/n.conf", "options {\n  include \"/b/o\";\n};\ninclude \"/b/p\";\n"),
        ("b/o", "udp-receive-buffer 1;\n"),
        ("b/p", "udp-receive-buffer 2;\n"),
    ];
    assert_eq!(
        lines(Format::Braces, bind, ("options", "udp-receive-buffer")),
        ["/b/o:1=1", "in effect: /b/o:1=1"]
    );
    let radius: &[(&str, &str)] = &[
        (
            "r/radiusd.conf",
            "thread pool {\n  $INCLUDE sub/pool\n  start_servers = 9\n}\n$-INCLUDE gone\n$INCLUDE sites/\n",
        ),
        ("r/sub/pool", "start_servers = 3\n"),
        ("r/sites/a", "listen {\n  $INCLUDE listen.inc\n}\n"),
        ("r/sites/listen.inc", ""),
    ];
    // The first one counts.
    assert_eq!(
        lines(Format::Radius, radius, ("thread", "start_servers")),
        ["/r/sub/pool:1=3", "/r/radiusd.conf:3=9", "in effect: /r/sub/pool:1=3",]
    );
    let chrony: &[(&str, &str)] =
        &[("c/c.conf", "cmdport 1\nconfdir /c/d /c/none\ncmdport 3\n"), ("c/d/a.conf", "cmdport 2\n")];
    assert_eq!(lines(Format::Lines, chrony, ("", "cmdport")).last().unwrap(), "in effect: /c/c.conf:3=3");
    let rsyslog: &[(&str, &str)] =
        &[("l/l.conf", "include(file=\"/l/gone\" mode=\"optional\")\ninput(type=\"imudp\" port=\"514\")\n")];
    assert_eq!(lines(Format::Objects, rsyslog, ("input", "port")).len(), 2);
}

#[test]
fn a_file_that_is_included_twice_counts_twice() {
    let twice: &[(&str, &str)] = &[
        ("u/u.conf", "server:\ninclude: /u/i\nnum-threads: 3\ninclude: /u/i\n"),
        ("u/i", "num-threads: 7\n"),
    ];
    assert_eq!(
        lines(Format::Clauses, twice, ("server", "num-threads")),
        ["/u/i:1=7", "/u/u.conf:3=3", "/u/i:1=7", "in effect: /u/i:1=7"]
    );
    // Of a folder FreeRADIUS reads what it has not read yet.
    let radius = |includes: [&str; 2]| {
        let main = includes.map(|path| format!("$INCLUDE {path}\n")).concat();
        lines(
            Format::Radius,
            &[("r/radiusd.conf", &main), ("r/l/a", "max_requests = 1\n")],
            ("", "max_requests"),
        )
        .len()
            - 1
    };
    let counts = [["l/", "l/"], ["l/a", "l/"], ["l/", "./l/"], ["l/", "l/a"], ["l/a", "l/a"]].map(radius);
    assert_eq!(counts, [1, 1, 1, 2, 2]);
    // Each time with two more of itself it would not end.
    let many: String = (0..9).map(|next| format!("include /c/{next}\n")).collect();
    let files: Vec<(String, String)> = (0..9).map(|at| (format!("c/{at}"), many.clone())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let root = folder(&files);
    let reader = Reader::own(root.path()).unwrap();
    let config = Config::read(&reader, "/c/0", Format::Lines, None).unwrap();
    assert_eq!(config.files.len(), 9);
    assert!(config.unread.iter().any(|unread| unread.contains("more than 512 files")), "{:?}", config.unread);
}

#[test]
fn several_folders_of_chrony_are_read_by_the_names_of_their_files() {
    let files: &[(&str, &str)] = &[
        ("c/c.conf", "confdir /c/a /c/b\n"),
        ("c/a/2.conf", "port 1\n"),
        ("c/a/3.conf", "port 2\n"),
        ("c/b/1.conf", "port 3\n"),
        ("c/b/3.conf", "port 4\n"),
    ];
    assert_eq!(
        lines(Format::Lines, files, ("", "port")),
        ["/c/b/1.conf:1=3", "/c/a/2.conf:1=1", "/c/a/3.conf:1=2", "in effect: /c/a/3.conf:1=2"]
    );
}

#[test]
fn relative_paths_are_beneath_the_folder_that_the_server_changes_to() {
    let unbound: &[(&str, &str)] = &[
        ("u/u.conf", "server:\ninclude: i\ndirectory: \"/u/d\"\ninclude: i\n"),
        ("u/i", "num-threads: 1\n"),
        ("u/d/i", "num-threads: 2\n"),
    ];
    let found = lines(Format::Clauses, unbound, ("server", "num-threads"));
    assert_eq!(found, ["/u/i:1=1", "/u/d/i:1=2", "in effect: /u/d/i:1=2"]);
    let bind: &[(&str, &str)] = &[
        ("b/n.conf", "options { directory \"/b/d\"; include \"i\"; };\n"),
        ("b/d/i", "udp-receive-buffer 2;\n"),
    ];
    let found = lines(Format::Braces, bind, ("options", "udp-receive-buffer"));
    assert_eq!(found, ["/b/d/i:1=2", "in effect: /b/d/i:1=2"]);
}

#[test]
fn a_drop_in_goes_only_below_the_configurations_own_folder() {
    for (include, drop_in) in [
        ("/etc/s/d/*.conf", Some("/etc/s/d/udpath.conf")),
        ("/etc/modprobe.d/*.conf", None),
        ("/etc/s/../modprobe.d/*.conf", None),
        ("/etc/s/*.conf", None),
        ("/etc/s/none/*.conf", None),
        ("d/*.conf", None),
    ] {
        let root = folder(&[
            ("etc/s/s.conf", &format!("include {include}\n")),
            ("etc/s/d/x", ""),
            ("etc/modprobe.d/x", ""),
        ]);
        let reader = Reader::own(root.path()).unwrap();
        let config = Config::read(&reader, "/etc/s/s.conf", Format::Lines, None).unwrap();
        assert_eq!(config.drop_in.as_deref(), drop_in, "{include}");
    }
}

#[test]
fn what_is_not_a_text_file_is_an_error() {
    let root = folder(&[("fifo/x", "")]);
    fs::write(root.path().join("x"), [0xff, 0xfe]).unwrap();
    std::os::unix::fs::symlink("/x", root.path().join("link")).unwrap();
    let fifo = root.path().join("f");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = Reader::own(root.path()).unwrap();
    for path in ["/x", "/link", "/f", "/fifo", "/gone"] {
        let error = Config::read(&reader, path, Format::Lines, None).unwrap_err();
        assert!(matches!(error, ServiceError::Unreadable { .. }), "{error}");
    }
    let reader = Reader::own(Path::new("/")).unwrap();
    for path in ["/dev/zero", "/proc/kmsg", "/proc/self/environ", "/sys/kernel/mm/ksm/run"] {
        assert!(Config::read(&reader, path, Format::Lines, None).is_err(), "{path}");
    }
}

#[test]
fn patterns_of_everything_end_and_are_reported() {
    let root = folder(&[("s.conf", "include /**\ninclude /*/*/*/*/*\ninclude /proc/kmsg\n")]);
    let reader = Reader::own(root.path()).unwrap();
    let config = Config::read(&reader, "/s.conf", Format::Lines, None).unwrap();
    assert_eq!(config.files.len(), 1);
    assert_eq!(config.unread.len(), 1, "{:?}", config.unread);
    // Of this machine: more than may be looked at, and nothing of the kernel's.
    let mut reader = Reader::own(Path::new("/")).unwrap();
    let mut none = Vec::new();
    let found = reader.included(Path::new("/*/*/*/*/*"), Format::Lines, false, &mut none);
    assert!(found.is_empty() && none[0].contains("names would have to be looked at"), "{none:?}");
}

/// Values of a key, in order, and what is not read.
fn values(
    reader: &Reader,
    (main, format): (&str, Format),
    (section, key): (&str, &str),
) -> (Vec<String>, Vec<String>) {
    let config = Config::read(reader, main, format, None).unwrap();
    let found = config.find(section, key);
    (found.iter().map(|one| one.directive.value.clone()).collect(), config.unread)
}

#[test]
fn a_relative_include_is_in_the_folder_of_the_start_or_is_not_read() {
    for (format, include, line, key) in [
        (Format::Clauses, "server:\ninclude: r.conf\n", "num-threads: N\n", ("server", "num-threads")),
        (Format::Clauses, "server:\ninclude: \"r*.conf\"\n", "num-threads: N\n", ("server", "num-threads")),
        (Format::Clauses, "server:\ninclude: ./{r,x}.conf\n", "num-threads: N\n", ("server", "num-threads")),
        (Format::Braces, "options {\ninclude \"r.conf\"; };\n", "reuseport N;\n", ("options", "reuseport")),
        (Format::Lines, "# chrony\ninclude r.conf\n", "port N\n", ("", "port")),
        (Format::Objects, "#\n$IncludeConfig r.conf\n", "input(port=\"N\")\n", ("input", "port")),
        (
            Format::Objects,
            "#\ninclude(file=\"r.conf\" mode=\"optional\")",
            "input(port=\"N\")\n",
            ("input", "port"),
        ),
    ] {
        let with = |number: &str| line.replace('N', number);
        let root = folder(&[("m/main.conf", include), ("m/r.conf", &with("3")), ("s/r.conf", &with("5"))]);
        let reader = Reader::own(root.path()).unwrap();
        let main = ("/m/main.conf", format);
        assert_eq!(
            values(&reader.clone().started_in("/s"), main, key),
            (vec!["5".into()], vec![]),
            "{include}"
        );
        let (found, unread) = values(&reader, main, key);
        assert_eq!(found, [""; 0], "{include}");
        let [why] = &unread[..] else { panic!("{unread:?}") };
        assert!(why.contains("conf: is relative to the folder that the server was started in"), "{why}");
        assert!(why.ends_with("write the whole path (/m/main.conf, line 2)"), "{why}");
    }
    // Behind its own `directory`, it is known.
    let root = folder(&[
        ("m/main.conf", "server:\ndirectory: /s\ninclude: r.conf\n"),
        ("s/r.conf", "num-threads: 5\n"),
    ]);
    let reader = Reader::own(root.path()).unwrap();
    let key = ("server", "num-threads");
    assert_eq!(values(&reader, ("/m/main.conf", Format::Clauses), key), (vec!["5".into()], vec![]));
    // Beside the file that says it.
    let root = folder(&[("m/k.conf", "include: r.conf\n"), ("m/r.conf", "server:\n  udp-workers: 3\n")]);
    let reader = Reader::own(root.path()).unwrap();
    let key = ("server", "udp-workers");
    assert_eq!(values(&reader, ("/m/k.conf", Format::Indented), key), (vec!["3".into()], vec![]));
}

#[test]
fn patterns_are_those_of_the_server() {
    let files = [
        ("g/a.conf", "1"),
        ("g/b.conf", "2"),
        ("g/x.conf", "3"),
        ("g/1.conf", "4"),
        ("g/*.conf", "5"),
        ("g/\\a.conf", "6"),
    ];
    let cases: &[(&str, &str, &str)] = &[
        // The pattern; the files by NSD and Unbound; by those without braces.
        ("[^x]*.conf", "*,1,\\a,a,b", "*,1,\\a,a,b"),
        ("[[:digit:]]*.conf", "1", "1"),
        ("\\*.conf", "*", "*"),
        ("{b,a}*.conf", "b,a", ""),
        ("{x,[ab]}.conf", "x,a,b", ""),
        ("{none,a}.conf", "a", "!"),
        ("\\a.conf", "\\a", "a"),
        ("none*.conf", "", ""),
        ("none.conf", "!", "!"),
    ];
    for (pattern, clauses, lines) in cases {
        for (format, expected) in [(Format::Clauses, clauses), (Format::Lines, lines)] {
            let (line, include) = match format {
                Format::Clauses => ("num-threads: ", format!("server:\ninclude: \"/g/{pattern}\"\n")),
                _ => ("port ", format!("include /g/{pattern}\n")),
            };
            let texts = files.map(|(path, number)| (path, format!("{line}{number}\n")));
            let mut all: Vec<(&str, &str)> =
                texts.iter().map(|(path, text)| (*path, text.as_str())).collect();
            all.push(("main.conf", &include));
            let root = folder(&all);
            let reader = Reader::own(root.path()).unwrap();
            let config = Config::read(&reader, "/main.conf", format, None).unwrap();
            let paths = config.files.iter().skip(1);
            let names = paths.map(|file| file.path.trim_start_matches("/g/").trim_end_matches(".conf"));
            let found = names.collect::<Vec<_>>().join(",") + if config.unread.is_empty() { "" } else { "!" };
            assert_eq!(found, *expected, "{pattern} {format:?} {:?}", config.unread);
        }
    }
    for (pattern, why) in
        [("~/x", "the home folder"), ("{/a,~}/x", "the home folder"), ("/g/[[:no:]]", "no class [:no:]")]
    {
        let root = folder(&[("main.conf", &format!("server:\ninclude: \"{pattern}\"\n")), ("g/x", "")]);
        let reader = Reader::own(root.path()).unwrap();
        let config = Config::read(&reader, "/main.conf", Format::Clauses, None).unwrap();
        assert!(config.unread.len() == 1 && config.unread[0].contains(why), "{pattern}: {:?}", config.unread);
    }
}

#[test]
fn one_letter_of_another_character_set_refuses_no_file() {
    let root = folder(&[("u.conf", "")]);
    fs::write(root.path().join("u.conf"), b"server:\n # caf\xe9\n num-threads: 3\n").unwrap();
    let reader = Reader::own(root.path()).unwrap();
    let config = Config::read(&reader, "/u.conf", Format::Clauses, None).unwrap();
    assert_eq!((config.files[0].foreign, config.find("server", "num-threads").len()), (Some(2), 1));
    for text in [&b"server:\0\xff"[..], b"\xfe\xff\0s", b"\xff\xfe"] {
        fs::write(root.path().join("u.conf"), text).unwrap();
        assert!(Config::read(&reader, "/u.conf", Format::Clauses, None).is_err(), "{text:?}");
    }
}

#[test]
fn lines_of_a_command_line_include_files() {
    let root = folder(&[("c/a.conf", "port 7\n"), ("s/b", "port 8\n")]);
    let reader = Reader::own(root.path()).unwrap().started_in("/s");
    let lines = ["port 5", "confdir /c", "include b", "include gone"].map(str::to_owned);
    let config = Config::of_lines(&reader, Format::Lines, &lines).unwrap();
    let values: Vec<&str> =
        config.find("", "port").iter().map(|found| found.directive.value.as_str()).collect();
    assert_eq!(values, ["5", "7", "8"]);
    assert!(config.unread.len() == 1 && config.unread[0].starts_with("/s/gone: "), "{:?}", config.unread);
    assert_eq!((config.files[0].path.as_str(), config.drop_in), (COMMAND_LINE, None));
}
