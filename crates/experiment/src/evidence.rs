//! What a profile says about an arm: what limited it, and why a transaction costs more in one arm than in another.

use std::fmt::Write;

use udpath_advise::test_bed::Profiled;
use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_profile::difference::{Difference, grouped};

/// Most classes of work that a sentence names: the largest.
const NAMED: usize = 2;
/// A class explains a difference if it makes up this part of it. Lower: sentences name noise.
const EXPLAINS: f64 = 0.1;

/// Other programs are named if they take this part of the busy time. Lower: every sentence names them.
const OTHERS: f64 = 0.05;

/// What limited an arm, in one sentence: how busy the CPUs were, with what, and the most expensive lock.
pub(crate) fn limited_by(of: &Profiled) -> String {
    let profile = &of.profile.profile;
    let busy = profile.busy().max(1) as f64;
    let share = |context| profile.contexts.get(&context).copied().unwrap_or(0) as f64 / busy;
    let mut out = format!(
        "CPUs {} busy, {} of that in softirq and {} in system calls",
        percent(used(profile)),
        percent(share(Context::Softirq)),
        percent(share(Context::Syscall)),
    );
    // What other programs do, the generator among them, did not limit the server but for the CPU time that it took.
    let charged = profile.charged().max(1) as f64;
    if let Some(class) = profile.classes.iter().max_by_key(|class| class.charged()) {
        let _ = write!(out, "; most in {} ({})", class.of.title(), percent(class.charged() as f64 / charged));
    }
    match profile.locks.first() {
        Some(lock) => {
            let _ = write!(out, "; largest lock: {} ({})", spaced(&lock.of), percent(lock.share));
        }
        None => out += "; no time in locks",
    }
    let others = profile.others() as f64 / busy;
    if others >= OTHERS {
        let _ = write!(out, "; other programs, an ordinary client among them, took {}", percent(others));
    }
    out + "."
}

/// Why a transaction of `of` costs more, or less, CPU time than one of `to`; none if neither has transactions.
pub(crate) fn cause(of: &Profiled, to: &Profiled) -> Option<String> {
    let (of, to) = (&of.profile.profile, &to.profile.profile);
    let cost = |profile: &Profile| profile.per_transaction(profile.charged());
    let (now, before) = (cost(of)?, cost(to)?);
    let difference = Difference::new(to, of);
    let more = now - before;
    let mut out = format!("A transaction takes {} of CPU time instead of {}", ns(now), ns(before));
    // Differences are per datagram; a transaction is two.
    let classes: Vec<String> = difference
        .classes
        .iter()
        .map(|class| (class.of.title(), class.more() * 2.0))
        .filter(|(_, ns)| ns * more > 0.0 && (ns / more) >= EXPLAINS)
        .take(NAMED)
        .map(|(title, more)| format!("{title} {}{}", if more < 0.0 { "−" } else { "+" }, ns(more.abs())))
        .collect();
    if !classes.is_empty() {
        let _ = write!(out, " ({})", classes.join(", "));
    }
    let _ = write!(out, "; {}", locks(of, to));
    let _ = write!(out, "; CPUs were {}.", instead(used(of), used(to), " busy"));
    Some(out)
}

/// The largest lock of both.
fn locks(of: &Profile, to: &Profile) -> String {
    let share = |profile: &Profile, name: &str| {
        profile.locks.iter().find(|lock| lock.of == name).map_or(0.0, |lock| lock.share)
    };
    let all = of.locks.iter().chain(&to.locks);
    match all.max_by(|a, b| a.share.total_cmp(&b.share)) {
        None => "no lock took any time".to_owned(),
        Some(lock) => {
            let shares = instead(share(of, &lock.of), share(to, &lock.of), " of CPU time");
            format!("largest lock: {}, {shares}", spaced(&lock.of))
        }
    }
}

/// `2.1 % busy instead of 0.8 %`, or `2.1 % busy in both`.
fn instead(now: f64, before: f64, of_what: &str) -> String {
    let (now, before) = (percent(now), percent(before));
    if now == before {
        format!("{now}{of_what} in both")
    } else {
        format!("{now}{of_what} instead of {before}")
    }
}

/// Share of the CPU time that was used, by the samples.
fn used(profile: &Profile) -> f64 {
    (profile.busy() as f64 / profile.available().max(1.0)).min(1.0)
}

/// The name of a lock's owner in the rules, as words.
fn spaced(name: &str) -> String {
    name.replace('-', " ")
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

fn ns(ns: f64) -> String {
    format!("{} ns", grouped(ns.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_as_words() {
        assert_eq!(
            (ns(351.4), ns(3_763.0), ns(1_127_303.2)),
            ("351 ns".into(), "3,763 ns".into(), "1,127,303 ns".into())
        );
        assert_eq!((percent(0.0042), percent(0.985)), ("0.4 %".into(), "98 %".into()));
        assert_eq!(instead(0.021, 0.008, " busy"), "2.1 % busy instead of 0.8 %");
        assert_eq!(instead(0.991, 0.989, " busy"), "99 % busy in both");
        assert_eq!(spaced("socket-receive-queue"), "socket receive queue");
    }
}
