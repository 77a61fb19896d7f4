//! What kind of work a sample was, judged by its whole call chain, not only by its innermost function.
//!
//! ```text
//! rep_movs_alternative        not named: its caller decides       ┐
//! _copy_to_iter               [copy]  ◂── the first that is named        │ innermost first
//! __skb_datagram_iter                                                    │
//! udp_recvmsg                                                            ┘
//!
//! native_queued_spin_lock_slowpath   [lock]
//! _raw_spin_lock                     [lock]: still the lock's own
//! __udp_enqueue_schedule_skb         [lock socket-receive-queue]  ◂── whose lock
//! ```
//! - `rules.txt` holds the rules: one list of functions for each class. `class.rs` declares the classes. `rules.rs`
//!   parses the rules and looks names up.

mod class;
mod rules;

pub use class::{Class, Family};
pub use rules::{Rules, RulesError};

use crate::symbols::Frame;

/// The class of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict<'a> {
    /// The kind of work.
    pub class: Class,
    /// For [`Class::Lock`]: the lock's owner, by its name in the rules.
    pub lock: Option<&'a str>,
}

/// The lock of a chain that contains no known owner.
pub const UNKNOWN_LOCK: &str = "other";

impl Rules {
    /// The class of a kernel chain, the innermost frame first.
    #[must_use]
    pub fn judge<'a, 'f>(&'a self, chain: impl IntoIterator<Item = Frame<'f>> + Clone) -> Verdict<'a> {
        let mut frames = chain.into_iter().enumerate();
        let Some(class) = frames.find_map(|(at, frame)| self.class(frame, at == 0)) else {
            return Verdict { class: Class::Unclassified, lock: None };
        };
        if class != Class::Lock {
            return Verdict { class, lock: None };
        }
        // The lock functions may call each other; the first known function outside them names the owner.
        let owner = frames.find_map(|(_, frame)| self.lock(frame));
        Verdict { class, lock: Some(owner.unwrap_or(UNKNOWN_LOCK)) }
    }
}
