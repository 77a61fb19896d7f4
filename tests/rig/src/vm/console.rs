//! The last lines of a machine's console; after a kernel panic, the lines from its first message on.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};

/// Lines kept. Enough for a panic's message and its call trace; the rest is registers.
const LINES: usize = 24;
/// Longest line kept, bytes. The kernel's are shorter (`PRINTKRB_RECORD_MAX` is 1,024); a guest's output may be longer.
const LINE: u64 = 1024;
/// What the kernel prints on a panic (`kernel/panic.c`).
const PANIC: &str = "Kernel panic - not syncing";
/// What it prints before, if an exception is the cause (`arch/x86/kernel/traps.c`, `arch/x86/mm/fault.c`).
const TROUBLE: [&str; 5] = ["BUG: ", "Oops: ", "general protection fault", "divide error", "invalid opcode"];
/// What init.sh prints first: the kernel came up.
const STARTED: &str = "init: started";

/// The end of a console's output.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    /// Keep the lines from here on instead of the last ones.
    troubled: bool,
    panicked: bool,
    /// The first process began to run.
    started: bool,
}

impl Tail {
    /// Reads a console until it is closed. Control characters are dropped.
    pub(crate) fn read(from: impl Read) -> Self {
        let mut tail = Self::default();
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        // A read error means that there is no more output.
        while matches!(from.by_ref().take(LINE).read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line);
            let text: String = text.chars().filter(|c| !c.is_control()).collect();
            tail.add(text.trim_end());
            line.clear();
        }
        tail
    }

    fn add(&mut self, line: &str) {
        let panic = line.contains(PANIC);
        self.started |= line.contains(STARTED);
        if !self.troubled && (panic || TROUBLE.iter().any(|words| line.contains(words))) {
            self.troubled = true;
            self.lines.clear();
        }
        // Reserve room for the panic's message even after a long trace.
        if line.trim().is_empty() || (self.troubled && self.lines.len() >= LINES && !panic) {
            return;
        }
        self.panicked |= panic;
        self.lines.push_back(line.to_owned());
        if !self.troubled && self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    pub(crate) fn panicked(&self) -> bool {
        self.panicked
    }

    /// Whether the first process began to run.
    pub(crate) fn started(&self) -> bool {
        self.started
    }

    /// Everything in one line.
    pub(crate) fn sentence(&self) -> String {
        match self.lines.len() {
            0 => "it said nothing".to_owned(),
            _ => self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("; "),
        }
    }

    /// One line below the other, indented.
    pub(crate) fn text(&self) -> String {
        match self.lines.len() {
            0 => "\n    (nothing)".to_owned(),
            _ => self.lines.iter().map(|line| format!("\n    {line}")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_stay_and_a_panic_is_seen() {
        let many: String = (0..100).map(|n| format!("\u{1b}[1mline {n}\r\n\r\n")).collect();
        let tail = Tail::read(many.as_bytes());
        assert_eq!((tail.lines.len(), tail.panicked()), (LINES, false));
        assert_eq!(tail.lines[LINES - 1], "[1mline 99");
        let text = format!("[  1.0] Kernel panic - not syncing: no init\n{many}");
        let tail = Tail::read(text.as_bytes());
        assert!(tail.panicked() && tail.text().contains("no init") && tail.text().contains("line 22"));
        assert!(!tail.text().contains("line 23"));
        assert!(!tail.started() && Tail::read(format!("{STARTED}\r\n{text}").as_bytes()).started());
        let text =
            format!("boot\n[ 1.0] BUG: unable to handle page fault\n{many}[ 1.1] {PANIC}: Fatal exception\n");
        let tail = Tail::read(text.as_bytes());
        assert!(
            tail.panicked() && tail.text().contains("page fault") && tail.text().contains("Fatal exception")
        );
        assert!(!tail.text().contains("boot"));
        let endless = vec![b'x'; 5000];
        assert_eq!(Tail::read(endless.as_slice()).lines.len(), 5);
        assert_eq!(Tail::read(&b""[..]).text(), "\n    (nothing)");
        assert_eq!(Tail::read(&b"one\ntwo\n"[..]).sentence(), "one; two");
    }
}
