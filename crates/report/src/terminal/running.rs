//! What helps a running server, as text: each group of settings with what it adds, and the command that applies them.

use udpath_advise::result::{Helps, Running};

use super::{Paint, Style};
use crate::words;

/// The section.
pub(crate) fn text(running: &Running, style: Style) -> String {
    let mut out = String::new();
    if !running.kept.is_empty() {
        out += &style.paint(Paint::Dim, "what helps");
        out.push('\n');
    }
    for helps in &running.kept {
        let Helps { name, what, .. } = helps;
        let contribution = words::running::contribution(helps);
        let adds = if contribution.is_empty() { String::new() } else { format!("; {contribution}") };
        out += &style.wrapped(Paint::Plain, &format!("{name}: {what}{adds}"), 2);
    }
    if let Some(command) = words::running::command(running) {
        // On one line, however long it is: to be copied.
        out += &format!("{}\n", words::one_line(&command));
    }
    for left in words::running::left(running) {
        out += &style.wrapped(Paint::Dim, &left, 2);
    }
    out
}
