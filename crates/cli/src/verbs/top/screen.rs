//! The terminal: set up, drawn on, restored.
//!
//! The terminal is restored when the [`Screen`] is dropped, before a panic is printed, and while the program is
//! stopped.

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

/// The terminal in full-screen mode.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    colour: bool,
    extent: Extent,
}

impl Screen {
    /// Switches the terminal to full-screen mode.
    pub(super) fn open(colour: bool) -> io::Result<Self> {
        give_back_before_panics();
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        // If this fails, restore what was changed.
        let terminal = terminal.inspect_err(|_| give_back())?;
        Ok(Self { terminal, colour, extent: Extent::default() })
    }

    /// Draws; sends only the changes since the last time.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>, bool) -> Extent) -> io::Result<()> {
        let (extent, colour) = (&mut self.extent, self.colour);
        self.terminal.draw(|frame| *extent = draw(frame, colour)).map(drop)
    }

    /// Number of lines on the screen.
    pub(super) const fn page(&self) -> usize {
        self.extent.page
    }

    /// Restores the terminal and stops the program; sets the terminal up again when the program continues.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        self.resume()
    }

    /// Sets the terminal up, whatever its state, and discards the previous frame.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        take()?;
        execute!(io::stdout(), Clear(ClearType::All))?;
        // Not `clear`, which queries the cursor position from the terminal, and fails if the reply is slow.
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

/// Restores the terminal. Errors are ignored: the terminal may be gone.
fn give_back() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = io::stdout().flush();
    let _ = disable_raw_mode();
}

/// Restores the terminal before a panic message is printed, so that the message stays visible.
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
