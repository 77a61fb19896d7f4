//! A server that reads with one thread, in several instances: `service:1812:instances=2`, as a change like any other.
//!
//! ```text
//!  run by systemd        unit:freeradius.service/instances=2   `udpath multiply` as a drop-in (units/setting.rs)
//!  by another command    restart:freeradius@...                that command, with what is to run the server in $UDPATH_RUN
//! ```
//! `$UDPATH_RUN` is empty, or begins a command line: `udpath multiply -n 2 ... --`. A restart command that has it
//! before the server's program, as in `setsid $UDPATH_RUN freeradius -f &`, can start one process or several.

use std::env;
use std::path::PathBuf;

use udpath_host::shell::quoted;

use super::arguments::command_line;
use super::instances::Instances;
use super::reader::Reader;
use super::restart::{By, PIDS, Restart, pids};
use super::{Service, ServiceError};
use crate::settings::Value;

/// The name of the knob.
pub(super) const INSTANCES: &str = "instances";
/// The variable of a restart command.
pub(super) const VARIABLE: &str = "UDPATH_RUN";
/// What the value of such a restart ends with.
const WORDS: &str = " instances";
/// Where the supervisor of instances with a name keeps what it needs (`udpath_multiply`).
pub const SUPERVISORS: &str = "/run/udpath/multiply";

impl Service {
    /// The number of instances that a request asks for.
    ///
    /// # Errors
    /// It is not a number from 1 to that of the CPUs that the server may use; or several instances of it cannot share a
    /// port.
    pub(super) fn count(&self, value: &str) -> Result<usize, ServiceError> {
        let most = self.cpus.len();
        let count = value.parse().ok().filter(|count| (1..=most).contains(count)).ok_or_else(|| {
            let wanted = "a number from 1 to that of the CPUs that the server may use";
            ServiceError::Value { knob: INSTANCES.to_owned(), value: value.to_owned(), wanted }
        })?;
        self.multiplies()?;
        Ok(count)
    }

    /// Whether several instances of it can share a port.
    ///
    /// # Errors
    /// Why not, and what to do instead.
    pub fn multiplies(&self) -> Result<(), ServiceError> {
        Instances::of_process(self.pid).map(drop)
    }
}

impl Instances {
    /// The server that a process is, by its command line; `None` if it is not known.
    ///
    /// # Errors
    /// As [`Instances::of_command`]; or the process is gone.
    pub fn of_process(pid: u32) -> Result<Option<Self>, ServiceError> {
        let command = command_line(pid)?;
        let words = command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let mut words: Vec<String> = words.collect();
        // After the last one, too, is a zero.
        words.pop();
        Self::of(&words, &|| Reader::of(pid, ""))
    }
}

/// The value of a restart in so many instances.
pub(super) fn value(count: usize) -> Value {
    Value::Words(format!("{count}{WORDS}"))
}

/// The number of instances in which a restart of this value runs the server; `None` for one process without a
/// supervisor.
#[must_use]
pub fn number(value: &Value) -> Option<usize> {
    let Value::Words(words) = value else { return None };
    words.strip_suffix(WORDS)?.parse().ok()
}

impl Restart {
    /// What `$UDPATH_RUN` is in its command.
    ///
    /// # Errors
    /// This program's own file cannot be found, or its path cannot be a word of a command.
    pub(crate) fn prefix(&self, instances: Option<usize>) -> Result<String, String> {
        let Some(count) = instances else { return Ok(String::new()) };
        let program =
            env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))?;
        let program = program.to_string_lossy();
        // The shell splits the variable at spaces, and quotes in it mean nothing.
        if program.contains(char::is_whitespace) {
            return Err(format!("{program:?} has a space, so that it cannot be part of ${VARIABLE}"));
        }
        let port = self.address.port();
        let name = format!("{}-{port}", self.server);
        // The journal of the restart is locked while it runs.
        let journal = PathBuf::from(SUPERVISORS).join(&name).join("journal");
        let journal = journal.display();
        Ok(format!("{program} multiply {name} -n {count} --port {port} --state {journal} --"))
    }

    /// The command with its variable, for somebody who runs it by hand.
    pub(crate) fn shell(&self, value: &Value) -> String {
        match number(value) {
            None => match &self.by {
                By::Unit(unit) => format!("systemctl restart -- {}", quoted(unit)),
                By::Command(command) => self.with_pids(command),
            },
            Some(count) => {
                let (server, port) = (&self.server, self.address.port());
                let run = format!("udpath multiply {server}-{port} -n {count} --port {port} --");
                let command = match &self.by {
                    By::Command(command) => self.with_pids(command),
                    by @ By::Unit(_) => by.to_string(),
                };
                format!("export {VARIABLE}='{run}'; {command}")
            }
        }
    }

    /// A command, after the value of what it says for the processes that serve now.
    fn with_pids(&self, command: &str) -> String {
        match command.contains(PIDS) {
            true => format!("export {PIDS}='{}'; {command}", pids(&self.serving())),
            false => command.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_how_many() {
        assert_eq!(number(&value(2)), Some(2));
        for other in ["the old configuration", "instances", "x instances"] {
            assert_eq!(number(&Value::Words(other.to_owned())), None, "{other}");
        }
        assert_eq!(number(&Value::Unknown), None);
    }

    #[test]
    fn a_restart_command_begins_with_the_supervisor_or_with_nothing() {
        let restart = Restart {
            server: "freeradius".into(),
            address: "127.0.0.1:1812".parse().unwrap(),
            by: By::of("/etc/restart"),
        };
        assert_eq!(restart.prefix(None), Ok(String::new()));
        let prefix = restart.prefix(Some(2)).unwrap();
        let rest = " multiply freeradius-1812 -n 2 --port 1812 --state /run/udpath/multiply/freeradius-1812/journal --";
        assert!(prefix.starts_with('/') && prefix.ends_with(rest), "{prefix}");
        assert_eq!(restart.shell(&Value::Unknown), "/etc/restart");
        let unit = Restart { by: By::Unit("a\\x2db.service".parse().unwrap()), ..restart.clone() };
        assert_eq!(unit.shell(&Value::Unknown), "systemctl restart -- 'a\\x2db.service'");
        assert_eq!(
            restart.shell(&value(2)),
            "export UDPATH_RUN='udpath multiply freeradius-1812 -n 2 --port 1812 --'; /etc/restart"
        );
        // Nothing serves there.
        let ending = Restart { by: By::of("kill $UDPATH_PID"), ..restart };
        assert_eq!(ending.shell(&Value::Unknown), "export UDPATH_PID=''; kill $UDPATH_PID");
    }
}
