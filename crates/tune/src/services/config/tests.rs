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
    let reader = Reader::own(root.path()).unwrap();
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
    let reader = Reader::own(root.path()).unwrap();
    let config = Config::read(&reader, &format!("/{}", files[0].0), format, None).unwrap();
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
    let found = reader.included(Path::new("/*/*/*/*/*"), Format::Lines, &mut none);
    assert!(found.is_empty() && none[0].contains("names would have to be looked at"), "{none:?}");
}
