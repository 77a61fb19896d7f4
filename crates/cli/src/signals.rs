//! The signals that end an operation (SIGINT, SIGTERM, SIGHUP): one rule for every verb.
//!
//! ```text
//!  first request    the verb ends: it restores what it has changed, removes what it has made, prints what it has measured
//!    within 1 s     the same request: see requests.rs
//!  second request   it still does, and says what a further signal would leave
//!  third request    the program ends at once, and names what is left and the command that removes it
//! ```
//! All of it happens in the signal handler, so that a third request also ends a program whose threads hang. A SIGHUP
//! that was ignored at the start (`nohup`) stays ignored.

mod requests;
mod sys;

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::stderr;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use udpath_tune::journal::DIRECTORY;

use self::requests::{Meaning, Requests};
use crate::exit::Failure;

/// The signals, and their names.
const SIGNALS: [(i32, &str); 3] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];

/// What a verb leaves if it is ended at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Left<'a> {
    /// Nothing that outlives the process.
    Nothing,
    /// The network namespaces of its labs.
    Labs,
    /// Changed settings, recorded in this journal.
    Settings(&'a Path),
    /// The rest of what it removes; this command goes on.
    Rest(&'a str),
    /// Instances of a server, which their guard ends.
    Instances,
}

impl Left<'_> {
    /// What is printed at the second and at the third request.
    fn texts(self) -> [String; 2] {
        let (doing, left) = match self {
            Self::Nothing => {
                return ["stopping; a further signal ends it at once", "ended at once by a third signal"]
                    .map(str::to_owned);
            }
            Self::Labs => (
                "restoring",
                format!(
                    "network namespaces udpath-{}-*; to remove them: udpath lab down --stale",
                    std::process::id()
                ),
            ),
            Self::Settings(journal) => {
                let state = match journal == Path::new(DIRECTORY) {
                    true => String::new(),
                    false => format!(" --state {}", journal.display().to_string().escape_debug()),
                };
                ("restoring", format!("changed settings; to restore them: udpath undo{state}"))
            }
            Self::Rest(command) => ("removing", format!("the rest; to remove it: {command}")),
            Self::Instances => {
                ("ending the instances", "the instances to their guard, which ends them".to_owned())
            }
        };
        [
            format!("{doing}; a further signal ends at once and leaves {left}"),
            format!("ended at once by a third signal; left {left}"),
        ]
    }
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// No signal came in time.
    Nothing,
    /// SIGHUP, where it asks for a reload.
    Reload,
    /// End.
    Stop,
}

/// Requests to end this process.
#[derive(Clone, Copy)]
pub(crate) struct Stop(&'static State);

struct State {
    requests: Requests,
    /// A request has come.
    stop: AtomicBool,
    /// The signal of the first request, or 0.
    first: AtomicI32,
    /// SIGHUP asks for a reload.
    reloads: AtomicBool,
    /// A reload was asked for.
    reload: AtomicBool,
    /// A byte for each signal.
    woken: OwnedFd,
    wake: OwnedFd,
    /// Printed at the second and at the third request.
    texts: [String; 2],
}

/// Watches for the signals from now on, for the rest of the program. What the first call says about leftovers holds.
///
/// # Errors
/// The kernel has no descriptors left.
pub(crate) fn watch(left: Left<'_>) -> Result<Stop, Failure> {
    static STATE: OnceLock<State> = OnceLock::new();
    if let Some(state) = STATE.get() {
        return Ok(Stop(state));
    }
    let failed = "cannot watch for signals";
    let state = State::new(left).context(failed)?;
    let state = STATE.get_or_init(|| state);
    for (signal, _) in SIGNALS {
        if signal != SIGHUP || !sys::is_ignored(signal) {
            sys::register(signal, move || state.arrived(signal)).context(failed)?;
        }
    }
    Ok(Stop(state))
}

/// No signal of these ends the program from now on: for a process that cleans up after another one.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn ignore() -> Result<(), Failure> {
    for (signal, _) in SIGNALS {
        sys::register(signal, || ()).context("cannot ignore signals")?;
    }
    Ok(())
}

