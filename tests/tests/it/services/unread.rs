//! A configuration with a file that is no longer there: `plan` lists it, and `apply` refuses to change a configuration
//! that it does not know as a whole.

use super::*;

/// A server that answers on port 5300, and a knob of it.
struct Server {
    name: &'static str,
    command: &'static [&'static str],
    /// Its configuration, with `{here}` for its folder.
    config: &'static str,
    /// What the file says that it includes.
    included: &'static str,
    knob: &'static str,
}

const SERVERS: [Server; 4] = [
    Server {
        name: "nsd",
        command: &["nsd", "-d", "-c"],
        config: "server:\n  ip-address: 127.0.0.1@5300\n  username: \"\"\n  database: \"\"\n  zonesdir: {here}\n  pidfile: \"\"\n  \
                 xfrdfile: {here}/xfrd\n  xfrdir: {here}\n  zonelistfile: {here}/list\nremote-control:\n  control-enable: no\n\
                 include: \"{here}/more.conf\"\n",
        included: "server:\n  server-count: 1\n",
        knob: "server-count=2",
    },
    Server {
        name: "unbound",
        command: &["unbound", "-d", "-p", "-c"],
        config: "server:\n  interface: 127.0.0.1\n  port: 5300\n  username: \"\"\n  chroot: \"\"\n  directory: \"{here}\"\n  pidfile: \"\"\n  \
                 use-syslog: no\n  module-config: \"iterator\"\n  local-zone: \".\" refuse\nremote-control:\n  control-enable: no\n\
                 include: \"{here}/more.conf\"\n",
        included: "server:\n  outgoing-range: 512\n",
        knob: "so-rcvbuf=131072",
    },
    Server {
        name: "knot",
        command: &["knotd", "-c"],
        config: "server:\n    rundir: \"{here}\"\n    listen: 127.0.0.1@5300\ndatabase:\n    storage: \"{here}\"\ninclude: more.conf\n",
        included: "server:\n    udp-workers: 1\n",
        knob: "udp-workers=2",
    },
    Server {
        name: "bind9",
        command: &["named", "-g", "-n", "1", "-c"],
        config: "options {\n\tlisten-on port 5300 { 127.0.0.1; };\n\tlisten-on-v6 { none; };\n\tpid-file none;\n\tsession-keyfile none;\n\t\
                 directory \"{here}\";\n\trecursion no;\n};\ncontrols { };\ninclude \"{here}/more.conf\";\n",
        included: "acl friends { any; };\n",
        knob: "udp-receive-buffer=131072",
    },
];

#[test]
fn an_include_that_is_gone_is_listed_and_nothing_is_changed() {
    udpath_lab::needs_root!();
    for Server { name, command, config, included, knob } in SERVERS {
        let folder = tempfile::tempdir_in(ROOTS).unwrap();
        let lab = client_and_server(&format!("unread-{name}"), 1);
        let here = folder.path().display().to_string();
        let (conf, more, state) =
            (format!("{here}/server.conf"), format!("{here}/more.conf"), format!("{here}/state"));
        let config = config.replace("{here}", &here);
        fs::write(&conf, &config).unwrap();
        fs::write(&more, included).unwrap();
        let mut start = lab.machine("server").unwrap().command(command[0]);
        start.args(&command[1..]).arg(&conf).stderr(fs::File::create(format!("{here}/log")).unwrap());
        let mut server = lab.spawn(start).unwrap();
        awaited(name, TIMEOUT, || answers(&lab).then_some(()));
        fs::remove_file(&more).unwrap();

        let set = format!("service:5300:{knob}");
        let gone = format!("{more}: No such file or directory (os error 2)");
        let plan = udpath(&lab, "server", &["plan", "--set", &set]).finish();
        let line = format!(
            "not read: {gone}; what it sets is not known here, so apply refuses to change the configuration"
        );
        assert!(plan.out.lines().any(|found| found == line), "{name}: {line}\n{}", plan.out);
        let allowed = ["--restart", "true", "--allow", "config", "--allow", "restart", "--state", &state];
        let apply = udpath(&lab, "server", &[&["apply", "--set", &set][..], &allowed].concat()).finish();
        let sentence = format!(
            "udpath: the configuration of {name} (process {}) can be read but not changed: {gone}, so that it is not known as a whole\n",
            server.id()
        );
        assert_eq!((apply.code(), apply.err.as_str()), (Some(3), sentence.as_str()), "{name}: {}", apply.out);
        let undo = udpath(&lab, "server", &["undo", "--state", &state]).finish();
        ended(&undo, 3, "nothing to undo");
        assert_eq!(fs::read_to_string(&conf).unwrap(), config, "{name}");
        assert!(
            answers(&lab) && server.try_wait().unwrap().is_none(),
            "{name} was neither ended nor restarted"
        );
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
