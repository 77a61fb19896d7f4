//! The configuration files of the Debian packages, as the tests' folder has them.

mod oracle;
mod sources;
mod written;

use std::path::PathBuf;

use super::*;
use crate::plan::Consent;

/// A server with the files of its package, as if it ran with these arguments.
fn service(name: &str, arguments: &str) -> Service {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/services").join(name);
    of(name, arguments, root.display().to_string())
}

fn of(name: &str, arguments: &str, view: String) -> Service {
    let profile = Profile::named(name).unwrap();
    let reader = Reader::own(view.as_ref()).unwrap();
    let config =
        Config::read(&reader, &profile.config, profile.format, profile.arguments.as_deref()).unwrap();
    Service {
        profile,
        pid: 1,
        program: name.to_owned(),
        version: None,
        unit: None,
        config_path: profile.config.clone(),
        address: None,
        cpus: CpuSet::from_list("0-3").unwrap(),
        arguments: Arguments::read(&arguments.replace(' ', "\0"), &profile.switches),
        drop_in: config.drop_in.clone().filter(|_| profile.drop_in),
        rights: reader.rights,
        config,
        start: None,
        view,
        changed_root: false,
        others: Vec::new(),
    }
}

/// A copy of a package's files, where a file has another text.
fn with(name: &str, path: &str, from: &str, to: &str) -> (tempfile::TempDir, Service) {
    let folder = tempfile::tempdir().unwrap();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/services").join(name);
    let copied = std::process::Command::new("cp").arg("-a").arg(root.join(".")).arg(folder.path()).status();
    assert!(copied.unwrap().success());
    let file = folder.path().join(path);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&file, text.replace(from, to)).unwrap();
    let service = of(name, name, folder.path().display().to_string());
    (folder, service)
}

fn ids(proposals: &[Proposal]) -> Vec<String> {
    proposals.iter().map(Proposal::id).collect()
}

/// The lines that a change adds and removes.
fn diff(change: &FileChange) -> String {
    let old = change.old.as_deref().unwrap_or_default();
    let diff = similar::TextDiff::from_lines(old, &change.new).unified_diff().context_radius(0).to_string();
    diff.lines().filter(|line| !line.starts_with("@@")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_is_proposed_for_the_defaults_of_debian() {
    for (name, proposed) in [
        ("nsd", &["server-count=4", "reuseport=yes", "receive-buffer-size=4194304"][..]),
        ("knot", &["socket-affinity=on"]),
        ("unbound", &["num-threads=4", "so-rcvbuf=4m", "so-sndbuf=4m"]),
        ("bind9", &["udp-receive-buffer=4194304"]),
        ("dnsdist", &[]),
        ("freeradius", &["recv_buff=4194304"]),
        ("chrony", &["noclientlog=yes"]),
        // Its UDP input is commented out.
        ("rsyslog", &[]),
        ("coturn", &[]),
    ] {
        let service = service(name, name);
        assert_eq!(ids(&service.proposals(4, None)), proposed, "{name}");
    }
    let service = service("knot", "knotd");
    assert!(service.settled().is_empty(), "by the queues of the machine");
    assert!(
        ids(&self::service("nsd", "nsd").proposals(1, None)).iter().all(|id| !id.starts_with("reuseport"))
    );
}

/// Where its datagrams arrive, Knot may answer past the sockets.
#[test]
fn an_interface_is_proposed_where_it_is_known() {
    let mut service = service("knot", "knotd");
    let xdp = |service: &Service| {
        let found = service.proposals(4, Some("eth0")).into_iter().find(|one| one.knob == "listen-xdp");
        found.unwrap()
    };
    assert_eq!(xdp(&service).value, "eth0", "the usual port");
    service.address = Some("192.0.2.1:5300".parse().unwrap());
    let proposal = xdp(&service);
    assert_eq!(
        (proposal.value.as_str(), proposal.uncertain, proposal.bypasses_packet_filter),
        ("eth0@5300", true, true)
    );
    let files = service.files(&[proposal]).unwrap();
    assert_eq!(diff(&files[0]), "+xdp:\n+    listen: eth0@5300\n");
    let (_root, service) =
        with("knot", "etc/knot/knot.conf", "server:\n", "xdp:\n    listen: eth1\nserver:\n");
    assert!(
        service.proposals(4, Some("eth0")).iter().all(|one| one.knob != "listen-xdp"),
        "somebody's choice"
    );
}

#[test]
fn new_lines_go_into_a_drop_in_where_the_server_reads_one() {
    for (name, path, lines) in [
        (
            "nsd",
            "/etc/nsd/nsd.conf.d/udpath.conf",
            "server:\n    server-count: 4\n    reuseport: yes\n    receive-buffer-size: 4194304\n",
        ),
        (
            "unbound",
            "/etc/unbound/unbound.conf.d/udpath.conf",
            "server:\n    num-threads: 4\n    so-rcvbuf: 4m\n    so-sndbuf: 4m\n",
        ),
        ("chrony", "/etc/chrony/conf.d/udpath.conf", "noclientlog\n"),
    ] {
        let service = service(name, name);
        let files = service.files(&service.proposals(4, None)).unwrap();
        let new = format!("# Written by udpath; `udpath undo` removes it.\n{lines}");
        assert_eq!(files, [FileChange { path: path.into(), old: None, new }], "{name}");
    }
}

#[test]
fn other_files_change_in_the_lines_that_matter() {
    for (name, knob, value, path, expected) in [
        ("knot", "udp-workers", "2", "/etc/knot/knot.conf", "+    udp-workers: 2\n"),
        (
            "bind9",
            "udp-receive-buffer",
            "4194304",
            "/etc/bind/named.conf.options",
            "+\tudp-receive-buffer 4194304;\n",
        ),
        ("coturn", "relay-threads", "3", "/etc/turnserver.conf", "+relay-threads=3\n"),
        (
            "freeradius",
            "max_servers",
            "64",
            "/etc/freeradius/3.0/radiusd.conf",
            "-\tmax_servers = 32\n+\tmax_servers = 64\n",
        ),
    ] {
        let service = service(name, name);
        let files = service.files(&[service.propose(knob, value).unwrap()]).unwrap();
        assert_eq!(files.len(), 1, "{name}");
        assert_eq!((files[0].path.as_str(), diff(&files[0]).as_str()), (path, expected), "{name}");
    }
    let service = service("freeradius", "freeradius");
    let files = service.files(&service.proposals(4, None)).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].path, "/etc/freeradius/3.0/sites-enabled/default");
    assert_eq!(diff(&files[0]), "+\trecv_buff = 4194304\n".repeat(4));
}

