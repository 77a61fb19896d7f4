use proptest::prelude::*;

use super::*;

fn includes(format: Format, text: &str) -> Vec<String> {
    format.parse(text).includes.into_iter().flat_map(|include| include.paths).collect()
}

const ALL: [Format; 9] = [
    Format::Clauses,
    Format::Indented,
    Format::Braces,
    Format::Radius,
    Format::Lines,
    Format::Pairs,
    Format::Objects,
    Format::Lua,
    Format::Shell,
];

/// Section, key and value of every line with a key.
fn read(format: Format, text: &str) -> Vec<(String, String, String)> {
    let parsed = format.parse(text);
    let section = |at: Option<usize>| at.map_or(String::new(), |at| parsed.sections[at].name.clone());
    let directives = parsed.directives.iter();
    directives.map(|one| (section(one.section), one.key.clone(), one.value.clone())).collect()
}

fn three(expected: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    expected.iter().map(|(one, two, three)| ((*one).into(), (*two).into(), (*three).into())).collect()
}

#[test]
fn clauses_ignore_indentation_and_knot_does_not() {
    let text = "# server:\nserver:\n\tserver-count: 2 # two\n  identity: \"a # b\"\nzone:\nname: x\ninclude: 'd/*.conf'\n";
    let expected = [("server", "server-count", "2"), ("server", "identity", "a # b"), ("zone", "name", "x")];
    assert_eq!(read(Format::Clauses, text), three(&expected));
    assert_eq!(includes(Format::Clauses, text), ["d/*.conf"]);
    let text =
        "server:\n  listen:\n  - 127.0.0.1@53\n  udp-workers: 2\nzone:\n  - domain: a.example\n    file: a\n";
    let expected = [("server", "udp-workers", "2"), ("zone", "domain", "a.example"), ("zone", "file", "a")];
    assert_eq!(read(Format::Indented, text), three(&expected));
}

#[test]
fn braces_with_all_comments() {
    let text = "/* options { */ options { // a;\n  udp-receive-buffer 4194304; # b\n listen-on { any; };\n};\ninclude \"/x\";\n";
    let expected = [("options", "udp-receive-buffer", "4194304"), ("listen-on", "any", "")];
    assert_eq!(read(Format::Braces, text), three(&expected));
    assert_eq!(includes(Format::Braces, text), ["/x"]);
}

#[test]
fn freeradius_sections_are_named_by_their_first_word() {
    let text = "max_requests = 16384 # n\nthread pool {\n\tmax_servers = 32\n}\nserver default {\n listen {\n  type = \"auth\"\n }\n \
                if (&User-Name == \"#\") {\n  ok\n } else {\n }\n}\n$INCLUDE sites-enabled/\n";
    let parsed = read(Format::Radius, text);
    let expected =
        [("", "max_requests", "16384"), ("thread", "max_servers", "32"), ("listen", "type", "auth")];
    assert_eq!(parsed, three(&expected));
    assert_eq!(includes(Format::Radius, text), ["sites-enabled/"]);
}

#[test]
fn chrony_coturn_and_shell_lines() {
    let text = "! no\n; no\nAllow 10.0.0.0/8\nnoclientlog\nconfdir /a /b\n";
    let expected = [("", "allow", "10.0.0.0/8"), ("", "noclientlog", ""), ("", "confdir", "/a /b")];
    assert_eq!(read(Format::Lines, text), three(&expected));
    assert_eq!(includes(Format::Lines, text), ["/a/*.conf", "/b/*.conf"]);
    assert_eq!(
        read(Format::Pairs, "#a=1\nrelay-threads=4\nno-tls\n"),
        three(&[("", "relay-threads", "4"), ("", "no-tls", "")])
    );
    let text = "# OPTIONS=\"-n 1\"\nOPTIONS=\"-u bind -n4\"\n";
    assert_eq!(read(Format::Shell, text), three(&[("OPTIONS", "-u", "bind"), ("OPTIONS", "-n", "4")]));
}

#[test]
fn rsyslog_objects_may_span_lines() {
    let text = "#module(load=\"imudp\")\nmodule(load=\"imudp\" # why\n  threads=\"2\")\ninput(type=\"imudp\" port=\"514\")\n\
                $IncludeConfig /etc/rsyslog.d/*.conf\n*.* /var/log/a(b\ninclude(file=\"/x\")\n";
    let expected = [
        ("module", "load", "imudp"),
        ("module", "threads", "2"),
        ("input", "type", "imudp"),
        ("input", "port", "514"),
        ("include", "file", "/x"),
    ];
    assert_eq!(read(Format::Objects, text), three(&expected));
    assert_eq!(includes(Format::Objects, text), ["/etc/rsyslog.d/*.conf", "/x"]);
}

