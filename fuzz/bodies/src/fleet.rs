use udpath_fleet::machines::of_json;
use udpath_report::{Render, Style};

/// JSON of `show` in a fleet's report: a machine does not differ from itself, and nothing of the file drives a terminal or a page.
pub fn fleet_json(data: &[u8]) {
    let Some(report) = of_json(&[("a", data), ("b", data)]) else { return };
    assert_eq!((report.machines.len(), report.alike), (2, 2));
    assert!(report.groups.is_empty() && report.mixed.is_empty(), "{:?} {:?}", report.groups, report.mixed);
    assert!(report.machines.iter().all(|machine| machine.differences == 0));
    let text = report.terminal(&Style::default());
    assert!(text.starts_with("all 2 machines are alike\n"), "{text}");
    let drives = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(drives, None, "a control character of the file reached the terminal");
    let page = report.html();
    assert!(page.starts_with("<!") && page.trim_end().ends_with("</html>"), "not a whole page");
    assert!(!page.contains("<script"), "a tag of the file reached the page");
}
