//! What helps a running server, as text: each group of settings with what it adds, and the command that applies them.

use udpath_advise::result::Running;

use super::table::{Cell, Table};
use super::{Paint, Style};
use crate::words;

/// The section.
pub(crate) fn text(running: &Running, style: Style) -> String {
    let mut out = String::new();
    if !running.kept.is_empty() {
        let mut table = Table::with(vec![Cell::new("what helps"), Cell::new(""), Cell::new("")]);
        for helps in &running.kept {
            let cells = [helps.name.clone(), helps.what.clone(), words::running::contribution(helps)];
            table.row(cells.map(Cell::new).into());
        }
        out += &table.text(style);
    }
    if let Some(command) = words::running::command(running) {
        out += &style.wrapped(Paint::Plain, &command, 2);
    }
    out + &style.wrapped(Paint::Dim, &words::running::left(running), 2)
}
