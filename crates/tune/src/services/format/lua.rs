//! dnsdist: the calls of a Lua program that say where it listens. The rest of the program is not understood.

use super::{Directive, Parsed, numbered, span};

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for (number, _, line) in numbered(text) {
        let code = line.split("--").next().unwrap_or_default().trim();
        for key in ["addLocal", "setLocal"] {
            let arguments =
                code.strip_prefix(key).map(str::trim_start).and_then(|rest| rest.strip_prefix('('));
            let Some(arguments) = arguments else { continue };
            let arguments = arguments.rsplit_once(')').map_or(arguments, |(inside, _)| inside).trim();
            parsed.directives.push(Directive {
                section: None,
                key: key.to_owned(),
                value: arguments.to_owned(),
                span: span(text, arguments),
                line: number,
            });
        }
    }
    parsed
}
