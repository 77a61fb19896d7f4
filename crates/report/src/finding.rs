//! Findings as text: what was observed, why, and how to fix it.

use udpath_advise::{Finding, ProfileResult, Remedy};

use crate::words;

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
    let remedies: Vec<String> = finding.remedies.iter().map(fix).collect();
    (!remedies.is_empty()).then(|| format!("Fix: {}", remedies.join("; or ")))
}

/// The same with the commands that carry out the remedies with settings, in their order.
pub(crate) fn fixes_with(finding: &Finding, commands: &[String]) -> Option<String> {
    let mut commands = commands.iter();
    let fix = |remedy: &Remedy| match (remedy.settings(), remedy.what()) {
        ([], what) => what.to_owned(),
        (_, what) => commands.next().map_or_else(|| what.to_owned(), |command| format!("{what}: {command}")),
    };
    let remedies: Vec<String> = finding.remedies.iter().map(fix).collect();
    (!remedies.is_empty()).then(|| format!("Fix: {}", remedies.join("; or ")))
}

/// A remedy: what to do, and the udpath command for it if there is one.
fn fix(remedy: &Remedy) -> String {
    let settings = remedy.settings();
    if settings.is_empty() {
        return remedy.what().to_owned();
    }
    let shown: Vec<String> = settings
        .iter()
        .take(SETTINGS)
        .map(|setting| format!("--set {}", words::shell_quoted(setting)))
        .collect();
    let more = settings.len().saturating_sub(SETTINGS);
    let more = if more > 0 { format!(" ... ({more} more: --json)") } else { String::new() };
    format!("{}: udpath plan {}{more}", remedy.what(), shown.join(" "))
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
                Remedy::Changes { what: "do C".into(), settings: settings(&["eth0:rps/rx-*=none"]) },
                Remedy::Advice("do D".into()),
            ],
        };
        assert_eq!(text(&finding), "eth0: A; B");
        let line = fixes(&finding).unwrap();
        assert_eq!(line, "Fix: do C: udpath plan --set 'eth0:rps/rx-*=none'; or do D");
        finding.remedies =
            vec![Remedy::Changes { what: "do".into(), settings: settings(&["a=1", "b=2", "c=3", "d=4"]) }];
        let line = fixes(&finding).unwrap();
        assert_eq!(line, "Fix: do: udpath plan --set a=1 --set b=2 --set c=3 ... (1 more: --json)");
        finding.remedies.clear();
        assert_eq!(fixes(&finding), None);
    }
}
