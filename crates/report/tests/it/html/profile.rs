//! Pages of profiles: they contain everything found, and nothing else.

use udpath_profile::trace::{Absent, Source};
use udpath_report::{Compared, Render};

use super::{Element, attribute, check_but_scripts, check_charts, frames};
use crate::fixture;

#[test]
fn traces_are_drawn_and_described() {
    let mut result = fixture::profile();
    result.profile.traces = fixture::traces();
    let reason = "the kernel has no such tracepoint".to_owned();
    result.profile.traces.absent = vec![Absent { source: Source::Delays, reason }];
    let html = result.html();
    let elements = check_but_scripts(&html);
    check_charts(
        &html,
        &[
            "Waits for locks by length",
            "How late softirqs began",
            "Packets of a NAPI poll",
            "Delay inside this host",
        ],
    );
    for part in [
        "Waits for locks",
        "Dropped packets",
        "Softirqs and polls",
        "Delay inside this host",
        "What tracing cost",
    ] {
        assert!(html.contains(&format!("<h2>{part}</h2>")), "{part}");
    }
    // Every non-empty doubling of a wide chart is a bar as high as its count.
    let locks = result.profile.traces.locks.as_ref().unwrap();
    let most = &locks.by_lock()[0].1;
    let highest = most.lengths.iter().map(|length| length.count).max().unwrap();
    let filled = |e: &&Element| attribute(e, "class") == Some("part histogram");
    let first: Vec<f64> = elements
        .iter()
        .filter(filled)
        .take(most.lengths.len())
        .map(|e| attribute(e, "height").unwrap().parse().unwrap())
        .collect();
    for (height, length) in first.iter().zip(&most.lengths) {
        let expected = (34.0 * length.count as f64 / highest as f64).max(1.5);
        assert!((height - expected).abs() < 0.06, "{length:?} is {height} high");
    }
    for line in &result.profile.traces.drops.as_ref().unwrap().lines {
        assert!(html.contains(&format!("<th scope=\"row\">{}</th>", line.reason)), "{}", line.reason);
    }
    assert!(html.contains("Delays were not traced: the kernel has no such tracepoint."));
    // Without traces, the page does not mention them.
    let html = fixture::profile().html();
    assert!(!html.contains("What tracing cost") && !html.contains("part histogram\""));
}

#[test]
fn nothing_found_is_a_sentence() {
    let mut result = fixture::profile();
    result.profile.traces = udpath_profile::trace::Traces {
        locks: Some(udpath_profile::trace::Locks::default()),
        drops: Some(udpath_profile::trace::Drops::default()),
        softirqs: Some(udpath_profile::trace::Softirqs::default()),
        delays: Some(udpath_profile::trace::Delays::default()),
        ..udpath_profile::trace::Traces::default()
    };
    let html = result.html();
    check_but_scripts(&html);
    for said in ["No lock waits.", "Nothing was dropped.", "No datagram that was followed"] {
        assert!(html.contains(said), "{said}");
    }
}

#[test]
fn other_programs_are_in_no_figure_per_datagram() {
    let all = fixture::profile();
    let mut result = all.clone();
    let about = &mut result.profile;
    let server = about.facts.focus.pids[0];
    // Half of all user time is another program's.
    let user = about.classes.iter_mut().find(|share| share.of.name() == "user").unwrap();
    user.others = user.ns / 2;
    let (charged, ns) = (user.charged(), user.ns);
    let html = result.html();
    check_but_scripts(&html);
    assert!(html.contains("is in the shares, and in no cost per datagram"), "of pid {server}");
    let each = |ns: u64| {
        let cost = all.profile.per_datagram(ns).unwrap();
        format!("<td>{cost:.0} ns</td>")
    };
    let row = html.split("<th scope=\"row\">user</th>").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(row.contains(&each(charged)) && !row.contains(&each(ns)), "{row}");
}

#[test]
fn a_profile_with_hardware_counters_has_all_of_them() {
    let result = fixture::counted_profile();
    let html = result.html();
    let profile = &result.profile;
    check_but_scripts(&html);
    let table = html.split("<h2>Hardware counters</h2>").nth(1).unwrap().split("</table>").next().unwrap();
    assert_eq!(table.matches("<tr>").count(), 2 + profile.classes.len());
    assert!(table.contains("remote loads</th>") && table.contains("<td>1.40</td>"), "{table}");
    assert!(!fixture::profile().html().contains("Hardware counters"));
}

