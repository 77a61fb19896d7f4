//! The text renderings: whole screens compared with snapshots, and invariants.

use udpath_advise::result::{BoostResult, LeftOut, Ratio, RungResult, Verdict};
use udpath_load::result::{Counts, Kind, LoadResult};
use udpath_profile::perf::Counter;
use udpath_report::{Compared, Render, Style, boost_text};

use crate::fixture;

fn width(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn a_climb_on_eighty_columns() {
    let text = fixture::boost().terminal(&Style::default());
    insta::assert_snapshot!("boost_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
    assert!((12..=37).contains(&text.lines().count()), "{} lines", text.lines().count());
}

#[test]
fn a_climb_on_a_wide_terminal_has_longer_bars() {
    let text = fixture::boost().terminal(&Style { colour: false, width: 120 });
    insta::assert_snapshot!("boost_120", text);
    assert!(width(&text) <= 120);
}

#[test]
fn a_climb_on_a_narrow_terminal_has_no_bars() {
    let text = fixture::boost().terminal(&Style { colour: false, width: 60 });
    assert!(!text.contains('█'));
}

#[test]
fn a_climb_with_profiles_on_eighty_columns() {
    let text = fixture::profiled_boost().terminal(&Style::default());
    insta::assert_snapshot!("boost_profiled_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
}

#[test]
fn a_climb_with_details_on_eighty_columns() {
    let text = boost_text(&fixture::profiled_boost(), &Style::default(), true);
    insta::assert_snapshot!("boost_details_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
}

/// The largest possible climb: all twelve rungs, a note on each, a failed one, rungs left out, two profiles.
#[test]
fn the_summary_fits_a_screen_of_a_hundred_columns_and_forty_lines() {
    let mut result = fixture::profiled_boost();
    let spare = result.rungs[3].clone();
    while result.rungs.len() < 12 {
        let name = format!("more-{}", result.rungs.len());
        result.rungs.insert(3, RungResult { name, ..spare.clone() });
    }
    for rung in &mut result.rungs {
        rung.note =
            Some("100 % of the replies came back on CPU 1: the flows did not spread over 2 CPUs; ".repeat(8));
    }
    let fits = |result: &BoostResult| {
        let text = result.terminal(&Style { colour: false, width: 100 });
        // The command, the line about the HTML report, the next prompt.
        assert!(text.lines().count() + 3 <= 40, "{} lines: {text}", text.lines().count());
        assert!(width(&text) <= 100, "{text}");
        assert!(text.lines().last().unwrap().contains("--details"), "{text}");
        for why in ["CPU time per datagram fell from ", "shared: 51 % of", "batch: 70 % of"] {
            assert!(text.contains(why), "{why} is missing: {text}");
        }
        for rung in &result.rungs {
            assert!(text.contains(&format!("{}  ", rung.name)), "{} is missing: {text}", rung.name);
        }
        text
    };
    let text = fits(&result);
    assert!(text.contains("notes on shared, xps, "), "{text}");
    // A few short notes: those on the first and the best rung are printed.
    for rung in &mut result.rungs {
        rung.note = Some("the hypervisor took 5 % of the CPU time".to_owned());
    }
    let text = fits(&result);
    assert!(text.contains("shared: the hypervisor") && text.contains("batch: the hypervisor"), "{text}");
    // Without root, seven rungs are left out.
    let left_out = result.rungs.split_off(5);
    result.rungs.push(left_out.iter().find(|rung| rung.name == "batch").unwrap().clone());
    let reason = "AF_XDP needs CAP_BPF in the initial user namespace; run as root".to_owned();
    result.left_out =
        left_out.iter().map(|rung| LeftOut { name: rung.name.clone(), reason: reason.clone() }).collect();
    let text = fits(&result);
    for rung in &result.left_out {
        assert!(text.contains(&format!("{}: left out: {reason}\n", rung.name)), "{text}");
    }
}

#[test]
fn a_climb_that_could_not_be_profiled_says_why() {
    let mut result = fixture::profiled_boost();
    let profiles = result.profiles.as_mut().unwrap();
    (profiles.first, profiles.best) = (None, None);
    profiles.absent = Some("shared: cannot sample CPU 0".to_owned());
    let text = result.terminal(&Style::default());
    assert!(text.contains("No profile of shared: cannot sample CPU 0."), "{text}");
}

#[test]
fn a_load_on_eighty_columns() {
    let text = fixture::load().terminal(&Style::default());
    insta::assert_snapshot!("load_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
}

/// The counts of a run of 1,000 requests, and what the first line says of them.
fn said(counts: &Counts, kinds: &[(&str, u64)]) -> String {
    said_of(counts, kinds.iter().map(|(name, count)| Kind::new(*name, *count)).collect())
}

fn said_of(counts: &Counts, kinds: Vec<Kind>) -> String {
    let result = LoadResult { counts: *counts, kinds, ..fixture::load() };
    let text = result.terminal(&Style { width: 400, ..Style::default() });
    text.lines().next().unwrap().to_owned()
}

#[test]
fn what_came_in_time_is_not_said_to_be_unanswered() {
    let of = |ok: u64, refused: u64, lost: u64| Counts { sent: 1000, ok, refused, lost, ..Counts::default() };
    let all = said(&of(0, 1000, 0), &[("SERVFAIL", 400), ("REFUSED", 600)]);
    assert!(all.contains(", 100 % refused (REFUSED, SERVFAIL), none lost"), "{all}");
    let some = said(&of(500, 400, 100), &[("NOERROR", 500), ("REFUSED", 400)]);
    assert!(some.contains(", 40.0 % refused, 10.0 % not answered in time"), "{some}");
    let radius = said(&of(0, 1000, 0), &[("Access-Reject", 1000)]);
    assert!(radius.contains("100 % refused (Access-Reject)"), "{radius}");
    // With the kinds that refused.
    let kinds = |of: &[(&str, u64, u64)]| {
        let kind = |(name, count, refused): &(&str, u64, u64)| Kind {
            refused: *refused,
            ..Kind::new(*name, *count)
        };
        of.iter().map(kind).collect::<Vec<_>>()
    };
    let mixed = kinds(&[("NOERROR", 400, 0), ("SERVFAIL", 500, 500), ("REFUSED", 300, 300)]);
    let mixed = said_of(&of(300, 600, 100), mixed);
    assert!(
        mixed.contains(", 60.0 % refused (SERVFAIL 37.5 %, REFUSED 22.5 %), 10.0 % not answered"),
        "{mixed}"
    );
    let rejects = said_of(&of(500, 500, 0), kinds(&[("Access-Accept", 500, 0), ("Access-Reject", 600, 500)]));
    assert!(rejects.contains(", 50.0 % refused (Access-Reject), none lost"), "{rejects}");
    let none = said(&of(0, 0, 1000), &[]);
    assert!(none.contains("100 % not answered in time") && !none.contains("refused"), "{none}");
    let corrupt = said(&Counts { corrupt: 990, ..of(0, 0, 1000) }, &[]);
    assert!(corrupt.contains("100 % not answered in time, though 990 corrupt replies came"), "{corrupt}");
    // What a file claims may be anything.
    said(&Counts { sent: 1, refused: u64::MAX, late: u64::MAX, lost: u64::MAX, ..Counts::default() }, &[]);
}

#[test]
fn colours_only_repeat_the_text() {
    let plain = fixture::boost().terminal(&Style::default());
    let coloured = fixture::boost().terminal(&Style { colour: true, width: 80 });
    assert!(!plain.contains('\x1b'));
    let mut stripped = String::new();
    let mut parts = coloured.split("\x1b[");
    stripped.push_str(parts.next().unwrap());
    for part in parts {
        stripped.push_str(part.split_once('m').expect("a code ends with m").1);
    }
    assert_eq!(stripped, plain);
}

#[test]
fn every_rung_is_on_the_screen_with_its_verdict() {
    let result = fixture::boost();
    let text = result.terminal(&Style::default());
    for rung in &result.rungs {
        let line =
            text.lines().find(|line| line.starts_with(&format!("{:<10}  ", rung.name))).expect(&rung.name);
        let verdict = match rung.verdict {
            Verdict::Base => "first rung",
            Verdict::Better => "better",
            Verdict::Worse => "worse, undone",
            Verdict::NotShown => "not shown, undone",
            Verdict::Failed => "failed",
        };
        assert!(line.contains(verdict), "{line}");
    }
    assert!(text.contains("uring: the kernel refuses io_uring_setup"));
}

#[test]
fn the_first_line_is_the_conclusion() {
    let first = |result: &BoostResult| {
        let text = result.terminal(&Style { colour: false, width: 200 });
        text.lines().next().unwrap().to_owned()
    };
    let mut result = fixture::boost();
    assert_eq!(
        first(&result),
        "869 k transactions/s: 1.52× (1.49–1.55) the first rung, with reuseport, batch 32, XPS."
    );
    result.gain = Ratio { ratio: 1.01, low: 0.99, high: 1.03 };
    assert!(
        first(&result).ends_with("a gain over the first rung is not shown (1.010× (0.990–1.030))."),
        "{}",
        first(&result)
    );
    result.best = "shared".to_owned();
    assert!(first(&result).contains("no rung was shown to be faster than the first, shared."));
    result.rungs.iter_mut().for_each(|rung| rung.tps = 0.0);
    assert_eq!(first(&result), "No rung completed a transaction.");
    result.rungs.clear();
    assert_eq!(first(&result), "No rung was run.");
}

#[test]
fn a_limited_generator_comes_first() {
    let mut result = fixture::load();
    result.generator.limited = true;
    result.generator.reasons = vec!["CPU 0 was 99 % busy with sending".to_owned()];
    let text = result.terminal(&Style::default());
    assert!(text.starts_with("Limited by the generator, not the server: "), "{text}");
    assert!(text.contains("generator: CPU 0 was 99 % busy with sending"));
}

#[test]
fn a_load_that_was_sent_late_is_not_called_limited() {
    let mut result = fixture::load();
    result.generator.reasons =
        vec!["1 % of the requests were sent more than 4ms late (bound: 1ms)".to_owned()];
    let text = result.terminal(&Style { width: 400, ..Style::default() });
    let first = text.lines().next().unwrap();
    assert!(!text.contains("Limited by") && first.ends_with("the latencies are doubtful."), "{text}");
    assert!(text.contains("generator: 1 % of the requests were sent more than 4ms late"), "{text}");
}

#[test]
fn one_way_traffic_reports_deliveries() {
    let mut result = fixture::load();
    (result.mode, result.offered) = ("flood".to_owned(), None);
    (result.intended_latency, result.sent_latency, result.lateness) = (None, None, None);
    result.delivered = Some(udpath_load::result::Delivered {
        datagrams: 1_500_000,
        bytes: 150_000_000,
        per_second: 150_000.0,
        mbits: 120.0,
    });
    let text = result.terminal(&Style::default());
    result.per_core = udpath_load::result::PerCore {
        sender: udpath_load::result::Core::new(8.0, 2_000_000.0, 200e6),
        receiver: udpath_load::result::Core::new(4.0, 1_500_000.0, 150e6),
    };
    assert!(!text.contains("per core"), "{text}");
    let text = result.terminal(&Style::default());
    assert!(text.starts_with("200 k datagrams/s sent, 150 k/s (120 Mbit/s) received."), "{text}");
    assert!(text.contains("sender: 250 k datagrams/s and 200 Mbit/s per core (8 s of CPU time)"), "{text}");
    assert!(text.contains("receiver: 375 k datagrams/s and 300 Mbit/s per core (4 s of CPU time)"), "{text}");
    assert!(!text.contains("latency"));
}

#[test]
fn text_from_outside_cannot_drive_the_terminal() {
    let text = fixture::hostile_boost().terminal(&Style::default());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(!text.contains('\u{202e}'));
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn notes_on_every_rung_do_not_push_the_ladder_off_the_screen() {
    let mut result = fixture::boost();
    for rung in &mut result.rungs {
        rung.note = Some(format!("all traffic came back on CPU 0 in rung {}", rung.name));
    }
    let text = result.terminal(&Style::default());
    assert!(text.lines().count() <= 37, "{text}");
    for shown in ["shared: all", "batch: all", "uring: all"] {
        assert!(text.contains(shown), "{text}");
    }
    assert!(
        text.contains("notes on xps, reuseport, percpu, pin, batch-1024: see --details or the"),
        "{text}"
    );
    let details = boost_text(&result, &Style::default(), true);
    for rung in &result.rungs {
        assert!(details.contains(&format!("{}: all traffic", rung.name)), "{details}");
    }
    assert!(!details.contains("--details"), "{details}");
}

#[test]
fn a_profile_on_eighty_columns() {
    let text = fixture::profile().terminal(&Style::default());
    insta::assert_snapshot!("profile_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
    assert!((20..=40).contains(&text.lines().count()), "{} lines", text.lines().count());
}

#[test]
fn hardware_counters_are_a_table_where_there_are_any() {
    let text = fixture::counted_profile().terminal(&Style::default());
    insta::assert_snapshot!("profile_counted_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
    // Missing counters have no column; without datagrams, figures are per second.
    let mut result = fixture::counted_profile();
    let profile = &mut result.profile;
    let hardware = profile.hardware.as_mut().unwrap();
    let counts = hardware.classes.iter_mut().map(|class| &mut class.counts).chain([&mut hardware.all]);
    counts.for_each(|counts| counts.0.retain(|counter, _| *counter <= Counter::Instructions));
    profile.datagrams = None;
    let text = result.terminal(&Style::default());
    let heading = text.lines().find(|line| line.starts_with("per second ")).expect("the table");
    assert!(heading.trim_end().ends_with("IPC") && heading.contains("instructions"), "{heading}");
    assert!(!text.contains("cache misses") && !text.contains("remote loads"), "{text}");
}

#[test]
fn a_profile_on_a_narrow_terminal_has_no_bars() {
    let text = fixture::profile().terminal(&Style { colour: false, width: 60 });
    assert!(!text.contains('█'), "{text}");
}

#[test]
fn a_profile_without_datagrams_has_no_figures_per_datagram() {
    let mut result = fixture::profile();
    result.profile.datagrams = None;
    let text = result.terminal(&Style::default());
    assert!(!text.contains("datagram") && text.contains("CPU time"), "{text}");
    // Of some CPUs, while datagrams are counted on all of them.
    let mut result = fixture::profile();
    result.profile.cpus.truncate(1);
    let text = result.terminal(&Style::default());
    assert!(text.contains("datagrams received") && !text.contains("/datagram"), "{text}");
}

#[test]
fn a_hostile_profile_cannot_drive_the_terminal() {
    let text = fixture::hostile_profile().terminal(&Style::default());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(!text.contains('\u{202e}') && !text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn a_difference_on_eighty_columns() {
    let a = fixture::profile().profile;
    let mut b = fixture::profile().profile;
    b.classes.retain(|share| share.of.name() != "udp-send");
    *b.contexts.get_mut(&udpath_profile::context::Context::Syscall).unwrap() -= 900_000_000;
    let text = Compared { a: &a, b: &b }.terminal(&Style::default());
    insta::assert_snapshot!("difference_80", text);
    assert!(width(&text) <= 80, "{} columns", width(&text));
}
