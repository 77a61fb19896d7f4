use std::time::Duration;

use udpath_fleet::machines::of_json;
use udpath_fleet::{Limits, announced, delivered};
use udpath_load::result::LoadResult;
use udpath_report::{Render, Style};

/// JSON of `show` in a fleet's report: a machine does not differ from itself, and nothing of the file drives a terminal
/// or a page.
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

/// A message of the network at either end of a fleet. An agent's limits hold for whatever they accept, and a refusal is
/// a sentence; results of agents are merged or refused, and what is merged is the sum.
pub fn fleet_message(data: &[u8]) {
    if let Some(order) = announced(data) {
        let (flows, time) = (100, Duration::from_secs(10));
        let limits = Limits {
            targets: vec!["192.0.2.0/24".parse().unwrap()],
            rate: Some(2000.0),
            bits: Some(10e6),
            time,
            timeout: Duration::from_secs(5),
            flows,
            memory: 16 << 20,
            options: vec!["type".into()],
        };
        match limits.check(&order) {
            Ok(()) => {
                let plan = &order.plan;
                assert!(plan.targets.iter().all(|target| target.ip().to_string().starts_with("192.0.2.")));
                assert!(plan.duration.saturating_add(plan.warmup) <= time && plan.timeout <= limits.timeout);
                assert!(plan.sources.is_empty() && order.options.iter().all(|(name, _)| name == "type"));
            }
            Err(refusal) => super::presentable(&refusal, data.len()),
        }
    }
    if let Some((agent, result)) = delivered(data) {
        let sent = result.counts.sent;
        match LoadResult::merge_segments(vec![(agent, result)]) {
            Ok(sum) => assert_eq!(sum.counts.sent, sent),
            Err(error) => super::presentable(&error, data.len()),
        }
    }
}
