//! Applied changes as metrics: settings, applies and reverts by state. An unreadable journal or entry is also a series,
//! so that alerts do not fall silent.

use udpath_tune::journal::State;
use udpath_tune::status::{Hold, Standing, Status};

use super::family::{Family, Kind, Series};

/// The known state of the applied changes.
#[derive(Debug, Clone, Copy)]
pub enum Applied<'a> {
    /// There is no journal: a captured machine.
    Absent,
    /// The journal cannot be read.
    Unreadable,
    /// The journal's content.
    Known(&'a Status),
}

/// Counts by state, including zero counts: a series that appears only on errors has no rate and no history.
type Counts = Vec<(&'static str, u64)>;

#[derive(Debug)]
pub(super) enum Counted {
    Absent,
    Unreadable,
    Known { settings: Counts, applies: Counts, reverts: Counts },
}

impl Counted {
    pub(super) fn of(applied: Applied<'_>) -> Self {
        match applied {
            Applied::Absent => Self::Absent,
            Applied::Unreadable => Self::Unreadable,
            Applied::Known(status) => {
                Self::Known { settings: settings(status), applies: applies(status), reverts: reverts(status) }
            }
        }
    }

    pub(super) fn families(&self, families: &mut Vec<Family>) {
        let readable = match self {
            Self::Absent => return,
            Self::Unreadable => 0,
            Self::Known { .. } => 1,
        };
        let mut add = |name, help, series: &[Series]| {
            families.push(Family::new(name, help, Kind::Gauge, series));
        };
        let help = "Whether the journal of what was applied can be read";
        add("journal_readable", help, &[(Vec::new(), readable)]);
        let Self::Known { settings, applies, reverts } = self else { return };
        let help = "Settings that were applied and not undone, by whether they are in effect";
        add("settings", help, &labelled("state", settings));
        let help = "Applies that were not undone, by state";
        add("applies", help, &labelled("state", applies));
        let help = "Applies reverted because they were not confirmed: the last apply, and those not restored completely";
        add("reverted_applies", help, &labelled("outcome", reverts));
    }
}

fn labelled(label: &'static str, counts: &[(&'static str, u64)]) -> Vec<Series> {
    counts.iter().map(|(name, count)| (vec![(label, (*name).to_owned())], *count)).collect()
}

fn settings(status: &Status) -> Counts {
    let states = [
        ("holds", Hold::Holds),
        ("superseded", Hold::Superseded),
        ("drifted", Hold::Drifted),
        ("gone", Hold::Gone),
    ];
    let count = |state| {
        let settings = status.applies.iter().flat_map(|apply| &apply.settings);
        settings.filter(|held| held.state == state).count() as u64
    };
    states.into_iter().map(|(name, state)| (name, count(state))).collect()
}

fn applies(status: &Status) -> Counts {
    let count = |wanted: &str| status.applies.iter().filter(|apply| state(apply) == wanted).count() as u64;
    let states = ["applied", "awaiting", "unattended", "unfinished", "half_undone", "namespace_gone"];
    let unreadable = ("unreadable", status.unreadable.len() as u64);
    states.into_iter().map(|name| (name, count(name))).chain([unreadable]).collect()
}

fn state(apply: &Standing) -> &'static str {
    match apply.state {
        _ if apply.lost => "namespace_gone",
        State::Unfinished => "unfinished",
        State::HalfUndone => "half_undone",
        State::Awaiting if apply.attended == Some(false) => "unattended",
        State::Awaiting => "awaiting",
        State::Applied | State::Undone | State::Closed => "applied",
    }
}

fn reverts(status: &Status) -> Counts {
    let partial = status.reverted.iter().filter(|reverted| !reverted.left.is_empty()).count() as u64;
    vec![("complete", status.reverted.len() as u64 - partial), ("partial", partial)]
}
