//! Several experiments, one after the other, as one result.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use udpath_advise::machine_facts;

use crate::description::Description;
use crate::entry::{Context, Entry, Error, Progress};
use crate::experiments::EXPERIMENTS;
use crate::outcome::{ExperimentResult, SCHEMA};
use crate::runner::run;
use crate::servers::Bed;

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The experiment that runs.
    pub experiment: &'a str,
    /// Which one, from 1.
    pub number: usize,
    /// Of how many.
    pub of: usize,
    /// How far it is.
    pub progress: Progress<'a>,
}

/// A name that no experiment has.
#[derive(Debug, thiserror::Error)]
#[error("unknown experiment \"{name}\"; the experiments are {}", known.join(", "))]
pub struct UnknownExperiment {
    /// As given.
    pub name: String,
    /// The names of all.
    pub known: Vec<String>,
}

/// The descriptions of all experiments, in the order in which they run.
///
/// # Errors
/// A description that ships with the program is wrong.
pub fn descriptions() -> Result<Vec<Description>, Error> {
    EXPERIMENTS.iter().map(|entry| Ok(Description::parse(entry.text)?)).collect()
}

/// The experiments of these names, each once and in the order of the list; all if none is named. The outer error is of
/// the descriptions.
///
/// # Errors
/// A name that no experiment has.
pub fn chosen(names: &[String]) -> Result<Result<Vec<&'static Entry>, UnknownExperiment>, Error> {
    let known: Vec<String> = descriptions()?.into_iter().map(|description| description.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Ok(Err(UnknownExperiment { name: name.clone(), known }));
    }
    let wanted = |name: &String| names.is_empty() || names.contains(name);
    let entries = EXPERIMENTS.iter().zip(&known).filter(|(_, name)| wanted(name)).map(|(entry, _)| entry);
    Ok(Ok(entries.collect()))
}

/// Measures experiments one after the other. `command` is the line that repeats them.
///
/// # Errors
/// The first experiment that cannot be measured, or an interrupt.
pub fn run_all(
    entries: &[&Entry],
    context: &Context<'_>,
    command: Option<String>,
    watch: &mut dyn FnMut(&Step<'_>),
) -> Result<ExperimentResult, Error> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let began = Instant::now();
    let mut experiments = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        context.check()?;
        let name = Description::parse(entry.text)?.name;
        let mut each = |progress: &Progress<'_>| {
            watch(&Step { experiment: &name, number: at + 1, of: entries.len(), progress: *progress });
        };
        experiments.push(run(entry, context, &mut each)?);
    }
    let queues = Bed::queues().unwrap_or(1);
    Ok(ExperimentResult {
        schema: SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started,
        seconds: began.elapsed().as_secs_f64(),
        machine: machine_facts(queues, "veth pairs between network namespaces".to_owned()),
        experiments,
        command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_experiments_in_the_order_of_the_list() {
        let all = chosen(&[]).unwrap().unwrap();
        assert_eq!(all.len(), EXPERIMENTS.len());
        let last = descriptions().unwrap().pop().unwrap().name;
        let one = chosen(&[last.clone(), last]).unwrap().unwrap();
        assert_eq!(one.len(), 1);
        let wrong = chosen(&["ladders".to_owned()]).unwrap().unwrap_err().to_string();
        assert!(wrong.starts_with("unknown experiment \"ladders\"; the experiments are ladder"), "{wrong}");
    }
}
