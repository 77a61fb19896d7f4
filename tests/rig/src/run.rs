//! Runs the program like its users do, and captures the outcome.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{TIMEOUT, awaited, check_documents};

/// Name of the variable that marks a run and all its child processes.
const MARK: &str = "UDPATH_TEST_RUN";

/// Between two requests: longer than the signals of one may be apart.
const REQUESTS_APART: Duration = Duration::from_millis(1_050);

/// The built program, next to this test's own directory.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own file");
    let program = own.parent().and_then(Path::parent).map(|folder| folder.join("udpath"));
    match program {
        Some(program) if program.is_file() => program,
        _ => panic!("no `udpath` beside {}: run `cargo build` first, or `make test`", own.display()),
    }
}

/// A run of the program, not started yet.
#[derive(Debug)]
pub struct Run {
    command: Command,
    mark: String,
    shown: String,
    within: Duration,
}

impl Run {
    /// The program with `arguments`.
    ///
    /// # Panics
    /// See [`program`].
    #[must_use]
    pub fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args(arguments);
        Self::of(command, &arguments.join(" "))
    }

    /// The program as user nobody, without any capability. `program` is a copy that user nobody can read.
    #[must_use]
    pub fn unprivileged(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(program).args(arguments).current_dir("/");
        Self::of(command, &format!("(as nobody) {}", arguments.join(" ")))
    }

    /// Any command; `shown` is its name in failure messages.
    #[must_use]
    pub fn of(mut command: Command, shown: &str) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        // With this set, any error that carries a backtrace would print it: users must never see one.
        command.env(MARK, &mark).env("RUST_BACKTRACE", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, mark, shown: shown.to_owned(), within: TIMEOUT }
    }

    /// Replaces the default deadline, [`TIMEOUT`].
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.within = deadline;
        self
    }

    /// In a process group of its own, as a shell's job: see [`Running::signal_group`].
    #[must_use]
    pub fn in_group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn start(self) -> Running {
        self.start_with(|mut command| command.spawn())
    }

    /// Starts it by other means, such as inside a machine of a lab.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start_with<E: std::fmt::Display>(
        self,
        spawn: impl FnOnce(Command) -> Result<Child, E>,
    ) -> Running {
        let Self { command, mark, shown, within } = self;
        let mut child = spawn(command).unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        let out = Stream::read(child.stdout.take().expect("stdout is piped"));
        let err = Stream::read(child.stderr.take().expect("stderr is piped"));
        Running { child, out, err, mark, shown, deadline: Instant::now() + within }
    }

    /// Starts it and waits until it exits.
    ///
    /// # Panics
    /// It cannot be started, or does not exit in time.
    #[must_use]
    pub fn finish(self) -> Ended {
        self.start().finish()
    }
}

/// Drains a stream, so that its writer never blocks.
#[derive(Debug)]
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn read(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut some) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&some[..n]);
            }
        });
        Self { bytes, reader }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// The program, running. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: Stream,
    err: Stream,
    mark: String,
    shown: String,
    deadline: Instant,
}

impl Running {
    /// Its pid, which also appears in the names of what it creates.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// The kernel refuses.
    pub fn signal(&self, signal: Signal) {
        // Not reaped yet, so the pid cannot have been reused.
        kill_process(Pid::from_child(&self.child), signal).expect("a child of ours can be signalled");
    }

    /// Asks it to end by SIGTERM. Returns once it has ended, or has taken the signal for so long that the next one is
    /// another request (`crates/cli/src/signals/requests.rs`).
    ///
    /// # Panics
    /// The kernel refuses, or it does not take the signal.
    pub fn request(&mut self) {
        self.signal(Signal::TERM);
        let pid = self.pid();
        awaited("the signal to be taken", TIMEOUT, || {
            (self.has_ended() || !is_taking(pid, Signal::TERM)).then_some(())
        });
        if !self.has_ended() {
            std::thread::sleep(REQUESTS_APART);
        }
    }

