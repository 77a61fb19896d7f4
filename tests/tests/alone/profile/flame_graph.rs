//! The flame graph of the page in a browser: zoom, search, keyboard.

use udpath_rig::{Tab, dom};

use super::{Profiled, profiled};

/// The frames of a page: the text of each tag `<g class="f ...`, and its label.
fn frames(dom: &str) -> Vec<(&str, &str)> {
    let tags = dom.split("<g class=\"f ").skip(1);
    tags.map(|tag| {
        let frame = tag.split("</g>").next().unwrap();
        let label = frame.rsplit("<text").next().unwrap();
        let label = label.split_once('>').map_or("", |(_, text)| text.trim_end_matches("</text>"));
        (frame, label)
    })
    .collect()
}

fn attribute<'a>(frame: &'a str, name: &str) -> &'a str {
    frame.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

#[test]
fn the_flame_graph_zooms_and_searches_in_a_browser_without_a_network() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let Profiled { page, .. } = profiled();
    let folder = tempfile::tempdir().unwrap();
    let whole = dom(&folder.path().join("browser"), &page.display().to_string());
    let all = frames(&whole);
    assert!(all.len() > 50, "{} frames", all.len());
    assert!(
        !whole.contains("id=\"flame-tools\" hidden"),
        "the script did not run: is its digest the policy's?"
    );
    assert!(all.iter().any(|(_, label)| *label == "softirq"), "no label says softirq");
    // A drawn function that is not the whole graph.
    let (target, _) = all.iter().find(|(frame, _)| attribute(frame, "data-n") == "net_rx_action").unwrap();
    let id = attribute(target, "id");
    let zoomed = dom(&folder.path().join("browser"), &format!("{}#z={id}&s=NAPI_POLL", page.display()));
    let zoomed_frames = frames(&zoomed);
    let width = |frame: &str| {
        let rect = frame.split("<rect").nth(1).unwrap();
        attribute(rect, " width").parse::<f64>().unwrap()
    };
    let (wide, _) = zoomed_frames.iter().find(|(frame, _)| attribute(frame, "id") == id).unwrap();
    assert!(width(wide) > 1100.0 && width(target) < width(wide), "{} and {}", width(target), width(wide));
    let hidden =
        zoomed_frames.iter().filter(|(frame, _)| frame.split('"').next().unwrap().contains(" out")).count();
    assert!(hidden > 0 && hidden < zoomed_frames.len(), "{hidden} of {} are hidden", zoomed_frames.len());
    let hits: Vec<&str> = zoomed_frames
        .iter()
        .filter(|(frame, _)| frame.split('"').next().unwrap().contains(" hit"))
        .map(|(frame, _)| attribute(frame, "data-n"))
        .collect();
    assert!(!hits.is_empty() && hits.iter().all(|name| name.contains("napi_poll")), "{hits:?}");
    let says = zoomed.split("id=\"flame-says\"").nth(1).unwrap().split("</span>").next().unwrap();
    assert!(says.contains(&format!("{} frame", hits.len())) && says.contains(" % of the whole"), "{says}");
}

#[test]
fn the_flame_graph_is_worked_by_the_keyboard() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let mut tab = Tab::open(&profiled().page);
    let in_graph = "document.activeElement.matches('g.f')";
    let name = "document.activeElement.dataset.n";
    let width = "+document.activeElement.querySelector('rect').getAttribute('width')";
    let whole = tab.look("+document.querySelector('svg.flame').dataset.width").as_f64().unwrap();
    // Skip any earlier elements on the page.
    let tabs = (0..50).find(|_| {
        tab.look(in_graph) == true || {
            tab.press("Tab");
            false
        }
    });
    assert!(tabs.is_some(), "Tab never comes to the graph");
    assert_eq!(tab.look(name), "all");
    // To the widest callee, and back to its caller.
    tab.press("ArrowDown");
    let (callee, narrow) = (tab.look(name), tab.look(width).as_f64().unwrap());
    assert!(callee != "all" && narrow < whole - 1.0, "{callee}: {narrow} of {whole}");
    tab.press("ArrowUp");
    assert_eq!(tab.look(name), "all");
    tab.press("ArrowDown");
    assert_eq!(tab.look(name), callee);
    // Zoom: the box grows and keeps the focus; then back.
    let id = tab.look("document.activeElement.id");
    tab.press("Enter");
    tab.shows("location.hash", &format!("#z={}", id.as_str().unwrap()));
    let wide = tab.look(width).as_f64().unwrap();
    assert!((wide - whole).abs() < 1.0 && tab.look(name) == callee, "{wide} of {whole}");
    tab.press("Escape");
    tab.shows("location.hash", "");
    assert_eq!((tab.look(width).as_f64().unwrap(), tab.look(name)), (narrow, callee.clone()));
    // Text typed in the graph is searched, from the first letter on.
    tab.types("NAPI_poll");
    tab.shows("location.hash", "#s=NAPI_poll");
    tab.shows("document.activeElement.value", "NAPI_poll");
    let marked = "Array.from(document.querySelectorAll('g.f.hit'), g => g.dataset.n)";
    let hits = tab.look(marked);
    let hits = hits.as_array().unwrap();
    assert!(
        !hits.is_empty() && hits.iter().all(|hit| hit.as_str().unwrap().contains("napi_poll")),
        "{hits:?}"
    );
    let says = tab.look("document.getElementById('flame-says').textContent");
    assert!(says.as_str().unwrap().starts_with(&format!("{} frame", hits.len())), "{says}");
    // On to the widest match, and into it; the search stays.
    tab.press("Enter");
    assert!(tab.look(name).as_str().unwrap().contains("napi_poll"));
    let id = tab.look("document.activeElement.id");
    tab.press("Enter");
    tab.shows("location.hash", &format!("#z={}&s=NAPI_poll", id.as_str().unwrap()));
    // Another search replaces it; Escape clears it and returns to the graph.
    tab.types("x");
    tab.shows("document.activeElement.value", "x");
    tab.press("Escape");
    tab.shows("location.hash", &format!("#z={}", id.as_str().unwrap()));
    assert_eq!((tab.look(in_graph), tab.look(marked)), (true.into(), serde_json::json!([])));
    tab.press("Escape");
    tab.shows("location.hash", "");
}
