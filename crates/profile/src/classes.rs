//! What kind of work a sample was: by its call chain, not by its innermost function alone.
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
//! - `rules.txt` is the knowledge, one list of functions for each class; `class.rs` declares the classes. `rules.rs` reads it and looks names up.

mod class;
mod rules;

pub use class::{Class, Family};
pub use rules::{Rules, RulesError};

use crate::symbols::Frame;

/// What a chain was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict<'a> {
    /// The kind of work.
    pub class: Class,
    /// Of [`Class::Lock`]: whose lock it is, by the name in the rules.
    pub lock: Option<&'a str>,
}

/// The lock of a chain in which no known owner holds it.
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
        // The lock's own functions may lie on each other; whose it is says the first behind them that is known.
        let owner = frames.find_map(|(_, frame)| self.lock(frame));
        Verdict { class, lock: Some(owner.unwrap_or(UNKNOWN_LOCK)) }
    }
}