#[test]
fn a_profile_is_whole() {
    let result = fixture::profile();
    let html = result.html();
    let profile = &result.profile;
    check_but_scripts(&html);
    check_charts(&html, &["CPU time by CPU and kind"]);
    assert_eq!(html.matches("<script>").count(), 1);
    assert!(html.contains("default-src &#39;none&#39;") || html.contains("default-src 'none'"));
    assert!(html.contains(&result.sentence));
    for share in &profile.classes {
        assert!(
            html.contains(&format!("<th scope=\"row\">{}</th>", share.of.title())),
            "{}",
            share.of.title()
        );
    }
    for finding in &result.findings {
        assert!(finding.remedies.iter().all(|remedy| html.contains(remedy.what())), "{finding:?}");
    }
    for note in &profile.notes {
        assert!(html.contains(note), "{note}");
    }
}

#[test]
fn frames_are_as_wide_as_their_time_and_lie_within_their_callers() {
    let result = fixture::profile();
    let frames = frames(&result.html());
    let profile = &result.profile;
    assert_eq!(frames[0], ("all".to_owned(), 0.0, 1e7, 0));
    let busy = profile.busy() as f64;
    for (context, ns) in profile.contexts.iter().filter(|(_, ns)| **ns as f64 > 0.001 * busy) {
        if *context == udpath_profile::context::Context::Idle {
            continue;
        }
        let found = frames.iter().find(|(name, _, _, level)| *level == 1 && name == context.title());
        let (_, _, width, _) = found.unwrap_or_else(|| panic!("{} is not there", context.title()));
        assert!((width / 1e7 - *ns as f64 / busy).abs() < 1e-5, "{}: {width}", context.title());
    }
    // In page order, every frame follows its caller.
    let mut callers: Vec<(f64, f64)> = Vec::new();
    for (name, x, width, level) in &frames {
        callers.truncate(*level);
        if let Some((from, wide)) = callers.last() {
            assert!(*x >= from - 1.0 && x + width <= from + wide + 2.0, "{name} at {x}, {width} wide");
        }
        assert!(*width >= 1e4 - 1.0, "{name} is too small to be drawn");
        callers.push((*x, *width));
    }
}

#[test]
fn a_difference_is_complete_and_lists_removed_functions() {
    let a = fixture::profile().profile;
    let mut b = fixture::profile().profile;
    b.stacks.retain(|stack| !stack.frames.iter().any(|frame| frame == "udp_sendmsg"));
    for stack in b.stacks.iter_mut().filter(|stack| stack.frames.iter().any(|frame| frame == "udp_recvmsg")) {
        stack.ns *= 3;
    }
    let html = Compared { a: &a, b: &b }.html();
    check_but_scripts(&html);
    assert!(html.contains("<th scope=\"row\">udp_sendmsg</th>"), "what is gone is in the table");
    // Colours of a function in all places.
    let looks = |name: &str| -> Vec<String> {
        let drawn = check_but_scripts(&html).into_iter().filter(|e| attribute(e, "data-n") == Some(name));
        drawn.map(|e| attribute(&e, "class").unwrap()[2..].to_owned()).collect()
    };
    let reading = looks("udp_recvmsg");
    assert!(reading.iter().any(|look| look.starts_with('p')), "more is red: {reading:?}");
    assert!(!reading.iter().any(|look| look.starts_with('m')), "nothing of it is less: {reading:?}");
    assert!(!html.contains("data-n=\"udp_sendmsg\""));
    let same = Compared { a: &a, b: &a }.html();
    assert!(!same.contains("Only in A"));
    assert!(
        check_but_scripts(&same)
            .iter()
            .filter_map(|e| attribute(e, "class"))
            .all(|class| { !class.starts_with("f ") || class == "f z" })
    );
}

#[test]
fn a_hostile_profile_is_still_a_page() {
    let hostile = fixture::hostile_profile();
    for html in [hostile.html(), Compared { a: &hostile.profile, b: &fixture::profile().profile }.html()] {
        check_but_scripts(&html);
        assert!(!html.contains("<script>alert") && !html.contains('\u{1b}') && !html.contains('\u{0}'));
        assert!(html.len() < 8 << 20, "{} bytes", html.len());
    }
    let mut result = fixture::profile();
    let empty = &mut result.profile;
    empty.stacks.clear();
    empty.classes.clear();
    empty.locks.clear();
    empty.cpus.clear();
    empty.contexts.clear();
    empty.processes.clear();
    (empty.datagrams, result.findings) = (None, Vec::new());
    check_but_scripts(&result.html());
    check_but_scripts(&Compared { a: &result.profile, b: &result.profile }.html());
}
