//! A page as the reader sees it, in a browser without any network: rendered once, or open for interaction.
//!
//! ```text
//! dom(page)          the document after its scripts have run
//! Tab::open(page)    .press("Enter")  .types("udp")  real keys, sent to the focused element
//!                    .look("document.title")         current value of an expression
//! ```
//! A tab is driven with the DevTools protocol (chromedevtools.github.io/devtools-protocol): JSON messages, each
//! terminated by a zero byte, over two pipes that the browser has as descriptors 3 and 4.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Run, TIMEOUT};

/// The browser without network, screen or background activity.
const BROWSER: [&str; 12] = [
    "--net",
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1400,2400",
];

/// The document after its scripts have run. `folder` is the browser's profile; `page` may end with a fragment.
///
/// # Panics
/// It cannot be rendered.
#[must_use]
pub fn dom(folder: &Path, page: &str) -> String {
    let mut command = Command::new("unshare");
    command.args(BROWSER).arg(format!("--user-data-dir={}", folder.display()));
    command.arg("--dump-dom").arg(format!("file://{page}"));
    let ended = Run::of(command, "chromium").within(TIMEOUT * 3).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    ended.out
}

/// An open page. Dropping it ends the browser.
#[derive(Debug)]
pub struct Tab {
    browser: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    // Dropped last: the browser writes to it until it exits.
    _folder: TempDir,
}

impl Tab {
    /// Opens a file, and waits until its scripts have run.
    ///
    /// # Panics
    /// The browser cannot be started, or does not show it in time.
    #[must_use]
    pub fn open(page: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder of the browser's own");
        let mut command = Command::new("sh");
        // The shell's own streams become the browser's descriptors 3 and 4.
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", "unshare"]);
        command.args(BROWSER).arg("--remote-debugging-pipe");
        command.arg(format!("--user-data-dir={}", folder.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut browser = command.spawn().expect("chromium is installed by scripts/setup.sh");
        let to = browser.stdin.take().expect("stdin is piped");
        let mut stream = BufReader::new(browser.stdout.take().expect("stdout is piped"));
        let (messages, from) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while stream.read_until(0, &mut bytes).is_ok_and(|length| length > 0) {
                let message = serde_json::from_slice(bytes.strip_suffix(&[0]).unwrap_or(&bytes));
                if message.is_ok_and(|message| messages.send(message).is_err()) {
                    return;
                }
                bytes.clear();
            }
        });
        let mut tab = Self { browser, to, from, session: None, calls: 0, _folder: folder };
        let target = tab.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = tab.call("Target.attachToTarget", &attach);
        tab.session = session["sessionId"].as_str().map(str::to_owned);
        // Without a window, only this gives the page the focus.
        tab.call("Emulation.setFocusEmulationEnabled", &json!({ "enabled": true }));
        tab.call("Page.navigate", &json!({ "url": format!("file://{}", page.display()) }));
        tab.shows("location.protocol + document.readyState", "file:complete");
        tab
    }

    /// Presses and releases a key, by its name in scripts: `Enter`, `Escape`, `Tab`, `ArrowDown`, or a character.
    ///
    /// # Panics
    /// The browser rejects it.
    pub fn press(&mut self, key: &str) {
        // The browser needs the virtual key code for a key's default action: Tab moves the focus.
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            character => (0, character),
        };
        let mut event = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", &event);
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", &event);
    }

    /// Presses the keys of a text, one after another.
    ///
    /// # Panics
    /// See [`Tab::press`].
    pub fn types(&mut self, text: &str) {
        let mut buffer = [0; 4];
        text.chars().for_each(|character| self.press(character.encode_utf8(&mut buffer)));
    }

    /// Evaluates a JavaScript expression.
    ///
    /// # Panics
    /// It throws.
    pub fn look(&mut self, expression: &str) -> Value {
        let ask = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &ask);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression equals `wanted`.
    ///
    /// # Panics
    /// It does not in time.
    pub fn shows(&mut self, expression: &str, wanted: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let is = self.look(expression);
            if is == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{expression} is {is}, never {wanted:?}");
            std::thread::sleep(crate::POLL_INTERVAL);
        }
    }

    /// Sends a request and waits for the reply; events that arrive in between are ignored.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut ask = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            ask["sessionId"] = session.as_str().into();
        }
        let sent = self.to.write_all(format!("{ask}\0").as_bytes());
        sent.unwrap_or_else(|error| panic!("{method}: the browser has ended: {error}"));
        let deadline = Instant::now() + TIMEOUT * 3;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let said = self.from.recv_timeout(left);
            let mut said = said.unwrap_or_else(|error| panic!("{method}: no answer of the browser: {error}"));
            if said["id"] == self.calls {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].take();
            }
        }
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // Asked to close, a browser also ends its child processes; if the pipe is closed, it has already exited.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let deadline = Instant::now() + TIMEOUT;
        while matches!(self.browser.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(crate::POLL_INTERVAL);
        }
        // Both fail only if it has already exited.
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
