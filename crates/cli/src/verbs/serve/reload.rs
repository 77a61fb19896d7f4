//! Reloads of a service's files, on a thread of their own: the service and its status go on meanwhile.

use std::thread::JoinHandle;

use udpath_serve::{ReloadHook, Server};

/// See the module.
pub(super) struct Reloads {
    hook: ReloadHook,
    running: Option<JoinHandle<Result<String, String>>>,
    /// Asked for while one was running, which may have read the files before they were changed.
    again: bool,
}

impl Reloads {
    /// Those of a server; `None` if its service has no files.
    pub(super) fn of(server: &Server) -> Option<Self> {
        Some(Self { hook: server.reload_hook()?, running: None, again: false })
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
            self.running = Some(std::thread::spawn(move || hook().map_err(|error| error.to_string())));
        }
    }

    /// What a reload that has ended had to say; begins the next one if it was asked for.
    pub(super) fn turn(&mut self) -> Option<String> {
        let ended = self.running.take_if(|running| running.is_finished())?;
        if std::mem::take(&mut self.again) {
            self.ask();
        }
        Some(match ended.join() {
            Ok(Ok(text)) => format!("reloaded: {text}"),
            Ok(Err(error)) => format!("warning: not reloaded, the old data stay in use: {error}"),
            Err(_panic) => {
                "warning: not reloaded, the old data stay in use: the reload failed, see above".into()
            }
        })
    }
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
    fn reloads_run_one_after_the_other_and_say_how_they_ended() {
        let (go, wait) = mpsc::channel::<Result<String, String>>();
        let wait = Mutex::new(wait);
        let hook: ReloadHook = Arc::new(move || Ok(wait.lock().unwrap().recv()??));
        let mut reloads = Reloads { hook, running: None, again: false };
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
