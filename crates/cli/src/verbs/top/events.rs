//! Waits for a key, a signal, or the next update, whichever comes first, without using CPU time.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::input::{Input, Key};

/// Longest gap between an escape and the rest of its sequence. Shorter: over a slow line, an arrow key is read as
/// Escape and two letters. Longer: Escape responds late.
const REST: Duration = Duration::from_millis(40);

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A key.
    Key(Key),
    /// Restore the terminal and exit: on a signal, or because the terminal is gone.
    End,
    /// Restore the terminal and stop.
    Stop,
    /// The program was stopped and continues.
    Resumed,
    /// The terminal was resized.
    Resized,
}

/// Waits for signals and keys together.
pub(super) struct Events {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    input: Input,
}

impl Events {
    /// Watches the signals that concern a terminal.
    pub(super) fn watch() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let signals = [SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH];
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, signals)?;
        Ok(Self { delivery, input: Input::default() })
    }

    /// Waits for `most`, or indefinitely without it; returns the events.
    pub(super) fn wait(&mut self, most: Option<Duration>) -> io::Result<Vec<Event>> {
        let ready = readable(&[&io::stdin(), self.delivery.get_read()], most)?;
        let signals = self.delivery.pending().map(|signal| match signal {
            SIGTSTP => Event::Stop,
            SIGCONT => Event::Resumed,
            SIGWINCH => Event::Resized,
            _ => Event::End,
        });
        let mut events: Vec<Event> = signals.collect();
        if ready[0] {
            self.read(&mut events)?;
        }
        Ok(events)
    }

    /// Reads stdin, which has data or has ended.
    fn read(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut bytes = [0; 256];
        loop {
            match rustix::io::read(io::stdin(), &mut bytes) {
                Ok(0) | Err(Errno::IO) => events.push(Event::End),
                Ok(count) => events.extend(self.input.keys(&bytes[..count]).into_iter().map(Event::Key)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
            if !self.input.is_escape() {
                return Ok(());
            }
            if !readable(&[&io::stdin()], Some(REST))?[0] {
                events.push(Event::Key(self.input.escape()));
                return Ok(());
            }
        }
    }
}

/// Which of the sources are readable or have ended.
fn readable<const N: usize>(sources: &[&dyn AsFd; N], most: Option<Duration>) -> io::Result<[bool; N]> {
    let most = most.map(|most| Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    });
    let mut polled = sources.map(|source| PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN));
    match poll(&mut polled, most.as_ref()) {
        Ok(_) => Ok(polled.each_ref().map(|source| !source.revents().is_empty())),
        // Interrupted by a signal, which its pipe reports.
        Err(Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error.into()),
    }
}