#[test]
fn a_knob_that_is_set_is_changed_where_it_stands() {
    let (_root, service) = with(
        "nsd",
        "etc/nsd/nsd.conf",
        "server:\n",
        "server:\n\tserver-count: 2 # two\n\treuseport: \"yes\"\n",
    );
    let knobs = service.knobs();
    let count = knobs.iter().find(|knob| knob.name == "server-count").unwrap();
    let line =
        1 + service.config.files[0].text.lines().position(|line| line.contains("server-count: 2")).unwrap();
    assert_eq!(count.value.as_deref(), Some("2"));
    assert_eq!(count.origin, Origin::File("/etc/nsd/nsd.conf".into(), line));
    let mut files = service.files(&service.proposals(4, None)).unwrap();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(diff(&files[0]), "-\tserver-count: 2 # two\n+\tserver-count: 4 # two\n");
    assert!(files[1].new.ends_with("server:\n    receive-buffer-size: 4194304\n"), "{files:?}");
    // Fewer than the CPUs is raised, more is somebody's choice.
    assert_eq!(ids(&service.proposals(2, None)), ["receive-buffer-size=4194304"]);
}

#[test]
fn rsyslog_is_changed_within_its_objects() {
    let (_root, service) = with(
        "rsyslog",
        "etc/rsyslog.conf",
        "#module(load=\"imudp\")\n#input(type=\"imudp\" port=\"514\")",
        "module(load=\"imudp\")\ninput(type=\"imudp\" port=\"514\")",
    );
    let files = service.files(&service.proposals(2, None)).unwrap();
    let expected = "-module(load=\"imudp\")\n-input(type=\"imudp\" port=\"514\")\n\
                    +module(load=\"imudp\" threads=\"2\" batchSize=\"128\")\n\
                    +input(type=\"imudp\" port=\"514\" rcvbufSize=\"4m\")\n";
    assert_eq!(diff(&files[0]), expected);
}

