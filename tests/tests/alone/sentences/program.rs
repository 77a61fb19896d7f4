//! A service that is itself slow.

use udpath_lab::LinkSpec;
use udpath_rig::Bed;

use super::{PORT, alone, misconfigured, said};

#[test]
fn a_slow_handler_is_named_with_its_share() {
    udpath_lab::needs_root!();
    let _alone = alone();
    let bed = Bed::new("slow", &LinkSpec::with_queues(2)).first("client");
    let _server = misconfigured(&bed, &["slow", "2"]);
    let _load = bed.load(&["echo", &bed.target(PORT), "--flows", "16", "--inflight", "2", "-d", "90s"]);
    let (_, text) = said(&bed, "user", "misconfigured's own work");
    // "97 % of CPU time is misconfigured's own work, 100 % of it in misconfigured::digest [misconfigured]"
    let (share, rest) =
        text.split_once(" % of CPU time is misconfigured's own work, ").unwrap_or_else(|| panic!("{text}"));
    let (part, function) = rest.split_once(" % of it in ").unwrap_or_else(|| panic!("{text}"));
    let percent = |text: &str| text.parse::<f64>().unwrap();
    assert!(percent(share) > 40.0 && percent(part) > 90.0, "{text}");
    assert!(function.contains("digest") && function.ends_with("[misconfigured]"), "{text}");
}
