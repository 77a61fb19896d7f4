//! Lines that their authors could have written otherwise: read as the server reads them, and changed where they count.

use super::*;

/// A server with this configuration, at Debian's place.
fn written(name: &str, text: &str) -> (tempfile::TempDir, Service) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(Profile::named(name).unwrap().config.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    let service = of(name, name, folder.path().display().to_string());
    (folder, service)
}

fn rsyslog(text: &str) -> (tempfile::TempDir, Service) {
    written("rsyslog", text)
}

/// What a knob has in each place, with its line.
fn values(service: &Service, name: &str) -> Vec<(Option<String>, usize)> {
    let rows = service.knobs().into_iter().filter(|knob| knob.name == name);
    let line = |origin: &Origin| if let Origin::File(_, line) = origin { *line } else { 0 };
    rows.map(|knob| (knob.value.clone(), line(&knob.origin))).collect()
}

/// The main file after a change.
fn changed(service: &Service, name: &str, value: &str) -> String {
    let files = service.files(&[service.propose(name, value).unwrap()]).unwrap();
    let [file] = &files[..] else { panic!("{files:?}") };
    file.new.clone()
}

#[test]
fn lines_of_rsyslog_go_on_after_a_backslash() {
    let text = "# no \\\n  module(load=\"imudp\" threads=\"9\")\n\
                mod\\\n  ule(load=\"im\\ \t\r\n udp\"\\\n  threads=\"1\\\n6\" \\\n)\n\
                input(type=\"imudp\" \\\n  port=\"15514\" \\\n  # c \\\n rcvbufSize=\"1m\"\n\trcvbufSize=\"8m\")   \n\
                $IncludeConfig /etc/none\\\n*.conf\nmodule(load=\"x\")\n";
    let (_root, service) = rsyslog(text);
    assert_eq!(service.unread(), [""; 0]);
    assert_eq!(values(&service, "threads"), [(Some("16".to_owned()), 6)]);
    assert_eq!(values(&service, "rcvbufSize"), [(Some("8m".to_owned()), 13)]);
    assert_eq!(changed(&service, "threads", "4"), text.replace("\"1\\\n6\"", "\"4\""));
    assert_eq!(changed(&service, "rcvbufSize", "9m"), text.replace("8m", "9m"));
    let added = text.replace(" \\\n)\n", " \\\n batchSize=\"64\")\n");
    assert_eq!(changed(&service, "batchSize", "64"), added);
    // Old directives as well.
    let (_root, service) = rsyslog("$ModLoad \\\n imudp\n");
    assert_eq!(service.unread().len(), 1);
    let (_root, service) = rsyslog("# $UDPServerRun \\\n$ModLoad imudp\n");
    assert_eq!(service.unread(), [""; 0]);
}

#[test]
fn a_module_that_is_loaded_again_is_not_where_a_knob_stands() {
    let text = "module(load=\"imudp\" batchSize=\"64\")\nmodule(load=\"imudp\" threads=\"4\")\ninput(type=\"imudp\" port=\"514\")\n";
    let (_root, service) = rsyslog(text);
    assert_eq!(values(&service, "threads"), [(None, 0)]);
    assert!(service.knobs().iter().all(|knob| knob.of.is_none()));
    let first = text.replacen("\"64\"", "\"64\" threads=\"8\"", 1);
    assert_eq!(changed(&service, "threads", "8"), first);
    let (_root, service) = rsyslog("module(load=\"IMUDP\" threads=\"4\")\n");
    assert!(service.propose("threads", "8").unwrap_err().to_string().contains("has no module"));
}

#[test]
fn a_number_is_what_the_server_makes_of_it() {
    for (server, text, knob, number, changed_to) in [
        ("unbound", "server:\n num-threads: 8#comment\n", "num-threads", "8", "server:\n num-threads: 9\n"),
        ("unbound", "server:\n num-threads: \"2;\"\n", "num-threads", "2", "server:\n num-threads: \"9\"\n"),
        (
            "freeradius",
            "thread pool {\n max_servers=64#x\n}\n",
            "max_servers",
            "64",
            "thread pool {\n max_servers=9\n}\n",
        ),
        ("freeradius", "max_requests = 010\n", "max_requests", "010", "max_requests = 9\n"),
        ("coturn", "relay-threads=4;\n", "relay-threads", "4", "relay-threads=9\n"),
        ("coturn", "relay-threads='4'\n", "relay-threads", "0", "relay-threads=9\n"),
        ("coturn", "relay-threads=\"4\" # c\n", "relay-threads", "4", "relay-threads=\"9\" # c\n"),
        (
            "knot",
            "server:\n udp-workers: [3, 5] # c\n",
            "udp-workers",
            "5",
            "server:\n udp-workers: [3, 9] # c\n",
        ),
    ] {
        let (_root, service) = written(server, text);
        assert_eq!(values(&service, knob)[0].0.as_deref(), Some(number), "{text}");
        assert_eq!(changed(&service, knob, "9"), changed_to, "{text}");
    }
    // It is judged by that.
    let (_root, service) = written("unbound", "server:\n num-threads: 8#comment\n");
    let ids = |cpus| ids(&service.proposals(cpus, None));
    assert!(!ids(8).contains(&"num-threads=8".to_owned()) && ids(9).contains(&"num-threads=9".to_owned()));
}

#[test]
fn coturn_has_keys_of_small_letters() {
    let text = "relay-threads=3\nRelay-Threads=4\n";
    let (_root, service) = written("coturn", text);
    assert_eq!(values(&service, "relay-threads"), [(Some("3".to_owned()), 1)]);
    assert_eq!(changed(&service, "relay-threads", "9"), text.replace('3', "9"));
}
