//! A server's own configuration, changed by `udpath plan`, `apply` and `undo`: what they print, what needs consent, and
//! what is left when they are killed. Needs root.

mod database;
mod knot;
mod requests;
mod secrets;
mod seen;
mod strangers;
mod unread;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use udpath_lab::Lab;
use udpath_rig::{Ended, TIMEOUT, awaited, client_and_server};

use crate::inside::udpath;

/// How often an apply is killed, each time a little later.
const KILLS: u64 = 8;

/// A folder in which only root can change anything, as it must be for a configuration that root changes.
const ROOTS: &str = "/run";

/// nsd with a folder of drop-ins, and the script that restarts it.
struct Nsd {
    folder: TempDir,
    lab: Lab,
}

impl Nsd {
    fn start(name: &str) -> Self {
        let nsd = Self { folder: tempfile::tempdir_in(ROOTS).unwrap(), lab: client_and_server(name, 1) };
        let here = nsd.folder.path().display().to_string();
        let conf = format!(
            "server:\n  ip-address: 127.0.0.1@5300\n  username: \"\"\n  database: \"\"\n  zonesdir: {here}\n  pidfile: \"\"\n  \
             xfrdfile: {here}/xfrd\n  xfrdir: {here}\n  zonelistfile: {here}/list\n\
             remote-control:\n  control-enable: no\ninclude: \"{here}/etc/conf.d/*.conf\"\n"
        );
        fs::create_dir_all(nsd.path("etc/conf.d")).unwrap();
        fs::write(nsd.path("etc/nsd.conf"), conf).unwrap();
        fs::write(nsd.path("restart"), restarts(&here, &format!("nsd -d -c {here}/etc/nsd.conf"))).unwrap();
        let mut first = nsd.lab.machine("server").unwrap().command("/bin/sh");
        assert!(first.arg(nsd.path("restart")).status().unwrap().success());
        awaited("nsd to answer", TIMEOUT, || nsd.answers().then_some(()));
        nsd
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn drop_in(&self) -> std::path::PathBuf {
        self.path("etc/conf.d/udpath.conf")
    }

    /// Without the mark of a run of udpath, since it outlives a killed one, as the server does.
    fn restart(&self) -> String {
        format!("exec env -u UDPATH_TEST_RUN /bin/sh {}", self.path("restart").display())
    }

    /// Runs udpath beside the server.
    fn run(&self, arguments: &[&str]) -> Ended {
        udpath(&self.lab, "server", &self.with_state(arguments)).finish()
    }

    fn with_state<'a>(&self, arguments: &[&'a str]) -> Vec<&'a str> {
        let state: &'static str = self.path("state").display().to_string().leak();
        let state = if arguments[0] == "plan" { vec![] } else { vec!["--state", state] };
        [arguments, &state].concat()
    }

    /// Whether it answers a query: it refuses, since it has no zone.
    fn answers(&self) -> bool {
        answers(&self.lab)
    }

    /// Waits until no restart is at work or waits for another: the server is then found where it is looked for.
    fn ends_restarts(&self) {
        let script = self.path("restart").display().to_string();
        awaited("the restarts to end", TIMEOUT, || {
            let commands = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
            let mut commands = commands.filter_map(|path| fs::read(path).ok());
            (!commands.any(|command| String::from_utf8_lossy(&command).contains(&script))).then_some(())
        });
    }

    /// Waits until it has the processes of so many servers, and keeps them.
    fn has_servers(&self, servers: usize) {
        let group = fs::read_to_string(self.path("pid")).unwrap().trim().to_owned();
        let count = || {
            let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("stat"));
            let stats = pids.filter_map(|path| fs::read_to_string(path).ok());
            // Field 5 is the process group.
            let of = |stat: &String| stat.rsplit_once(')')?.1.split_whitespace().nth(2).map(str::to_owned);
            stats.filter(|stat| of(stat).is_some_and(|own| own == group)).count()
        };
        // Besides the main process and the one for zone transfers.
        awaited("nsd to have its processes", TIMEOUT, || {
            let first = count();
            std::thread::sleep(Duration::from_millis(300));
            (first == 2 + servers && count() == first).then_some(())
        });
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        for folder in [self.path("etc"), self.path("etc/conf.d")] {
            let files = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
            let read = |path: &Path| (path.display().to_string(), fs::read(path).unwrap());
            found.extend(files.filter(|path| path.is_file()).map(|path| read(&path)));
        }
        found.sort();
        found
    }
}

