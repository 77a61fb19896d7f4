//! An apply that is really killed (SIGKILL) at every write of a plan of thirty changes, on a veth of a lab; then undone.
//!
//! ```text
//! kill                    the test: for each write, before and after it
//!   └─ kill child AT WHEN STATE      in the lab's machine: applies, and kills itself there
//! ```
//! A program of its own rather than the test harness's, so that the child is nothing but the apply.

mod lab;

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::{Signal, getpid, kill_process};
use udpath_host::journal::State;
use udpath_host::machine::{Identity, Refusal};
use udpath_host::plan::Consent;
use udpath_host::{Journal, Live, Machine, Plan, Setting, Source, Value, Wish, apply, undo};

/// Queues of the veth. With the rest below that makes over thirty changes.
const QUEUES: u32 = 10;
/// Receive queues that the plan leaves; the steering of the others is lost with them.
const LEFT: u32 = 8;

fn plan(machine: &dyn Machine) -> Plan {
    let mut wishes: Vec<String> = [
        &format!("eth0:channels/rx={LEFT}"),
        "eth0:feature/rx-gro=on",
        "eth0:napi/threaded=on",
        "eth0:napi/defer-hard-irqs=2",
        "eth0:napi/gro-flush-timeout=20000",
        "eth0:qdisc=mq",
        "sysctl:net.ipv4.ip_default_ttl=70",
    ]
    .map(str::to_owned)
    .into();
    for queue in 0..QUEUES {
        if queue < LEFT {
            wishes.push(format!("eth0:rps/rx-{queue}=0-1"));
            wishes.push(format!("eth0:rfs/rx-{queue}=256"));
        }
        wishes.push(format!("eth0:xps/tx-{queue}={}", queue % 2));
    }
    let wishes = wishes.iter().map(|wish| Wish::parse(wish, "test").unwrap()).collect();
    Plan::resolve(machine, wishes, &Consent::default()).unwrap()
}

/// This machine, until its n-th write.
#[derive(Debug)]
struct Deadly {
    inner: Live,
    at: usize,
    after: bool,
    writes: Cell<usize>,
}

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    // The signal may take a moment.
    loop {
        std::thread::park();
    }
}

impl Machine for Deadly {
    fn source(&self) -> &dyn Source {
        self.inner.source()
    }

    fn read(&self, setting: &Setting) -> Result<Value, Refusal> {
        self.inner.read(setting)
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), Refusal> {
        let now = self.writes.replace(self.writes.get() + 1) == self.at;
        if now && !self.after {
            die();
        }
        let done = self.inner.write(setting, value);
        if now {
            die();
        }
        done
    }

    fn identity(&self, setting: &Setting) -> Result<Option<Identity>, Refusal> {
        self.inner.identity(setting)
    }

    fn renamed(&self, setting: &Setting, identity: &Identity) -> Option<Setting> {
        self.inner.renamed(setting, identity)
    }

    fn irq(&self, setting: &Setting) -> Result<u32, Refusal> {
        self.inner.irq(setting)
    }

    fn pending(&self, setting: &Setting, value: &Value) -> Option<String> {
        self.inner.pending(setting, value)
    }
}

fn child(at: &str, when: &str, state: &str) {
    let (at, after) = (at.parse().unwrap(), when == "after");
    let machine = Deadly { inner: Live::new(), at, after, writes: Cell::new(0) };
    let lock = Journal::at(Path::new(state)).lock().unwrap();
    apply(&machine, &lock, &plan(&machine), None, |_| Ok(())).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, at, when, state] = &arguments[..]
        && verb == "child"
    {
        return child(at, when, state);
    }
    let lab = lab::lab("kill", QUEUES);
    let machine = lab.machine("here").unwrap();
    // Something to be lost and to come back.
    machine
        .run(|| {
            for (file, text) in [("rx-9/rps_cpus", "2"), ("rx-9/rps_flow_cnt", "64"), ("rx-1/rps_cpus", "1")]
            {
                std::fs::write(format!("/sys/class/net/eth0/queues/{file}"), text).unwrap();
            }
        })
        .unwrap();
    let before = lab::look(&lab);
    let writes = machine.run(|| plan(&Live::new()).changes.len()).unwrap();
    assert!(writes >= 30, "{writes}");
    let folder = tempfile::tempdir().unwrap();
    let mut killed = 0;
    for when in ["before", "after"] {
        for at in 0.. {
            let state = folder.path().join(format!("{when}-{at}"));
            let mut command = machine.command(std::env::current_exe().unwrap());
            command.args(["child", &at.to_string(), when, state.to_str().unwrap()]);
            let ended = command.output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            let journal = Journal::at(&state);
            let was_killed = ended.status.signal() == Some(9);
            assert!(was_killed || ended.status.success(), "{when} {at}: {} {said}", ended.status);
            let expected = if was_killed { State::Unfinished } else { State::Applied };
            assert_eq!(journal.entry(1).unwrap().state, expected, "{when} {at}");
            if when == "after" {
                assert_ne!(lab::look(&lab), before, "{when} {at}: the write did nothing");
            }
            let left = machine
                .run(|| undo(&Live::new(), &journal.lock().unwrap(), None, "test", false).unwrap().left);
            assert_eq!(left.unwrap(), [], "{when} {at}");
            let found = lab::look(&lab);
            assert_eq!(found, before, "{when} {at}");
            killed += usize::from(was_killed);
            if !was_killed {
                break;
            }
        }
    }
    assert!(killed >= 2 * writes, "{killed} of {writes}");
    lab.down().unwrap();
    println!("killed {killed} times, undone to equality each time");
}
