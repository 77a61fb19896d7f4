//! The pages: well-formed, complete in themselves, every chart with its table, nothing escaped twice or not at all.

mod fixture;

use udpath_profile::trace::{Absent, Source};
use udpath_report::{Compared, Render};

/// An element as it opens: its name and its attributes as they stand.
struct Element {
    name: String,
    attributes: String,
}

/// The elements of a page in order of their opening; panics at the first that is not closed where it should be.
fn elements(html: &str) -> Vec<Element> {
    const VOID: [&str; 3] = ["meta", "br", "input"];
    let body = html.strip_prefix("<!DOCTYPE html>\n").expect("a page begins with its type");
    let (mut open, mut all): (Vec<String>, Vec<Element>) = (Vec::new(), Vec::new());
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>'), "a stray > in {text:?}");
        check_entities(text);
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "</{name}> closes something else");
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "<{name}> is no element");
        assert_eq!(attributes.matches('"').count() % 2, 0, "an open quote in {attributes:?}");
        check_entities(attributes);
        all.push(Element { name: name.to_owned(), attributes: attributes.to_owned() });
        if let "style" | "script" = name {
            // Raw text up to its own end.
            rest = &rest[rest.find(&format!("</{name}>")).expect("raw text ends")..];
        }
        if !closed && !VOID.contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    all
}

fn check_entities(text: &str) {
    for (at, _) in text.match_indices('&') {
        let entity: String = text[at..].chars().take_while(|c| *c != ';').collect();
        let known = ["&amp", "&lt", "&gt", "&quot"].contains(&entity.as_str()) || entity.starts_with("&#");
        assert!(known && entity.len() < 8, "a bare & in {text:?}");
    }
}

/// What holds of every page.
fn check(html: &str) -> Vec<Element> {
    assert!(!html.contains("<script"), "a script in the page");
    check_but_scripts(html)
}

/// The same of a page that may have a script of ours.
fn check_but_scripts(html: &str) -> Vec<Element> {
    let elements = elements(html);
    for forbidden in ["http:", "https:", "@import", "url(data", "src=", "NaN", "javascript:"] {
        assert!(!html.contains(forbidden), "{forbidden} in the page");
    }
    // A digest may have one; an address has two.
    assert!(!html.contains("//"), "an address in the page");
    assert!(
        !elements
            .iter()
            .any(|e| ["link", "img", "iframe", "object", "image", "use"].contains(&e.name.as_str()))
    );
    assert!(elements.iter().any(|e| e.attributes.contains("name=\"viewport\"")));

    let mut ids: Vec<&str> = elements.iter().filter_map(|e| attribute(e, "id")).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id is used twice");
    for element in elements.iter().filter(|e| e.name == "svg") {
        let view: Vec<f64> =
            attribute(element, "viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        if attribute(element, "aria-hidden") == Some("true") {
            continue;
        }
        assert!(view.len() == 4 && view[3] > 20.0 && view[3] < 20_000.0, "{view:?}");
        for id in attribute(element, "aria-labelledby").expect("a chart has a name").split(' ') {
            assert!(ids.contains(&id), "{id} is nowhere");
        }
    }
    for fill in elements.iter().filter_map(|e| attribute(e, "fill")) {
        let id = fill.strip_prefix("url(#").and_then(|f| f.strip_suffix(')')).expect("a pattern");
        assert!(ids.contains(&id), "{id} is nowhere");
    }
    elements
}

fn attribute<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    let from = element.attributes.find(&format!("{name}=\""))? + name.len() + 2;
    element.attributes[from..].split('"').next()
}

/// Every chart is drawn for a wide page and for a phone, and a table with its figures follows in the same section.
fn check_charts(html: &str, titles: &[&str]) {
    for title in titles {
        assert_eq!(html.matches(&format!(">{title}</title>")).count(), 2, "{title} is drawn twice");
        let after = html.rsplit(&format!(">{title}</title>")).next().unwrap();
        let section = after.split("</section>").next().unwrap();
        assert!(section.contains("<table>"), "{title} has no table");
    }
}

#[test]
fn a_climb_is_whole() {
    let result = fixture::boost();
    let html = result.html();
    check(&html);
    check_charts(&html, &["The ladder", "CPU time by CPU and kind", "Latency by percentile"]);
    assert!(html.contains("<h1>1.52× the transactions per second</h1>"));
    assert!(html.contains("udpath boost --lab --engine kernel --queues 2 --flows 16 --inflight 16 --size 100 --seconds 1 --io shared,reuseport"));
    for rung in &result.rungs {
        assert!(html.contains(&format!("<th scope=\"row\">{}</th>", rung.name)), "{} in no table", rung.name);
        assert!(html.contains(&format!(">{}</text>", rung.name)), "{} in no chart", rung.name);
        assert!(html.contains(&rung.change), "{}", rung.change);
    }
    for fact in
        ["Intel(R) Xeon(R) Platinum 8481C", "15.6 GiB", "10 GbE carries 7.53 M", "2026-11-20 13:06 UTC"]
    {
        assert!(html.contains(fact), "{fact}");
    }
    // A tick for each trial, on each of the two papers.
    let trials: usize = result.rungs.iter().map(|r| r.trials.len()).sum();
    assert_eq!(html.matches("<line class=\"trial\"").count(), 2 * trials);
    // A whisker with its two ends for each rung that was compared, each with a halo.
    let compared = result.rungs.iter().filter(|r| r.against.is_some() && r.tps > 0.0).count();
    assert_eq!(html.matches("<line class=\"whisker\"").count(), 2 * 3 * compared);
}

