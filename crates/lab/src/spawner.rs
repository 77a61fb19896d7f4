//! The thread that starts a lab's programs.
//!
//! The kernel kills a child when the *thread* that started it ends, not the process. A program started from a worker
//! thread would end with that worker. So [`Lab::spawn`](crate::Lab::spawn) passes the work to this thread, which lives
//! exactly as long as the lab: it ends when the lab is taken down or the process is killed, and so do the programs.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use udpath_steer::CpuSet;

use crate::{Error, affinity};

/// A program, the CPUs that it may use if not all, and who waits for it.
type Job = (Command, Option<CpuSet>, Sender<io::Result<Child>>);

pub(crate) struct Spawner {
    lab: String,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    pub(crate) fn start(lab: &str) -> Result<Self, Error> {
        let (jobs, todo) = mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("lab-{lab}")).spawn(move || keep(&todo));
        let thread =
            thread.map_err(|source| Error::system(format!("start the thread of lab {lab}"), source))?;
        Ok(Self { lab: lab.to_owned(), jobs: Some(jobs), thread: Some(thread) })
    }

    /// Starts a program from the spawner's thread, which has the affinity `cpus` meanwhile: programs inherit it.
    pub(crate) fn spawn(&self, command: Command, cpus: Option<CpuSet>) -> Result<Child, Error> {
        let down = || Error::Down { lab: self.lab.clone() };
        let program = command.get_program().to_string_lossy().into_owned();
        let (answer, started) = mpsc::channel();
        self.jobs.as_ref().ok_or_else(down)?.send((command, cpus, answer)).map_err(|_| down())?;
        let child = started.recv().map_err(|_| down())?;
        child.map_err(|source| Error::system(format!("start {program} in lab {}", self.lab), source))
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It cannot panic: it only starts programs.
            let _ = thread.join();
        }
    }
}

fn keep(todo: &Receiver<Job>) {
    for (mut command, cpus, answer) in todo {
        // ^C and timeout(1) signal the lab's owner and its process group. The owner ends its programs in order; one
        // that ends before would look like a failure.
        command.process_group(0);
        let started = match cpus {
            Some(cpus) => affinity::confined(&cpus, || command.spawn()).and_then(|started| started),
            None => command.spawn(),
        };
        if let Err(mpsc::SendError(Ok(mut unwanted))) = answer.send(started) {
            // The caller has ended.
            let _ = unwanted.kill().and_then(|()| unwanted.wait());
        }
    }
}
