//! Sends that the kernel refused: for the result's warnings, and to end a run that can no longer send.

use std::io;

use rustix::io::Errno;

/// A thread gives up if all its sends were refused for this long, nanoseconds. Shorter: an interface that flaps ends
/// the run. Longer: a run against a removed interface wastes its whole window.
const REFUSAL_TIMEOUT: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures {
    /// The peer's host reported that nothing listens there.
    pub(crate) refused: u64,
    /// Sends refused for other reasons.
    count: u64,
    first: Option<Errno>,
    /// Start of the current series of refusals: nanoseconds since the start.
    since: Option<u64>,
    hopeless: Option<String>,
}

impl Failures {
    /// Records a refused send at `now`. True if the run cannot continue.
    pub(crate) fn refuse(&mut self, error: &io::Error, now: u64) -> bool {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        self.count += 1;
        self.first.get_or_insert(errno);
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) > REFUSAL_TIMEOUT && self.hopeless.is_none() {
            self.hopeless = Some(format!(
                "the kernel refused every request for {:.1} s: {}",
                (now - since) as f64 / 1e9,
                explain(errno)
            ));
        }
        self.hopeless.is_some()
    }

    /// Records a successful send.
    pub(crate) fn sent(&mut self) {
        self.since = None;
    }

    /// Ends the run for another reason.
    pub(crate) fn give_up(&mut self, why: String) {
        self.hopeless.get_or_insert(why);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.count += other.count;
        self.first = self.first.or(other.first);
        if self.hopeless.is_none() {
            self.hopeless.clone_from(&other.hopeless);
        }
    }

    /// Why the run ended early, if it did.
    pub(crate) fn cut(&self) -> Option<String> {
        self.hopeless.clone()
    }

    /// Warnings for the result.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.refused > 0 {
            all.push(format!(
                "the target's host reported {} times that nothing listens on the port (ICMP port unreachable)",
                self.refused
            ));
        }
        if let Some(errno) = self.first {
            all.push(format!("the kernel refused {} requests: {}", self.count, explain(errno)));
        }
        all
    }
}

/// The error, with its fix.
fn explain(errno: Errno) -> String {
    let hint = match errno {
        Errno::NETUNREACH | Errno::HOSTUNREACH => "; check the route to the target, and that its host is up",
        Errno::NETDOWN | Errno::NODEV | Errno::NXIO => "; the interface is down or was removed",
        Errno::PERM | Errno::ACCESS => "; a firewall rule of this machine drops it",
        Errno::NOBUFS | Errno::NOMEM => "; the interface's queue is full: lower the rate",
        Errno::MSGSIZE => "; the payload exceeds the path MTU: use a smaller --size",
        Errno::INVAL | Errno::ADDRNOTAVAIL => "; the source address or the interface is gone",
        _ => "",
    };
    format!("{}{hint}", io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unbroken_second_of_refusals_ends_the_run() {
        let mut f = Failures::default();
        let down = io::Error::from(Errno::NETDOWN);
        assert!(!f.refuse(&down, 0));
        assert!(!f.refuse(&down, REFUSAL_TIMEOUT));
        f.sent();
        assert!(!f.refuse(&down, REFUSAL_TIMEOUT * 2));
        assert!(!f.refuse(&down, REFUSAL_TIMEOUT * 3));
        assert!(f.cut().is_none());
        assert!(f.refuse(&down, REFUSAL_TIMEOUT * 3 + 1));
        assert!(f.cut().unwrap().contains("removed"), "{:?}", f.cut());
        assert!(f.sentences()[0].contains("5 requests"), "{:?}", f.sentences());
    }
}