#[test]
fn arguments_override_files_and_are_changed_only_where_debian_keeps_them() {
    let service = service("nsd", "nsd -N 1");
    let said = service.propose("server-count", "4").unwrap_err().to_string();
    assert!(said.contains("-N"), "{said}");
    assert_eq!(service.knobs()[0].origin, Origin::Arguments);
    assert!(!ids(&service.proposals(4, None)).contains(&"server-count=4".to_owned()));
    let (_root, mut service) = with("bind9", "etc/default/named", "-u bind", "-u bind -n 1");
    service.arguments = Arguments::read("named\0-u\0bind\0-n\x001", "");
    let files = service.files(&[service.propose("workers", "4").unwrap()]).unwrap();
    assert_eq!(diff(&files[0]), "-OPTIONS=\"-u bind -n 1\"\n+OPTIONS=\"-u bind -n 4\"\n");
    assert!(ids(&service.proposals(4, None)).contains(&"workers=4".to_owned()));
    // A unit with a command line of its own, as a drop-in of systemd gives it: the file is not in use.
    for own in ["named\0-f\0-u\0bind", "named\0-f\0-n\x002"] {
        service.arguments = Arguments::read(own, "");
        let said = service.propose("workers", "4").unwrap_err().to_string();
        assert!(
            said.contains("etc/default/named says -n 1, and the running server was not started"),
            "{said}"
        );
        assert!(!ids(&service.proposals(4, None)).contains(&"workers=4".to_owned()));
    }
}

#[test]
fn what_cannot_be_set_is_said() {
    let nsd = service("nsd", "nsd");
    let knot = service("knot", "knotd");
    let chrony = service("chrony", "chronyd");
    let rsyslog = service("rsyslog", "rsyslogd");
    for (service, knob, value, says) in [
        (&nsd, "threads", "4", "it has server-count, reuseport"),
        (&nsd, "server-count", "many", "a whole number"),
        (&nsd, "server-count", "4\nroot: yes", "a whole number"),
        (&nsd, "reuseport", "perhaps", "yes or no"),
        (&nsd, "cpu-affinity", "0", "never set"),
        (&knot, "listen-xdp", "eth0\nlog:", "an interface"),
        (&chrony, "ratelimit", "x", "never set"),
        (&rsyslog, "threads", "2", "has no module"),
    ] {
        let said = service.propose(knob, value).unwrap_err().to_string();
        assert!(said.contains(says), "{knob}={value}: {said}");
    }
    let two = [nsd.propose("server-count", "2").unwrap(), nsd.propose("server-count", "3").unwrap()];
    assert!(nsd.files(&two).unwrap_err().to_string().contains("server-count=2 and server-count=3"));
}

#[test]
fn arguments_in_a_variable_are_read_and_nothing_is_proposed() {
    assert_eq!(service("nfcapd", "nfcapd -w /flows").knobs()[0].value, None);
    let path = "etc/nfdump/default.conf";
    let (_root, service) = with("nfcapd", path, "-p 2055", "-p 2055 -B 131072");
    assert_eq!(service.knobs()[0].value.as_deref(), Some("131072"));
    assert_eq!(ids(&service.proposals(4, None)), [""; 0]);
}

#[test]
fn a_knob_with_an_advisory_needs_consent_below_the_version_that_mends_it() {
    let raised_in = |version: Option<&str>, value: &str| {
        let service = Service { version: version.map(str::to_owned), ..service("unbound", "unbound") };
        let proposals = vec![service.propose("num-threads", value).unwrap()];
        service.prepare(proposals, Some("true")).unwrap()
    };
    let raised = |value: &str| raised_in(Some("1.17.1-2+deb12u4"), value);
    let allow = |name: &str| Consent { insecure: [name.to_owned()].into(), ..Consent::default() };
    let more = raised("4");
    let said = more.permitted(&allow("config")).unwrap_err().to_string();
    for part in ["num-threads=4", "CVE-2026-50252", "cache poisoning", "mended in 1.25.2", "--allow security"]
    {
        assert!(said.contains(part), "{said}");
    }
    assert!(more.changes()[0].reason.contains("CVE-2026-50252"), "{:?}", more.changes()[0]);
    assert!(more.permitted(&allow("security")).is_ok());
    for version in [None, Some("1.25.1-1"), Some("1.25.2~rc1-1")] {
        assert!(raised_in(version, "4").permitted(&allow("config")).is_err(), "{version:?}");
    }
    for version in ["1.25.2", "1.25.2-1", "1.26.1-1+b1"] {
        let more = raised_in(Some(version), "4");
        assert!(more.permitted(&allow("config")).is_ok(), "{version}");
        assert!(!more.changes()[0].reason.contains("CVE"), "{:?}", more.changes()[0]);
    }
    // As many as now expose nothing further; nor does any other knob.
    assert!(raised("1").permitted(&Consent::default()).is_ok());
    let nsd = service("nsd", "nsd");
    assert!(nsd.proposals(4, None).iter().all(|proposal| proposal.exposes().is_none()));
}

