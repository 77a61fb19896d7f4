//! The ban list of the running irqbalance, over its own socket.
//!
//! ```text
//! /run/irqbalance/irqbalancePID.sock     one request per connection, answered in text, then closed
//!   setup                       -> SLEEP 10 IRQ 57 LOAD 0 DIFF 0 CLASS 5 ... BANNED 00000000
//!   settings ban irqs 57 58     replaces the whole list; NONE empties it
//! ```
//! It checks the credentials that the kernel attaches, and answers only root. It forgets the list when it exits.
//! Source: irqbalance(1), "API", and its `sock_handle`.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The directory of its socket.
const FOLDER: &str = "/run/irqbalance";
/// Longest request it reads, bytes; the rest is silently dropped.
const MAX_REQUEST: usize = 500;
/// Timeout. It answers between its rounds, immediately except while it reads /proc/interrupts. Shorter: on a busy
/// machine right after its boot, one that is alive is taken for gone (5 s did in an emulated machine). Longer: one that
/// hangs holds up every command.
const TIMEOUT: Duration = Duration::from_secs(20);

/// IRQs that were banned over the socket or its command line.
pub(super) fn banned(pid: u32) -> io::Result<BTreeSet<u32>> {
    let answer = ask(pid, "setup")?;
    parse(&answer).ok_or_else(|| match answer.as_str() {
        "" => io::Error::other("irqbalance does not answer: its hardened unit may block requests"),
        _ => {
            io::Error::other(format!("irqbalance answered '{}'", answer.chars().take(80).collect::<String>()))
        }
    })
}

/// Bans exactly these IRQs.
pub(super) fn ban(pid: u32, irqs: &BTreeSet<u32>) -> io::Result<()> {
    let list: Vec<String> = irqs.iter().map(u32::to_string).collect();
    let list = if list.is_empty() { "NONE".to_owned() } else { list.join(" ") };
    let request = format!("settings ban irqs {list}");
    if request.len() >= MAX_REQUEST {
        return Err(io::Error::other(format!(
            "irqbalance does not accept a list of {} IRQs; ban them with a policy script, or stop it",
            irqs.len()
        )));
    }
    ask(pid, &request).map(|_| ())
}

fn ask(pid: u32, request: &str) -> io::Result<String> {
    let path = PathBuf::from(FOLDER).join(format!("irqbalance{pid}.sock"));
    let mut socket = UnixStream::connect(&path).map_err(|error| {
        io::Error::other(format!("cannot connect to its socket {}: {error}", path.display()))
    })?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    // It reads numbers until a non-digit follows, and does not terminate the text itself.
    socket.write_all(format!("{request}\0").as_bytes())?;
    socket.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        // It may close without reading everything, or without an answer.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&answer).trim_end_matches('\0').trim().to_owned())
}

/// The IRQs in an answer to `setup`; `None` if it is malformed.
fn parse(answer: &str) -> Option<BTreeSet<u32>> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    if words.first() != Some(&"SLEEP") || !words.contains(&"BANNED") {
        return None;
    }
    words.windows(2).filter(|pair| pair[0] == "IRQ").map(|pair| pair[1].parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_answers_are_parsed() {
        let answer =
            "SLEEP 10 IRQ 57 LOAD 0 DIFF 12 CLASS 5 IRQ 9 LOAD 1 DIFF 0 CLASS 0 BANNED 00000000,00000003";
        assert_eq!(parse(answer), Some(BTreeSet::from([9, 57])));
        assert_eq!(parse("SLEEP 10 BANNED 00000000"), Some(BTreeSet::new()));
        for strange in ["", "IRQ 5", "SLEEP 10 IRQ x BANNED 0", "SLEEP"] {
            assert_eq!(parse(strange), None, "{strange}");
        }
    }
}
