//! How the trials of a climb were run.

use udpath_advise::result::BoostResult;
use udpath_advise::result::Duets;

/// How the rungs of a climb were compared, in trials in turn or at once, and what the latter was worth.
pub(crate) fn compared(result: &BoostResult) -> String {
    let Some(duets) = &result.duets else {
        return "Each rung makes one change and is compared with the best rung before it, in trials that alternate between the \
                two. A rung that is not better is undone, and still shown."
            .to_owned();
    };
    let [one, other] = &duets.cpus;
    format!(
        "Each rung makes one change and is compared with the best rung before it: both at once, one on CPUs {one}, the other on \
         CPUs {other}, swapped after each trial; {}. A rung that is not better is undone, and still shown.",
        gain(duets)
    )
}

/// What comparing at once was worth; none in turn.
pub(crate) fn worth(result: &BoostResult) -> Option<String> {
    let duets = result.duets.as_ref()?;
    let [one, other] = &duets.cpus;
    Some(format!("two rungs at a time, on CPUs {one} and {other}, swapped after each trial: {}", gain(duets)))
}

fn gain(duets: &Duets) -> String {
    let turns = format!("than those of trials in turn that take as long (median of {} rungs)", duets.rungs);
    match duets.narrower {
        Some(narrower) if narrower >= 1.0 => format!("intervals are {narrower:.1} times narrower {turns}"),
        Some(narrower) => format!("intervals are {:.1} times wider {turns}", 1.0 / narrower.max(1e-3)),
        None => "too few trials to compare their intervals with those of trials in turn".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_duets_were_worth() {
        let mut result = BoostResult {
            duets: None,
            ..serde_json::from_str(include_str!("../../tests/fixtures/made-up-boost.json")).unwrap()
        };
        assert_eq!(worth(&result), None);
        assert!(compared(&result).contains("alternate"));
        let mut said = |narrower| {
            let cpus = ["0-3", "4-7"].map(|side| side.parse().unwrap());
            result.duets = Some(Duets { cpus, rungs: 5, narrower });
            worth(&result).unwrap()
        };
        let of = "two rungs at a time, on CPUs 0-3 and 4-7, swapped after each trial: intervals are";
        let turns = "than those of trials in turn that take as long (median of 5 rungs)";
        assert_eq!(said(Some(2.34)), format!("{of} 2.3 times narrower {turns}"));
        assert_eq!(said(Some(0.5)), format!("{of} 2.0 times wider {turns}"));
        assert!(
            said(None).ends_with("too few trials to compare their intervals with those of trials in turn")
        );
        assert!(compared(&result).contains("one on CPUs 0-3, the other on CPUs 4-7"));
    }
}
