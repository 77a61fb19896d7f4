//! SNMP: Debian's snmpd answers every version, level and operation of the load, over every engine; what it refuses is
//! counted, and a user that it does not accept is named before the run. Needs root.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Ended, Run, Running, TIMEOUT, client_and_server, program};

use crate::inside::addresses;

/// Extracted by scripts/setup.sh: the package would start an agent.
const SNMPD: &str = "/var/cache/udpath/snmpd";
const PORT: u16 = 161;
/// The password of every authentication, and of every encryption.
const AUTH_PASSWORD: &str = "maplesyrup";
const PRIV_PASSWORD: &str = "honeydew";
/// Users of the agent: name, hash as net-snmp and as udpath call it. Each has an encrypted sibling, its name followed
/// by p.
const USERS: [(&str, &str, &str); 5] = [
    ("u1", "SHA", "sha"),
    ("u224", "SHA-224", "sha224"),
    ("u256", "SHA-256", "sha256"),
    ("u384", "SHA-384", "sha384"),
    ("u512", "SHA-512", "sha512"),
];
const SYS_UP_TIME: &str = "1.3.6.1.2.1.1.3.0";
const SYS_NAME: &str = "1.3.6.1.2.1.1.5.0";
/// Below it are the columns of the interfaces' table.
const IF_TABLE: &str = "1.3.6.1.2.1.2.2.1";

/// An agent on the lab's server; its files are removed when it is dropped.
struct Agent {
    daemon: Running,
    _files: tempfile::TempDir,
}

impl Agent {
    fn start(lab: &Lab) -> Self {
        assert!(std::path::Path::new(SNMPD).exists(), "no {SNMPD}: scripts/setup.sh extracts it");
        let files = tempfile::tempdir().unwrap();
        let config = files.path().join("snmpd.conf");
        let mut text = String::from(
            "rocommunity public\nrocommunity6 public\nsysName agent\ncreateUser guest\nrouser guest noauth\n",
        );
        for (name, hash, _) in USERS {
            text += &format!("createUser {name} {hash} {AUTH_PASSWORD}\nrouser {name} auth\n");
            text += &format!(
                "createUser {name}p {hash} {AUTH_PASSWORD} AES {PRIV_PASSWORD}\nrouser {name}p priv\n"
            );
        }
        fs::write(&config, text).unwrap();
        let mut inside = lab.machine("server").unwrap().command(SNMPD);
        inside.env("SNMP_PERSISTENT_DIR", files.path()).args(["-f", "-Le", "-C", "-c"]).arg(&config);
        inside.args([format!("udp:0.0.0.0:{PORT}"), format!("udp6:[::]:{PORT}")]);
        let run = Run::of(inside, "snmpd").within(TIMEOUT * 4);
        let mut daemon = run.start_with(|command| lab.spawn(command));
        daemon.says("NET-SNMP version");
        Self { daemon, _files: files }
    }

    fn end(self) {
        self.daemon.signal(Signal::TERM);
        assert_eq!(self.daemon.finish().code(), Some(0));
    }
}

/// `udpath load snmp` on the lab's client.
fn load(lab: &Lab, target: SocketAddr, more: &[&str]) -> Ended {
    let target = target.to_string();
    let arguments = [&["load", "snmp", &target, "--flows", "3", "-d", "300ms", "--json"], more].concat();
    let mut inside = lab.machine("client").unwrap().command(program());
    inside.args(&arguments);
    let run = Run::of(inside, &arguments.join(" ")).within(TIMEOUT);
    run.start_with(|command| lab.spawn(command)).finish()
}

