//! What takes part in a race.

use crate::ladder::Settings;
use crate::server_under_test::{Home, ServerUnderTest};

/// A rung's configuration: a running server, or one on each side of a duet.
pub(crate) struct Entrant {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) home: Home,
    /// The one on side 0 first.
    pub(crate) servers: Vec<ServerUnderTest>,
}

impl Entrant {
    /// The one that is profiled.
    pub(crate) fn server(&self) -> &ServerUnderTest {
        &self.servers[0]
    }
}
