//! The norm of each fact, and the machines that differ from it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use udpath_advise::Finding;

use super::compact::{Machine, Machines, Text};
use super::facts::INTERFACE;
use super::result::{
    Common, FLEET_SCHEMA, FleetFinding, FleetReport, Group, MachineSummary, Mixed, Older, Unread, Variation,
    VariationValue,
};

/// The fact that says whether a machine has an interface.
const LINK: &str = "@:link";
/// Its values.
const UP: &str = "up";
const ABSENT: &str = "down or absent";

/// Positions of machines, ascending.
type Set = Vec<usize>;
/// The machines that have each value of a fact.
type Values<'a> = BTreeMap<&'a str, Set>;

/// Compares the machines. Of files of one machine the newest counts.
pub(super) fn compare(mut machines: Machines, unread: Vec<Unread>) -> FleetReport {
    let (newest, older) = newest_of_each(std::mem::take(&mut machines.list));
    let interfaces = Interfaces::new(&newest);
    let facts = gather(&machines, &newest, &interfaces);
    let name = |at: &usize| newest[*at].name.clone();
    let names = |set: &Set| set.iter().map(name).collect::<Vec<String>>();
    let mut differences = vec![0; newest.len()];
    let (mut common, mut mixed) = (Vec::new(), Vec::new());
    let mut groups: BTreeMap<Set, Vec<Variation>> = BTreeMap::new();
    for (what, values) in facts {
        let reported = values.values().map(Vec::len).sum();
        // Of values as frequent as each other the first in the alphabet, so that the report is the same each time.
        let Some((norm, with_norm)) = values.iter().max_by_key(|(value, set)| (set.len(), Reverse(**value)))
        else {
            continue;
        };
        if values.len() == 1 {
            common.push(Common { what, value: (*norm).to_owned(), machines: reported });
            continue;
        }
        if with_norm.len() * 2 <= reported {
            let mut values: Vec<VariationValue> = values
                .iter()
                .map(|(value, set)| VariationValue { value: (*value).to_owned(), machines: names(set) })
                .collect();
            values.sort_by_key(|value| Reverse(value.machines.len()));
            mixed.push(Mixed { what, values });
            continue;
        }
        for (value, set) in values.iter().filter(|(value, _)| *value != norm) {
            set.iter().for_each(|at| differences[*at] += 1);
            groups.entry(set.clone()).or_default().push(Variation {
                what: what.clone(),
                value: (*value).to_owned(),
                norm: (*norm).to_owned(),
                norm_machines: with_norm.len(),
                reported,
            });
        }
    }
    let mut groups: Vec<(Set, Vec<Variation>)> = groups.into_iter().collect();
    // Ordered by machines where sizes are equal.
    groups.sort_by_key(|(set, _)| Reverse(set.len()));
    FleetReport {
        schema: FLEET_SCHEMA.into(),
        alike: differences.iter().filter(|count| **count == 0).count(),
        groups: groups
            .into_iter()
            .map(|(set, variations)| Group { machines: names(&set), variations })
            .collect(),
        mixed,
        common,
        findings: findings(&newest),
        machines: newest
            .iter()
            .enumerate()
            .map(|(at, machine)| MachineSummary {
                name: machine.name.clone(),
                file: machine.file.clone(),
                source: machine.source,
                taken: machine.taken,
                differences: differences[at],
                findings: machine.findings.len(),
                compared_as: interfaces.compared_as(&machines, at),
            })
            .collect(),
        older,
        unread,
    }
}

/// The newest file of each machine, by name; and the others.
fn newest_of_each(mut all: Vec<Machine>) -> (Vec<Machine>, Vec<Older>) {
    all.sort_by(|a, b| a.name.cmp(&b.name).then(b.taken.cmp(&a.taken)).then_with(|| a.file.cmp(&b.file)));
    let mut newest: Vec<Machine> = Vec::with_capacity(all.len());
    let mut older = Vec::new();
    for machine in all {
        match newest.last() {
            Some(last) if last.name == machine.name => {
                older.push(Older { machine: machine.name, file: machine.file, newer: last.file.clone() });
            }
            _ => newest.push(machine),
        }
    }
    (newest, older)
}

/// Which interfaces are compared, and under which names.
struct Interfaces {
    /// Names that more than half of the machines have.
    common: BTreeSet<Text>,
    /// Names of devices.
    devices: BTreeSet<Text>,
    /// For each machine, its device that has another name with most machines, and that name.
    renamed: Vec<Option<(Text, Text)>>,
}

