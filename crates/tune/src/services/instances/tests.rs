use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn an_option_is_replaced_in_every_form_or_added() {
    let names = ["-c".to_owned(), "--config".to_owned()];
    for (line, after) in [
        ("s -x -c /a", "s -x -c /b"),
        ("s -c/a -d", "s -c/b -d"),
        ("s --config=/a", "s --config=/b"),
        ("s --config /a", "s --config /b"),
        ("s -d", "s -c /b -d"),
        ("s", "s -c /b"),
    ] {
        let mut command = words(line);
        set_option(&mut command, &names, "/b");
        assert_eq!(command, words(after), "{line}");
    }
}

#[test]
fn what_has_state_to_share_is_refused_with_the_reason() {
    for (line, says) in [
        ("/usr/sbin/nsd -d", "set server-count"),
        ("knotd", "locks its databases"),
        ("/usr/bin/turnserver", "allocation"),
        ("chronyd -d", "start it with -x: only one process may set the clock"),
        ("chronyd -x", "start it with -d or -n"),
        ("rsyslogd -i /x", "start it with -n"),
        ("nfcapd -D -w /flows/{n}", "start it without -D: it must stay in the foreground"),
        ("nfcapd -w /flows -p 2055", "as in -w /var/cache/nfdump/{n}"),
        ("nfcapd -w/flows/{n} -P /run/nfcapd.pid", "as in -P {folder}/nfcapd.pid"),
    ] {
        let error = Instances::of_command(&words(line)).unwrap_err().to_string();
        assert!(error.contains("cannot be multiplied") && error.contains(says), "{line}: {error}");
    }
    for line in ["python3 server.py", "", "/opt/nsd/other"] {
        assert!(Instances::of_command(&words(line)).unwrap().is_none(), "{line}");
    }
    let chrony = Profile::named("chrony").unwrap();
    let clock = Instances::of_text(chrony, &["chronyd"], "allow\nrefclock PHC /dev/ptp0\n");
    let error = clock.check_lines(&chrony.instances).unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    let rsyslog = Profile::named("rsyslog").unwrap();
    for (text, refused) in [
        ("module(load=\"imuxsock\")\n", true),
        ("module(load=\"imudp\")\ninput(type=\"imudp\" port=\"514\")\n", false),
    ] {
        let instances = Instances::of_text(rsyslog, &["rsyslogd"], text);
        assert_eq!(instances.check_lines(&rsyslog.instances).is_err(), refused, "{text}");
    }
}

#[test]
fn a_server_without_a_configuration_file_has_its_arguments() {
    for (line, ports) in [("nfcapd -w /flows/{n}", 9995), ("/opt/nfcapd -p 2055 -w /flows/{n}", 2055)] {
        let instances = Instances::of_command(&words(line)).unwrap().unwrap();
        assert_eq!(instances.ports(), [ports]);
        assert_eq!(instances.prepare(2, Path::new("/nonexistent")).unwrap(), words(line));
    }
}

#[test]
fn each_instance_has_a_configuration_and_the_original_is_untouched() {
    let root = tempfile::tempdir().unwrap();
    let original = root.path().join("server.conf");
    let text = "port 11123\npidfile /run/chrony/chronyd.pid";
    fs::write(&original, text).unwrap();
    fs::set_permissions(&original, Permissions::from_mode(0o640)).unwrap();
    let command = words(&format!("chronyd -x -d -f {}", original.display()));
    let instances = Instances::of_command(&command).unwrap().unwrap();
    assert_eq!((instances.server(), instances.ports()), ("chrony", vec![11123]));
    let folder = root.path().join("2");
    fs::create_dir(&folder).unwrap();
    let command = instances.prepare(2, &folder).unwrap();
    let copy = folder.join("server.conf");
    assert_eq!(command, words(&format!("chronyd -x -d -f {}", copy.display())));
    let lines = fs::read_to_string(&copy).unwrap();
    // The last line of a key is the one that counts.
    assert!(
        lines.starts_with(text) && lines.contains(&format!("\npidfile {}/chronyd.pid\n", folder.display()))
    );
    assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::read_to_string(&original).unwrap(), text);
    // The server's user has the folder, and may put anything where the next copy goes.
    let shadow = root.path().join("shadow");
    fs::write(&shadow, "secret").unwrap();
    fs::remove_file(&copy).unwrap();
    symlink(&shadow, &copy).unwrap();
    assert!(instances.prepare(2, &folder).is_err());
    assert_eq!(fs::read_to_string(&shadow).unwrap(), "secret");
}

#[test]
fn a_folder_is_copied_as_links_around_the_main_file() {
    let root = tempfile::tempdir().unwrap();
    let raddb = root.path().join("raddb");
    fs::create_dir_all(raddb.join("mods-enabled")).unwrap();
    fs::write(raddb.join("users"), "bob").unwrap();
    fs::write(raddb.join("radiusd.conf"), "run_dir = ${localstatedir}/run\nlog {\n\tpidfile = x\n}\n")
        .unwrap();
    let command = words(&format!("freeradius -f -d {}", raddb.display()));
    let instances = Instances::of_command(&command).unwrap().unwrap();
    assert!(instances.ports() == [1812, 1813] && instances.flow_state().is_some());
    let folder = root.path().join("1");
    fs::create_dir(&folder).unwrap();
    let command = instances.prepare(1, &folder).unwrap();
    let (own, copy) = (folder.display(), folder.join("raddb"));
    assert_eq!(command, words(&format!("freeradius -f -d {}", copy.display())));
    assert_eq!(
        fs::read_to_string(copy.join("radiusd.conf")).unwrap(),
        format!("pidfile = {own}/freeradius.pid\nrun_dir = {own}\nlog {{\n\tpidfile = x\n}}\n")
    );
    assert_eq!(fs::read_to_string(copy.join("users")).unwrap(), "bob");
    assert!(copy.join("mods-enabled").is_dir());
}
