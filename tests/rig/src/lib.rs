//! Shared by tests and benches: running the program with a deadline, checking that it leaves nothing behind, and
//! emulating machines and paths that this machine does not have.
//!
//! ```text
//! Run::new(&["boost", "--lab"])      the built `udpath`, marked: every process it starts carries the same mark
//!     .start() -> Running            killed when dropped
//!     .request()                     asks it to end, again as a request of its own
//!     .finish() -> Ended             code, stdout, stderr; panics when the deadline passes
//! Said::from(output)                      for a process without a deadline
//! check_documents(name, text)         each document in it is as docs/schemas says; Run and Said do it themselves
//! json(output.stdout)                the document in it, checked in the same way
//! client_and_server(name, queues)         a lab of two machines and one link
//! Host::now() .. host.is_as_before(&pids)    interfaces, BPF programs, and names that contain these pids
//! Cgroup::new().command(child, program)     a program in a cgroup that the test makes
//! Bpffs::new()                       a BPF file system of its own, for policies that others must not see
//! SysctlGuard::new(name)              what a sysctl was is written back
//! BindWitness::attach(&cgroup)       another program at the hook of policies
//! Bed::new(name, &link)              a server and its load in a lab, and `udpath profile` of them
//! DeferredServer::new(name)          a server whose interface polls too seldom, and boosts of it
//! alone(), together()                     which tests run at the same time
//! undisturbed(check), judged(what, check)    again while others take the CPUs
//! needs_cpus!(2)                          skips a test on a machine with fewer
//! campaign::rounds(few, all)         a test that `make soak` repeats; campaign::record(..) records its figures
//! VmSpec { cpus, nodes, queues, .. }.boot(command)   an emulated machine
//! member(address)                    a socket that shares its port
//! DnsServer::start(&lab, &spec)           knotd or nsd with one zone
//! Answer::attach, Impair::attach     the cheapest possible server; a bad path
//! Accounting::attach()                what systemd's IP accounting does to each packet
//! Wire::attach                        how long a server held each request, by the kernel
//! DaemonProgram::Named.prepare(folder, names)    a server's configuration and command line; freeradius(..) with other users
//! nfcapd(), netflow(bytes), collected(folder)    a collector of flows, what it is sent, what it has written
//! dom(..), Tab::open(page)           a page in a browser without a network: rendered, or open for interaction
//! ```
//! Other users of the machine may create labs at the same time. So the checks look only for labs *of these
//! processes*: names contain their owner's pid, and processes carry the run's mark.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod accounting;
mod answer;
mod bed;
mod bpffs;
mod browser;
pub mod campaign;
mod cgroup;
mod cpus;
mod daemon;
mod deferred;
mod dns;
mod freeradius;
mod host;
mod impair;
mod installed;
mod member;
mod nats;
mod nfcapd;
mod run;
mod said;
mod schemas;
mod sysctl;
mod turn;
mod undisturbed;
mod vm;
mod wire;
mod witness;

pub use accounting::Accounting;
pub use answer::Answer;
pub use bed::Bed;
pub use bpffs::Bpffs;
pub use browser::{Tab, dom};
pub use cgroup::Cgroup;
pub use cpus::skipped_without_cpus;
pub use daemon::DaemonProgram;
pub use deferred::DeferredServer;
pub use dns::{DnsProgram, DnsServer, DnsSpec};
pub use freeradius::{FREERADIUS_READY, freeradius};
pub use host::{Host, named};
pub use impair::{DELAYED_MARK, Impair, Impaired, Shares};
pub use installed::Installed;
pub use member::member;
pub use nats::SecuredNats;
pub use nfcapd::{Flows, collected, netflow, nfcapd};
pub use run::{Ended, Run, Running, one_sentence, program};
pub use said::Said;
pub use schemas::{check_documents, json};
pub use sysctl::SysctlGuard;
pub use turn::{alone, together};
pub use undisturbed::{Outcome, beside_each_other, judged, not_judged, undisturbed};
pub use vm::{MAX_VM_CPUS, MAX_VM_NODES, MAX_VM_QUEUES, Vm, VmError, VmSpec};
pub use wire::Wire;
pub use witness::BindWitness;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use udpath_lab::{Lab, LabBuilder, LinkSpec};

/// Longest wait for any event that must occur. Generous: the machine may be busy with other tests.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `look` until it returns something, and panics with `what` when that takes longer than `within`.
pub fn awaited<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {within:?} in vain for {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Copies a program that is then run. By cp: if this process wrote the copy, a child that another test is starting
/// would inherit the descriptor and hold it until its exec, and running the copy could fail with ETXTBSY.
///
/// # Panics
/// It cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let done =
        Command::new("cp").arg("--preserve=mode").arg("--").args([from, to]).status().expect("cp runs");
    assert!(done.success(), "cannot copy {} to {}", from.display(), to.display());
}

/// A lab of the machines `client` and `server`, and a link whose ends have `queues` queues each.
///
/// # Panics
/// It cannot be created: root is required.
#[must_use]
pub fn client_and_server(name: &str, queues: u32) -> Lab {
    let builder = LabBuilder::new(name).machine("client").machine("server");
    builder
        .link("client", "server", &LinkSpec::with_queues(queues))
        .up()
        .unwrap_or_else(|error| panic!("{error:?}"))
}
