//! Folded stacks: one line per stack, with its frames from the outermost inwards, and a weight.
//!
//! ```text
//! do_syscall_64;__x64_sys_recvfrom;udp_recvmsg;__skb_recv_udp;_raw_spin_lock_bh 812
//! ```
//! Flame graph tools exchange this format, on any operating system. A frame may have a suffix, as those tools write it:
//! `name_[k]` is a kernel function, `name [module]` is in a module. `write.rs` writes a profile in this format.

mod write;

use std::collections::BTreeMap;

use thiserror::Error;

pub use write::{functions, roots, text};

use crate::classes::{Class, Rules};
use crate::symbols::Frame;

/// One stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// From the outermost inwards.
    pub frames: Vec<Frame<'a>>,
    /// Its weight.
    pub weight: u64,
}

/// Why a line is not a stack.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongLine {
    /// No number at the end of the line.
    #[error("line {0}: expected a space and a whole number at the end of the stack")]
    Weight(usize),
    /// An empty frame.
    #[error("line {0}: a frame without a name")]
    Frame(usize),
}

/// Parses folded stacks. Empty lines and those that begin with `#` are skipped.
///
/// # Errors
/// The first invalid line.
pub fn parse(text: &str) -> Result<Vec<Line<'_>>, WrongLine> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| stack(number, line))
        .collect()
}

fn stack(number: usize, line: &str) -> Result<Line<'_>, WrongLine> {
    let (frames, weight) = line.rsplit_once(' ').ok_or(WrongLine::Weight(number))?;
    let weight = weight.parse().map_err(|_| WrongLine::Weight(number))?;
    let frames = frames.split(';').map(|name| frame(name.trim()).ok_or(WrongLine::Frame(number)));
    Ok(Line { frames: frames.collect::<Result<_, _>>()?, weight })
}

fn frame(text: &str) -> Option<Frame<'_>> {
    let (function, module) = match text.split_once(" [") {
        Some((function, module)) => (function, Some(module.trim_end_matches(']'))),
        None => (text.trim_end_matches("_[k]"), None),
    };
    (!function.is_empty()).then_some(Frame { function, module })
}

/// Weights by class, and of locks by owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weights {
    /// Of all stacks.
    pub all: u64,
    /// By class.
    pub classes: BTreeMap<Class, u64>,
    /// By the lock's name in the rules.
    pub locks: BTreeMap<String, u64>,
}

impl Weights {
    /// Classes kernel stacks.
    #[must_use]
    pub fn of(lines: &[Line<'_>], rules: &Rules) -> Self {
        let mut weights = Self::default();
        for line in lines {
            let verdict = rules.judge(line.frames.iter().rev().copied());
            weights.all = weights.all.saturating_add(line.weight);
            let class = weights.classes.entry(verdict.class).or_default();
            *class = class.saturating_add(line.weight);
            if let Some(lock) = verdict.lock {
                let lock = weights.locks.entry(lock.to_owned()).or_default();
                *lock = lock.saturating_add(line.weight);
            }
        }
        weights
    }

    /// The share of a class, 0 to 1.
    #[must_use]
    pub fn share(&self, class: Class) -> f64 {
        self.classes.get(&class).copied().unwrap_or(0) as f64 / self.all.max(1) as f64
    }

    /// The share of a lock, 0 to 1.
    #[must_use]
    pub fn lock(&self, name: &str) -> f64 {
        self.locks.get(name).copied().unwrap_or(0) as f64 / self.all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_stacks_with_a_weight() {
        let lines = parse("# of a server\n\na_[k];b [veth];c d 7\nx 1\n").unwrap();
        let names: Vec<_> = lines[0].frames.iter().map(|frame| (frame.function, frame.module)).collect();
        assert_eq!(names, [("a", None), ("b", Some("veth")), ("c d", None)]);
        assert_eq!((lines[0].weight, lines[1].weight, lines.len()), (7, 1, 2));
        assert_eq!(parse("a;b"), Err(WrongLine::Weight(1)));
        assert_eq!(parse("a;b -1"), Err(WrongLine::Weight(1)));
        assert_eq!(parse("a 1\na;;b 2"), Err(WrongLine::Frame(2)));
    }
}
