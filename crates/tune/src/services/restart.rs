//! Restarting a server, and finding out whether it came back.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_host::source::Folder;
use udpath_host::{UnitName, process};

use super::multiplied::VARIABLE;
use super::profile::Profile;
use super::recognise;
use crate::machine::Identity;

/// How long a command may take. systemd itself gives up on a unit after 90 s; a command that takes longer hangs.
const COMMAND: Duration = Duration::from_secs(100);
/// How long a server may take until it answers. Large zones load for seconds; much longer keeps a failed server down
/// before it is rolled back.
const ANSWERS: Duration = Duration::from_secs(15);
/// Pause between two looks at a running command.
const POLL: Duration = Duration::from_millis(20);
/// Most bytes that are shown of what a program printed last.
const WORDS: usize = 600;
/// Most bytes of a program's output that are read: systemctl writes some kB.
const OUTPUT: u64 = 1 << 20;

/// The variable of a restart command that has the processes that serve now, without their workers: what to end first.
pub(super) const PIDS: &str = "UDPATH_PID";
/// What the text of a restart by systemd begins with.
const BY_SYSTEMD: &str = "systemctl restart ";

/// A restart command of a server that nobody watches: it ends what serves, waits until that has ended, and starts it
/// again. `folder`: `cd FOLDER && ` or nothing; `line`: its command line for a shell.
#[must_use]
pub fn started_again(folder: &str, line: &str) -> String {
    let wait = format!("while kill -0 ${PIDS}; do sleep 0.1; done 2>/dev/null");
    format!("kill ${PIDS} && {{ {wait}; {folder}setsid -f {line} </dev/null >/dev/null 2>&1; }}")
}

/// How a server is restarted, and where it is asked afterwards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Restart {
    /// The server, by the name of its profile.
    pub server: String,
    /// Where it answers.
    pub address: SocketAddr,
    /// What restarts it.
    pub by: By,
}

/// What restarts a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// systemd, its unit: no shell reads the name.
    Unit(UnitName),
    /// The operator's own command, for `/bin/sh -c`.
    Command(String),
}

impl By {
    /// The command of an operator or of the journal. `systemctl restart NAME` for one service is systemd's own.
    #[must_use]
    pub fn of(command: &str) -> Self {
        let unit = command.strip_prefix(BY_SYSTEMD).and_then(|unit| unit.parse().ok());
        unit.map_or_else(|| Self::Command(command.to_owned()), Self::Unit)
    }

    /// The program to run. `prefix` and `pids`: what a command has in its variables.
    fn program(&self, prefix: &str, pids: &str) -> Command {
        match self {
            Self::Unit(unit) => {
                let mut systemctl = Command::new("systemctl");
                systemctl.args(["--no-ask-password", "restart", "--"]).arg(unit);
                systemctl
            }
            Self::Command(command) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(command).env(VARIABLE, prefix).env(PIDS, pids);
                shell
            }
        }
    }
}

/// The command; that of a unit is the same text in every journal.
impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(unit) => write!(f, "{BY_SYSTEMD}{unit}"),
            Self::Command(command) => f.write_str(command),
        }
    }
}

/// `nsd@127.0.0.1:53 systemctl restart nsd.service`
impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} {}", self.server, self.address, self.by)
    }
}

