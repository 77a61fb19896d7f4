//! An agent's SNMP engine: its identifier, boots and clock, and the keys for it (RFC 3414, 2).

use std::time::Instant;

use super::usm::{Keys, User};

/// Lengths of an engine ID (RFC 3411, 5, SnmpEngineID).
pub(super) const ENGINE_ID_LENS: std::ops::RangeInclusive<usize> = 5..=32;
/// Highest boots and time (RFC 3414, 2.2.2). At the highest boots an agent refuses all.
const MAX_CLOCK: u32 = i32::MAX as u32;

/// An agent's engine, and the user's keys for it.
#[derive(Clone)]
pub(super) struct AgentEngine {
    id: Box<[u8]>,
    boots: u32,
    /// The engine's clock, seconds, `read` that moment.
    time: u32,
    read: Instant,
    keys: Option<Keys>,
}

impl std::fmt::Debug for AgentEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentEngine")
            .field("id", &self.id)
            .field("boots", &self.boots)
            .finish_non_exhaustive()
    }
}

impl AgentEngine {
    /// That of an agent that is not known: asked by it, an agent reports its own.
    pub(super) fn unknown() -> Self {
        Self { id: [].into(), boots: 0, time: 0, read: Instant::now(), keys: None }
    }

    /// An engine with `user`'s keys.
    pub(super) fn new(id: &[u8], boots: u32, time: u32, user: &User) -> Self {
        let keys = user.auth.as_ref().and_then(|auth| Keys::new(auth, id));
        Self { id: id.into(), boots, time, read: Instant::now(), keys }
    }

    /// The one whose messages are longest.
    pub(super) fn longest(user: &User) -> Self {
        let id = [0; *ENGINE_ID_LENS.end()];
        Self { boots: MAX_CLOCK, time: MAX_CLOCK, ..Self::new(&id, 0, 0, user) }
    }

    /// The same engine, whose clock says this now.
    pub(super) fn with_clock(&self, boots: u32, time: u32) -> Self {
        Self { boots, time, read: Instant::now(), ..self.clone() }
    }

    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }

    pub(super) fn boots(&self) -> u32 {
        self.boots
    }

    pub(super) fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    /// The engine's clock now, seconds. An agent refuses requests that are 150 s from it.
    pub(super) fn time(&self) -> u32 {
        let since = u32::try_from(self.read.elapsed().as_secs()).unwrap_or(MAX_CLOCK);
        self.time.saturating_add(since).min(MAX_CLOCK)
    }
}
