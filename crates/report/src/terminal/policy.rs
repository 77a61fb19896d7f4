//! Policies as text: a line per option, and programs of others at the same hooks.

use udpath_tune::policy::PolicyReport;

/// Each option with its value and its effect, then the programs of others.
#[must_use]
pub fn text(report: &PolicyReport) -> String {
    let name = report.options.iter().map(|option| option.setting.len()).max().unwrap_or(0);
    let value = report.options.iter().map(|option| option.value.len()).max().unwrap_or(0);
    let mut text = String::new();
    for option in &report.options {
        let note = option.note.as_deref().unwrap_or("in effect");
        text.push_str(&format!("{:name$}  {:>value$}  {note}\n", option.setting, option.value));
    }
    for other in &report.others {
        let named = if other.name.is_empty() { String::new() } else { format!(" ({})", other.name) };
        text.push_str(&format!("also at {}: BPF program {}{named}\n", other.hook, other.id));
    }
    text
}

#[cfg(test)]
mod tests {
    use udpath_tune::policy::{EffectState, Other, Reported, SCHEMA};

    use super::*;

    #[test]
    fn options_are_aligned_and_others_follow() {
        let option = |option, value: &str, state, note: Option<&str>| Reported {
            setting: format!("policy:/a/{option}"),
            cgroup: "/a".into(),
            port: None,
            option,
            value: value.into(),
            state,
            note: note.map(str::to_owned),
        };
        let report = PolicyReport {
            schema: SCHEMA,
            options: vec![
                option("receive-buffer", "8388608", EffectState::InEffect, None),
                option(
                    "mark",
                    "77",
                    EffectState::Later,
                    Some("nothing runs in /a now; in effect when it starts"),
                ),
            ],
            others: vec![Other { hook: "bind4", id: 7, name: "sd_bind4".into() }],
        };
        assert_eq!(
            text(&report),
            "policy:/a/receive-buffer  8388608  in effect\n\
             policy:/a/mark                 77  nothing runs in /a now; in effect when it starts\n\
             also at bind4: BPF program 7 (sd_bind4)\n"
        );
    }
}
