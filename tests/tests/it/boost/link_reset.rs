//! Changes that may reset the link: tried only with consent, and taken back with what they lose.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Run, TIMEOUT, client_and_server, program};

use crate::inside::{addresses, udpath};

/// The server's port.
const PORT: u16 = 7000;

/// The server's interface receives on one of its two queues.
struct Bed {
    lab: Lab,
    state: tempfile::TempDir,
}

/// What the number of queues decides: the queues there are, and what was set on them.
#[derive(Debug, PartialEq)]
struct Queues {
    receive: usize,
    rps: String,
}

impl Bed {
    fn new() -> Self {
        let bed = Self { lab: client_and_server("boost-reset", 2), state: tempfile::tempdir().unwrap() };
        let server = bed.lab.machine("server").unwrap();
        let one = server.command("ethtool").args(["-L", "eth0", "rx", "1"]).status().unwrap();
        assert!(one.success(), "ethtool -L eth0 rx 1");
        server.run(|| fs::write("/sys/class/net/eth0/queues/rx-0/rps_cpus", "2").unwrap()).unwrap();
        bed
    }

    fn queues(&self) -> Queues {
        let read = || {
            let names = fs::read_dir("/sys/class/net/eth0/queues").unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            Queues {
                receive: names.filter(|name| name.starts_with("rx-")).count(),
                rps: fs::read_to_string("/sys/class/net/eth0/queues/rx-0/rps_cpus")
                    .unwrap()
                    .trim()
                    .to_owned(),
            }
        };
        self.lab.machine("server").unwrap().run(read).unwrap()
    }

    fn boost(&self, more: &[&str]) -> Run {
        let [v4, _] = addresses(&self.lab);
        let inside = |name: &str| self.lab.machine(name).unwrap().namespace().to_owned();
        let mut command = Command::new(program());
        command.args(["boost", "--port", &PORT.to_string(), "--netns", &inside("server")]);
        command.args(["--from", &inside("client"), "--state", self.state.path().to_str().unwrap()]);
        command.args(["--json", "--no-profile", "--duration", "100ms", "--bound", "10", "--blocks", "3"]);
        command.args(more).args([
            "--load",
            "echo",
            &format!("{v4}:{PORT}"),
            "--flows",
            "4",
            "--inflight",
            "1",
        ]);
        Run::of(command, "boost").within(TIMEOUT * 4)
    }
}

#[test]
fn another_number_of_channels_needs_consent_and_is_taken_back_after_a_kill() {
    udpath_lab::needs_root!();
    let bed = Bed::new();
    let mut server =
        udpath(&bed.lab, "server", &["serve", "echo", "--io", "shared", "--bind", "0.0.0.0:7000"]);
    server.says("ready io=shared");
    let found = bed.queues();
    assert_eq!(found, Queues { receive: 1, rps: found.rps.clone() });

    let ended = bed.boost(&["--budget", "1s"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let left_out = result["left_out"].as_array().unwrap();
    let channels = left_out.iter().find(|left| left["name"] == "channels").unwrap();
    assert_eq!(
        channels["reason"],
        "eth0:channels/rx may reset the link in every trial; --allow link-reset tries it"
    );
    assert_eq!(bed.queues(), found);

    let boost = bed.boost(&["--allow", "link-reset"]).start();
    let deadline = Instant::now() + TIMEOUT;
    while bed.queues().receive != 2 {
        assert!(Instant::now() < deadline, "the second channel was never tried");
        thread::sleep(Duration::from_millis(2));
    }
    boost.signal(Signal::KILL);
    assert_eq!(boost.finish().code(), None, "ended by the signal");
    let namespace = bed.lab.machine("server").unwrap().namespace();
    let undo =
        Run::new(&["undo", "--netns", namespace, "--state", bed.state.path().to_str().unwrap()]).finish();
    assert_eq!(undo.code(), Some(0), "{}", undo.err);
    assert_eq!(bed.queues(), found);
}
