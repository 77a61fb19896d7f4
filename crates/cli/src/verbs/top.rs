//! `udpath top`: the path of a datagram live, full-screen, or one interval as text.
//!
//! ```text
//!  Watch (host) ─▸ Map, findings ─▸ Top ─▸ draw (report) ─▸ Screen: cells that changed
//!      ▲ each interval                          ▲
//!      └────────────── events: keys, signals, the next look
//! ```
//! It changes nothing but the terminal, which it restores however it ends.

mod events;
mod input;
mod keys;
mod screen;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Context;
use udpath_host::{Source, Watch};
use udpath_report::top::{self, State, Top};

use super::{machine, show};
use crate::args::top::Args;
use crate::exit::{Done, Failure};
use crate::terminal;
use events::{Event, Events};
use keys::Action;
use screen::Screen;

/// Longest time between the first two snapshots. Shorter: the first rates are inaccurate. Longer: the screen stays
/// empty for longer.
const FIRST: Duration = Duration::from_millis(300);

/// Runs until a key or a signal ends it.
pub(crate) fn run(args: &Args) -> Done {
    if args.place.is_captured() {
        let what = "top needs a live machine; for a capture, use `udpath show --sysroot`";
        return Err(Failure::Usage(what.into()));
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !args.once && !terminal {
        let what = "top needs a terminal as stdin and stdout; --once prints one interval as text";
        return Err(Failure::Usage(what.into()));
    }
    machine::look(&args.place, |source| if args.once { once(args, source) } else { live(args, source) })?
}

fn once(args: &Args, source: &dyn Source) -> Done {
    let mut watch = Watch::default();
    watch.look(source);
    // Report a missing object before the interval, not after it.
    let _ = rates(&watch, args)?;
    std::thread::sleep(args.interval);
    watch.look(source);
    let Some(rates) = rates(&watch, args)? else {
        return Err(Failure::Cannot(anyhow::anyhow!(
            "the clock was set back during the interval: try again"
        )));
    };
    if args.json {
        return terminal::print(&udpath_report::to_json(&rates));
    }
    terminal::print(&top::text(&rates, &terminal::style()))
}

/// The rates of the last interval; `None` before the first.
fn rates(watch: &Watch, args: &Args) -> Result<Option<Top>, Failure> {
    let Some(now) = watch.now() else { return Ok(None) };
    let mut result = show::map(now, watch.earlier(), args.what.as_deref())?;
    result.map.rate_error = watch.rate_error();
    Ok(Top::new(&result))
}

fn live(args: &Args, source: &dyn Source) -> Done {
    let mut watch = Watch::default();
    watch.look(source);
    let _ = rates(&watch, args)?;
    // Before the terminal is changed, so that a signal restores it.
    let mut events = Events::watch().context("cannot watch for signals")?;
    let mut screen = Screen::open(terminal::style().colour).context("cannot set up the terminal")?;
    let mut state = State::new(args.interval);
    let mut shown: Result<Option<Top>, Failure> = Ok(None);
    let mut next = Instant::now() + args.interval.min(FIRST);
    loop {
        if !state.paused && Instant::now() >= next {
            watch.look(source);
            shown = rates(&watch, args);
            next = Instant::now() + state.interval;
        }
        let (top, note) = match &shown {
            Ok(top) => (top.as_ref(), None),
            // A port may come back when its server restarts.
            Err(Failure::Usage(why)) => (None, Some(why.as_str())),
            Err(_) => return shown.map(drop),
        };
        screen
            .draw(|frame, colour| {
                let extent = top::draw(frame, top, &state, args.what.as_deref(), note, colour);
                state.settle(extent.lines, extent.page);
                extent
            })
            .context("cannot write to the terminal")?;
        let wait = if state.paused { None } else { Some(next.saturating_duration_since(Instant::now())) };
        for event in events.wait(wait).context("cannot wait for keys")? {
            let request = match event {
                Event::Key(key) => keys::press(&mut state, key, screen.page()),
                Event::End => Some(Action::End),
                Event::Stop => Some(Action::Stop),
                // A shell may have changed the terminal's modes, or another program has written to it.
                Event::Resumed => {
                    screen.resume().context("cannot set up the terminal")?;
                    None
                }
                Event::Resized => None,
            };
            match request {
                Some(Action::End) => return Ok(()),
                Some(Action::Stop) => screen.suspend().context("cannot restore the terminal")?,
                Some(Action::Anew) => {
                    screen.resume().context("cannot set up the terminal")?;
                    watch.expire();
                    next = Instant::now();
                }
                None => {}
            }
        }
        next = next.min(Instant::now() + state.interval);
    }
}
