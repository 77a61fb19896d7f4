//! Runs experiments one after the other, and puts published, measured and modelled figures side by side.

use std::time::Instant;

use crate::description::Description;
use crate::entry::{Context, Entry, Error, Found, Watch};
use crate::outcome::{CaseOutcome, ComparisonOutcome, Modelled, Outcome};
use crate::verdict::Verdict;

/// Measures one experiment.
///
/// # Errors
/// Its description is wrong, it cannot be measured, or the run was interrupted.
pub fn run(entry: &Entry, context: &Context<'_>, watch: &mut Watch<'_>) -> Result<Outcome, Error> {
    let description = Description::parse(entry.text)?;
    let began = Instant::now();
    let found = (entry.measure)(&description, context, watch)?;
    Ok(outcome(description, found, context.modelled, began.elapsed().as_secs_f64()))
}

/// Puts the figures side by side.
fn outcome(
    description: Description,
    mut found: Found,
    modelled: &dyn Fn(&str) -> Option<Modelled>,
    seconds: f64,
) -> Outcome {
    let mut missing = std::mem::take(&mut found.missing);
    let cases: Vec<_> = description
        .cases
        .iter()
        .map(|case| {
            let found = found.cases.remove(&case.id);
            let why_not = missing.remove(&case.id).or_else(|| case.not_here.clone());
            let not_measured = if found.is_none() { why_not } else { None };
            let (measured, measured_cpu, limited_by) =
                found.map_or((None, None, None), |found| (Some(found.measured), found.cpu, found.limited_by));
            CaseOutcome {
                id: case.id.clone(),
                label: case.label.clone(),
                group: case.group.clone(),
                unit: case.unit,
                published: case.published,
                place: case.place.clone(),
                measured,
                published_cpu: case.published_cpu,
                measured_cpu,
                modelled: case.model.as_deref().and_then(modelled),
                not_measured,
                limited_by,
            }
        })
        .collect();
    let model_of = |id: &str| cases.iter().find(|case| case.id == id)?.modelled;
    let comparisons = description
        .comparisons
        .iter()
        .map(|pair| {
            let published = description.published(pair);
            let measured = found.ratios.remove(&(pair.of.clone(), pair.to.clone()));
            let modelled = model_of(&pair.of).zip(model_of(&pair.to)).map(|(of, to)| of.value / to.value);
            let verdict = match (&measured, modelled) {
                (Some(measured), _) => match pair.published_order {
                    Some(order) => Verdict::of_order(order, &measured.ratio),
                    None => Verdict::of_measured(published, &measured.ratio),
                },
                (None, Some(modelled)) => Verdict::of_modelled(published, modelled),
                (None, None) => Verdict::NotMeasured,
            };
            let (measured, cause) = measured.map_or((None, None), |found| (Some(found.ratio), found.cause));
            let cause = cause.filter(|_| verdict != Verdict::SameFactor);
            let why = match (cause, pair.note.clone()) {
                (Some(cause), Some(note)) => Some(format!("{cause} {note}")),
                (cause, note) => cause.or(note),
            };
            ComparisonOutcome {
                of: pair.of.clone(),
                to: pair.to.clone(),
                published,
                published_order: pair.published_order,
                measured,
                modelled,
                verdict,
                why,
            }
        })
        .collect();
    Outcome {
        name: description.name,
        title: description.title,
        question: description.question,
        topology: description.topology,
        source: description.source,
        seconds,
        cases,
        comparisons,
        sweeps: found.sweeps,
        tables: found.tables,
        notes: found.notes,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use udpath_advise::result::Ratio;

    use super::*;
    use crate::entry::{CaseFound, RatioFound};
    use crate::outcome::Measured;

    const TEXT: &str = r#"
        name = "made-up"
        title = "Two sockets"
        question = "Are two sockets faster than one?"
        topology = "A link."
        [source]
        title = "A document"
        by = "Somebody"
        machine = "A machine"
        [[case]]
        id = "one"
        label = "one socket"
        unit = "tps"
        published = 100.0
        model = "m.one"
        [[case]]
        id = "two"
        label = "two sockets"
        unit = "tps"
        published = 190.0
        model = "m.two"
        [[case]]
        id = "twenty"
        label = "twenty sockets"
        unit = "tps"
        published = 1500.0
        not-here = "this needs twenty cores"
        [[comparison]]
        of = "two"
        to = "one"
        [[comparison]]
        of = "twenty"
        to = "one"
    "#;

    fn model(id: &str) -> Option<Modelled> {
        let value = match id {
            "m.one" => 50.0,
            "m.two" => 95.0,
            _ => return None,
        };
        Some(Modelled { value, low: value, high: value })
    }

    #[test]
    fn measured_ratios_are_judged_and_keep_their_cause_only_where_they_differ() {
        let cause = || Some("the lock is contended".to_owned());
        for (ratio, verdict, why) in [
            (Ratio { ratio: 1.9, low: 1.8, high: 2.0 }, Verdict::SameFactor, None),
            (Ratio { ratio: 0.8, low: 0.7, high: 0.9 }, Verdict::Differs, cause()),
        ] {
            let pair = ("two".to_owned(), "one".to_owned());
            let measured = Measured { median: 10.0, low: 9.0, high: 11.0, trials: 8 };
            let found = Found {
                cases: BTreeMap::from([("one".into(), CaseFound { measured, cpu: None, limited_by: None })]),
                ratios: BTreeMap::from([(pair, RatioFound { ratio, cause: cause() })]),
                ..Found::default()
            };
            let outcome = outcome(Description::parse(TEXT).unwrap(), found, &model, 1.0);
            assert_eq!((outcome.comparisons[0].verdict, outcome.comparisons[0].why.clone()), (verdict, why));
            assert_eq!(outcome.cases[0].measured, Some(measured));
            assert_eq!(outcome.cases[2].not_measured.as_deref(), Some("this needs twenty cores"));
            assert_eq!(outcome.comparisons[1].verdict, Verdict::NotMeasured);
        }
    }

    #[test]
    fn what_is_not_measured_is_judged_by_the_model() {
        let outcome = outcome(Description::parse(TEXT).unwrap(), Found::default(), &model, 1.0);
        assert_eq!(outcome.comparisons[0].verdict, Verdict::SameFactor);
        assert_eq!(outcome.comparisons[0].modelled, Some(1.9));
    }

    #[test]
    fn descriptions_that_contradict_themselves_are_refused() {
        let refused =
            |from: &str, to: &str| Description::parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(refused("id = \"two\"", "id = \"one\"").contains("two cases are called `one`"));
        assert!(
            refused("of = \"twenty\"", "of = \"thirty\"").contains("the case `thirty`, which does not exist")
        );
        assert!(refused("of = \"two\"", "of = \"one\"").contains("names the case `one` twice"));
        let order = "of = \"two\"\npublished-order = \"faster\"";
        assert!(
            refused("of = \"two\"", order).contains("contradicts their published ratio; give one of both")
        );
        assert!(refused("190.0", "-1.0").contains("-1 is not a published figure"));
        assert!(refused("question", "querstion").contains("cannot read the description"));
    }
}