impl Interfaces {
    /// A machine that lacks one device of most machines, and has one device that few have, has it under another name.
    fn new(newest: &[Machine]) -> Self {
        let mut counts: HashMap<Text, usize> = HashMap::new();
        let mut devices = BTreeSet::new();
        for (name, device) in newest.iter().flat_map(|machine| &machine.interfaces) {
            *counts.entry(*name).or_default() += 1;
            devices.extend(device.then_some(*name));
        }
        let common: BTreeSet<Text> =
            counts.iter().filter(|(_, count)| **count * 2 > newest.len()).map(|(name, _)| *name).collect();
        let renamed = newest
            .iter()
            .map(|machine| {
                let has = |name: &Text| machine.interfaces.iter().any(|(own, _)| own == name);
                let mut lacks = common.intersection(&devices).filter(|name| !has(name));
                let own =
                    machine.interfaces.iter().filter(|(name, device)| *device && !common.contains(name));
                let mut own = own.map(|(name, _)| *name);
                match (own.next(), own.next(), lacks.next(), lacks.next()) {
                    (Some(own), None, Some(usual), None) => Some((own, *usual)),
                    _ => None,
                }
            })
            .collect();
        Self { common, devices, renamed }
    }

    /// The name under which a machine's interface is compared; `None` if it is not. A virtual interface that few
    /// machines have is one of their own: a container's, a tunnel's.
    fn name(&self, machine: usize, own: Text) -> Option<Text> {
        match self.renamed.get(machine) {
            Some(Some((name, usual))) if *name == own => Some(*usual),
            _ => (self.common.contains(&own) || self.devices.contains(&own)).then_some(own),
        }
    }

    fn compared_as(&self, machines: &Machines, machine: usize) -> BTreeMap<String, String> {
        let renamed = self.renamed.get(machine).copied().flatten();
        let text = |text| machines.text(text).to_owned();
        renamed.map(|(own, usual)| (text(own), text(usual))).into_iter().collect()
    }
}

/// The values of a fact, and the last machine that reported it.
#[derive(Default)]
struct Reported {
    last: Option<usize>,
    values: HashMap<Text, Set>,
}

/// The values of each fact, by its name.
fn gather<'a>(
    machines: &'a Machines,
    newest: &[Machine],
    interfaces: &Interfaces,
) -> BTreeMap<String, Values<'a>> {
    // By numbers first: a name is put together once, not for each machine.
    let mut facts: HashMap<(Option<Text>, Text), Reported> = HashMap::new();
    let mut links: BTreeMap<Text, Set> = BTreeMap::new();
    for (at, machine) in newest.iter().enumerate() {
        for (own, _) in &machine.interfaces {
            let name = interfaces.name(at, *own);
            let with = name.map(|name| links.entry(name).or_default());
            with.into_iter().filter(|with| with.last() != Some(&at)).for_each(|with| with.push(at));
        }
        for fact in &machine.facts {
            let interface = match fact.interface {
                None => None,
                Some(own) => match interfaces.name(at, own) {
                    None => continue,
                    name => name,
                },
            };
            let reported = facts.entry((interface, fact.name)).or_default();
            // Of a fact that a file has twice, the first counts.
            if reported.last != Some(at) {
                reported.last = Some(at);
                reported.values.entry(fact.value).or_default().push(at);
            }
        }
    }
    let mut named: BTreeMap<String, Values<'a>> = BTreeMap::new();
    for ((interface, name), reported) in facts {
        let what = what(interface.map(|interface| machines.text(interface)), machines.text(name));
        named.insert(
            what,
            reported.values.into_iter().map(|(value, set)| (machines.text(value), set)).collect(),
        );
    }
    for (interface, with) in links {
        let without: Set = (0..newest.len()).filter(|at| with.binary_search(at).is_err()).collect();
        let mut values = Values::from([(UP, with)]);
        if !without.is_empty() {
            values.insert(ABSENT, without);
        }
        named.insert(what(Some(machines.text(interface)), LINK), values);
    }
    named
}

/// The name of a fact with that of its interface.
fn what(interface: Option<&str>, name: &str) -> String {
    interface.map_or_else(|| name.to_owned(), |interface| name.replace(INTERFACE, interface))
}

/// Findings by how many machines have them; of equally many the most severe first.
fn findings(newest: &[Machine]) -> Vec<FleetFinding> {
    let mut by_id: BTreeMap<&str, Vec<(&str, &Finding)>> = BTreeMap::new();
    for machine in newest {
        for finding in &machine.findings {
            by_id.entry(&finding.id).or_default().push((&machine.name, finding));
        }
    }
    let mut found: Vec<FleetFinding> = by_id
        .into_values()
        .filter_map(|all| {
            let (example, finding) = all.iter().min_by(|(_, a), (_, b)| weight(a).total_cmp(&weight(b)))?;
            Some(FleetFinding {
                machines: all.iter().map(|(name, _)| (*name).to_owned()).collect(),
                example: (*example).to_owned(),
                finding: (*finding).clone(),
            })
        })
        .collect();
    found.sort_by_key(|found| (Reverse(found.machines.len()), found.finding.severity));
    found
}

/// Lower for a finding that matters more: by severity, then by share.
fn weight(finding: &Finding) -> f64 {
    let severity = f64::from(finding.severity as u8);
    severity - finding.share.filter(|share| share.is_finite()).unwrap_or(0.0).clamp(0.0, 1.0) / 2.0
}
