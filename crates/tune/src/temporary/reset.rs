//! A temporary change that resets the link.
//!
//! ```text
//!  the values that the reset may lose ─▸ journaled, if not before ─▸ the change ─▸ written again, what was lost ─▸ the link is up
//! ```
//! A new number of channels has the driver choose interrupts, XPS and the RSS table anew, and its choice stays while
//! the change is in effect, unless one of them is under temporary change as well. With the number as found, they are as
//! found.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::{Temporary, TemporaryError};
use crate::link_reset::{chosen_by_driver, kept_of, record};
use crate::machine::Refusal;
use crate::settings::{Cost, Setting, Value};

/// How long the link may take to come up again. Autonegotiation takes a card some seconds. Shorter: a trial begins on a
/// link that is down. Longer: a link that stays down is reported late.
const LINK_UP: Duration = Duration::from_secs(10);
/// Pause between two looks at the link.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a reset is about to lose.
#[derive(Debug)]
pub(super) struct Reset {
    /// The values that were in effect.
    before: BTreeMap<Setting, Value>,
    /// The link was up.
    up: bool,
}

impl Temporary<'_> {
    /// Journals what a change of `setting` may lose; none, if it does not reset the link.
    pub(super) fn before_reset(&mut self, setting: &Setting) -> Result<Option<Reset>, TemporaryError> {
        if setting.cost() != Cost::ResetsLink {
            return Ok(None);
        }
        let before: BTreeMap<Setting, Value> = kept_of(self.machine, setting).into_iter().collect();
        for (lost, now) in &before {
            let known = self.found.iter().any(|(other, _)| other == lost) || self.kept.contains_key(lost);
            if !known {
                record(self.machine, &mut self.writing, lost, now)?;
                self.kept.insert(lost.clone(), now.clone());
            }
        }
        self.writing.sync()?;
        Ok(Some(Reset { before, up: self.is_up(setting) == Some(true) }))
    }

    /// Writes again what the reset has lost, and waits for the link. `as_found`: the change took the setting back.
    pub(super) fn after_reset(
        &self,
        setting: &Setting,
        as_found: bool,
        reset: &Reset,
    ) -> Result<(), TemporaryError> {
        let mut wanted: BTreeMap<&Setting, &Value> = if as_found {
            // Also those of queues that were gone meanwhile.
            self.kept.iter().collect()
        } else {
            reset.before.iter().filter(|(other, _)| !chosen_by_driver(setting, other)).collect()
        };
        wanted.extend(self.found.iter().map(|(other, found)| (other, self.now.get(other).unwrap_or(found))));
        for (other, value) in wanted {
            if other == setting || other.interface() != setting.interface() {
                continue;
            }
            // Gone with its queue; it returns with it.
            let Ok(now) = self.machine.read(other) else { continue };
            if !now.is(value) {
                self.machine.write(other, value)?;
            }
        }
        self.wait_for_link(setting, reset)
    }

    fn wait_for_link(&self, setting: &Setting, reset: &Reset) -> Result<(), TemporaryError> {
        let deadline = Instant::now() + LINK_UP;
        while reset.up && self.is_up(setting) == Some(false) {
            if Instant::now() > deadline {
                let why = format!("the link was still down {} s after it", LINK_UP.as_secs());
                return Err(Refusal::because("set", setting, why).into());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Whether the setting's interface has a link; none if the kernel does not say.
    fn is_up(&self, setting: &Setting) -> Option<bool> {
        let path = format!("/sys/class/net/{}/operstate", setting.interface()?);
        let state = self.machine.source().text(&path).ok()?;
        match state.trim() {
            "up" => Some(true),
            "unknown" => None,
            _ => Some(false),
        }
    }
}
