//! A profile's stacks as lines `context;process;function;function N` for other tools that draw them (inferno,
//! FlameGraph, speedscope). N is CPU time in microseconds, not a number of samples, so that files with different
//! sampling rates can be compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Profile;
use crate::profile::Stack;

/// Frames above the functions: the context, and the process if the time is charged to one.
pub fn roots(stack: &Stack) -> impl Iterator<Item = &str> {
    [Some(stack.context.title()), stack.process.as_deref().filter(|name| !name.is_empty())]
        .into_iter()
        .flatten()
}

/// A stack's own functions, outermost first. Consecutive unnamed functions of one file become one frame: a stripped
/// program or JIT code would otherwise be a tower of identical frames.
pub fn functions(stack: &Stack) -> impl Iterator<Item = &str> {
    let frames = stack.own_frames();
    let again = |at: usize| at > 0 && frames[at].starts_with('[') && frames[at] == frames[at - 1];
    frames.iter().enumerate().filter(move |(at, _)| !again(*at)).map(|(_, frame)| frame.as_str())
}

/// All stacks, largest first; those of interrupts without the interrupted code. Stacks below a microsecond are left
/// out.
#[must_use]
pub fn text(profile: &Profile) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        let frames = roots(stack).chain(functions(stack)).map(frame);
        *lines.entry(frames.collect::<Vec<_>>().join(";")).or_default() += stack.ns;
    }
    let mut lines: Vec<(String, u64)> = lines.into_iter().collect();
    lines.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut out = String::new();
    for (line, ns) in lines.iter().filter(|(_, ns)| *ns >= 1000) {
        let _ = writeln!(out, "{line} {}", ns / 1000);
    }
    out
}

/// A frame's name without the format's separator and without line breaks.
fn frame(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ','
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built::built;

    #[test]
    fn equal_stacks_are_one_line_in_microseconds() {
        let text = text(&built());
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some(
                "softirq;handle_softirqs;net_rx_action;udp_rcv;_raw_spin_lock;native_queued_spin_lock_slowpath 3100000"
            )
        );
        for line in text.lines() {
            let (frames, weight) = line.rsplit_once(' ').unwrap();
            assert!(weight.parse::<u64>().unwrap() > 0 && !frames.is_empty(), "{line}");
        }
        assert!(text.contains("\nsyscall;knotd;worker [knotd];do_syscall_64;udp_recvmsg "), "{text}");
    }

    #[test]
    fn nameless_functions_in_a_row_are_one() {
        let mut profile = built();
        profile.stacks.truncate(1);
        let frames = "handle_softirqs [unknown] [unknown] f f [x] [unknown]";
        profile.stacks[0].frames = frames.split(' ').map(str::to_owned).collect();
        assert_eq!(text(&profile), "softirq;handle_softirqs;[unknown];f;f;[x];[unknown] 3000000\n");
    }

    #[test]
    fn names_cannot_break_the_format() {
        let mut profile = built();
        profile.stacks.truncate(1);
        profile.stacks[0].frames = vec!["handle_softirqs".into(), "a;b\n1".into()];
        assert_eq!(text(&profile), "softirq;handle_softirqs;a,b 1 3000000\n");
    }
}