#[test]
fn a_climb_with_profiles_tells_where_the_time_went() {
    let result = fixture::profiled_boost();
    let html = result.html();
    let elements = check_but_scripts(&html);
    assert_eq!(html.matches("<script>").count(), 1);
    assert!(html.contains("script-src 'sha256-"), "the policy names the script");
    let profiles = result.profiles.as_ref().unwrap();
    for (rung, profile) in [("shared", &profiles.first), ("batch", &profiles.best)] {
        let sentence = &profile.as_ref().unwrap().sentence;
        assert!(html.contains(&format!("<dt>{rung}</dt><dd>{sentence}</dd>")), "{rung}: {sentence}");
    }
    let graphs: Vec<&str> = elements
        .iter()
        .filter(|e| attribute(e, "class") == Some("flame"))
        .map(|e| attribute(e, "data-name").unwrap())
        .collect();
    assert_eq!(graphs, ["shared", "batch", "difference"]);
    let difference = udpath_profile::difference::Difference::new(
        &profiles.first.as_ref().unwrap().profile,
        &profiles.best.as_ref().unwrap().profile,
    );
    assert!(html.contains(&difference.sentence()), "{}", difference.sentence());
    assert!(html.contains("<th scope=\"col\">shared</th><th scope=\"col\">batch</th>"));
    assert!(html.contains("<h3>Only in shared</h3>") && html.contains("<th scope=\"row\">udp_sendmsg</th>"));
    for note in &profiles.first.as_ref().unwrap().profile.notes {
        assert_eq!(html.matches(&format!("<li>{note}</li>")).count(), 1, "{note}");
    }
}

#[test]
fn the_graphs_of_a_climb_are_of_the_server_and_of_softirqs() {
    let mut result = fixture::profiled_boost();
    let first = result.profiles.as_mut().unwrap().first.as_mut().unwrap();
    let first = &mut first.profile;
    let server = first.facts.focus.pids[0];
    // Somebody else builds a program meanwhile.
    let user = first.stacks.iter_mut().filter(|stack| stack.process.is_some());
    for (at, stack) in user.enumerate() {
        stack.pid = Some(if at % 2 == 0 { server } else { 9 });
        if at % 2 == 1 {
            (stack.process, stack.frames) = (Some("rustc".to_owned()), vec!["typeck [rustc]".to_owned()]);
        }
    }
    let html = result.html();
    let names: Vec<String> = frames(&html).into_iter().map(|(name, ..)| name).collect();
    assert!(names.iter().any(|name| name == "udpath") && names.iter().any(|name| name == "net_rx_action"));
    assert!(!names.iter().any(|name| name.contains("rustc")), "{names:?}");
    // The page of a profile shows all that ran.
    let html = result.profiles.unwrap().first.unwrap().html();
    assert!(frames(&html).iter().any(|(name, ..)| name == "rustc"));
}

#[test]
fn a_climb_without_profiles_says_why() {
    let mut result = fixture::profiled_boost();
    let profiles = result.profiles.as_mut().unwrap();
    (profiles.first, profiles.best) = (None, None);
    profiles.absent = Some("shared: may not sample CPU 0".to_owned());
    let html = result.html();
    check(&html);
    assert!(html.contains("No profile of shared: may not sample CPU 0."));
    // Only the second could not be had: the first is shown.
    let mut result = fixture::profiled_boost();
    let profiles = result.profiles.as_mut().unwrap();
    (profiles.best, profiles.absent) = (None, Some("batch: the server answered nothing".to_owned()));
    let html = result.html();
    let graphs = check_but_scripts(&html).into_iter().filter(|e| attribute(e, "class") == Some("flame"));
    assert_eq!(graphs.count(), 1);
    assert!(html.contains("No profile of batch: the server answered nothing."));
}

