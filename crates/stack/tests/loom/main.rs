//! The concurrent structures under the model checker: every interleaving, and every value that a load may return.
//!
//! `make loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p udpath-stack --release --test loom --target-dir target/loom`.
//! Without `--cfg loom` this test is empty.
//!
//! The exploration is bounded to executions with at most [`PREEMPTIONS`] forced switches between threads, which
//! exposes practically all known errors of this kind; `LOOM_MAX_PREEMPTIONS=4` explores further, at the cost of time.
//! Each model is minimal: two or three threads, a ring that wraps, a socket that is full after a few items.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![cfg(loom)]

mod a_return_queue;
mod a_ring;
mod a_sleeper;
mod a_socket;
mod an_epoch;
mod sys;

use arrayvec::ArrayVec;
use loom::sync::Arc;
use loom::thread;

use udpath_stack::epoch::{Domain, Table};
use udpath_stack::ring::{self, ring};
use udpath_stack::socket::memory::{Charged, Pool};
use udpath_stack::socket::queue::{Config, Producer, Reader, Received, Step, queue};
use udpath_stack::socket::returns;
use udpath_stack::wake;

use sys::Memory;

/// Forced switches per execution. Lower: errors that need one more are missed. Higher: minutes instead of seconds.
const PREEMPTIONS: usize = 3;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new(); // reads LOOM_* from the environment
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(body);
}

/// An item whose memory the model watches: a slot handed over too early or used twice fails the model, as does one
/// that is never dropped.
#[derive(Clone)]
struct Item(Arc<Memory>);

impl Item {
    fn new(value: u32) -> Self {
        Self(Arc::new(Memory::new(value)))
    }

    fn value(&self) -> u32 {
        self.0.read()
    }
}

impl Charged for Item {
    fn charge(&self) -> usize {
        1000
    }
}

fn values(items: &[Item]) -> Vec<u32> {
    items.iter().map(Item::value).collect()
}