/// The defaults of Unbound's releases: util/config_file.c of 1.17.1, 1.23.0, 1.24.0 and 1.25.0.
#[test]
fn defaults_are_those_of_the_installed_version() {
    for (version, sends, resolves) in [
        (None, "0", "1024"),
        (Some("1.17.1-2+deb12u4"), "0", "1024"),
        (Some("1.23.1-1"), "0", "1024"),
        (Some("1.24.0~rc1-1"), "0", "1024"),
        (Some("1.24.0"), "4m", "2048"),
        (Some("1.25.0-2"), "4m", "2048"),
    ] {
        let service = Service { version: version.map(str::to_owned), ..service("unbound", "unbound") };
        let default =
            |name: &str| service.knobs().into_iter().find(|knob| knob.name == name).unwrap().default;
        assert_eq!(
            (default("so-sndbuf"), default("num-queries-per-thread")),
            (sends, resolves),
            "{version:?}"
        );
        // What is the default already is not proposed.
        let proposed = ids(&service.proposals(4, None)).contains(&"so-sndbuf=4m".to_owned());
        assert_eq!(proposed, sends == "0", "{version:?}");
    }
}

#[test]
fn the_line_in_effect_is_judged_and_changed() {
    let profile = Profile::named("nsd").unwrap();
    let text = "server:\n  server-count: 1\n  receive-buffer-size: 1000\nserver:\n  server-count: 8\n  receive-buffer-size: 16777216\n";
    let mut service = Service::of_text(profile, text);
    service.cpus = CpuSet::from_list("0-1").unwrap();
    let named = |name: &str| ids(&service.proposals(2, None)).into_iter().any(|id| id.starts_with(name));
    assert!(
        !named("server-count") && !named("receive-buffer-size"),
        "{:?}",
        ids(&service.proposals(2, None))
    );
    let knob = service.knobs().into_iter().find(|knob| knob.name == "server-count").unwrap();
    assert_eq!(knob.value.as_deref(), Some("8"));
    let changed = service.files(&[service.propose("server-count", "16").unwrap()]).unwrap();
    assert_eq!(diff(&changed[0]), "-  server-count: 8\n+  server-count: 16\n");
}

#[test]
fn of_several_sockets_only_those_with_less_are_changed() {
    let profile = Profile::named("rsyslog").unwrap();
    let text = "module(load=\"imudp\" threads=\"4\")\ninput(type=\"imudp\" port=\"1\" rcvbufSize=\"16m\")\n\
                input(type=\"imudp\" port=[\"2\", \"3\"] rcvbufSize=\"1m\")\ninput(type=\"imudp\" port=\"4\")\n";
    let service = Service::of_text(profile, text);
    let proposals = service.proposals(2, None);
    assert!(!ids(&proposals).iter().any(|id| id.starts_with("threads")), "{:?}", ids(&proposals));
    let buffers: Vec<_> = proposals.into_iter().filter(|one| one.knob == "rcvbufSize").collect();
    let [changed] = &service.files(&buffers).unwrap()[..] else { panic!("{buffers:?}") };
    let new: Vec<&str> = changed.new.lines().skip(1).collect();
    assert_eq!(
        new,
        [
            "input(type=\"imudp\" port=\"1\" rcvbufSize=\"16m\")",
            "input(type=\"imudp\" port=[\"2\", \"3\"] rcvbufSize=\"4m\")",
            "input(type=\"imudp\" port=\"4\" rcvbufSize=\"4m\")",
        ]
    );
}

#[test]
fn a_server_that_goes_by_no_file_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let is_file = |path: &str| root.path().join(&path[1..]).is_file();
    let goes = |name: &str, line: &str| {
        let profile = Profile::named(name).unwrap();
        let arguments = Arguments::read(&line.replace(' ', "\0"), &profile.switches);
        let given = profile.config_options.iter().map(String::as_str).collect::<Vec<_>>();
        let named = arguments.option(&given).is_some();
        profile.instead.iter().any(|instead| instead.holds(&arguments, named, is_file))
    };
    assert!(
        goes("knot", "knotd -C /var/lib/knot/confdb")
            && goes("knot", "knotd -dC/a")
            && goes("knot", "knotd --confdb=/a")
    );
    assert!(!goes("knot", "knotd") && goes("coturn", "turnserver -vn") && !goes("coturn", "turnserver -v"));
    fs::create_dir_all(root.path().join("var/lib/knot/confdb")).unwrap();
    assert!(!goes("knot", "knotd"), "an empty folder is no database");
    fs::write(root.path().join("var/lib/knot/confdb/data.mdb"), "").unwrap();
    assert!(goes("knot", "knotd -d"), "the database is preferred once it exists");
    assert!(!goes("knot", "knotd -c /etc/knot/knot.conf"));
}