#[test]
fn only_the_listening_lines_of_lua() {
    let text = "-- addLocal('a')\naddLocal('0.0.0.0:53', {reusePort=true})\nnewServer('1.1.1.1')\n";
    assert_eq!(read(Format::Lua, text), three(&[("", "addLocal", "'0.0.0.0:53', {reusePort=true}")]));
}

/// Text of the pieces that the formats are made of, so that more than the first line is read.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("server:".to_owned()),
        Just("\n".to_owned()),
        Just("module(".to_owned()),
        Just("input(type=\"imudp\"".to_owned()),
        Just("OPTIONS=\"".to_owned()),
        Just("addLocal(".to_owned()),
        Just("/*".to_owned()),
        Just("*/".to_owned()),
        Just("\\\n".to_owned()),
        "[ \t{}();:=\"'#!$\\\\-]{1,3}",
        "[a-z]{1,6}",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|all| all.concat())
}

proptest! {
    /// Whatever a file contains: no panic, places within the text, and an edit that changes nothing else.
    #[test]
    fn any_text_is_read_and_survives_an_edit(text in prop_oneof![pieces(), any::<String>()]) {
        for format in ALL {
            let parsed = format.parse(&text);
            for directive in &parsed.directives {
                let value = text.get(directive.span.clone());
                // rsyslog joins lines before it looks at quotes.
                let joins = |value: &str| format == Format::Objects && value.contains('\\') && value.contains('\n');
                let same = |value: &str| value.contains(&directive.value) || joins(value);
                prop_assert!(value.is_some_and(same), "{format:?} {directive:?}");
                prop_assert!(directive.line <= text.split('\n').count());
                prop_assert!(directive.section.is_none_or(|section| section < parsed.sections.len()));
            }
            for section in &parsed.sections {
                let Some((at, new)) = format.inserted(section, "key", "7") else { continue };
                prop_assert!(text.is_char_boundary(at), "{format:?} {section:?}");
                let edited = format!("{}{new}{}", &text[..at], &text[at..]);
                prop_assert!(edited.len() == text.len() + new.len());
            }
        }
    }

    /// A key that is inserted in a section is found there, with its value.
    #[test]
    fn what_is_inserted_is_found(lines in prop::collection::vec("[a-z]{1,5}", 0..5)) {
        for (format, head, tail) in [
            (Format::Clauses, "server:\n", ""),
            (Format::Indented, "server:\n", ""),
            (Format::Braces, "server {", "\n};\n"),
            (Format::Radius, "server {\n", "}\n"),
        ] {
            let body: String =
                lines.iter().filter_map(|key| format.line(key, "1")).map(|line| format!("  {line}\n")).collect();
            let text = format!("{head}{body}{tail}");
            let parsed = format.parse(&text);
            let (at, new) = format.inserted(&parsed.sections[0], "the-key", "7").unwrap();
            let edited = format!("{}{new}{}", &text[..at], &text[at..]);
            let found = read(format, &edited);
            prop_assert!(found.contains(&("server".into(), "the-key".into(), "7".into())), "{edited}");
            prop_assert_eq!(found.len(), parsed.directives.len() + 1, "{}", edited);
        }
    }
}

#[test]
fn clauses_and_keys_may_share_a_line() {
    let parsed = Format::Clauses.parse("server: num-threads: 4 so-rcvbuf: \"8m\" # x: 1\n  interface: fe80::1 verbosity: 1\nremote-control:\n a: 2001:db8::1\n");
    let lines: Vec<_> =
        parsed.directives.iter().map(|one| (one.section, one.key.as_str(), one.value.as_str())).collect();
    assert_eq!(
        lines,
        [
            (Some(0), "num-threads", "4"),
            (Some(0), "so-rcvbuf", "8m"),
            (Some(0), "interface", "fe80::1"),
            (Some(0), "verbosity", "1"),
            (Some(1), "a", "2001:db8::1"),
        ]
    );
    assert_eq!(parsed.sections[0].name, "server");
}

