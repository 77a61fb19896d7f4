//! Whether the requests of a thread leave at all.

/// What its ports and live frames have sent so far, and what failed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SendProgress {
    /// Calls that failed, and requests that were dropped.
    pub(super) trouble: u64,
    /// Requests that left, and were not dropped.
    pub(super) gone: u64,
}

/// What happened between two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// A request left.
    Left,
    /// Sending failed, and no request left.
    Failed,
    /// Nothing was tried: little is due, or the thread got no CPU. It says nothing of the link.
    Idle,
}

impl SendProgress {
    /// Adopts the counts of `now`.
    ///
    /// A dropped frame counts as trouble at once, and as sent until it is collected. So `gone` may be too low for a
    /// while, and only a new maximum means that something left.
    pub(super) fn advance(&mut self, now: Self) -> Since {
        let since = match (now.gone > self.gone, now.trouble > self.trouble) {
            (true, _) => Since::Left,
            (false, true) => Since::Failed,
            (false, false) => Since::Idle,
        };
        *self = Self { trouble: now.trouble, gone: now.gone.max(self.gone) };
        since
    }
}

impl std::ops::AddAssign for SendProgress {
    fn add_assign(&mut self, other: Self) {
        self.trouble += other.trouble;
        self.gone += other.gone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link went down after 100 requests: at each check some of the dropped frames are not collected yet.
    #[test]
    fn dropped_frames_never_count_as_sent() {
        let mut progress = SendProgress { trouble: 0, gone: 100 };
        for gone in [97, 100, 92, 99, 95] {
            let trouble = progress.trouble + 7;
            assert_eq!(progress.advance(SendProgress { trouble, gone }), Since::Failed);
            assert_eq!(progress.advance(SendProgress { trouble, gone }), Since::Idle);
        }
        // It is up again: single drops do not matter then.
        assert_eq!(progress.advance(SendProgress { trouble: 36, gone: 101 }), Since::Left);
        assert_eq!(progress.advance(SendProgress { trouble: 36, gone: 101 }), Since::Idle);
    }
}
