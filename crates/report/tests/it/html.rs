//! The pages: well-formed, self-contained, a table for every chart, every text escaped exactly once.

mod profile;

use udpath_load::result::Kind;
use udpath_report::Render;

use crate::fixture;

/// An opening tag: its name and its raw attributes.
struct Element {
    name: String,
    attributes: String,
}

/// The elements of a page in opening order; panics at the first that is not closed correctly.
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

/// Checks the invariants of every page.
fn check(html: &str) -> Vec<Element> {
    assert!(!html.contains("<script"), "a script in the page");
    check_but_scripts(html)
}

/// The same for a page that may contain udpath's script.
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
    assert!(html.contains("udpath boost --lab --engine kernel --queues 2 --flows 16 --inflight 16 --size 100 --duration 1s --io shared,reuseport"));
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
    // A tick for each trial, in each of the two drawings.
    let trials: usize = result.rungs.iter().map(|r| r.trials.len()).sum();
    assert_eq!(html.matches("<line class=\"trial\"").count(), 2 * trials);
    // A whisker with two ends for each compared rung, each with a halo.
    let compared = result.rungs.iter().filter(|r| r.against.is_some() && r.tps > 0.0).count();
    assert_eq!(html.matches("<line class=\"whisker\"").count(), 2 * 3 * compared);
}

#[test]
fn a_climb_with_profiles_shows_where_the_time_went() {
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
    // Another program is compiled at the same time.
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
    // The page of a profile shows everything that ran.
    let html = result.profiles.unwrap().first.unwrap().html();
    assert!(frames(&html).iter().any(|(name, ..)| name == "rustc"));
}

#[test]
fn a_climb_without_profiles_says_why() {
    let mut result = fixture::profiled_boost();
    let profiles = result.profiles.as_mut().unwrap();
    (profiles.first, profiles.best) = (None, None);
    profiles.absent = Some("shared: cannot sample CPU 0".to_owned());
    let html = result.html();
    check(&html);
    assert!(html.contains("No profile of shared: cannot sample CPU 0."));
    // Only the second is missing: the first is shown.
    let mut result = fixture::profiled_boost();
    let profiles = result.profiles.as_mut().unwrap();
    (profiles.best, profiles.absent) = (None, Some("batch: the server answered nothing".to_owned()));
    let html = result.html();
    let graphs = check_but_scripts(&html).into_iter().filter(|e| attribute(e, "class") == Some("flame"));
    assert_eq!(graphs.count(), 1);
    assert!(html.contains("No profile of batch: the server answered nothing."));
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
fn a_load_names_what_the_replies_said() {
    let mut result = fixture::load();
    assert!(!result.html().contains("What the replies said"), "its replies are all alike");
    let kind = |name: &str, count| Kind::new(name, count);
    result.kinds = vec![kind("NXDOMAIN", 250_000), kind("NOERROR", 750_000), kind(fixture::HOSTILE, 0)];
    let html = result.html();
    check(&html);
    let row = |name: &str, count: &str, share: &str| {
        html.find(&format!(r#"<tr><th scope="row">{name}</th><td>{count}</td><td>{share}</td></tr>"#))
    };
    let (most, least) = (row("NOERROR", "750,000", "75.0 %"), row("NXDOMAIN", "250,000", "25.0 %"));
    assert!(most.expect("the most frequent") < least.expect("the others"), "the most frequent is first");
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
    result.generator.limited = false;
    let html = result.html();
    check(&html);
    assert!(
        !html.contains("Limited by the generator") && html.contains("No. All that was offered was sent, but")
    );
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
fn the_page_of_experiments_is_whole() {
    let elements = check(&crate::experiment::made_up().html());
    // Both charts, each for a page and for a phone.
    assert_eq!(elements.iter().filter(|element| element.name == "svg").count(), 4);
}