    /// Sends a signal to its process group, as a terminal does at ^C. It was started with [`Run::in_group`].
    ///
    /// # Panics
    /// The kernel refuses: it has no group of its own.
    pub fn signal_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).expect("a group of ours can be signalled");
    }

    /// Whether it has exited.
    ///
    /// # Panics
    /// It cannot be waited for.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours can be waited for").is_some()
    }

    /// Waits until stderr contains `text`, and returns all of stderr so far.
    ///
    /// # Panics
    /// It exits, or the deadline passes, before that.
    pub fn says(&mut self, text: &str) -> String {
        self.said(text, |said| said.contains(text).then(|| said.to_owned()))
    }

    /// Waits until stderr has a complete line that contains `text`, and returns the first one. A line that is still being
    /// written may stop in the middle of a word.
    ///
    /// # Panics
    /// It exits, or the deadline passes, before that.
    pub fn says_line(&mut self, text: &str) -> String {
        self.said(text, |said| {
            let whole = &said[..said.rfind('\n')?];
            whole.lines().find(|line| line.contains(text)).map(str::to_owned)
        })
    }

    /// Waits until `found` returns something for the contents of stderr. `text` is what a failure names.
    fn said<T>(&mut self, text: &str, found: impl Fn(&str) -> Option<T>) -> T {
        loop {
            // The order matters: output written just before the exit must be seen too.
            let ended = self.has_ended() && self.err.reader.is_finished();
            let said = self.err.so_far();
            if let Some(found) = found(&said) {
                return found;
            }
            assert!(
                !ended && Instant::now() <= self.deadline,
                "{}: never said {text:?}, but: {said}",
                self.shown
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it and every process it started have exited.
    ///
    /// # Panics
    /// The deadline passes, or it prints a document that differs from its schema.
    #[must_use]
    pub fn finish(mut self) -> Ended {
        while !self.has_ended() {
            assert!(
                Instant::now() < self.deadline,
                "{} does not end; so far it said: {}",
                self.shown,
                self.err.so_far()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = self.child.wait().expect("it has ended");
        // Wait for the end of the streams too: a process that holds one is still running.
        awaited(&format!("the processes that {} started to end", self.shown), TIMEOUT, || {
            (marked(&self.mark).is_empty() && self.out.reader.is_finished() && self.err.reader.is_finished())
                .then_some(())
        });
        let out = self.out.so_far();
        check_documents(&self.shown, &out);
        Ended { pid: self.child.id(), status, out, err: self.err.so_far(), shown: self.shown.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a signal waits for a process, or for the end of its handler, during which it is blocked.
fn is_taking(pid: u32, signal: Signal) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let statuses: Vec<String> =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok()).collect();
    ["ShdPnd:", "SigPnd:", "SigBlk:"].iter().any(|mask| {
        let masks =
            statuses.iter().flat_map(|status| status.lines()).filter_map(|line| line.strip_prefix(mask));
        masks
            .filter_map(|bits| u64::from_str_radix(bits.trim(), 16).ok())
            .any(|bits| bits & 1 << (signal.as_raw() - 1) != 0)
    })
}

/// Pids of the living processes that carry the mark.
fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A process that exits in between, or is a zombie, has no environment.
    pids.filter(|pid| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|variable| variable == wanted))
    })
    .collect()
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Ended {
    /// Its pid.
    pub pid: u32,
    /// Its exit status.
    pub status: ExitStatus,
    /// All of stdout.
    pub out: String,
    /// All of stderr.
    pub err: String,
    /// Its name in failure messages.
    pub shown: String,
}

impl Ended {
    /// Its exit code; none if a signal ended it.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// Asserts that stderr holds one sentence that explains the failure to a user.
///
/// # Panics
/// It does not.
pub fn one_sentence(what: &str, said: &str) {
    assert_eq!(said.lines().count(), 1, "{what}: not one line: {said}");
    let sentence = said.strip_prefix("udpath: ").unwrap_or_else(|| panic!("{what}: not ours: {said}"));
    assert!(sentence.trim().len() > 10, "{what}: says nothing: {said}");
    for never in ["panicked", "backtrace", "Backtrace", "RUST_", "unwrap", "Err(", "Error {", "src/"] {
        assert!(!said.contains(never), "{what}: {never:?} is nothing for users: {said}");
    }
    let parts: Vec<&str> = said.trim_end().split(": ").collect();
    for (one, next) in parts.iter().zip(&parts[1..]) {
        assert_ne!(one, next, "{what}: told twice: {said}");
    }
    // A cause already contained in its message: "x: y: y", or the kernel's error text twice.
    assert!(said.matches("(os error").count() <= 1, "{what}: the kernel's words twice: {said}");
}
