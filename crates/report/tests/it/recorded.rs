//! A machine of 128 CPUs, multiplied from a recording of a real one with two, from the bytes of its perf rings to every
//! rendering: text, JSON, folded stacks, flame graph.

use std::fmt::Write as _;
use std::ops::Range;

use udpath_advise::ProfileResult;
use udpath_profile::classes::Rules;
use udpath_profile::context::Context;
use udpath_profile::facts::Focus;
use udpath_profile::perf::{Clock, records};
use udpath_profile::recorder::Recording;
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;
use udpath_profile::{Profile, folded};
use udpath_report::{Document, Render, Style, parse, profile_text};

use crate::rings::recorded::Recorded;
use crate::rings::{BEGIN, LOST, Machine, around};

fn profile() -> ProfileResult {
    let machine = Machine::small();
    let recorded = machine.recorded;
    let samples = Samples::new(Kernel::parse(&recorded.kallsyms), BEGIN, 1_000_000_000);
    let mut recording = Recording {
        seconds: machine.seconds.into(),
        ..Recording::new(samples, Clock::CpuClock, machine.rate)
    };
    for cpu in 0..machine.cpus {
        assert_eq!(records(&machine.ring(cpu).0, |record| recording.take(0, &record)), 0);
    }
    // The kernel's own account, in ticks of a hundredth: what the samples say, since the recording has none.
    let nothing = around::nothing();
    let sampled = Profile::new(&recording, Rules::built_in(), &nothing, &nothing).cpus;
    let ticks = |cpu: u32| {
        let ticks = |contexts: &[Context]| {
            let sampled = contexts.iter().filter_map(|context| sampled[cpu as usize].sampled.get(context));
            sampled.sum::<u64>() / 10_000_000
        };
        let [user, system] = [ticks(&[Context::User]), ticks(&[Context::Syscall, Context::Kernel])];
        let [irq, soft] = [ticks(&[Context::HardIrq]), ticks(&[Context::Softirq])];
        // Where no program was recorded, the CPU counts as idle.
        let idle = (u64::from(machine.seconds) * 100).saturating_sub(user + system + irq + soft);
        Some([user, 0, system, idle, 0, irq, soft, 0])
    };
    let Range { start, end } = recorded.interval;
    let times = u64::from(machine.cpus / 2) * u64::from(machine.seconds) * 1_000_000_000;
    let datagrams = Recorded::datagrams().map(|count| count * times / (end - start));
    let (before, after) = around::snapshots(machine.cpus, ticks, datagrams);
    let profile = Profile::new(&recording, Rules::built_in(), &before, &after);
    profile.about(Focus { port: Some(7000), pids: vec![machine.server()] }).into()
}

fn style(width: usize) -> Style {
    Style { width, ..Style::default() }
}

fn width(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn as_text_it_is_one_screen_of_any_size() {
    let profile = profile();
    let whole = profile.terminal(&style(80));
    insta::assert_snapshot!("recorded_80", whole);
    assert!(width(&whole) <= 80 && whole.lines().count() <= 60, "{whole}");
    assert!(whole.contains(&format!(" {LOST} lost,")), "{whole}");
    let small = profile_text(&profile, &style(80), Some(23));
    insta::assert_snapshot!("recorded_80x24", small);
    assert!(width(&small) <= 80 && small.lines().count() <= 23, "{small}");
    let wide = profile_text(&profile, &style(200), Some(49));
    insta::assert_snapshot!("recorded_200x50", wide);
    assert!(width(&wide) <= 200 && wide.lines().count() <= 49, "{wide}");
    for text in [&whole, &small, &wide] {
        assert!(text.starts_with(&profile.sentence[..40]) && !text.contains('…'), "{text}");
    }
    // For any window height, more lines show more content.
    let lines = |most| profile_text(&profile, &style(80), Some(most)).lines().count();
    let counts: Vec<usize> = (15..60).map(lines).collect();
    assert!(counts.is_sorted() && counts[0] < *counts.last().unwrap(), "{counts:?}");
}

#[test]
fn as_json_it_comes_back_as_it_was() {
    let profile = profile();
    let read = match parse(profile.json().as_bytes(), "x").unwrap() {
        Document::Profile(read) => read,
        other => panic!("{other:?}"),
    };
    assert_eq!(read.sentence, profile.sentence);
    let ids = |result: &ProfileResult| -> Vec<String> {
        result.findings.iter().map(|finding| finding.id.clone()).collect()
    };
    assert_eq!(ids(&read), ids(&profile));
    let (read, mut few) = (read.profile, profile.clone());
    let profile = profile.profile;
    // Except for fractions, which may lose their last digit.
    assert_eq!(
        (&read.stacks, &read.contexts, read.samples),
        (&profile.stacks, &profile.contexts, profile.samples)
    );
    assert_eq!((&read.notes, &read.facts), (&profile.notes, &profile.facts));
    let time_lines =
        |profile: &Profile| profile.cpus.iter().map(|line| line.time_line.clone()).collect::<Vec<_>>();
    assert_eq!(time_lines(&read), time_lines(&profile));
    // The rest is similar.
    let shown = &mut few.profile;
    shown.cpus.truncate(2);
    shown.stacks.truncate(3);
    shown.processes.iter_mut().for_each(|process| process.threads.truncate(2));
    shown.processes.truncate(2);
    let text = few.json().replace("},", "},\n").replace("],\"", "],\n\"");
    insta::assert_snapshot!("recorded_json", text);
}

#[test]
fn as_folded_stacks() {
    insta::assert_snapshot!("recorded_folded", folded::text(&profile().profile));
}

#[test]
fn as_a_page_with_a_flame_graph_and_a_time_line() {
    let profile = profile();
    let html = profile.html();
    assert!(html.len() < 2 << 20, "{} bytes", html.len());
    // Frames as an indented list: name, and share of the root.
    let attribute = |frame: &str, name: &str| -> String {
        let rest = frame.split(&format!("{name}=\"")).nth(1).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let mut frames = String::new();
    for frame in html.split("<g class=\"f ").skip(1) {
        let level: usize = attribute(frame, "data-l").parse().unwrap();
        let wide: f64 = attribute(frame, "data-w").parse().unwrap();
        let _ = writeln!(frames, "{}{} {:.1}", " ".repeat(level), attribute(frame, "data-n"), wide / 1e5);
    }
    insta::assert_snapshot!("recorded_flame", frames);
    // A heat map for many CPUs: a row each, a column for each second.
    assert!(html.contains("CPU time over time"), "no time line");
    let wide = html.split("<svg class=\"chart ").find(|svg| svg.contains("CPU time over time")).unwrap();
    let wide = wide.split("</svg>").next().unwrap();
    let cells: usize = (1..=5).map(|step| wide.matches(&format!(" h{step}\"")).count()).sum();
    assert!((128..=256).contains(&cells), "{cells} cells");
}