impl Restart {
    /// The inverse of its display; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (server, rest) = text.split_once('@')?;
        let (address, command) = rest.split_once(' ')?;
        let known = Profile::named(server).is_some() && !command.trim().is_empty();
        let address = address.parse().ok()?;
        known.then(|| Self { server: server.to_owned(), address, by: By::of(command) })
    }

    /// Runs the command, and waits until the server answers, in so many instances if that was asked for. It must be
    /// another process than before: a server that only reloads keeps its sockets and threads.
    ///
    /// # Errors
    /// The command failed (what it printed last); or the server does not answer; or it was not restarted, or not in
    /// instances.
    pub fn run(&self, instances: Option<usize>) -> Result<(), String> {
        let before = self.serving();
        let command = self.by.to_string();
        let program = self.by.program(&self.prefix(instances)?, &pids(&before));
        let (status, said) =
            finished(program, COMMAND).map_err(|error| format!("cannot run {command:?}: {error}"))?;
        match status {
            None => return Err(format!("{command:?} did not end within {} s", COMMAND.as_secs())),
            Some(status) if !status.success() => {
                let said = if said.is_empty() { "nothing".to_owned() } else { said };
                return Err(format!("{command:?} failed ({status}) and said: {said}"));
            }
            Some(_) => {}
        }
        let profile =
            Profile::named(&self.server).ok_or_else(|| format!("no server is called {}", self.server))?;
        let silent = |why| format!("{} does not answer after {command:?}: {why}", self.server);
        profile.probe.wait(self.address, ANSWERS).map_err(silent)?;
        match self.serving().iter().find(|process| before.contains(process)) {
            Some(process) => Err(format!(
                "{command:?} did not restart {}: {process} still serves {}",
                self.server, self.address
            )),
            None => self.in_instances(instances.unwrap_or(1)).and_then(|()| self.tidy(profile)),
        }
    }

    /// Waits until so many processes serve the address. One needs no wait: it answers.
    fn in_instances(&self, count: usize) -> Result<(), String> {
        let until = Instant::now() + ANSWERS;
        while count > 1 && self.serving().len() < count {
            if Instant::now() >= until {
                return Err(format!(
                    "{:?} did not start {} in {count} instances within {} s; does it have ${VARIABLE} before the server's program?",
                    self.by.to_string(),
                    self.server,
                    ANSWERS.as_secs()
                ));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Detaches the XDP program that the old process left, unless the new one uses it.
    fn tidy(&self, profile: &Profile) -> Result<(), String> {
        let Some(program) = &profile.xdp_program else { return Ok(()) };
        let servers = process::answering(&Folder::live(), self.address).unwrap_or_default();
        let uses = |pid: u32| recognise(pid).is_ok_and(|service| service.uses_xdp());
        if servers.iter().any(|server| uses(server.pid)) {
            return Ok(());
        }
        let detached = udpath_bpf::detach_leftover(program);
        detached.map(drop).map_err(|error| {
            format!(
                "cannot detach the XDP program {program} that {} left: {}",
                self.server,
                Report::new(error)
            )
        })
    }

    /// The first processes of the servers at the address. Another program may have the same port at another address.
    pub(crate) fn serving(&self) -> Vec<Identity> {
        let servers = process::answering(&Folder::live(), self.address).unwrap_or_default();
        let first = |pid: u32| {
            let started = process::Thread::look(pid, pid).ok()?.id.started;
            Some(Identity::Process { pid, started })
        };
        servers.iter().filter_map(|server| first(server.pid)).collect()
    }
}

/// The value of the variable [`PIDS`].
pub(super) fn pids(serving: &[Identity]) -> String {
    let pid = |process: &Identity| match process {
        Identity::Process { pid, .. } => Some(pid.to_string()),
        _ => None,
    };
    serving.iter().filter_map(pid).collect::<Vec<_>>().join(" ")
}

/// Runs a program until it ends; returns its status, and the end of what it wrote. `None`: it did not end within the
/// limit, and was killed.
///
/// It writes to a file, not to a pipe: a server that it starts keeps the other end open.
pub(crate) fn finished(command: Command, limit: Duration) -> io::Result<(Option<ExitStatus>, String)> {
    let (status, mut output) = run(command, limit)?;
    Ok((status, last_words(&mut output)?))
}

/// The same with all that it wrote, up to a limit.
pub(crate) fn output(command: Command, limit: Duration) -> io::Result<(Option<ExitStatus>, String)> {
    let (status, mut output) = run(command, limit)?;
    output.rewind()?;
    let mut bytes = Vec::new();
    output.take(OUTPUT).read_to_end(&mut bytes)?;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

fn run(mut command: Command, limit: Duration) -> io::Result<(Option<ExitStatus>, File)> {
    let output = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    // ^C and timeout(1) signal the caller's process group as well: the command that restores a server must survive
    // that.
    command.process_group(0);
    let mut child = command.spawn()?;
    let until = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(POLL);
    };
    Ok((status, output))
}

/// The end of a file, on one line.
fn last_words(file: &mut File) -> io::Result<String> {
    let len = file.seek(io::SeekFrom::End(0))?;
    file.seek(io::SeekFrom::Start(len.saturating_sub(WORDS as u64)))?;
    let mut bytes = Vec::new();
    file.take(WORDS as u64).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn restart(command: &str) -> Restart {
        Restart { server: "nsd".into(), address: "127.0.0.1:9".parse().unwrap(), by: By::of(command) }
    }

    #[test]
    fn names_round_trip() {
        for address in ["127.0.0.1:53", "[::1]:53"] {
            let one = Restart { address: address.parse().unwrap(), ..restart("sh -c 'a @ b'") };
            assert_eq!(Restart::parse(&one.to_string()), Some(one));
        }
        for bad in
            ["", "nsd", "nsd@127.0.0.1:53", "nsd@127.0.0.1:53  ", "nsd@host:53 x", "apache@127.0.0.1:53 x"]
        {
            assert_eq!(Restart::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn no_shell_reads_the_name_of_a_unit() {
        // As version 0.1 wrote it.
        let old = "nsd@127.0.0.1:53 systemctl restart nsd@eth0.service";
        let restart = Restart::parse(old).unwrap();
        assert_eq!(restart.by, By::Unit("nsd@eth0.service".parse().unwrap()));
        assert_eq!(restart.to_string(), old);
        let program = restart.by.program("prefix", "812");
        assert_eq!(program.get_program(), "systemctl");
        let words: Vec<_> = program.get_args().collect();
        assert_eq!(words, ["--no-ask-password", "restart", "--", "nsd@eth0.service"]);
        for own in [
            "systemctl restart nsd",
            "systemctl restart a.service b.service",
            "systemctl restart x;id>pwned;.service",
            "systemctl restart --force.service",
            "systemctl restart *.service",
            "systemctl  restart nsd.service",
        ] {
            assert_eq!(By::of(own), By::Command(own.to_owned()));
        }
    }

    /// Nothing serves there: a command that ends a process first must not start another one.
    #[test]
    fn a_command_knows_what_serves() {
        let said = restart("echo \"pid $UDPATH_PID.\"; exit 3").run(None).unwrap_err();
        assert!(said.contains("and said: pid ."), "{said}");
        let said = restart(&started_again("", "nsd -d")).run(None).unwrap_err();
        assert!(said.contains("failed (exit status: "), "{said}");
        let known = [Identity::Process { pid: 812, started: 1 }, Identity::Process { pid: 9, started: 2 }];
        assert_eq!(pids(&known), "812 9");
    }

    #[test]
    fn a_failed_command_is_quoted_with_its_last_words() {
        let said = restart("echo no such zone >&2; exit 3").run(None).unwrap_err();
        assert!(said.contains("exit status: 3") && said.contains("no such zone"), "{said}");
    }

    #[test]
    fn a_command_that_hangs_is_ended_and_its_children_do_not_matter() {
        let mut sleeping = Command::new("sleep");
        sleeping.arg("60");
        assert_eq!(finished(sleeping, Duration::from_millis(50)).unwrap().0, None);
        let mut leaving = Command::new("sh");
        leaving.args(["-c", "sleep 1 & echo left"]);
        let (status, said) = finished(leaving, Duration::from_secs(10)).unwrap();
        assert!(status.unwrap().success() && said == "left");
    }

    proptest! {
        #[test]
        fn no_text_of_a_control_group_reaches_a_shell_an_option_or_another_path(
            path in prop_oneof![any::<String>(), "(/system\\.slice)?/[ -~]{0,16}\\.service(/[ -~]{0,8})?"],
        ) {
            if let Some(unit) = UnitName::of_cgroup(&path) {
                let restart = Restart { by: By::Unit(unit.clone()), ..restart("x") };
                let kept = Restart::parse(&restart.to_string());
                prop_assert_eq!(kept.as_ref(), Some(&restart));
                let program = restart.by.program("", "");
                let words: Vec<_> = program.get_args().collect();
                prop_assert_eq!(program.get_program(), "systemctl");
                prop_assert_eq!(words, ["--no-ask-password", "restart", "--", unit.as_str()]);
                let drop_in = crate::units::drop_in(&unit);
                let folder = format!("/etc/systemd/system/{unit}.d");
                prop_assert_eq!(std::path::Path::new(&drop_in).parent(), Some(std::path::Path::new(&folder)));
                prop_assert!(!unit.contains(['/', '\'', '"', ' ', '\n']));
            }
        }
    }
}
