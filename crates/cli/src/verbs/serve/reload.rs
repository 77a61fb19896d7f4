//! Reloads of a service's files, on a thread of their own: the service and its status go on meanwhile.

use std::thread::JoinHandle;

use udpath_serve::{ReloadHook, Server};

/// The nice value of a reload: a worker on the same CPU, at 0, gets nine tenths of it (`sched_prio_to_weight` of
/// kernel/sched/core.c). Lower: a worker that needs more than half of the CPU falls behind for seconds, and its buffer
/// overflows. Higher: on a machine without idle CPUs the old data stay in use for minutes.
const NICE: i32 = 10;

/// See the module.
pub(super) struct Reloads {
    hook: ReloadHook,
    running: Option<JoinHandle<Result<String, String>>>,
    /// Why the last one did not even begin.
    failed: Option<String>,
    /// Asked for while one was running, which may have read the files before they were changed.
    again: bool,
}

impl Reloads {
    /// Those of a server; `None` if its service has no files.
    pub(super) fn of(server: &Server) -> Option<Self> {
        Some(Self { hook: server.reload_hook()?, running: None, failed: None, again: false })
    }

    /// Whether one is running.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Begins a reload, now or when the one that runs has ended.
    pub(super) fn ask(&mut self) {
        self.again = self.running.is_some();
        if !self.again {
            let hook = ReloadHook::clone(&self.hook);
            let reload = move || {
                // For this thread only. The kernel refuses it if the server's own value is higher, which then holds.
                let _ = rustix::process::setpriority_process(None, NICE);
                hook().map_err(|error| error.to_string())
            };
            match std::thread::Builder::new().name("reload".into()).spawn(reload) {
                Ok(thread) => self.running = Some(thread),
                Err(error) => self.failed = Some(format!("cannot start a thread for it: {error}")),
            }
        }
    }

    /// What a reload that has ended had to say; begins the next one if it was asked for.
    pub(super) fn turn(&mut self) -> Option<String> {
        if let Some(error) = self.failed.take() {
            return Some(not_reloaded(&error));
        }
        let ended = self.running.take_if(|running| running.is_finished())?;
        if std::mem::take(&mut self.again) {
            self.ask();
        }
        Some(match ended.join() {
            Ok(Ok(text)) => format!("reloaded: {text}"),
            Ok(Err(error)) => not_reloaded(&error),
            Err(_panic) => not_reloaded("the reload failed, see above"),
        })
    }
}

fn not_reloaded(why: &str) -> String {
    format!("warning: not reloaded, the old data stay in use: {why}")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::{Arc, Mutex};

    use super::*;

    fn say(reloads: &mut Reloads) -> String {
        loop {
            if let Some(text) = reloads.turn() {
                return text;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn a_reload_is_nicer_than_what_asks_for_it() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let hook = move || Ok(format!("nicer: {}", nice() >= NICE));
        let mut reloads = Reloads { hook: Arc::new(hook), running: None, failed: None, again: false };
        reloads.ask();
        assert_eq!(say(&mut reloads), "reloaded: nicer: true");
        assert_eq!(nice(), before);
    }

    #[test]
    fn reloads_run_one_after_the_other_and_say_how_they_ended() {
        let (go, wait) = mpsc::channel::<Result<String, String>>();
        let wait = Mutex::new(wait);
        let hook: ReloadHook = Arc::new(move || Ok(wait.lock().unwrap().recv()??));
        let mut reloads = Reloads { hook, running: None, failed: None, again: false };
        reloads.ask();
        assert_eq!(reloads.turn(), None, "it runs");
        // Two more while it runs are one.
        reloads.ask();
        reloads.ask();
        go.send(Ok("7 zones".into())).unwrap();
        go.send(Err("a file is wrong".into())).unwrap();
        assert_eq!(say(&mut reloads), "reloaded: 7 zones");
        assert_eq!(say(&mut reloads), "warning: not reloaded, the old data stay in use: a file is wrong");
        assert!(reloads.running.is_none() && !reloads.again);
    }
}
