//! Machines of many kinds as `udpath top` draws them.

use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use udpath_advise::MapResult;
use udpath_host::Snapshot;
use udpath_host::map::Selection;
use udpath_host::source::Folder;
use udpath_report::Style;
use udpath_report::top::{self, State, Top, View};

use crate::machines::{self, list};

/// One second of a machine: each of its parts has counts derived from its number.
fn second(machine: &machines::Machine) -> Top {
    let folder = machines::folder();
    machine.write(folder.path());
    let then = Snapshot::read(&Folder::captured(folder.path()));
    let mut now = then.clone();
    now.taken += 1000;
    for (at, cpu) in (0_u64..).zip(&mut now.cpus.list) {
        if let Some(ticks) = &mut cpu.ticks {
            ticks.softirq += (at * 7) % 50;
            ticks.irq += at % 5;
            ticks.user += (at * 3) % 20;
            ticks.system += 10;
            ticks.idle += 75 - (at * 7) % 50;
        }
    }
    for (cpu, softnet) in &mut now.softnet.cpus {
        softnet.processed = softnet.processed.wrapping_add(1000 * (cpu + 1));
        softnet.dropped = softnet.dropped.wrapping_add(if cpu % 4 == 3 { 10 * cpu } else { 0 });
        softnet.time_squeeze = softnet.time_squeeze.wrapping_add(cpu % 3);
    }
    for irq in &mut now.irqs {
        for (cpu, count) in &mut irq.counts {
            *count = count.wrapping_add(10 * (cpu + 1));
        }
    }
    for interface in &mut now.interfaces {
        *interface.statistics.entry("rx_packets".into()).or_default() += 12_345;
        *interface.statistics.entry("rx_bytes".into()).or_default() += 1_234_500;
        for queue in &mut interface.rx {
            let counters = queue.counters.as_mut().map(|fact| &mut fact.value);
            for (name, count) in counters.into_iter().flatten() {
                *count += u64::from(queue.id + 1) * if name == "bytes" { 100_000 } else { 1000 };
            }
        }
    }
    if let Some(udp) = &mut now.udp.v4 {
        udp.in_datagrams += 50_000;
        udp.out_datagrams += 49_000;
        udp.rcvbuf_errors += 7;
    }
    for (at, socket) in (0..).zip(&mut now.sockets.list) {
        socket.drops = socket.drops.wrapping_add((at + 1) % 3 * 50);
    }
    Top::new(&MapResult::new(&now, Some(&then), &Selection::All).unwrap()).unwrap()
}

fn machine(name: &str) -> Top {
    second(list::all().iter().find(|machine| machine.name == name).unwrap())
}

fn state() -> State {
    State::new(Duration::from_secs(1))
}

fn on(view: View) -> State {
    let mut state = state();
    state.view = view;
    state
}

fn drawn(
    top: Option<&Top>,
    state: &State,
    note: Option<&str>,
    colour: bool,
    size: (u16, u16),
) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal
        .draw(|frame| {
            top::draw(frame, top, state, None, note, colour);
        })
        .unwrap();
    terminal.backend().clone()
}

fn text(top: &Top, state: &State, size: (u16, u16)) -> String {
    let backend = drawn(Some(top), state, None, false, size);
    let rows = backend.buffer().content.chunks(size.0.into());
    let lines = rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn every_view_is_drawn_as_it_was() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for name in ["ixgbe-steered", "vlan-on-bond"] {
            let top = machine(name);
            for size in [(80, 24), (120, 40)] {
                let views: Vec<String> = View::ALL.map(|view| text(&top, &on(view), size)).into();
                insta::assert_snapshot!(format!("top-{name}-{}", size.0), views.join("=====\n"));
            }
            insta::assert_snapshot!(format!("top-{name}-once"), top::text(&top, &Style::default()));
        }
        let mut help = state();
        help.help = true;
        insta::assert_snapshot!("top-help", text(&machine("veth"), &help, (80, 24)));
    });
}

