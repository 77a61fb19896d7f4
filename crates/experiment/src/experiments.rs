//! The list of experiments: a module and a description in `data` each.

use crate::entry::Entry;

mod epochs;
mod ladder;
mod overheads;
mod receive;
mod rps;

/// All experiments, in the order in which they run.
pub const EXPERIMENTS: &[Entry] =
    &[ladder::ENTRY, rps::ENTRY, receive::ENTRY, epochs::ENTRY, overheads::ENTRY];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::EXPERIMENTS;
    use crate::description::Description;

    #[test]
    fn every_description_is_valid_and_its_name_unique() {
        let mut names = BTreeSet::new();
        for entry in EXPERIMENTS {
            let description =
                Description::parse(entry.text).unwrap_or_else(|error| panic!("{error:?}: {}", entry.text));
            let typed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(description.name.chars().all(typed), "{} cannot be typed", description.name);
            assert!(
                names.insert(description.name.clone()),
                "two experiments are called {}",
                description.name
            );
            assert!(description.question.ends_with('?'), "{}", description.name);
            let unpublished =
                |case: &&crate::description::Case| case.published.is_some() && case.place.is_none();
            let without_place: Vec<_> =
                description.cases.iter().filter(unpublished).map(|case| &case.id).collect();
            assert!(without_place.is_empty(), "{}: where are {without_place:?} published?", description.name);
        }
    }

    #[test]
    fn every_case_with_a_model_has_one() {
        let modelled: Vec<String> = EXPERIMENTS
            .iter()
            .flat_map(|entry| Description::parse(entry.text).unwrap().cases)
            .filter_map(|case| case.model)
            .collect();
        assert!(modelled.len() > 15, "{modelled:?}");
        for id in &modelled {
            assert!(udpath_model::experiment(id).is_some(), "the model does not know {id}");
        }
    }
}