#[test]
fn what_was_traced_is_drawn_and_told() {
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
    // Every doubling of a wide picture that has something is a bar as high as its count.
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
    // Without any, not a word.
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
    for said in ["Nobody waited for a lock.", "Nothing was dropped.", "No datagram that was followed"] {
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
fn bars_are_in_proportion_to_their_rates() {
    let result = fixture::boost();
    let html = result.html();
    let bars: Vec<f64> = check(&html)
        .iter()
        .filter(|e| e.name == "rect" && attribute(e, "class").is_some_and(|c| c.starts_with("bar ")))
        .map(|e| attribute(e, "width").unwrap().parse().unwrap())
        .collect();
    let rates: Vec<f64> = result.rungs.iter().map(|r| r.tps).filter(|t| *t > 0.0).collect();
    assert_eq!(bars.len(), 2 * rates.len());
    for (paper, bars) in [("wide", &bars[..rates.len()]), ("narrow", &bars[rates.len()..])] {
        for (bar, rate) in bars.iter().zip(&rates) {
            let expected = bars[0] * rate / rates[0];
            assert!((bar - expected).abs() < 0.2, "{paper}: {bar} for {rate}, expected {expected}");
        }
    }
}

#[test]
fn stacked_shares_fill_their_bar() {
    let html = fixture::boost().html();
    let parts = check(&html);
    let mut rows: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
    let wide = parts.iter().filter(|e| attribute(e, "fill").is_some_and(|f| f.ends_with("-wide)")));
    for part in wide.filter(|e| attribute(e, "height") == Some("18")) {
        let width: f64 = attribute(part, "width").unwrap().parse().unwrap();
        *rows.entry(attribute(part, "y").unwrap().to_owned()).or_default() += width;
    }
    assert_eq!(rows.len(), 14, "seven rungs ran on two CPUs");
    for (y, width) in rows {
        assert!((width - 642.0).abs() < 1.0, "the bar at {y} is {width} wide");
    }
}

#[test]
fn a_load_is_whole() {
    let html = fixture::load().html();
    check(&html);
    check_charts(&html, &["CPU time by CPU and kind", "Latency by percentile"]);
    for text in [
        "200 k transactions per second",
        "intended → answered",
        "2,000,113",
        "No: the generator kept to its plan",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn a_limited_generator_is_said_before_the_figures_are_explained() {
    let mut result = fixture::load();
    result.generator.limited = true;
    result.generator.reasons = vec!["the send queue was full 7 % of the time".to_owned()];
    let html = result.html();
    check(&html);
    let lead = html.find("Limited by the generator, not the server").expect("it is said");
    assert!(lead < html.find("<h2>").unwrap() && html.contains("the send queue was full 7 % of the time"));
}

#[test]
fn results_without_this_or_that_are_still_pages() {
    let mut boost = fixture::boost();
    for rung in &mut boost.rungs {
        rung.latency = None;
        rung.cpus.clear();
        rung.trials.clear();
        rung.settings.clear();
    }
    let html = boost.html();
    check(&html);
    check_charts(&html, &["The ladder"]);
    assert!(!html.contains("<h2>Latency</h2>") && !html.contains("<h2>Where CPU time goes</h2>"));
    boost.rungs.clear();
    boost.warnings.clear();
    let html = boost.html();
    check(&html);
    assert!(html.contains("Nothing was measured"));

    let mut load = fixture::load();
    (load.intended_latency, load.sent_latency, load.lateness) = (None, None, None);
    load.cpus.clear();
    load.targets.clear();
    check(&load.html());
}

#[test]
fn hostile_text_and_impossible_figures_stay_text_and_figures() {
    let html = fixture::hostile_boost().html();
    check_but_scripts(&html);
    assert!(!html.contains("<script>alert"));
    assert!(html.contains("&lt;script&gt;") || html.contains("&#60;script&#62;"));
    assert!(!html.contains('\u{1b}') && !html.contains('\u{0}'), "control characters in the page");
}

#[test]
fn a_large_machine_makes_a_page_of_bearable_size() {
    let html = fixture::large_boost().html();
    check(&html);
    assert!(html.len() < 8 << 20, "{} bytes", html.len());
}

/// Name, place and width of every frame of the flame graph, in the order of the page.
fn frames(html: &str) -> Vec<(String, f64, f64, usize)> {
    let elements = check_but_scripts(html);
    let frames =
        elements.iter().filter(|e| attribute(e, "class").is_some_and(|class| class.starts_with("f ")));
    let number = |e: &Element, name: &str| attribute(e, name).unwrap().parse::<f64>().unwrap();
    frames
        .map(|e| {
            let level = number(e, "data-l") as usize;
            (attribute(e, "data-n").unwrap().to_owned(), number(e, "data-x"), number(e, "data-w"), level)
        })
        .collect()
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
    // In the order of the page every frame follows its caller.
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
fn a_difference_is_whole_and_says_what_is_gone() {
    let a = fixture::profile().profile;
    let mut b = fixture::profile().profile;
    b.stacks.retain(|stack| !stack.frames.iter().any(|frame| frame == "udp_sendmsg"));
    for stack in b.stacks.iter_mut().filter(|stack| stack.frames.iter().any(|frame| frame == "udp_recvmsg")) {
        stack.ns *= 3;
    }
    let html = Compared { a: &a, b: &b }.html();
    check_but_scripts(&html);
    assert!(html.contains("<th scope=\"row\">udp_sendmsg</th>"), "what is gone is in the table");
    // Colours of a function wherever it is drawn.
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
