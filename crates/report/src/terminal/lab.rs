//! Labs as text: a line per interface.

use udpath_lab::{Blueprint, Listed, State};

use super::Style;
use super::table::{Cell, Table};

/// The labs of a machine: one row per interface; a machine without interfaces still has a row.
#[must_use]
pub fn text(labs: &[Listed], style: &Style) -> String {
    let heads = ["LAB", "STATE", "PID", "MACHINE", "INTERFACE", "QUEUES", "IPV4", "IPV6", "PEER"];
    let mut table = Table::with(heads.map(Cell::new).into());
    for Listed { state, blueprint } in labs {
        rows(*state, blueprint, &mut table);
    }
    table.text(*style)
}

fn rows(state: State, blueprint: &Blueprint, table: &mut Table) {
    let pid = blueprint.pid.to_string();
    for machine in &blueprint.machines {
        let mut row = |interface: [&str; 5]| {
            let start = [blueprint.name.as_str(), state.as_str(), &pid, &machine.name];
            table.row(start.iter().chain(&interface).map(Cell::new).collect());
        };
        let mut ends = blueprint.ends_of(&machine.name).peekable();
        if ends.peek().is_none() {
            row(["-"; 5]);
        }
        for (spec, end, peer) in ends {
            row([
                &end.interface,
                &spec.queues.to_string(),
                &end.ipv4[0].to_string(),
                &end.ipv6[0].to_string(),
                &format!("{}/{}", peer.machine, peer.interface),
            ]);
        }
    }
}
