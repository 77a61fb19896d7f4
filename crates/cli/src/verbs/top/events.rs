//! Waits for a key, a signal, or the next look, whichever comes first, without using CPU time.

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

/// How long the rest of a sequence may take after its escape. Shorter: over a slow line an arrow is an Escape and two
/// letters. Longer: Escape answers late.
const REST: Duration = Duration::from_millis(40);

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A key.
    Key(Key),
    /// Give the terminal back and end: a signal says so, or the terminal has gone.
    End,
    /// Give the terminal back and stop.
    Stop,
    /// The program was stopped, and goes on.
    Resumed,
    /// The terminal has another size.
    Resized,
}

/// Signals and keys, awaited together.
pub(super) struct Events {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    input: Input,
}

impl Events {
    /// Takes the signals that concern a terminal.
    pub(super) fn watch() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let signals = [SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH];
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, signals)?;
        Ok(Self { delivery, input: Input::default() })
    }

    /// Waits at most that long, or as long as it takes; gives what happened.
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

    /// Reads what stdin has, which is something, or its end.
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

/// Which of them have something to be read, or have ended.
fn readable<const N: usize>(sources: &[&dyn AsFd; N], most: Option<Duration>) -> io::Result<[bool; N]> {
    let most = most.map(|most| Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    });
    let mut polled = sources.map(|source| PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN));
    match poll(&mut polled, most.as_ref()) {
        Ok(_) => Ok(polled.each_ref().map(|source| !source.revents().is_empty())),
        // By a signal, which its pipe reports.
        Err(Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error.into()),
    }
}