/// A script that starts a server in place of the one whose process is in the folder's file `pid`.
fn restarts(here: &str, command: &str) -> String {
    // One restart at a time: that of a killed apply goes on while the undo begins its own. An nsd that is ended while
    // it starts leaves processes behind, which a unit's control group would end too.
    format!(
        "cd {here}\nexec 9>lock; flock 9\n\
         pid=$(cat pid 2>/dev/null) && kill $pid\n\
         while [ -n \"$pid\" ] && [ -e /proc/$pid/exe ]; do sleep 0.02; done\n\
         [ -z \"$pid\" ] || kill -KILL -- -$pid 2>/dev/null\n\
         while [ -n \"$pid\" ] && pgrep -g $pid -r R,S,D > gone; do sleep 0.02; done\n\
         setsid {command} > log 2>&1 < /dev/null 9>&- &\n\
         echo $! > pid\n"
    )
}

/// Whether a server of DNS answers on the lab's machine `server`.
fn answers(lab: &Lab) -> bool {
    let query = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];
    let server: SocketAddr = "127.0.0.1:5300".parse().unwrap();
    let ask = || {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        socket.connect(server)?;
        socket.send(&query)?;
        socket.recv(&mut [0; 512])
    };
    lab.machine("server").unwrap().run(ask).unwrap().is_ok()
}

impl Drop for Nsd {
    fn drop(&mut self) {
        stop(&self.path("pid"));
    }
}

/// Ends the process whose id a file has.
fn stop(pid: &Path) {
    let text = fs::read_to_string(pid).unwrap_or_default();
    if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Checks the exit code, and that stderr says this.
fn ended(ended: &Ended, code: i32, says: &str) {
    assert_eq!(ended.code(), Some(code), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains(says), "{}", ended.err);
}

#[test]
fn a_knob_is_shown_changed_with_consent_and_put_back() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("services-way");
    let before = nsd.files();
    let restart = nsd.restart();
    let plan = nsd.run(&["plan", "--service", "5300"]);
    ended(&plan, 0, "--restart COMMAND");
    for part in ["nsd 4", "server-count", "default", "reuseport=", "+    server-count: ", "risk: "] {
        assert!(plan.out.contains(part), "{part}: {}", plan.out);
    }
    let set = ["apply", "--set", "service:5300:server-count=2"];
    let with = |more: &[&'static str]| [&set[..], more].concat();
    ended(&nsd.run(&with(&[])), 2, "allow it with --allow config");
    ended(&nsd.run(&with(&["--allow", "config"])), 3, "--restart COMMAND");
    let command = ["--restart", restart.as_str()];
    let allowed = [&set[..], &command[..], &["--allow", "config"]].concat();
    ended(&nsd.run(&allowed), 2, "allow it with --allow restart");
    ended(&nsd.run(&["plan", "--set", "service:5300:threads=2"]), 2, "it has server-count");
    assert_eq!(nsd.files(), before);

    let allowed = [&allowed[..], &["--allow", "restart"]].concat();
    let applied = nsd.run(&allowed);
    ended(&applied, 0, "applied and verified as 1");
    assert!(applied.out.contains("the server answers again"), "{}", applied.out);
    assert!(fs::read_to_string(nsd.drop_in()).unwrap().ends_with("server:\n    server-count: 2\n"));
    let plan = nsd.run(&["plan", "--set", "service:5300:server-count=2"]);
    assert!(plan.out.contains("udpath.conf:3") && !plan.out.contains("restart:"), "{}", plan.out);
    ended(&nsd.run(&["status"]), 0, "");
    ended(&nsd.run(&["undo"]), 0, "undid apply 1: all settings read back at their previous values");
    assert!(nsd.answers());
    assert_eq!(nsd.files(), before);
    // Such changes are asked for, not taken from a file.
    let plan = nsd.run(&[&["plan", "--json"], &set[1..]].concat());
    fs::write(nsd.path("plan.json"), &plan.out).unwrap();
    let file = nsd.path("plan.json").display().to_string();
    ended(&nsd.run(&["apply", &file, "--allow", "config", "--allow", "restart"]), 2, "--service");
}

/// The arguments of an apply that is allowed everything.
fn apply_with(restart: &str) -> [&str; 9] {
    let set = "service:5300:server-count=2";
    ["apply", "--set", set, "--restart", restart, "--allow", "config", "--allow", "restart"]
}

#[test]
fn an_apply_killed_at_any_moment_is_undone() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("services-kill");
    let before = nsd.files();
    let restart = nsd.restart();
    let arguments = apply_with(&restart);
    let mut written = 0;
    for turn in 0..KILLS {
        let running = udpath(&nsd.lab, "server", &nsd.with_state(&arguments));
        // The first before anything is written; the others from the moment it is, a little later each time.
        if turn > 0 {
            awaited("the file to be written", TIMEOUT, || nsd.drop_in().exists().then_some(()));
            std::thread::sleep(Duration::from_millis(60 * (turn - 1)));
        }
        running.signal(Signal::KILL);
        let _ = running.finish();
        let undone = nsd.run(&["undo"]);
        if undone.code() != Some(3) || !undone.err.contains("nothing to undo") {
            ended(&undone, 0, "undid apply");
            written += 1;
        }
        assert_eq!(nsd.files(), before, "turn {turn}");
        // The killed apply's command may still be at work, or not have begun; it starts the server with the old files.
        nsd.ends_restarts();
        awaited("nsd to answer", TIMEOUT, || nsd.answers().then_some(()));
        nsd.has_servers(1);
    }
    assert!(written >= KILLS - 1, "{written}");
}

