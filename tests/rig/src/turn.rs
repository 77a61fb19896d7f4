//! Which tests of one test binary run at the same time.
//!
//! Cargo runs one binary after another, and the tests of one binary in parallel threads. A test that measures, that
//! needs the CPUs for itself or that looks at state of the whole process or machine takes [`alone`]; tests that would
//! disturb it take [`together`]. Tests that compute for a moment take neither.
//!
//! A test takes its turn once, before anything else: a thread that asks again while it has one may wait forever.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURNS: RwLock<()> = RwLock::new(());

/// Waits until no other test has a turn; until it is dropped, none gets one.
// A failed test has reported its own failure, and dropped what it made: the others need not fail with it.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test is [`alone`]; until it is dropped, none will be.
pub fn together() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}
