//! Who has offered itself, answered, or refused while agents are gathered, in bounded memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Error;

/// Most offers that await an answer. More: memory for offers of agents that do not exist. Fewer: a larger fleet needs
/// several announcements.
const MAX_OFFERS: usize = 4096;
/// How long an offer awaits its answer before another one may take its place. Shorter: agents on a busy machine are
/// missed. Longer: false offers keep true ones out for longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Refusals that are repeated to the user, each with its reason.
const MAX_REFUSALS: usize = 32;
/// Longest reason that is repeated, characters.
const MAX_REASON: usize = 300;

/// See the module.
#[derive(Default)]
pub(super) struct Offers {
    offers: BTreeMap<String, Asked>,
    refused: BTreeMap<String, String>,
    /// Whether there were refusals that are not in `refused`.
    more: bool,
}

/// An agent that was asked what the time is.
struct Asked {
    instance: u64,
    /// What it was asked, and repeats: whoever only guesses its name does not know it.
    question: u64,
    at: Instant,
}

impl Offers {
    /// Whether this agent is to be asked `question` now: at its first offer, and again if the answer did not come.
    ///
    /// # Errors
    /// Another agent with this name is being asked.
    pub(super) fn offered(&mut self, name: &str, instance: u64, question: u64) -> Result<bool, Error> {
        let at = Instant::now();
        let waits = |asked: &Asked| at.saturating_duration_since(asked.at) < ANSWER_TIMEOUT;
        match self.offers.get(name).filter(|asked| waits(asked)) {
            Some(asked) if asked.instance != instance => return Err(Error::SameName(name.to_owned())),
            Some(_) => return Ok(false),
            None => {}
        }
        if self.offers.len() >= MAX_OFFERS {
            self.offers.retain(|_, asked| waits(asked));
        }
        let room = self.offers.len() < MAX_OFFERS;
        if room {
            self.offers.insert(name.to_owned(), Asked { instance, question, at });
        }
        Ok(room)
    }

    /// Whether this is the answer of this agent to what it was asked.
    pub(super) fn answered(&mut self, name: &str, instance: u64, question: u64) -> bool {
        let is = |asked: &Asked| (asked.instance, asked.question) == (instance, question);
        let awaited = self.offers.get(name).is_some_and(is);
        if awaited {
            self.offers.remove(name);
        }
        awaited
    }

    /// The reason, if it is to be reported now: once per agent, and not of too many.
    pub(super) fn refused(&mut self, name: &str, why: String) -> Option<String> {
        if self.refused.contains_key(name) {
            return None;
        }
        if self.refused.len() >= MAX_REFUSALS {
            self.more = true;
            return None;
        }
        let why: String = why.chars().take(MAX_REASON).collect();
        self.refused.insert(name.to_owned(), why.clone());
        Some(why)
    }

    /// Who refused, for an error.
    pub(super) fn why(&self) -> String {
        let mut why: String =
            self.refused.iter().map(|(agent, why)| format!("; {agent} refused: {why}")).collect();
        if self.more {
            why += "; more agents refused";
        }
        if !self.offers.is_empty() {
            why += &format!("; {} offered themselves and do not answer", self.offers.len());
        }
        why
    }
}
