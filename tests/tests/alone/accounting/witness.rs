//! The link's own counters.

use std::time::{Duration, Instant};

use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::TIMEOUT;

/// Traffic on the link, as its two ends counted it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// Frames that the client's end sent and the server's end had no room for.
    pub(crate) lost_before: u64,
    /// Frames that the server's end received.
    pub(crate) arrived: u64,
    /// Received frames that could not be redirected.
    pub(crate) lost_at_rings: u64,
    /// Frames that the client's end received.
    pub(crate) answered: u64,
}

impl Link {
    pub(crate) fn of(lab: &Lab) -> Self {
        let counter = |machine: &str, name: &str| -> u64 {
            let path = format!("/sys/class/net/eth0/statistics/{name}");
            let text = lab.machine(machine).unwrap().run(|| std::fs::read_to_string(path)).unwrap().unwrap();
            text.trim().parse().unwrap()
        };
        Self {
            lost_before: counter("client", "tx_dropped"),
            arrived: counter("server", "rx_packets"),
            lost_at_rings: counter("server", "rx_dropped"),
            answered: counter("client", "rx_packets"),
        }
    }

    /// Traffic on the link since `before`, once the client's end has received `answers` replies or the time is up: a
    /// softirq that waits for a busy CPU counts them later than the server.
    pub(crate) fn at_rest(lab: &Lab, before: &Self, answers: u64) -> Self {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let link = Self::of(lab).since(before);
            if link.answered >= answers || Instant::now() >= deadline {
                return link;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            lost_before: self.lost_before - before.lost_before,
            arrived: self.arrived - before.arrived,
            lost_at_rings: self.lost_at_rings - before.lost_at_rings,
            answered: self.answered - before.answered,
        }
    }
}

/// A number of a JSON object.
pub(crate) fn count(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {of}"))
}
