//! One file per verb: the call of the crates with its arguments, and the output.

pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod boost;
pub(crate) mod capacity;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod diagnose;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod lab;
mod levers;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod multiply;
mod page;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod predict;
pub(crate) mod profile;
mod record;
pub(crate) mod report;
pub(crate) mod revert;
pub(crate) mod serve;
mod server_options;
mod settings;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod top;
pub(crate) mod undo;
pub(crate) mod version;

use udpath_host::shell::quoted;
use udpath_protocols::PROTOCOLS;

/// The command line of this run, quoted where a shell needs it: a result is kept and passed on, so that the value of an
/// option that is a secret is its placeholder.
fn command() -> String {
    without_secrets(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
}

fn without_secrets(words: impl Iterator<Item = String>) -> String {
    let options =
        || PROTOCOLS.iter().flat_map(|protocol| [protocol.load_options, protocol.serve_options]).flatten();
    let placeholder = |name: &str| options().find(|option| option.secret && option.name == name)?.value;
    let mut shown = vec!["udpath".to_owned()];
    let mut hidden = None;
    for word in words {
        if let Some(placeholder) = hidden.take() {
            shown.push(quoted(placeholder));
            continue;
        }
        let name = word.strip_prefix("--").map(|rest| rest.split_once('=').map_or(rest, |(name, _)| name));
        match name.and_then(|name| Some((name, placeholder(name)?))) {
            Some((name, placeholder)) if word.contains('=') => {
                shown.push(quoted(&format!("--{name}={placeholder}")));
            }
            Some((_, placeholder)) => {
                hidden = Some(placeholder);
                shown.push(word);
            }
            None => shown.push(quoted(&word)),
        }
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_kept_has_no_secret() {
        for (given, kept) in [
            ("boost --port 53 --load dns 127.0.0.1", "udpath boost --port 53 --load dns 127.0.0.1"),
            ("load radius ::1 --secret x --flows 4", "udpath load radius ::1 --secret SECRET --flows 4"),
            (
                "load radius ::1 --secret=x --secret-file f",
                "udpath load radius ::1 --secret=SECRET --secret-file f",
            ),
            ("load snmp ::1 --user u --auth sha:x", "udpath load snmp ::1 --user u --auth HASH:PASSWORD"),
            (
                "load snmp ::1 --priv=aes:x --community",
                "udpath load snmp ::1 --priv=aes:PASSWORD --community",
            ),
            ("load snmp ::1 --community -x", "udpath load snmp ::1 --community NAME"),
        ] {
            assert_eq!(without_secrets(given.split(' ').map(str::to_owned)), kept);
        }
    }
}
