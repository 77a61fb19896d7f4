//! Findings as text: what was observed, why, and how to fix it.

use udpath_advise::{Finding, ProfileResult, Remedy};
use udpath_host::shell::quoted;

use crate::unbroken::unbroken;
use crate::units;

/// Is this finding already part of the profile's sentence?
pub(crate) fn is_said(result: &ProfileResult, finding: &Finding) -> bool {
    // Without the share at its start, if there is one: the sentence says only once what shares are of.
    let words =
        finding.evidence.split_once(" % of CPU time ").map_or(finding.evidence.as_str(), |(_, what)| what);
    result.sentence.contains(words)
}

/// A finding as text: the observation and its cause.
pub(crate) fn text(finding: &Finding) -> String {
    if finding.cause.is_empty() {
        finding.evidence.clone()
    } else {
        format!("{}; {}", finding.evidence, finding.cause)
    }
}

/// Most settings of a remedy shown as text; the JSON has all of them.
const SETTINGS: usize = 3;

/// The remedies of a finding as one line: `Fix: A; or B`. `None` if it has none.
pub(crate) fn fixes(finding: &Finding) -> Option<String> {
    all_fixes(finding, str::to_owned)
}

/// The same for a text that gets wrapped: no line ends within a command.
pub(crate) fn fixes_to_wrap(finding: &Finding) -> Option<String> {
    all_fixes(finding, unbroken)
}

fn all_fixes(finding: &Finding, command: fn(&str) -> String) -> Option<String> {
    let remedies: Vec<String> = finding.remedies.iter().map(|remedy| fix(remedy, command)).collect();
    (!remedies.is_empty()).then(|| format!("Fix: {}", remedies.join("; or ")))
}

/// A part of a text: words, which may be broken into lines, or a command, which has a line of its own and must not be:
/// what is copied to a shell would be two commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Words(String),
    Command(String),
}

/// The same in parts, with the commands that carry out the remedies, and the rate to expect.
pub(crate) fn fixes_with(finding: &Finding) -> Vec<Part> {
    let mut parts = Vec::new();
    for (at, remedy) in finding.remedies.iter().enumerate() {
        let lead = if at == 0 { "Fix: " } else { "or " };
        parts.extend(with_command(lead, remedy));
    }
    parts
}

/// A remedy: what to do and the rate to expect, after `lead`; and the command for it if there is one.
pub(crate) fn with_command(lead: &str, remedy: &Remedy) -> Vec<Part> {
    let told = told(remedy);
    match remedy.command() {
        Some(command) => vec![Part::Words(format!("{lead}{told}:")), Part::Command(command)],
        None => vec![Part::Words(format!("{lead}{told}"))],
    }
}

/// What to do, and the rate to expect.
fn told(remedy: &Remedy) -> String {
    let expected = match remedy {
        Remedy::Command { expected: Some(rate), .. } => format!(" (about {}/s to expect)", units::tps(*rate)),
        _ => String::new(),
    };
    format!("{}{expected}", remedy.what())
}

/// A remedy on one line, with its command, in this form, if it has one.
pub(crate) fn on_one_line(remedy: &Remedy, form: fn(&str) -> String) -> String {
    match remedy.command() {
        Some(command) => format!("{}: {}", told(remedy), form(&command)),
        None => told(remedy),
    }
}

/// A remedy: what to do, and the udpath command for it if there is one.
fn fix(remedy: &Remedy, form: fn(&str) -> String) -> String {
    if let Remedy::Command { .. } = remedy {
        return on_one_line(remedy, form);
    }
    let settings = remedy.settings();
    if settings.is_empty() {
        return remedy.what().to_owned();
    }
    let shown: Vec<String> =
        settings.iter().take(SETTINGS).map(|setting| format!("--set {}", quoted(setting))).collect();
    let more = settings.len().saturating_sub(SETTINGS);
    let more = if more > 0 { format!(" ... ({more} more: --json)") } else { String::new() };
    format!("{}: {}{more}", remedy.what(), form(&format!("{} {}", remedy.verb("plan"), shown.join(" "))))
}

#[cfg(test)]
mod tests {
    use udpath_advise::Severity;

    use super::*;

    #[test]
    fn remedies_are_a_line_with_commands_to_copy() {
        let settings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let mut finding = Finding {
            id: "x".into(),
            severity: Severity::Limit,
            locations: Vec::new(),
            share: None,
            rate: None,
            evidence: "eth0: A".into(),
            cause: "B".into(),
            remedies: vec![
                Remedy::Changes {
                    what: "do C".into(),
                    settings: settings(&["eth0:rps/rx-*=none"]),
                    netns: None,
                },
                Remedy::Command {
                    what: "do E".into(),
                    command: "udpath x -n 2".into(),
                    expected: Some(203_000.0),
                },
                Remedy::Advice("do D".into()),
            ],
        };
        assert_eq!(text(&finding), "eth0: A; B");
        let line = fixes(&finding).unwrap();
        assert_eq!(
            line,
            "Fix: do C: udpath plan --set 'eth0:rps/rx-*=none'; or do E (about 203 k/s to expect): udpath x -n 2; or do D"
        );
        let words = |text: &str| Part::Words(text.into());
        let command = |text: &str| Part::Command(text.into());
        assert_eq!(
            fixes_with(&finding),
            [
                words("Fix: do C:"),
                command("udpath apply --set 'eth0:rps/rx-*=none'"),
                words("or do E (about 203 k/s to expect):"),
                command("udpath x -n 2"),
                words("or do D")
            ]
        );
        finding.remedies = vec![Remedy::Changes {
            what: "do".into(),
            settings: settings(&["a=1", "b=2", "c=3", "d=4"]),
            netns: None,
        }];
        let line = fixes(&finding).unwrap();
        assert_eq!(line, "Fix: do: udpath plan --set a=1 --set b=2 --set c=3 ... (1 more: --json)");
        let netns = udpath_advise::Netns { name: "dns".into(), pid: None };
        finding.place(&netns);
        assert!(fixes(&finding).unwrap().starts_with("Fix: do: udpath plan --netns dns --set a=1 "));
        finding.remedies.clear();
        assert_eq!(fixes(&finding), None);
    }
}