impl Stop {
    /// Set once a request has come.
    pub(crate) fn flag(self) -> &'static AtomicBool {
        &self.0.stop
    }

    /// The signal of the first request, if one has come.
    pub(crate) fn came(self) -> Option<&'static str> {
        let first = self.0.first.load(Ordering::Relaxed);
        SIGNALS.iter().find(|(signal, _)| *signal == first).map(|(_, name)| *name)
    }

    /// From now on SIGHUP asks for a reload.
    pub(crate) fn reload_on_hangup(self) {
        self.0.reloads.store(true, Ordering::Relaxed);
    }

    /// Waits for a signal, for `time` at most.
    pub(crate) fn wait(self, time: Duration) -> io::Result<Event> {
        let time = Timespec::try_from(time).map_err(|_long| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut woken = [PollFd::new(&self.0.woken, PollFlags::IN)];
        match poll(&mut woken, Some(&time)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                // Drained before the flags are read: a signal that comes in between wakes the next wait.
                let _ = rustix::io::read(&self.0.woken, &mut [0; 64]);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(match (self.0.stop.load(Ordering::Relaxed), self.0.reload.swap(false, Ordering::Relaxed)) {
            (true, _) => Event::Stop,
            (false, true) => Event::Reload,
            (false, false) => Event::Nothing,
        })
    }
}

/// Readable once a signal has come, until [`Stop::wait`] is called.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.woken.as_fd()
    }
}

impl State {
    fn new(left: Left<'_>) -> io::Result<Self> {
        let (woken, wake) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A status line may be on the terminal's last line, after ^C its echo.
        let begin = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        Ok(Self {
            requests: Requests::new(),
            stop: AtomicBool::new(false),
            first: AtomicI32::new(0),
            reloads: AtomicBool::new(false),
            reload: AtomicBool::new(false),
            woken,
            wake,
            texts: left.texts().map(|text| format!("{begin}udpath: {text}\n")),
        })
    }

    /// In the signal handler: system calls and atomics only; no allocation, no lock.
    fn arrived(&self, signal: i32) {
        if signal == SIGHUP && self.reloads.load(Ordering::Relaxed) {
            self.reload.store(true, Ordering::Relaxed);
        } else {
            match self.requests.arrived(now()) {
                Meaning::Stop => {
                    self.first.store(signal, Ordering::Relaxed);
                    self.stop.store(true, Ordering::Relaxed);
                }
                Meaning::Same => {}
                Meaning::Again => say(&self.texts[0]),
                Meaning::End => {
                    say(&self.texts[1]);
                    signal_hook::low_level::exit(128 + signal);
                }
            }
        }
        // Full: then it is readable.
        let _ = rustix::io::write(&self.wake, &[0]);
    }
}

/// Time since the boot, milliseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// Prints, unless that would block: a reader of stderr that hangs must not keep the program from ending.
fn say(text: &str) {
    let error = stderr();
    let mut ready = [PollFd::new(&error, PollFlags::OUT)];
    if poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(error, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_names_what_is_left_and_the_command_that_removes_it() {
        let [again, end] = Left::Labs.texts();
        let own = format!(
            "network namespaces udpath-{}-*; to remove them: udpath lab down --stale",
            std::process::id()
        );
        assert_eq!(again, format!("restoring; a further signal ends at once and leaves {own}"));
        assert_eq!(end, format!("ended at once by a third signal; left {own}"));
        let [again, _] = Left::Settings(Path::new(DIRECTORY)).texts();
        assert!(again.ends_with("leaves changed settings; to restore them: udpath undo"), "{again}");
        let [_, end] = Left::Settings(Path::new("/tmp/a\x1b[2Jb")).texts();
        assert!(end.ends_with("udpath undo --state /tmp/a\\u{1b}[2Jb"), "{end}");
        for left in [Left::Nothing, Left::Instances] {
            let [again, end] = left.texts();
            assert!(again.contains("a further signal") && end.contains("ended at once"), "{again}; {end}");
        }
    }
}