#[test]
fn coturn_separates_by_blanks_tabs_or_equals_signs() {
    for text in [
        "relay-threads=8",
        "relay-threads 8",
        "relay-threads\t8",
        "relay-threads = 8",
        "  relay-threads  8  ",
    ] {
        let parsed = Format::Pairs.parse(text);
        let [one] = &parsed.directives[..] else { panic!("{parsed:?}") };
        assert_eq!(
            (one.key.as_str(), one.value.as_str(), &text[one.span.clone()]),
            ("relay-threads", "8", "8"),
            "{text}"
        );
    }
}

#[test]
fn rsyslog_has_arrays_commands_comments_and_several_objects_on_a_line() {
    let text = "/* module(load=\"imudp\" threads=\"1\")\n*/ module(load=\"imudp\" threads='4') input(type=\"imudp\" rcvbufSize=\"16m\")\n\
                input(type=\"imudp\" port=[\"1\", /* two */ \"2\"\n ] rcvbufSize = \"8m\")\ninput(type=\"imudp\" port=`echo $P` rcvbufSize=\"1m\")\n\
                ruleset(name=\"r\") { action(type=\"omfile\" file=\"/x(y\") }\n:msg, contains, \"input(a\" /var/log/bob's\nmyinput(a=\"b\")\n\
                input(type=\"imudp\" port=\"5\") # input(type=\"no\")\ninput(broken=5\nmodule(load=\"x\")\n";
    let expected = [
        ("module", "load", "imudp"),
        ("module", "threads", "4"),
        ("input", "type", "imudp"),
        ("input", "rcvbufSize", "16m"),
        ("input", "type", "imudp"),
        ("input", "port", "\"1\", /* two */ \"2\"\n "),
        ("input", "rcvbufSize", "8m"),
        ("input", "type", "imudp"),
        ("input", "port", "echo $P"),
        ("input", "rcvbufSize", "1m"),
        ("input", "type", "imudp"),
        ("input", "port", "5"),
        ("module", "load", "x"),
    ];
    assert_eq!(read(Format::Objects, text), three(&expected));
}

/// rsyslogd takes each of them, in any case.
#[test]
fn rsyslogs_old_directives_of_imudp_are_listed_as_not_read() {
    for line in [
        "$ModLoad imudp",
        "$modload /usr/lib/rsyslog/imudp.so # c",
        "$UDPServerRun 514",
        "$UDPServerTimeRequery 8",
        "$udpserveraddress 127.0.0.1",
        "$IMUDPSchedulingPolicy fifo",
        "$InputUDPServerBindRuleset r",
    ] {
        let parsed = Format::Objects.parse(&format!("module(load=\"x\")\n{line}\ninput(type=\"y\")\n"));
        let [(2, why)] = parsed.unread[..] else { panic!("{line}: {:?}", parsed.unread) };
        assert!(why.starts_with("an old directive of imudp; write module("), "{why}");
        assert_eq!(parsed.directives.len(), 2, "{line}");
    }
    for line in [
        "$ModLoad imtcp",
        "$ModLoad",
        "#$UDPServerRun 514",
        "$MainMsgQueueSize 5",
        "if $msg == '$UDPServer' then stop",
    ] {
        assert_eq!(Format::Objects.parse(&format!("{line}\n")).unread, [], "{line}");
    }
}

#[test]
fn line_ends_mean_nothing_in_clauses() {
    let text = "server:\n num-threads: # c\n\n 4 identity: a#b so-rcvbuf:\"8m\"outgoing-range: 5\n interface:\n  fe80::1\n \
                version: \"a \\\" verbosity: 7\" access-control: 10.0.0.0/8\n  allow\nnum-queries-per-thread:9\n";
    let server = |key: &'static str, value: &'static str| ("server", key, value);
    let expected = [
        server("num-threads", "4"),
        server("identity", "a#b"),
        server("so-rcvbuf", "8m"),
        server("outgoing-range", "5"),
        server("interface", "fe80::1"),
        server("version", "a \\\" verbosity: 7"),
        server("access-control", "10.0.0.0/8\n  allow"),
        server("num-queries-per-thread", "9"),
    ];
    assert_eq!(read(Format::Clauses, text), three(&expected));
}

