//! The terminal: taken over, drawn on, given back.
//!
//! The terminal is restored when the [`Screen`] is dropped, before a panic is printed, and while the program is stopped.

use std::io::{self, Stdout, Write};
use std::sync::Once;

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use signal_hook::consts::SIGTSTP;
use udpath_report::top::Extent;

/// The terminal, taken over.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    colour: bool,
    extent: Extent,
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn open(colour: bool) -> io::Result<Self> {
        give_back_before_panics();
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        // What was taken is given back where the rest fails.
        let terminal = terminal.inspect_err(|_| give_back())?;
        Ok(Self { terminal, colour, extent: Extent::default() })
    }

    /// Draws; sends what differs from what was drawn before.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>, bool) -> Extent) -> io::Result<()> {
        let (extent, colour) = (&mut self.extent, self.colour);
        self.terminal.draw(|frame| *extent = draw(frame, colour)).map(drop)
    }

    /// Lines that the screen shows at once.
    pub(super) const fn page(&self) -> usize {
        self.extent.page
    }

    /// Gives the terminal back and stops the program; takes it again when the program goes on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal, whatever became of it, and forgets what was drawn.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        take()?;
        execute!(io::stdout(), Clear(ClearType::All))?;
        // Not its own `clear`, which asks the terminal where the cursor is, and fails where the answer takes long.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// A terminal that has gone needs nothing back.
fn give_back() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = io::stdout().flush();
    let _ = disable_raw_mode();
}

/// What a panic says must stand on the screen that stays.
fn give_back_before_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}