#[test]
fn an_undo_killed_at_any_moment_is_finished_by_the_next() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("services-undo");
    let before = nsd.files();
    let restart = nsd.restart();
    for turn in 0..KILLS / 2 {
        ended(&nsd.run(&apply_with(&restart)), 0, "applied and verified");
        nsd.has_servers(2);
        let running = udpath(&nsd.lab, "server", &nsd.with_state(&["undo"]));
        awaited("the file to be removed", TIMEOUT, || (!nsd.drop_in().exists()).then_some(()));
        std::thread::sleep(Duration::from_millis(80 * turn));
        running.signal(Signal::KILL);
        let _ = running.finish();
        let again = nsd.run(&["undo"]);
        let whole = again.err.contains("nothing to undo");
        assert!(whole || again.code() == Some(0), "{}", again.err);
        nsd.ends_restarts();
        assert_eq!(nsd.files(), before);
        // The old file alone would not do: the server has read it again.
        nsd.has_servers(1);
        assert!(nsd.answers());
    }
}

#[test]
fn a_command_that_restarts_nothing_is_found_out() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("services-idle");
    let before = nsd.files();
    let said = nsd.run(&apply_with("true"));
    ended(&said, 4, "still serves 127.0.0.1:5300");
    assert!(
        said.err.contains("2 changes were undone") || said.err.contains("1 change was undone"),
        "{}",
        said.err
    );
    ended(&nsd.run(&["undo"]), 3, "nothing to undo");
    assert_eq!(nsd.files(), before);
    assert!(nsd.answers());
}

#[test]
fn a_second_program_on_the_port_changes_nothing_for_the_server() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("services-two");
    let (before, restart) = (nsd.files(), nsd.restart());
    // As systemd-resolved has port 53.
    let lines = "use Socket; socket(S, PF_INET, SOCK_DGRAM, 0) and \
                 bind(S, pack_sockaddr_in(5300, inet_aton('127.0.0.53'))) or die; sleep 600";
    let mut other = nsd.lab.machine("server").unwrap().command("perl");
    other.args(["-e", lines]);
    let mut other = nsd.lab.spawn(other).unwrap();
    let plan = awaited("the other program's socket", TIMEOUT, || {
        let plan = nsd.run(&["plan", "--service", "5300"]);
        plan.out.contains("left alone: 127.0.0.53:5300 belongs to perl").then_some(plan)
    });
    ended(&plan, 0, "--restart COMMAND");
    ended(&nsd.run(&apply_with(&restart)), 0, "applied and verified as 1");
    ended(&nsd.run(&["undo"]), 0, "undid apply 1");
    assert_eq!(nsd.files(), before);
    assert!(other.try_wait().unwrap().is_none(), "neither ended nor restarted");
    other.kill().unwrap();
    other.wait().unwrap();
}
