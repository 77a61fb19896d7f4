//! Where a server has its configuration from: its arguments, the folder of its start, and what is not known.

use super::*;

fn arguments(name: &str, words: &[&str]) -> Arguments {
    Arguments::read(&words.join("\0"), &Profile::named(name).unwrap().switches)
}

/// A server with these files, read as if it ran with these arguments.
fn started(name: &str, words: &[&str], text: &str) -> Service {
    Service { arguments: arguments(name, words), ..Service::of_text(Profile::named(name).unwrap(), text) }
}

fn shown(service: &Service) -> Vec<String> {
    let knobs = service.knobs().into_iter();
    let shown = knobs.filter(|knob| knob.value.is_some()).map(|knob| {
        let of = knob.of.map_or(String::new(), |of| format!(" ({of})"));
        let value = knob.value.unwrap_or_default();
        format!("{}{of}={value}{}", knob.name, if knob.unknown { " not known" } else { "" })
    });
    shown.collect()
}

#[test]
fn the_main_file_is_the_one_that_the_arguments_name() {
    let own = std::process::id();
    for (name, line, start, expected) in [
        ("nsd", "nsd -d", None, Some("/etc/nsd/nsd.conf")),
        ("nsd", "nsd -dc /x/../n.conf", None, Some("/n.conf")),
        ("nsd", "nsd -c n.conf", Some("/lab"), Some("/lab/n.conf")),
        ("nsd", "nsd -c n.conf", None, None),
        ("unbound", "unbound -ddvvc u.conf", None, None),
        ("knot", "knotd --conf=k.conf", Some("/lab"), Some("/lab/k.conf")),
        ("freeradius", "freeradius -f -n other", None, Some("/etc/freeradius/3.0/other.conf")),
        ("freeradius", "freeradius -n other -d /r", None, Some("/r/other.conf")),
        ("freeradius", "freeradius -fd /r", None, Some("/r/radiusd.conf")),
        ("freeradius", "freeradius -d r", None, None),
        // What follows another option is its value.
        ("nsd", "nsd -i -c", None, Some("/etc/nsd/nsd.conf")),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let found = config_path(own, Profile::named(name).unwrap(), &arguments(name, &words), start);
        match expected {
            Some(path) => assert_eq!(found.unwrap(), path, "{line}"),
            None => {
                let said = found.unwrap_err().to_string();
                assert!(
                    said.contains(words[words.len() - 1]) && said.contains("start it with the whole path"),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn coturn_searches_its_file_from_where_it_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let start = folder.path().canonicalize().unwrap().join("start");
    fs::create_dir_all(start.join("etc/coturn")).unwrap();
    fs::create_dir_all(start.join("../etc")).unwrap();
    let start = start.display().to_string();
    let profile = Profile::named("coturn").unwrap();
    let found = |words: &[&str]| {
        config_path(std::process::id(), profile, &arguments("coturn", words), Some(&start)).unwrap()
    };
    let up = start.strip_suffix("/start").unwrap();
    // Each comes before those above.
    for path in [
        format!("{up}/etc/turnserver.conf"),
        format!("{start}/etc/coturn/turnserver.conf"),
        format!("{start}/turnserver.conf"),
    ] {
        fs::write(&path, "").unwrap();
        assert_eq!(found(&["turnserver", "-v"]), path);
        assert_eq!(found(&["turnserver", "-c", "turnserver.conf"]), path);
    }
    assert_eq!(found(&["turnserver", "-c", "/x/t.conf"]), "/x/t.conf");
    assert_eq!(found(&["turnserver", "-c", "gone.conf"]), format!("{start}/gone.conf"));
}

#[test]
fn a_shortened_option_counts() {
    let service = started("coturn", &["turnserver", "--relay-t=3"], "relay-threads=5\n");
    assert_eq!(shown(&service), ["relay-threads=3"]);
    // What another option takes is not one.
    let service = started("coturn", &["turnserver", "-r", "-m", "-c", "/x"], "relay-threads=5\n");
    assert_eq!(shown(&service), ["relay-threads=5"]);
    let knot = Profile::named("knot").unwrap();
    let database = |words: &[&str]| {
        knot.instead.iter().any(|one| one.holds(&arguments("knot", words), false, |_| false))
    };
    assert!(database(&["knotd", "--confd", "/run/kd"]) && database(&["knotd", "--confd=/run/kd"]));
    assert!(!database(&["knotd", "--confi=/k.conf"]));
}

#[test]
fn a_configuration_on_the_command_line_is_shown_and_not_changed() {
    let lines = ["port 5501", "clientloglimit 1000000"];
    let words = [&["chronyd", "-x", "-n"][..], &lines].concat();
    let arguments = arguments("chrony", &words);
    assert_eq!(arguments.operands(), lines);
    let root = tempfile::tempdir().unwrap();
    let reader = Reader::own(root.path()).unwrap();
    let profile = Profile::named("chrony").unwrap();
    let found = format::lines::of_words(&arguments.operands()).unwrap();
    assert_eq!(found, lines);
    let config = Config::of_lines(&reader, profile.format, &found).unwrap();
    let service =
        Service { config, arguments, config_path: COMMAND_LINE.to_owned(), ..Service::of_text(profile, "") };
    assert_eq!(shown(&service), ["clientloglimit=1000000", "port=5501"]);
    assert!(
        service.knobs().iter().all(|knob| !matches!(knob.origin, Origin::File(..))),
        "{:?}",
        service.knobs()
    );
    assert_eq!(ids(&service.proposals(4, None)), [""; 0]);
    for knob in ["clientloglimit", "noclientlog"] {
        let said = service.propose(knob, "1").unwrap_err().to_string();
        assert!(said.contains("its command line has its configuration"), "{said}");
    }
    let said = service.prepare(Vec::new(), Some("true")).unwrap().check().unwrap_err().to_string();
    assert!(said.contains("change it where it is started"), "{said}");
}

/// chronyd writes a NUL behind each word of its command line.
#[test]
fn lines_that_were_cut_into_words_are_found_by_the_names_of_directives() {
    let lines = |text: &str| format::lines::of_words(&text.split(' ').collect::<Vec<_>>());
    assert_eq!(
        lines("port 5545 Allow 10.0.0.0/8 local stratum 5 noclientlog ratelimit interval 1 server a iburst")
            .unwrap(),
        [
            "port 5545",
            "Allow 10.0.0.0/8",
            "local stratum 5",
            "noclientlog",
            "ratelimit interval 1",
            "server a iburst"
        ]
    );
    assert_eq!(lines("server a iburst allow port 7").unwrap(), ["server a iburst", "allow", "port 7"]);
    assert!(lines("server a port 7").unwrap_err().contains("port after a source may be its option"));
    assert_eq!(format::lines::of_words(&["port 5", "allow"]).unwrap(), ["port 5", "allow"]);
}

#[test]
fn freeradius_with_an_address_of_its_own_reads_no_listen_section() {
    let text = "listen {\n type = auth\n port = 1\n recv_buff = 50000\n}\nmax_requests = 1000\n";
    let service = started("freeradius", &["freeradius", "-f", "-i", "127.0.0.1", "-p", "1812"], text);
    assert_eq!(shown(&service), ["max_requests=1000"]);
    let knob = service.knobs().into_iter().find(|knob| knob.name == "recv_buff").unwrap();
    assert_eq!(knob.origin, Origin::Unused);
    let said = service.propose("recv_buff", "4194304").unwrap_err().to_string();
    assert!(
        said.contains("-i and -p on its command line take the place of all its listen sections"),
        "{said}"
    );
    let service = started("freeradius", &["freeradius", "-f"], text);
    assert_eq!(shown(&service), ["recv_buff=50000", "max_requests=1000"]);
}

#[test]
fn a_value_that_is_computed_is_not_known() {
    let text = "module(load=\"imudp.so\" threads=`echo $T`)\ninput(type=\"imudp\" port=\"1\")\n";
    let service = started("rsyslog", &["rsyslogd"], text);
    assert_eq!(shown(&service), ["threads=echo $T not known"]);
    assert!(!ids(&service.proposals(4, None)).iter().any(|id| id.starts_with("threads")));
    // Somebody may want another one all the same: it stands in quotes.
    let files = service.files(&[service.propose("threads", "4").unwrap()]).unwrap();
    assert!(files[0].new.starts_with("module(load=\"imudp.so\" threads=\"4\")\n"), "{}", files[0].new);
    let text = "thread pool {\n max_servers = ${other[x].y}\n}\nbig = 9\nmax_requests = ${big}\n";
    let service = started("freeradius", &["freeradius"], text);
    assert_eq!(shown(&service)[0], "max_servers=${other[x].y} not known");
    // Each of another section or of the environment, whatever it says there: as many as before, or half of them.
    for value in
        ["${..n}", "${.start_servers}", "${a.n}", "$ENV{THREADS}", "\"$ENV{THREADS}\"", "$ENV{A}${n}"]
    {
        let text = format!(
            "thread pool {{\n max_servers = {value}\n start_servers = 8\n}}\nlisten {{\n type = auth\n}}\nn = 8\n"
        );
        let service = started("freeradius", &["freeradius"], &text);
        let written = value.trim_matches('"');
        assert!(
            shown(&service).contains(&format!("max_servers={written} not known")),
            "{:?}",
            shown(&service)
        );
        let proposals = service.proposals(2, None);
        assert!(
            !ids(&proposals).iter().any(|id| id.starts_with("max_servers")),
            "{value}: {:?}",
            ids(&proposals)
        );
        // Somebody may want another one all the same: all of the old one is gone.
        let files = service.files(&[service.propose("max_servers", "4").unwrap()]).unwrap();
        let quote = if value.starts_with('"') { "\"" } else { "" };
        assert!(files[0].new.contains(&format!(" max_servers = {quote}4{quote}\n")), "{}", files[0].new);
    }
}

#[test]
fn each_section_has_its_row() {
    let text = "module(load=\"imudp\")\ninput(type=\"imudp\" port=\"514\" rcvbufSize=\"8m\")\n\
                input(type=\"imudp\" port=[\"1\", \"2\"] rcvbufSize=\"16m\")\ninput(type=\"imudp\")\n\
                input(type=\"imudp\" port=\"9\" config.enabled=\"off\" rcvbufSize=\"1k\")\n";
    let service = started("rsyslog", &["rsyslogd"], text);
    let rows: Vec<_> = service.knobs().into_iter().filter(|knob| knob.name == "rcvbufSize").collect();
    let found: Vec<_> =
        rows.iter().map(|knob| (knob.of.as_deref().unwrap(), knob.value.as_deref())).collect();
    assert_eq!(found, [("port 514", Some("8m")), ("port 1, 2", Some("16m")), ("input 3", None)]);
    assert_eq!(rows[2].origin, Origin::Default);
}

#[test]
fn a_file_that_is_not_utf_8_is_read_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("etc/nsd")).unwrap();
    let text = b"server:\n # caf\xe9\n server-count: 1\n";
    fs::write(folder.path().join("etc/nsd/nsd.conf"), text).unwrap();
    let service = of("nsd", "nsd", folder.path().display().to_string());
    assert_eq!(shown(&service), ["server-count=1"]);
    for knob in ["server-count", "receive-buffer-size"] {
        let said = service.propose(knob, "4000").unwrap_err().to_string();
        assert!(said.contains("/etc/nsd/nsd.conf, line 2, is not UTF-8"), "{said}");
    }
}

#[test]
fn a_file_that_is_younger_than_the_server_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("etc/nsd")).unwrap();
    let path = folder.path().join("etc/nsd/nsd.conf");
    fs::write(&path, "server:\n").unwrap();
    let mut server = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let named = || {
        let service = of("nsd", "nsd", folder.path().display().to_string());
        let service = Service { pid: server.id(), ..service };
        service.changed_since().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = named();
    std::thread::sleep(std::time::Duration::from_millis(200));
    fs::write(&path, "server:\n  server-count: 2\n").unwrap();
    let after = named();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!((before, after), (vec![], vec!["/etc/nsd/nsd.conf".to_owned()]));
}

/// An NSD that bash has started in a folder, and that has moved to the folder of its zones since.
struct Moved {
    folder: tempfile::TempDir,
    shell: std::process::Child,
    pid: u32,
}

impl Moved {
    /// `None`: there is no NSD here. `line`: with CONF for its configuration, relative.
    fn start(line: &str) -> Option<Self> {
        use std::io::BufRead;
        if !std::path::Path::new("/usr/sbin/nsd").exists() {
            assert!(std::env::var_os("UDPATH_REQUIRE_ALL").is_none(), "`scripts/setup.sh test` installs nsd");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        fs::create_dir_all(here.join("zones")).unwrap();
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let main = |count: u32| {
            format!(
                "server:\n  ip-address: 127.0.0.1@{port}\n  username: \"\"\n  pidfile: \"\"\n  database: \"\"\n  logfile: \"\"\n  \
                 zonesdir: \"{0}/zones\"\n  xfrdfile: \"{0}/xfrd\"\n  zonelistfile: \"{0}/list\"\n  server-count: {count}\n  \
                 include: \"r.conf\"\nremote-control:\n  control-enable: no\n",
                here.display()
            )
        };
        // Of each file there is another one where it is now.
        fs::write(here.join("n.conf"), main(1)).unwrap();
        fs::write(here.join("zones/n.conf"), main(2)).unwrap();
        fs::write(here.join("r.conf"), "  receive-buffer-size: 5000\n").unwrap();
        fs::write(here.join("zones/r.conf"), "  receive-buffer-size: 3000\n").unwrap();
        let line = line.replace("CONF", "n.conf").replace("FOLDER", &here.display().to_string());
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &format!("{line} >/dev/null 2>&1 & echo $!; wait")]).current_dir(&here);
        let mut shell = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        io::BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let pid = said.trim().parse().unwrap();
        let moved = || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|now| now == here.join("zones"));
        for _ in 0..500 {
            if moved() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(moved());
        Some(Self { folder, shell, pid })
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").arg(self.pid.to_string()).status();
        let _ = self.shell.wait();
    }
}

#[test]
fn a_server_that_has_moved_is_read_where_it_was_started_or_not_at_all() {
    let Some(server) = Moved::start("nsd -d -c CONF") else { return };
    let service = recognise(server.pid).unwrap();
    assert_eq!(
        service.config_path,
        format!("{}/n.conf", server.folder.path().canonicalize().unwrap().display())
    );
    assert_eq!(shown(&service), ["server-count=1", "receive-buffer-size=5000"]);
    assert_eq!(service.unread(), [""; 0]);
    drop(server);
    // env may have changed the folder: nothing says that it has not.
    let server = Moved::start("env nsd -d -c CONF").unwrap();
    let said = recognise(server.pid).unwrap_err().to_string();
    assert!(said.contains("reads n.conf in the folder that it was started in"), "{said}");
    drop(server);
    let server = Moved::start("env nsd -d -c FOLDER/CONF").unwrap();
    let service = recognise(server.pid).unwrap();
    assert_eq!(shown(&service), ["server-count=1"]);
    assert!(service.unread()[0].starts_with("r.conf: is relative to the folder"), "{:?}", service.unread());
}
