//! Predictions as text: the steps of a flow's path, the distribution of many flows, and how accurate it was.

use std::fmt::Write as _;

use udpath_steer::Flow;
use udpath_steer::predict::{Path, Step, StepAccuracy, Verification};

use super::Style;
use super::spread::{self, SpreadTable};
use crate::predict::{Receiver, Spreads};
use crate::units;

/// Most sockets and threads listed; the rest is a number. More would fill the screen.
const NAMED: usize = 8;

/// One line per step: name, value, reason; then the sockets that the flow may reach, and their readers.
#[must_use]
pub fn path(flow: &Flow, path: &Path, receivers: &[Receiver<'_>]) -> String {
    let decimal = |step: Step| step.value.map(|value| value.to_string());
    let hash = path.hash.value.map(|hash| format!("0x{hash:08x}"));
    let rows = [
        ("hash", hash, path.hash),
        ("queue", decimal(path.queue), path.queue),
        ("IRQ", decimal(path.irq), path.irq),
        ("IRQ CPU", decimal(path.cpu), path.cpu),
        ("RPS CPU", decimal(path.rps), path.rps),
        ("socket", decimal(path.socket), path.socket),
    ];
    let mut text = format!("{:<8} {flow}\n", "flow");
    // Writing to a string cannot fail.
    for (name, value, step) in rows {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        let _ = writeln!(text, "{name:<8} {value:<10}  {}", step.why);
    }
    let chosen =
        |receiver: &&Receiver<'_>| path.socket.value.is_none_or(|socket| receiver.socket == socket as usize);
    for receiver in receivers.iter().filter(chosen).take(NAMED) {
        let _ = writeln!(text, "{:>8} {:<10}  {}", "", receiver.socket, name(receiver));
    }
    if let Some(more @ 1..) = receivers.iter().filter(chosen).count().checked_sub(NAMED) {
        let _ = writeln!(text, "{:>8} and {more} more", "");
    }
    text
}

/// `0.0.0.0:53, nsd 812, threads 812 (on 0-1), 815 (on 3)`.
fn name(receiver: &Receiver<'_>) -> String {
    let mut text = receiver.local.to_string();
    if receiver.processes.is_empty() {
        text += ", process not visible";
    }
    for reader in &receiver.processes {
        let thread = |thread: &udpath_host::processes::Thread| match &thread.cpus {
            Some(cpus) => format!("{} (on {cpus})", thread.tid),
            None => thread.tid.to_string(),
        };
        let threads: Vec<String> = reader.threads.iter().take(NAMED).map(thread).collect();
        let more = reader.threads.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let word = if reader.threads.len() == 1 { "thread" } else { "threads" };
        let _ = write!(text, ", {} {}, {word} {}{more}", reader.name, reader.pid, threads.join(", "));
    }
    text
}

/// One table per step: the distribution of flows and packets.
#[must_use]
pub fn spreads(spreads: &Spreads<'_>, style: &Style) -> String {
    let number = |place: u32| place.to_string();
    let queue = |place: u32| format!("rx-{place}");
    let socket = |place: u32| match spreads.receivers.get(place as usize) {
        Some(receiver) => {
            let reader = receiver.processes.iter().map(|reader| format!("{} {}", reader.name, reader.pid));
            format!("{} {}", receiver.local, reader.collect::<Vec<_>>().join(", "))
        }
        None => place.to_string(),
    };
    let total = spreads.queue.total();
    let mut text = format!("{} flows, {} packets\n", units::count(total.flows), units::count(total.packets));
    let tables = [
        SpreadTable { what: "queue", name: &queue, spread: &spreads.queue, of: spreads.queues },
        SpreadTable { what: "CPU", name: &number, spread: &spreads.cpu, of: spreads.cpus },
        SpreadTable { what: "socket", name: &socket, spread: &spreads.socket, of: None },
    ];
    for table in &tables {
        text.push('\n');
        text += &spread::text(table, *style);
    }
    text
}

/// How many packets were compared: `200 packets of 8 flows`.
#[must_use]
pub fn compared(all: &Verification) -> String {
    format!("{} packets of {} flows", units::count(all.packets), units::count(all.flows))
}

/// The accuracy of each step: `queue right in 100 %`, or why it could not be compared.
#[must_use]
pub fn accuracy(all: &Verification) -> String {
    all.steps().iter().map(|(name, judged)| step(name, judged)).collect::<Vec<_>>().join(", ")
}

/// The wrong prediction with the most packets; `None` if all were right.
#[must_use]
pub fn mismatch(all: &Verification) -> Option<String> {
    let (step, judged) = all.wrong()?;
    let differs = judged.differs?;
    let value = |value: u32| match step {
        "hash" => format!("0x{value:08x}"),
        _ => value.to_string(),
    };
    Some(format!(
        "{} of {} packets differ from the prediction, most of them of flow {}: {step} predicted {}, observed {}",
        judged.wrong,
        judged.compared(),
        differs.flow,
        value(differs.predicted),
        value(differs.observed)
    ))
}

fn step(name: &str, judged: &StepAccuracy) -> String {
    match judged.compared() {
        0 => match judged.why {
            Some(why) => format!("{name} not compared ({why})"),
            None => format!("{name} not compared (the driver does not report it)"),
        },
        compared => {
            // Rounded down: only all of them are 100 %.
            let thousandths = u128::from(judged.right) * 1000 / u128::from(compared);
            let share = match thousandths % 10 {
                0 => format!("{}", thousandths / 10),
                rest => format!("{}.{rest}", thousandths / 10),
            };
            let less = judged.not_predicted + judged.not_observed;
            let part = if less > 0 { format!(" of {compared} packets") } else { String::new() };
            format!("{name} right in {share} %{part}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_never_rounded_up_to_all() {
        let of = |right, wrong| step("queue", &StepAccuracy { right, wrong, ..StepAccuracy::default() });
        assert_eq!(of(7, 0), "queue right in 100 %");
        assert_eq!(of(99_999, 1), "queue right in 99.9 %");
        assert_eq!(of(0, 3), "queue right in 0 %");
        assert_eq!(
            step("queue", &StepAccuracy { right: 3, not_observed: 1, ..StepAccuracy::default() }),
            "queue right in 100 % of 3 packets"
        );
        assert_eq!(
            step("hash", &StepAccuracy { not_observed: 1, ..StepAccuracy::default() }),
            "hash not compared (the driver does not report it)"
        );
    }
}
