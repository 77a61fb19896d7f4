//! What a server's checker may do, and for how long.

use super::*;

/// The genuine FreeRADIUS as a user's, in a mount namespace where its configuration is in place.
struct Radius {
    place: Place,
    server: Child,
}

/// Made of a configuration that has a module: Perl, whose BEGIN block runs when the file is compiled.
const PERL: &str = "perl {\n\t\tfilename = FOLDER/begin.pl\n\t}\n\tpap {";

impl Radius {
    /// `owner`: whose the configuration is. The Perl file is the user's.
    fn start(name: &str, owner: u32) -> Self {
        let place = Place::new(name);
        let theirs = place.theirs.path().display().to_string();
        let unpacked = "/var/cache/udpath/freeradius";
        let text = include_str!("../../../../rig/src/freeradius/radiusd.conf");
        let text = text.replace("pap {", "PAP {").replacen("PAP {", PERL, 1).replace("PAP {", "pap {");
        let text = text.replace("LIBRARIES", &format!("{unpacked}/usr/lib/freeradius"));
        let text = text.replace("SECRET", SECRET).replace("USERS", &format!("{theirs}/users"));
        place.put("users", "a Cleartext-Password := \"b\"\n");
        place.put("begin.pl", "use strict;\nsub authorize { return 2; }\n1;\n");
        let config =
            place.put_root("etc/freeradius/3.0/radiusd.conf", &text.replace("FOLDER", &theirs), 0o644);
        for path in [config.parent().unwrap(), &config] {
            chown(path, Some(owner), Some(owner)).unwrap();
        }
        let script = format!(
            "mount --bind {root}/etc/freeradius /etc/freeradius && exec setpriv --reuid={USER} --regid={USER} \
             --clear-groups -- {unpacked}/usr/sbin/freeradius -f -l stdout -d /etc/freeradius/3.0",
            root = place.root.path().display()
        );
        let mut command = place.lab.machine("server").unwrap().command("unshare");
        command.args(["--mount", "--propagation", "private", "--", "sh", "-c", &script]);
        let log = fs::File::create(place.root("log")).unwrap();
        let server =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        awaited("FreeRADIUS to be ready", TIMEOUT, || {
            let log = fs::read_to_string(place.root("log")).unwrap();
            assert!(!log.contains("Errors reading"), "{log}");
            log.contains("Ready to process requests").then_some(())
        });
        Self { place, server }
    }

    /// From now on, the BEGIN block does this: who reads the file again runs it.
    fn begin(&self, does: &str) {
        self.place.put("begin.pl", &format!("BEGIN {{ {does} }}\nsub authorize {{ return 2; }}\n1;\n"));
    }

    /// An apply beside the server, that is allowed everything.
    fn apply(&self) -> udpath_rig::Running {
        let pid = self.server.id();
        let mut command = self.place.lab.machine("server").unwrap().command("nsenter");
        command.args([&format!("--mount=/proc/{pid}/ns/mnt"), "--"]).arg(udpath_rig::program());
        command.args(["apply", "--set", &format!("service:pid/{pid}:max_servers=4"), "--state"]);
        command.arg(self.place.root("state")).args(ALLOWED);
        start(&self.place.lab, command, "apply beside FreeRADIUS")
    }

    fn config(&self) -> String {
        fs::read_to_string(self.place.root("etc/freeradius/3.0/radiusd.conf")).unwrap()
    }
}

impl Drop for Radius {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn what_a_servers_user_has_a_checker_do_is_done_as_that_user() {
    udpath_lab::needs_root!();
    // The uid, the capabilities that could be had, and the interfaces.
    let begin = |path: &str| {
        format!(
            r#"open(my $f, '>>', '{path}'); print $f $>, ' ', `grep CapBnd /proc/self/status`,
               `ls -d /proc/sys/net/ipv4/conf/* | grep -vE 'all|default|lo'`; close $f;"#
        )
    };
    let mut radius = Radius::start("strange-check", 0);
    radius.begin(&begin(&radius.place.theirs("ran").display().to_string()));
    let before = radius.config();
    let applied = radius.apply().finish();
    // The checker has accepted it; `true` restarts nothing.
    ended(&applied, 4, "did not restart freeradius");
    let ran = fs::read_to_string(radius.place.theirs("ran")).unwrap();
    let (uid, rest) = ran.split_once(' ').unwrap();
    assert_eq!(uid, USER.to_string(), "{ran}");
    assert_eq!(rest, "CapBnd:\t0000000000000000\n", "no capability, no interface");
    assert_eq!(radius.config(), before);
    radius.server.kill().unwrap();

