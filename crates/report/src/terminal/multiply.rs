//! Instances of one server as text: a line for each, and a sentence for each thing that happens.

use std::time::Duration;

use udpath_multiply::{Choose, Event, State, Status};

use super::style::Style;
use super::table::{Cell, Table};
use crate::units;

/// What runs, and a line for each instance.
#[must_use]
pub fn text(status: &Status, style: Style) -> String {
    let at = at(status);
    let (name, choose) = (&status.name, choose(status.choose));
    let mut table = Table::with(vec![
        Cell::right("instance"),
        Cell::new("state"),
        Cell::right("CPU"),
        Cell::right("pid"),
        Cell::right("datagrams"),
        Cell::right("restarts"),
    ]);
    for instance in &status.instances {
        let pid = instance.pid.map_or_else(|| units::NONE.to_owned(), |pid| pid.to_string());
        table.row(vec![
            Cell::right(instance.number.to_string()),
            Cell::new(state(instance.state)),
            Cell::right(instance.cpu.to_string()),
            Cell::right(pid),
            Cell::right(units::count(instance.datagrams)),
            Cell::right(instance.restarts.to_string()),
        ]);
    }
    let count = count(status.instances.len());
    format!("{name}: {count}{at}, chosen {choose}\n{}", table.text(style))
}

/// What happened, as one line.
#[must_use]
pub fn event(event: &Event) -> String {
    match event {
        Event::TookBack { name } => format!("took back what a killed supervisor of {name} had left"),
        Event::Serving { number, pid, cpu } => format!("instance {number}: serving, pid {pid} on CPU {cpu}"),
        Event::Ready(status) => {
            format!("ready: {}{}, chosen {}", count(status.count), at(status), choose(status.choose))
        }
        Event::Ended { number, how, again } => {
            format!("instance {number}: ended ({how}); starts again in {}", time(*again))
        }
        Event::Hung { number, why, again } => {
            format!("instance {number}: {why}; it was killed, and starts again in {}", time(*again))
        }
        Event::NotDrained { number, bytes } => {
            format!(
                "instance {number}: warning: ended with {bytes} bytes in its queue, which are lost; --drain-limit gives \
                 it more time"
            )
        }
        Event::GivenUp { number, why } => format!("instance {number}: not added: it {why}"),
        Event::Gone { number } => format!("instance {number}: ended"),
    }
}

fn count(count: usize) -> String {
    if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") }
}

/// ` at ADDRESS, ADDRESS`; empty before the first instance has bound any.
fn at(status: &Status) -> String {
    let at: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
    if at.is_empty() { String::new() } else { format!(" at {}", at.join(", ")) }
}

const fn choose(choose: Choose) -> &'static str {
    match choose {
        Choose::Hash => "by flow hash",
        Choose::Cpu => "by receiving CPU",
    }
}

const fn state(state: State) -> &'static str {
    match state {
        State::Stopped => "stopped",
        State::Starting => "starting",
        State::Serving => "serving",
        State::Draining => "draining",
        State::Ending => "ending",
    }
}

fn time(time: Duration) -> String {
    units::duration(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use udpath_multiply::{InstanceStatus, SCHEMA};

    use super::*;

    #[test]
    fn a_line_for_each_instance() {
        let instance = |number, state, pid, datagrams| InstanceStatus {
            number,
            state,
            cpu: number as u32 - 1,
            pid,
            datagrams,
            restarts: 0,
        };
        let status = Status {
            schema: SCHEMA.to_owned(),
            name: "chrony".into(),
            pid: 7,
            command: vec!["chronyd".into(), "-x".into()],
            choose: Choose::Hash,
            addresses: vec!["0.0.0.0:123".parse().unwrap(), "[::]:123".parse().unwrap()],
            count: 2,
            instances: vec![
                instance(1, State::Serving, Some(812), 12_345),
                instance(2, State::Stopped, None, 0),
            ],
        };
        assert_eq!(
            text(&status, Style { colour: false, width: 100 }),
            "chrony: 2 instances at 0.0.0.0:123, [::]:123, chosen by flow hash\n\
             instance  state    CPU  pid  datagrams  restarts\n       \
             1  serving    0  812     12,345         0\n       \
             2  stopped    1    –          0         0\n"
        );
    }

    #[test]
    fn a_line_for_each_event() {
        let again = Duration::from_millis(200);
        for (what, line) in [
            (
                Event::Ended { number: 2, how: "signal: 9 (SIGKILL)".into(), again },
                "instance 2: ended (signal: 9 (SIGKILL)); starts again in 0.2 s",
            ),
            (
                Event::Hung {
                    number: 1,
                    why: "did not answer 4 queries".into(),
                    again: Duration::from_secs(30),
                },
                "instance 1: did not answer 4 queries; it was killed, and starts again in 30 s",
            ),
            (Event::Serving { number: 1, pid: 812, cpu: 3 }, "instance 1: serving, pid 812 on CPU 3"),
        ] {
            assert_eq!(event(&what), line);
        }
    }
}