#[test]
fn freeradius_items_end_at_commas_and_go_on_after_a_backslash() {
    let text = "thread pool { max_servers = 4, start_servers=5 } max_requests := \\\n  'a, b' # x \n$include \"y z\" # w\n\
                if (&User-Name =~ /b{2}#c/) {\n update reply { Reply-Message := \"}\" }\n}\nname = ${a}/b\n";
    let expected = [
        ("thread", "max_servers", "4"),
        ("thread", "start_servers", "5"),
        ("", "max_requests", "a, b"),
        ("update", "Reply-Message", "}"),
        ("", "name", "${a}/b"),
    ];
    assert_eq!(read(Format::Radius, text), three(&expected));
    assert_eq!(includes(Format::Radius, text), ["y z"]);
}

#[test]
fn what_is_inserted_before_the_rest_of_a_line_has_a_line_of_its_own() {
    for (format, text, key) in [
        (Format::Clauses, "server: num-threads: 4\n", "num-threads"),
        (Format::Radius, "thread pool { max_servers = 4 }\n", "max_servers"),
        (Format::Braces, "options { reuseport yes; };\n", "reuseport"),
    ] {
        let parsed = format.parse(text);
        let (at, new) = format.inserted(&parsed.sections[0], "other", "7").unwrap();
        let edited = format!("{}{new}{}", &text[..at], &text[at..]);
        let found: Vec<String> = read(format, &edited).into_iter().map(|(_, key, _)| key).collect();
        assert_eq!(found, ["other", key], "{edited}");
    }
}

#[test]
fn a_key_of_unbound_needs_no_blank_after_its_colon() {
    let text = "server: num-threads:3 verbosity:1 so-rcvbuf:8m access-control: fe80::/16 fe80::1 outgoing-range:99\n";
    let server = |key: &'static str, value: &'static str| ("server", key, value);
    let expected = [
        server("num-threads", "3"),
        server("verbosity", "1"),
        server("so-rcvbuf", "8m"),
        server("access-control", "fe80::/16 fe80::1"),
        server("outgoing-range", "99"),
    ];
    assert_eq!(read(Format::Clauses, text), three(&expected));
}

#[test]
fn a_number_of_coturn_ends_before_what_follows() {
    let text = "relay-threads=3 # four\nrealm=a # b\n";
    assert_eq!(read(Format::Pairs, text), three(&[("", "relay-threads", "3"), ("", "realm", "a # b")]));
}

#[test]
fn rsyslog_objects_that_are_off_are_none() {
    for (value, is_on) in [
        ("\"on\"", true),
        ("\"off\"", false),
        ("\"OFF\"", false),
        // Its documentation notwithstanding.
        ("\"yes\"", false),
        ("\"1\"", false),
        ("\"\"", false),
        ("`echo on`", true),
        ("`echo off`", false),
    ] {
        let text = format!(
            "input(type=\"imudp\" port=\"1\" Config.Enabled={value})\ninclude(file=\"/x\" config.enabled={value})\n\
             module(load=\"imudp\" config.enabled={value})\n"
        );
        let parsed = Format::Objects.parse(&text);
        assert_eq!(
            (parsed.sections.len(), parsed.includes.len()),
            if is_on { (3, 1) } else { (0, 0) },
            "{value}"
        );
        assert_eq!(parsed.unread, [], "{value}");
    }
    let text = "#\ninput(type=\"imudp\" port=\"1\" config.enabled=`echo $ON`)\ninclude(text=`echo $X`) include(file=`echo $X`)\n";
    let parsed = Format::Objects.parse(text);
    let lines: Vec<usize> = parsed.unread.iter().map(|(line, _)| *line).collect();
    assert_eq!((lines, parsed.includes.len()), (vec![2, 3, 3], 0));
}

#[test]
fn rsyslog_names_modules_by_their_files_and_ignores_what_follows_a_path() {
    for load in ["imudp", "imudp.so", "/usr/lib/rsyslog/imudp.so", "/usr/lib/rsyslog/imudp"] {
        let text = format!("module(load=\"{load}\")");
        assert_eq!(read(Format::Objects, &text), three(&[("module", "load", "imudp")]), "{load}");
    }
    for line in ["/d/*.conf # drop-ins", "/d/*.conf", "/d/*.conf\tx"] {
        assert_eq!(includes(Format::Objects, &format!("$IncludeConfig {line}\n")), ["/d/*.conf"], "{line}");
    }
    assert_eq!(includes(Format::Objects, "$IncludeConfig\nx"), [""]);
}