/// The counts of a load whose every reply must have been valid.
fn valid(ended: &Ended, what: &str) -> Value {
    assert_eq!(ended.code(), Some(0), "{what}: {}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let counts = result["counts"].clone();
    assert!(counts["ok"].as_u64().unwrap() > 10, "{what}: {counts}");
    for wrong in ["refused", "corrupt", "duplicate", "wrong_flow", "lost"] {
        assert_eq!(counts[wrong], 0, "{what}: {counts}");
    }
    counts
}

fn secret(kind: &str, password: &str) -> String {
    format!("{kind}:{password}")
}

#[test]
fn snmpd_answers_every_engine() {
    udpath_lab::needs_root!();
    let lab = client_and_server("snmp-load", 2);
    let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
    let agent = Agent::start(&lab);
    let (auth, privacy) = (secret("sha256", AUTH_PASSWORD), secret("aes", PRIV_PASSWORD));
    let private = ["--user", "u256p", "--auth", &auth, "--priv", &privacy];
    for address in addresses(&lab) {
        let target = SocketAddr::new(address, PORT);
        for engine in ["socket", "kernel", "xdp", "xdp-rings"] {
            for asker in [&[][..], &private] {
                let more = [&["--engine", engine], asker].concat();
                valid(&load(&lab, target, &more), &format!("{address} {more:?}"));
            }
        }
    }
    agent.end();
    drop(napi);
    lab.down().unwrap();
}

#[test]
fn snmpd_answers_every_user_and_operation() {
    udpath_lab::needs_root!();
    let lab = client_and_server("snmp-users", 1);
    let napi = lab.machine("server").unwrap().towards("client").unwrap().ensure_napi().unwrap();
    let agent = Agent::start(&lab);
    let target = SocketAddr::new(addresses(&lab)[0], PORT);
    let privacy = secret("aes", PRIV_PASSWORD);
    valid(&load(&lab, target, &["--user", "guest"]), "guest");
    for (name, _, hash) in USERS {
        let auth = secret(hash, AUTH_PASSWORD);
        valid(&load(&lab, target, &["--user", name, "--auth", &auth]), name);
        let name = format!("{name}p");
        valid(&load(&lab, target, &["--user", &name, "--auth", &auth, "--priv", &privacy]), &name);
    }
    let files = tempfile::tempdir().unwrap();
    let list = files.path().join("oids");
    fs::write(
        &list,
        format!(
            "# of all kinds\n{SYS_UP_TIME} {SYS_NAME}\ngetnext {SYS_UP_TIME} {IF_TABLE}\n\
             getbulk {IF_TABLE}.2 {IF_TABLE}.10\ngetbulk {SYS_UP_TIME}\n"
        ),
    )
    .unwrap();
    let list = list.to_str().unwrap();
    let auth = secret("sha", AUTH_PASSWORD);
    for asker in [&[][..], &["--user", "u1p", "--auth", &auth, "--priv", &privacy]] {
        for operation in ["get", "getnext", "getbulk"] {
            let more = [&["--operation", operation], asker].concat();
            valid(&load(&lab, target, &more), operation);
        }
        for engine in ["socket", "kernel"] {
            let more = [&["--oids", list, "--max-repetitions", "5", "--engine", engine], asker].concat();
            valid(&load(&lab, target, &more), engine);
        }
    }
    agent.end();
    drop(napi);
    lab.down().unwrap();
}

/// Two agents, each with its own engine: every flow's requests are for the one that it reaches.
#[test]
fn each_agent_is_asked_as_itself() {
    udpath_lab::needs_root!();
    let lab = client_and_server("snmp-two", 1);
    let agent = Agent::start(&lab);
    let [v4, _] = addresses(&lab);
    let other = {
        let files = tempfile::tempdir().unwrap();
        let config = files.path().join("snmpd.conf");
        let text = format!("engineID another\ncreateUser u1 SHA {AUTH_PASSWORD}\nrouser u1 auth\n");
        fs::write(&config, text).unwrap();
        let mut inside = lab.machine("server").unwrap().command(SNMPD);
        inside.env("SNMP_PERSISTENT_DIR", files.path()).args(["-f", "-Le", "-C", "-c"]).arg(&config);
        inside.arg("udp:0.0.0.0:1161");
        let run = Run::of(inside, "snmpd").within(TIMEOUT * 4);
        let mut daemon = run.start_with(|command| lab.spawn(command));
        daemon.says("NET-SNMP version");
        Agent { daemon, _files: files }
    };
    let auth = secret("sha", AUTH_PASSWORD);
    let second = SocketAddr::new(v4, 1161).to_string();
    let more = [second.as_str(), "--user", "u1", "--auth", &auth];
    valid(&load(&lab, SocketAddr::new(v4, PORT), &more), "two agents");
    other.end();
    agent.end();
    lab.down().unwrap();
}

#[test]
fn refusals_are_counted_and_no_measurement() {
    udpath_lab::needs_root!();
    let lab = client_and_server("snmp-refused", 1);
    let agent = Agent::start(&lab);
    let target = SocketAddr::new(addresses(&lab)[0], PORT);
    let files = tempfile::tempdir().unwrap();
    let list = files.path().join("oids");
    // No such instance and no such object; nothing comes after the last; the second line is answered.
    for (text, some, name) in [
        (format!("{SYS_UP_TIME}.7\n{SYS_UP_TIME}\n"), true, "noSuchInstance"),
        ("1.3.6.1.2.1.77777.1\n".to_owned(), false, "noSuchObject"),
        ("getnext 2.999\n".to_owned(), false, "endOfMibView"),
        ("getbulk 2.999\n".to_owned(), false, "endOfMibView"),
    ] {
        fs::write(&list, &text).unwrap();
        let ended = load(&lab, target, &["--oids", list.to_str().unwrap()]);
        let result: Value = serde_json::from_str(&ended.out).unwrap();
        let counts = &result["counts"];
        let [ok, refused] = ["ok", "refused"].map(|name| counts[name].as_u64().unwrap());
        assert!(refused > 10 && counts["corrupt"] == 0, "{text}: {counts}");
        // Every other one, in each of three flows.
        assert!(if some { ok.abs_diff(refused) <= 3 } else { ok == 0 }, "{text}: {counts}");
        let kinds = result["kinds"].as_array().unwrap();
        let refusals: Vec<_> = kinds.iter().filter(|kind| kind["refused"] != Value::Null).collect();
        assert_eq!(refusals.iter().map(|kind| &kind["name"]).collect::<Vec<_>>(), [name], "{text}");
    }
    agent.end();
    lab.down().unwrap();
}

#[test]
fn users_that_are_not_accepted_are_named() {
    udpath_lab::needs_root!();
    let lab = client_and_server("snmp-wrong", 1);
    let agent = Agent::start(&lab);
    let target = SocketAddr::new(addresses(&lab)[0], PORT);
    let (auth, privacy) = (secret("sha", AUTH_PASSWORD), secret("aes", PRIV_PASSWORD));
    for (more, said) in [
        (&["--user", "nobody"][..], "refuses user nobody: it does not know this name"),
        (
            &["--user", "u1", "--auth", "sha:another password"],
            "refuses user u1: the password or the hash of --auth is wrong",
        ),
        (
            &["--user", "u256", "--auth", &auth],
            "refuses user u256: the password or the hash of --auth is wrong",
        ),
        (
            &["--user", "u1", "--auth", &auth, "--priv", &privacy],
            "does not allow this user what --auth and --priv ask for",
        ),
        (
            &["--user", "u1p", "--auth", &auth, "--priv", "aes:another password"],
            "so the password of --priv is probably wrong",
        ),
    ] {
        let ended = load(&lab, target, more);
        assert_eq!(ended.code(), Some(3), "{more:?}: {} {}", ended.err, ended.out);
        udpath_rig::one_sentence(&more.join(" "), &ended.err);
        assert!(ended.err.contains(said), "{more:?}: {}", ended.err);
    }
    // Of a community that it does not know, an agent says nothing.
    let ended = load(&lab, target, &["--community", "private", "--timeout", "100ms"]);
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    assert!(ended.err.contains("answered none of"), "{}", ended.err);
    agent.end();
    lab.down().unwrap();
}

#[test]
fn wrong_options_are_named() {
    let files = tempfile::tempdir().unwrap();
    let list = files.path().join("oids");
    fs::write(&list, format!("{SYS_UP_TIME}\ngetnext sysUpTime.0\n")).unwrap();
    let list = list.to_str().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let target = silent.local_addr().unwrap().to_string();
    for (more, said) in [
        (&["--oids", list][..], "line 2: `sysUpTime` in `sysUpTime.0` is not a number"),
        (&["--operation", "set"], "invalid --operation set: expected get, getnext or getbulk"),
        (&["--priv", "aes:honeydew"], "--priv needs --user"),
        (&["--auth", "md5:maplesyrup", "--user", "joe"], "invalid --auth md5:..."),
        (&["--stratum", "3"], "--stratum"),
        (&["--size", "20"], "payload size 20 is too small for snmp"),
        (&["--mode", "flood"], "snmp does not support --mode flood"),
        (&["--engine", "kernel", "--flows", "9000"], "at most 8192 requests in flight over all flows"),
    ] {
        let arguments = [&["load", "snmp", &target], more].concat();
        let ended = Run::new(&arguments).finish();
        assert_eq!(ended.code(), Some(2), "{more:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{more:?}: {}", ended.err);
    }
    for (arguments, said) in [
        (&["load", "snmp", "--lab"][..], "--lab makes its own servers, and udpath has none of snmp"),
        (&["serve", "snmp", "--bind", "127.0.0.1:0"], "invalid value 'snmp'"),
        (
            &["load", "echo", &target, "--community", "x"],
            "--community is an option of snmp, not of echo: remove it",
        ),
    ] {
        let ended = Run::new(arguments).finish();
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    assert!(silent.recv(&mut [0; 64]).is_err(), "nothing was sent");
}
