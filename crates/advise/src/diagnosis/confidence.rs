//! How sure a finding is: by the samples or the counts behind it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_host::Map;
use udpath_profile::Profile;

use crate::finding::{Finding, Location};
use crate::rule::{number, percent};
use crate::rules;

/// The findings that say what a queue did in between.
const OF_QUEUES: &[&str] = &["receive-buffer-small", "reader-blocked"];

/// Counts or samples from which on a finding is sure: the 95 % interval of a hundred is a fifth to either side.
const SURE: f64 = 100.0;
/// The same for a finding that is likely: of thirty, a third.
const LIKELY: f64 = 30.0;

/// How sure a finding is. In order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// A few events, or counts since boot.
    Low,
    /// Some dozens of events.
    Medium,
    /// A hundred events or more, or a setting that was read.
    High,
}

impl Level {
    /// As JSON and text write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    fn of(events: f64) -> Self {
        if events >= SURE {
            Self::High
        } else if events >= LIKELY {
            Self::Medium
        } else {
            Self::Low
        }
    }
}

/// How sure a finding is, and why.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Confidence {
    /// In a word.
    pub level: Level,
    /// What it rests on.
    pub because: String,
}

impl Confidence {
    /// `profile`: if its samples are behind the finding.
    pub(super) fn of(finding: &Finding, map: &Map, profile: Option<&Profile>) -> Self {
        if let Some((share, profile)) = finding.share.zip(profile) {
            return Self::of_samples(share, profile);
        }
        let mut sure = Self::of_map(finding, map);
        if rests_on_two_instants(finding, map) {
            sure.level = sure.level.min(Level::Medium);
            sure.because += "; its queue was seen only at the ends of the interval";
        }
        if rules::is_open(finding, map) {
            sure.level = Level::Low;
            sure.because += "; which ports they came for was not seen";
        }
        sure
    }

    fn of_map(finding: &Finding, map: &Map) -> Self {
        match (finding.rate, map.seconds) {
            (Some(rate), Some(seconds)) => {
                let count = (rate * seconds).max(0.0).round();
                Self {
                    level: Level::of(count),
                    because: format!("{} counted in {seconds:.1} s", number(count as u64)),
                }
            }
            (_, Some(_)) => {
                Self { level: Level::High, because: "read from the kernel during the interval".into() }
            }
            (_, None) => Self { level: Level::Low, because: "counts since boot, of one snapshot".into() },
        }
    }

    /// A share of the CPU time used, with the half width of its 95 % interval.
    fn of_samples(share: f64, profile: &Profile) -> Self {
        let all: u64 = profile.stacks.iter().map(|stack| stack.samples).sum();
        let (all, share) = (all as f64, share.clamp(0.0, 1.0));
        if all < 1.0 {
            return Self { level: Level::Low, because: "the number of samples is unknown".into() };
        }
        let (behind, half) = (share * all, 1.96 * (share * (1.0 - share) / all).sqrt());
        let because = format!(
            "{} of {} samples, {} ± {}",
            number(behind.round() as u64),
            number(all as u64),
            percent(share),
            percent(half)
        );
        Self { level: Level::of(behind), because }
    }
}

/// Does it say what a queue did within the interval, though nobody looked then?
fn rests_on_two_instants(finding: &Finding, map: &Map) -> bool {
    let is = |location: &Location, inode| *location == Location::Socket(inode);
    let about = |inode| finding.locations.iter().any(|location| is(location, inode));
    let socket = map.sockets.iter().find(|socket| about(socket.inode));
    OF_QUEUES.contains(&finding.id.as_str())
        && map.seconds.is_some()
        && socket.is_some_and(|socket| rules::looks(socket).is_none())
}
