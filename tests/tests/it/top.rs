//! `udpath top` as its users run it: on a terminal (tmux), and once. Needs root for the lab.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use udpath_rig::{Run, TIMEOUT, awaited, client_and_server, one_sentence, program};

/// A terminal of 80 x 24 with a shell in it. Dropping it ends its tmux server.
struct Pane {
    server: String,
}

impl Pane {
    fn new(name: &str) -> Self {
        let pane = Self { server: format!("udpath-{name}-{}", std::process::id()) };
        pane.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "env PS1='shell> ' sh"]);
        pane.shows("shell>");
        pane
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        // Ignore the user's tmux configuration.
        command.args(["-u", "-L", &self.server, "-f", "/dev/null"]).args(arguments).stdin(Stdio::null());
        let output = command.output().expect("tmux is installed by scripts/setup.sh");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen shows `text`.
    fn shows(&self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{text:?} is not on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the terminal shows the alternate screen, according to tmux.
    fn is_alternate(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    /// Starts `top` from the shell, which prints the exit code.
    fn start(&self, arguments: &str) {
        let line = format!("{} top {arguments}; echo ended with $?", program().display());
        self.press(&[&line, "Enter"]);
        self.shows("[1 overview]");
        self.shows("UDP/s");
        assert!(self.is_alternate());
    }

    /// Waits for its exit, and checks that the terminal is restored: echo, canonical mode, the original screen.
    fn ended(&self, code: u8) {
        self.shows(&format!("ended with {code}"));
        assert!(!self.is_alternate());
        self.press(&["stty -a", "Enter"]);
        let modes = self.shows("min = 1");
        for mode in ["icanon", "echo", "isig", "opost"] {
            let on = modes.split_whitespace().any(|word| word.trim_end_matches(';') == mode);
            assert!(on, "{mode} is off: {modes}");
        }
    }

    /// The pid of `top`.
    fn pid(&self) -> Pid {
        let shell: i32 = self.tmux(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap();
        awaited("the program", TIMEOUT, || {
            let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).ok()?;
            Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
        })
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.server, "kill-server"]).output();
    }
}

#[test]
fn keys_switch_views_and_q_gives_the_terminal_back() {
    let pane = Pane::new("keys");
    pane.start("-i 0.2");
    pane.press(&["Tab"]);
    pane.shows("[2 CPUs]");
    pane.shows("softirq");
    pane.press(&["4"]);
    pane.shows("[4 sockets]");
    pane.press(&["3"]);
    pane.shows("lo/rx-0");
    pane.press(&["/", "no-such-queue", "Enter"]);
    pane.shows("none contains the filter's text");
    pane.press(&["Escape"]);
    pane.shows("lo/rx-0");
    pane.press(&["r"]);
    pane.shows("by queue ▼");
    pane.press(&["?"]);
    pane.shows("any key goes back");
    pane.press(&["x", "Space"]);
    pane.shows("PAUSED");
    pane.press(&["Space", "+"]);
    pane.shows("every 0.5 s");
    pane.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    // The larger screen has room for what the smaller one left out.
    let screen = pane.shows("r reverse");
    assert_eq!(screen.lines().count(), 40, "{screen}");
    pane.press(&["q"]);
    pane.ended(0);
}

#[test]
fn signals_give_the_terminal_back() {
    let pane = Pane::new("signals");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        pane.start("");
        kill_process(pane.pid(), signal).unwrap();
        pane.ended(0);
        pane.press(&["clear", "Enter"]);
    }
}

#[test]
fn stopped_it_gives_the_terminal_back_and_takes_it_again() {
    let pane = Pane::new("stop");
    // A shell without job control would not return.
    pane.press(&["set -m", "Enter"]);
    for stop in ["C-z", "TSTP"] {
        pane.start("-i 0.2");
        if stop == "TSTP" {
            kill_process(pane.pid(), Signal::TSTP).unwrap();
        } else {
            pane.press(&[stop]);
        }
        awaited("the shell's screen", TIMEOUT, || (!pane.is_alternate()).then_some(()));
        pane.press(&["clear; echo the shell is back", "Enter"]);
        pane.shows("the shell is back\n");
        pane.press(&["fg", "Enter"]);
        pane.shows("[1 overview]");
        assert!(pane.is_alternate());
        pane.press(&["2"]);
        pane.shows("[2 CPUs]");
        pane.press(&["q"]);
        awaited("the shell's screen", TIMEOUT, || (!pane.is_alternate()).then_some(()));
        pane.press(&["clear", "Enter"]);
    }
}

/// A socket without a reader, and a thread that sends to it until it is stopped.
#[test]
fn once_shows_the_drops_of_a_socket_that_a_flood_overflows() {
    udpath_lab::needs_root!();
    let lab = client_and_server("top", 2);
    let server = lab.machine("server").unwrap();
    let address = server.towards("client").unwrap().ipv4();
    let full = server.run(|| UdpSocket::bind("0.0.0.0:5353")).unwrap().unwrap();
    let sender = lab.machine("client").unwrap().run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flood = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            // In bursts, so that other programs can run; bounded, in case the test fails.
            for _ in 0..6000 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                for _ in 0..50 {
                    let _ = sender.send_to(&[0; 200], (address, 5353));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    };
    let name = server.namespace().to_owned();
    let text = Run::new(&["top", "--once", "-i", "0.5", "--netns", &name]).finish();
    let json = Run::new(&["top", "5353", "--once", "--json", "-i", "0.5", "--netns", &name]).finish();
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert_eq!((text.code(), json.code()), (Some(0), Some(0)), "{}{}", text.err, json.err);
    let row = text.out.lines().find(|line| line.starts_with('!') && line.contains("0.0.0.0:5353"));
    assert!(row.is_some_and(|row| row.contains("100 %") || row.contains("99 %")), "{}", text.out);
    assert!(
        text.out.contains("datagrams dropped in") && text.out.contains("at 0.0.0.0:5353"),
        "{}",
        text.out
    );
    let top: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(top["schema"], "udpath.top/2");
    let sockets = top["sockets"].as_array().unwrap();
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    assert!(sockets[0]["dropped"].as_f64().unwrap() > 100.0, "{sockets:?}");
    assert_eq!(sockets[0]["pid"], std::process::id());
    let packets = |row: &Value| row["packets"].as_f64().unwrap_or(0.0);
    let interfaces = top["interfaces"].as_array().unwrap();
    assert!(interfaces.iter().any(|row| packets(row) > 100.0), "{interfaces:?}");
    drop(full);
    lab.down().unwrap();
}

#[test]
fn invalid_input_gives_one_sentence() {
    for (arguments, code, part) in [
        (&["top"][..], 2, "--once"),
        (&["top", "--json"], 2, "--once"),
        (&["top", "--sysroot", "/", "--once"], 2, "needs a live machine"),
        (&["top", "-i", "0", "--once"], 2, "10ms"),
        (&["top", "no-such-interface", "--once"], 2, "there is no interface"),
        (&["top", "--netns", "no-such", "--once"], 2, "no-such"),
    ] {
        let ended = Run::new(arguments).finish();
        assert_eq!(ended.code(), Some(code), "{arguments:?}: {}", ended.err);
        one_sentence(&ended.shown, &ended.err);
        assert!(ended.err.contains(part), "{}", ended.err);
        assert_eq!(ended.out, "");
    }
}
