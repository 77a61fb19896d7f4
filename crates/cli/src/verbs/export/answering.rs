//! The process that answers clients: without privileges, and without a look at the machine.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use udpath_report::MetricsFormat;

use super::reading::{OPEN_METRICS, READ, TEXT, ask};
use super::server::{self, Format};
use crate::args::export::AnswerArgs;
use crate::confine::{self, Choice, Needs};
use crate::exit::Done;

/// Answers until SIGTERM.
pub(super) fn run(args: &AnswerArgs) -> Done {
    let stop = Arc::new(AtomicBool::new(false));
    // A terminal's ^C and its end reach both processes: the other passes them on as SIGTERM, which systemd sends to
    // both too.
    for signal in [SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::default()).context("cannot watch for signals")?;
    }
    signal_hook::flag::register(SIGTERM, Arc::clone(&stop)).context("cannot watch for signals")?;
    let owned = |fd: io::Result<_>| fd.context("this is started by `udpath export`");
    let listener = TcpListener::from(owned(io::stdin().as_fd().try_clone_to_owned())?);
    let reader = UnixStream::from(owned(io::stdout().as_fd().try_clone_to_owned())?);
    let address =
        listener.local_addr().context("stdin is not a listener: this is started by `udpath export`")?;
    let user = Choice::of(args.user.user.as_deref())?;
    let needs = Needs::SERVER.require(args.user.require_confinement);
    confine::before_threads(&user, &needs)?;
    confine::give_up(&user, &needs)?;
    // After the change of user, which resets it.
    set_parent_process_death_signal(Some(Signal::TERM))
        .context("cannot follow the end of `udpath export`")?;
    stderrln!("ready http://{address}/metrics");
    let asked = |request| match ask(&reader, request) {
        Ok(answer) => answer,
        Err(error) => {
            // Whoever reads the machine has ended.
            stop.store(true, Ordering::Relaxed);
            Err(format!("the process that reads the machine has ended: {error}"))
        }
    };
    let mut look = || {
        asked(READ)?;
        let format: Format<'_> = Box::new(|format| {
            asked(match format {
                MetricsFormat::OpenMetrics => OPEN_METRICS,
                MetricsFormat::Text => TEXT,
            })
        });
        Ok(format)
    };
    server::serve(&listener, &stop, server::LIMIT, &mut look).context("cannot wait for clients")?;
    Ok(())
}
