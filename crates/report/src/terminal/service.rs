//! A server's configuration: its knobs as they stand, and what would be changed.

use udpath_tune::services::{Knob, Origin, Prepared};

use super::Style;
use super::table::{Cell, Table};

/// The server, its knobs and the proposals that were chosen.
#[must_use]
pub fn text(prepared: &Prepared, style: &Style) -> String {
    let service = &prepared.service;
    let version = service.version.as_ref().map_or(String::new(), |version| format!(" {version}"));
    let unit = service.unit.as_ref().map_or(String::new(), |unit| format!(", {unit}"));
    let mut text = format!(
        "{}{version} (process {}{unit}), configured by {}\n",
        service.profile.name, service.pid, service.config_path
    );
    let mut knobs = Table::with(["  knob", "value", "from", "what it is"].map(Cell::new).to_vec());
    for knob in service.knobs() {
        let shown = knob.value.clone().unwrap_or_else(|| usual(&knob));
        let shown = if knob.unknown { format!("not known ({shown})") } else { shown };
        let of = knob.of.as_ref().map_or(String::new(), |of| format!(" ({of})"));
        knobs.row(vec![
            Cell::whole(format!("  {}{of}", knob.name)),
            Cell::new(shown),
            Cell::whole(from(&knob.origin)),
            Cell::whole(knob.what),
        ]);
    }
    text += &knobs.text(*style);
    let chosen = prepared.proposals.iter();
    for proposal in chosen {
        let conditions = if proposal.uncertain { "; try it before you keep it" } else { "" };
        text += &format!("{}: {}; risk: {}{conditions}\n", proposal.id(), proposal.effect, proposal.risk);
        if let Some(exposes) = proposal.exposes() {
            text += &format!("warning: {exposes}; apply needs --allow security\n");
        }
    }
    for unread in service.unread() {
        text += &format!(
            "not read: {unread}; what it sets is not known here, so apply refuses to change the configuration\n"
        );
    }
    for path in service.changed_since() {
        text += &format!("{path} was changed after the server started: it may not be in effect\n");
    }
    if prepared.proposals.is_empty() {
        let known = if service.unread().is_empty() { "" } else { " by what was read" };
        text += &format!("nothing to propose{known}\n");
    }
    for other in &service.others {
        text += &format!("left alone: {other}\n");
    }
    text
}

fn usual(knob: &Knob) -> String {
    if knob.default == "cpus" { "one per CPU".to_owned() } else { knob.default.to_owned() }
}

fn from(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File(path, line) => format!("{path}:{line}"),
        Origin::Arguments => "command line".to_owned(),
        Origin::Unused => "not used".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use udpath_tune::services::{Profile, Service};

    use super::*;

    #[test]
    fn each_input_has_its_row_and_what_is_computed_is_not_known() {
        let config = "module(load=\"imudp\" threads=`echo $T`)\ninput(type=\"imudp\" port=\"1\" rcvbufSize=\"8m\")\n\
                      input(type=\"imudp\" port=\"2\")\n";
        let service = Service::of_text(Profile::named("rsyslog").unwrap(), config);
        let text = text(&service.prepare(Vec::new(), Some("true")).unwrap(), &Style::default());
        let rows: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for row in [
            "threads not known (echo $T) /etc/rsyslog.conf:1",
            "rcvbufSize (port 1) 8m /etc/rsyslog.conf:2",
            "rcvbufSize (port 2) 0 default",
        ] {
            assert!(rows.iter().any(|found| found.starts_with(row)), "{row}: {text}");
        }
    }
}