#[test]
fn the_json_form_survives_itself() {
    let mut top = machine("ixgbe-steered");
    // JSON parsing may lose a number's last bit.
    for cpu in &mut top.cpus {
        cpu.time = None;
    }
    let json = serde_json::to_string(&top).unwrap();
    assert!(json.starts_with(r#"{"schema":"udpath.top/2""#), "{json:.60}");
    assert_eq!(serde_json::from_str::<Top>(&json).unwrap(), top);
}

#[test]
fn rates_are_counts_by_the_time_between() {
    let top = machine("ixgbe-steered");
    assert!((top.seconds - 1.0).abs() < 1e-9);
    assert!((top.cpus[1].packets - 2000.0).abs() < 1e-6, "{:?}", top.cpus[1]);
    let queue = top.queues.iter().find(|queue| queue.interface == "ens1f0" && queue.queue == 2).unwrap();
    assert_eq!(queue.packets, Some(3000.0));
    assert!(top.udp[0].full_buffer > 6.99 && top.udp[0].full_buffer < 7.01);
}

#[test]
fn counts_since_boot_have_no_rates() {
    let folder = machines::folder();
    list::all()[0].write(folder.path());
    let snapshot = Snapshot::read(&Folder::captured(folder.path()));
    assert!(Top::new(&MapResult::new(&snapshot, None, &Selection::All).unwrap()).is_none());
}

#[test]
fn colours_only_repeat_what_is_written() {
    let top = machine("ixgbe-steered");
    for view in View::ALL {
        let [with, without] =
            [true, false].map(|colour| drawn(Some(&top), &on(view), None, colour, (80, 24)));
        let symbols = |backend: &TestBackend| -> String {
            backend.buffer().content.iter().map(|cell| cell.symbol().to_owned()).collect()
        };
        assert_eq!(symbols(&with), symbols(&without));
        let plain = |backend: &TestBackend| {
            backend.buffer().content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
        };
        assert!(plain(&without) && !plain(&with), "{view:?}");
    }
}

#[test]
fn ten_thousand_sockets_are_scrolled_filtered_and_ordered() {
    let top = second(&machines::big::big(64, 64, 10_000));
    let mut state = on(View::Sockets);
    state.scroll(isize::MAX);
    let last = text(&top, &state, (80, 24));
    assert!(last.contains("of 10,000"), "{last}");
    assert!(last.lines().nth(22).is_some_and(|line| line.contains(':')), "the last page is full: {last}");
    let port = top.sockets[4321].local.port().to_string();
    state.filter = format!(":{port}");
    let found = text(&top, &state, (80, 24));
    assert!(found.contains(&format!("filter: :{port}")) && found.contains(&format!(":{port} ")), "{found}");
    state.filter = "nobody-has-this".into();
    assert!(text(&top, &state, (80, 24)).contains("none contains the filter's text"));
}

#[test]
fn the_order_is_shown_and_turned_round() {
    let top = machine("ixgbe-steered");
    let mut state = on(View::Cpus);
    let first = |state: &State| -> u32 {
        text(&top, state, (120, 40))
            .lines()
            .nth(4)
            .unwrap()
            .split_whitespace()
            .find_map(|word| word.parse().ok())
            .unwrap()
    };
    assert_eq!(first(&state), 0);
    state.reverse();
    let shown = text(&top, &state, (120, 40));
    assert!(shown.contains("by CPU ▼") && shown.contains("CPU▼"), "{shown}");
    assert_eq!(first(&state) as usize, top.cpus.len() - 1);
}

/// Unusable sizes are drawn too, because resizing a window passes through them.
#[test]
fn no_size_is_too_small() {
    let top = machine("vlan-on-bond");
    for view in View::ALL {
        for width in (1..60).step_by(7) {
            for height in 1..9 {
                for help in [false, true] {
                    let mut state = on(view);
                    (state.help, state.paused, state.filter) = (help, help, "a".into());
                    drawn(Some(&top), &state, None, true, (width, height));
                }
            }
        }
    }
}

#[test]
fn before_the_first_interval_a_note_is_shown() {
    let symbols = |note| -> String {
        let backend = drawn(None, &state(), note, false, (80, 24));
        backend.buffer().content.iter().map(|cell| cell.symbol().to_owned()).collect()
    };
    assert!(symbols(None).contains("counting ..."));
    // A name cannot contain terminal control characters.
    assert!(symbols(Some("no port\u{1b}[2J")).contains("no port [2J"));
}