    // What the user may change, root does not: nothing of it is even checked.
    let radius = Radius::start("strange-owned", USER);
    radius.begin(&begin(&radius.place.theirs("ran").display().to_string()));
    let before = radius.config();
    ended(&radius.apply().finish(), 3, "others than root can change it");
    assert!(!radius.place.theirs("ran").exists());
    assert_eq!(radius.config(), before);
}

/// A terminal is a way to type what root then does; a descriptor is open for what the user could not open.
#[test]
fn a_checker_has_no_terminal_and_no_descriptor_of_the_caller() {
    udpath_lab::needs_root!();
    let radius = Radius::start("strange-terminal", 0);
    let (typed, kept) = (radius.place.root("typed"), radius.place.root("kept"));
    // TIOCSTI is 0x5412 (asm-generic/ioctls.h).
    radius.begin(&format!(
        r#"my $has = ''; if (open(my $t, '+>', '/dev/tty')) {{ $has = 'a terminal'; print $t "\\e[2J";
           for my $c (split //, " echo > {}\\n") {{ ioctl($t, 0x5412, my $x = $c) }} }}
           if (open(my $k, '>>&=', 9)) {{ syswrite $k, 'more' }}
           open(my $f, '>', '{}'); print $f $has, join(' ', grep {{ m!kept|/dev/pts|tty! }} map {{ readlink "/proc/self/fd/$_" }} 3 .. 99);
           close $f;"#,
        typed.display(),
        radius.place.theirs("ran").display(),
    ));
    fs::write(&kept, "root's").unwrap();
    // A shell of root's on a terminal, which holds a file as a script holds a lock.
    let pid = radius.server.id();
    let line = format!(
        "exec 9>>{}; nsenter --mount=/proc/{pid}/ns/mnt -- {} apply --set service:pid/{pid}:max_servers=4 --state {} {}",
        kept.display(),
        udpath_rig::program().display(),
        radius.place.root("state").display(),
        ALLOWED.join(" "),
    );
    let mut command = radius.place.lab.machine("server").unwrap().command("script");
    command.args(["--quiet", "--return", "--command", "sh -i", "/dev/null"]);
    let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = shell.stdin.take().unwrap();
    writeln!(keys, "{line}; exit").unwrap();
    let mut said = String::new();
    shell.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    shell.wait().unwrap();
    let ran =
        fs::read_to_string(radius.place.theirs("ran")).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(ran, "", "{said}");
    assert!(!typed.exists(), "{said}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "root's");
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

/// Who is given the checker's output keeps it open for as long as it likes.
#[test]
fn an_apply_waits_for_its_checker_and_for_nobody_that_has_its_output() {
    udpath_lab::needs_root!();
    let radius = Radius::start("strange-output", 0);
    let socket = radius.place.theirs("socket").display().to_string();
    let python = |text: &str| text.replace("SOCKET", &socket);
    let holds = python(
        "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('SOCKET'); s.listen(); print(flush=True); \
         held = socket.recv_fds(s.accept()[0], 1, 2); print(len(held[1]), flush=True); time.sleep(300)",
    );
    let mut holder = Command::new("setpriv");
    holder.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups", "--"]);
    holder.args(["/usr/bin/python3", "-c", &holds]);
    let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
    let mut held = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(held.next().as_deref(), Some(""), "it listens");
    let sends = python(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('SOCKET'); socket.send_fds(s, [b'x'], [1, 2])",
    );
    radius.begin(&format!(r#"system('/usr/bin/python3', '-c', "{sends}");"#));
    // Within its deadline, which is shorter than the sleep.
    ended(&radius.apply().finish(), 4, "did not restart freeradius");
    assert_eq!(held.next().as_deref(), Some("2"), "the checker's output is held");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_checker_ends_with_the_apply_that_runs_it() {
    udpath_lab::needs_root!();
    let radius = Radius::start("strange-signal", 0);
    let mark = format!("300.{}", std::process::id());
    let begun = radius.place.theirs("begun");
    radius.begin(&format!(
        "$SIG{{TERM}} = 'IGNORE'; if (!fork) {{ setpgrp; exec 'sleep', '{mark}' }} open(my $f, '>', '{}'); close $f; sleep 300;",
        begun.display()
    ));
    let children = || {
        let lines = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line) == format!("sleep\0{mark}\0")).count()
    };
    for signal in [Signal::TERM, Signal::KILL] {
        let running = radius.apply();
        awaited("the checker to begin", TIMEOUT, || (begun.exists() && children() == 1).then_some(()));
        running.signal(signal);
        let _ = running.finish();
        awaited("the checker's children to end", TIMEOUT, || (children() == 0).then_some(()));
        let state = radius.place.root("state").display().to_string();
        ended(&radius.place.run(&["undo", "--state", &state]), 3, "nothing to undo");
        fs::remove_file(&begun).unwrap();
    }
}
