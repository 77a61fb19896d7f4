//! A map and a profile with their findings: what `udpath show` and `udpath profile` print, plain and serialisable.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_host::Snapshot;
use udpath_host::map::{Map, Selection, SelectionError};
use udpath_load::origin::Origin;
use udpath_profile::Profile;

use crate::finding::{Finding, Netns};
use crate::{rules, summary};

/// Version of [`MapResult`]'s JSON form. Raised when a field changes its meaning or goes; new fields may come without.
pub const MAP_SCHEMA: &str = "udpath.map/2";
/// The same of [`ProfileResult`].
pub const PROFILE_SCHEMA: &str = "udpath.profile/2";

/// The path of a datagram through a machine, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct MapResult {
    /// [`MAP_SCHEMA`].
    pub schema: String,
    /// The path, stage by stage.
    #[serde(flatten)]
    pub map: Map,
    /// What is wrong or worth knowing, the most severe first.
    pub findings: Vec<Finding>,
}

impl MapResult {
    /// The map of `now` and its findings; with the counts since `earlier`, a snapshot of the same boot.
    ///
    /// # Errors
    /// What was selected is not there.
    pub fn new(
        now: &Snapshot,
        earlier: Option<&Snapshot>,
        selection: &Selection,
    ) -> Result<Self, SelectionError> {
        let map = Map::new(now, earlier, selection)?;
        Ok(Self { schema: MAP_SCHEMA.into(), findings: rules::of_map(now, &map), map })
    }

    /// Says that the settings of its findings are there.
    pub fn place(&mut self, there: &Netns) {
        self.findings.iter_mut().for_each(|finding| finding.place(there));
    }
}

/// Where CPU time goes, and what of that is remarkable.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ProfileResult {
    /// [`PROFILE_SCHEMA`].
    pub schema: String,
    /// Where most of the time goes, and the largest finding.
    pub sentence: String,
    /// What is remarkable, the largest first.
    pub findings: Vec<Finding>,
    /// The figures.
    #[serde(flatten)]
    pub profile: Profile,
    /// When and where it was measured, if the program that measured says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

impl From<Profile> for ProfileResult {
    fn from(profile: Profile) -> Self {
        let findings = rules::of_profile(&profile);
        let sentence = summary::sentence(&profile, &findings);
        Self { schema: PROFILE_SCHEMA.into(), sentence, findings, profile, origin: None }
    }
}
