//! A server and its load in a lab, to be profiled.
//!
//! ```text
//! client ── eth0 ═══ a link ═══ eth0 ── server ── profile
//! load                                  whatever the test runs there
//! ```

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;
use udpath_lab::{Lab, LabBuilder, LinkSpec, NapiGuard};

use crate::{Ended, Run, Running, TIMEOUT, awaited, program};

/// Datagrams after which a load has reached its rate: a tenth of a second at the slowest rate, 10,000 a second.
const ARRIVED: u64 = 1000;

/// Runs the rest of the command line with this real-time priority, where permitted. The process keeps its pid. The
/// kernel leaves 5 % of the CPU time to other programs.
const FIRST: [&str; 3] = ["sh", "-c", "chrt -r $0 true 2> /dev/null && exec chrt -r $0 \"$@\"; exec \"$@\""];
/// Priority of a profile: above everything it observes.
const PROFILE: &str = "3";
/// Priority of a diagnosis: below the server's, which would lose datagrams while the kernel's symbols are read.
const DIAGNOSIS: &str = "1";

/// Two machines, `client` and `server`; removed on drop.
#[derive(Debug)]
pub struct Bed {
    // Fields drop in this order.
    _napi: Option<NapiGuard>,
    lab: Lab,
    first: Option<&'static str>,
}

impl Bed {
    /// Creates the machines with this link between them.
    ///
    /// # Panics
    /// The lab cannot be created.
    #[must_use]
    pub fn new(name: &str, link: &LinkSpec) -> Self {
        let builder = LabBuilder::new(name).machine("client").machine("server");
        let lab = builder.link("client", "server", link).up().expect("a lab: run as root");
        Self { _napi: None, lab, first: None }
    }

    /// Enables NAPI polling on the server's interface, like a real NIC; the load engine `kernel` needs it.
    ///
    /// # Panics
    /// NAPI cannot be enabled.
    #[must_use]
    pub fn polled(mut self) -> Self {
        let server = self.lab.machine("server").and_then(|machine| machine.interface("eth0")?.ensure_napi());
        self._napi = Some(server.expect("NAPI on the server's interface"));
        self
    }

    /// Gives the programs started here, and the profile, priority over all other programs on the machine, so that
    /// shares of CPU time refer to this bed. Programs in `machine` preempt those in the other one, which gets the
    /// remaining time: `machine` must be the one that sleeps, or the other can neither work nor exit.
    #[must_use]
    pub const fn first(mut self, machine: &'static str) -> Self {
        self.first = Some(machine);
        self
    }

    /// The network namespace of machine `server`.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.lab.machine("server").expect("it was made").namespace()
    }

    /// The server's address, with a port.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn target(&self, port: u16) -> String {
        let address = self.lab.address_of("server", "client").expect("both were made");
        format!("{}:{port}", address.ipv4)
    }

    /// The server's IPv6 address with a port.
    ///
    /// # Panics
    /// Never: both machines were made.
    #[must_use]
    pub fn target_over_ipv6(&self, port: u16) -> String {
        let address = self.lab.address_of("server", "client").expect("both were made");
        format!("[{}]:{port}", address.ipv6)
    }

    /// A command that runs `program` in a machine.
    ///
    /// # Panics
    /// There is no such machine.
    pub fn command(&self, machine: &str, program: impl AsRef<OsStr>) -> Command {
        self.lab.machine(machine).expect("client or server").command(program)
    }

    /// Starts a program in a machine.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn start(&self, machine: &str, program: impl AsRef<OsStr>, arguments: &[&str]) -> Running {
        let mut command = match self.first {
            None => self.command(machine, program),
            Some(first) => {
                let mut command = self.command(machine, FIRST[0]);
                command.args(&FIRST[1..]).arg(if machine == first { "2" } else { "1" }).arg(program);
                command
            }
        };
        command.args(arguments);
        let run = Run::of(command, &arguments.join(" ")).within(TIMEOUT * 4);
        run.start_with(|command| self.lab.spawn(command))
    }

    /// Starts `udpath serve` with these arguments, and waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready.
    #[must_use]
    pub fn serve(&self, arguments: &[&str]) -> Running {
        let mut server = self.start("server", program(), &[&["serve"], arguments].concat());
        server.says("ready io=");
        server
    }

    /// Starts `udpath load` with these arguments, and waits until its datagrams arrive.
    ///
    /// # Panics
    /// No datagrams arrive.
    #[must_use]
    pub fn load(&self, arguments: &[&str]) -> Running {
        let before = self.received();
        let load = self.start("client", program(), &[&["load"], arguments].concat());
        awaited("the load to arrive", TIMEOUT, || (self.received() > before + ARRIVED).then_some(()));
        load
    }

    /// Takes the lab down, like dropping it, and reports errors.
    ///
    /// # Panics
    /// The lab cannot be taken down.
    pub fn down(self) {
        let Self { _napi: napi, lab, .. } = self;
        drop(napi);
        lab.down().expect("a lab that goes");
    }

    /// Datagrams that machine `server` has delivered so far, over IPv4 and IPv6.
    fn received(&self) -> u64 {
        let read = || {
            ["snmp", "snmp6"].map(|name| {
                std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
            })
        };
        let texts = self.lab.machine("server").and_then(|machine| machine.run(read)).unwrap_or_default();
        let [over_ipv4, over_ipv6] = &texts;
        let first = |line: &str| line.split_whitespace().next().and_then(|count| count.parse::<u64>().ok());
        let over_ipv4 = over_ipv4.lines().filter_map(|line| line.strip_prefix("Udp:")).nth(1).and_then(first);
        let over_ipv6 =
            over_ipv6.lines().find_map(|line| line.strip_prefix("Udp6InDatagrams")).and_then(first);
        over_ipv4.unwrap_or(0) + over_ipv6.unwrap_or(0)
    }

    /// Runs `udpath profile` on machine `server`.
    ///
    /// # Panics
    /// It does not finish in time.
    #[must_use]
    pub fn profile(&self, arguments: &[&str]) -> Ended {
        self.observe("profile", PROFILE, arguments)
    }

    /// Runs `udpath diagnose` on machine `server`.
    ///
    /// # Panics
    /// It does not finish in time.
    #[must_use]
    pub fn diagnose(&self, arguments: &[&str]) -> Ended {
        self.observe("diagnose", DIAGNOSIS, arguments)
    }

    fn observe(&self, verb: &str, priority: &str, arguments: &[&str]) -> Ended {
        let arguments = [&[verb, "--netns", self.namespace()], arguments].concat();
        let mut command = Command::new(FIRST[0]);
        command.args(&FIRST[1..]).arg(priority).arg(program()).args(&arguments);
        let run =
            if self.first.is_some() { Run::of(command, &arguments.join(" ")) } else { Run::new(&arguments) };
        run.within(TIMEOUT * 2).finish()
    }

    /// The same as JSON.
    ///
    /// # Panics
    /// It fails.
    #[must_use]
    pub fn profile_json(&self, arguments: &[&str]) -> Value {
        let ended = self.profile(&[&["--json"], arguments].concat());
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        serde_json::from_str(&ended.out).expect("one JSON document")
    }
}
