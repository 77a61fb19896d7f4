//! Random zones, the same for a seed, and the names that are asked for.

use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(super) const ORIGIN: &str = "example.org";
/// Zones below it at most.
pub(super) const NESTED: usize = 40;
/// Subtrees of the zone, each of the same few labels: enough that every pair of neighbours occurs.
const TREES: usize = 48;
const LABELS: [&str; 4] = ["a", "b", "c", "*"];
/// What is asked: also a label that no name has, and types that few names have.
const ASKED: [&str; 5] = ["a", "b", "c", "*", "no"];
/// The same numbers for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A name of up to three labels below a subtree.
    fn name(&mut self, labels: &[&str]) -> String {
        let depth = self.below(4);
        let mut name = String::new();
        for _ in 0..depth {
            name += self.pick(labels);
            name += ".";
        }
        format!("{name}t{}.{ORIGIN}.", self.below(TREES))
    }

    /// A name of a zone, of at most three labels below its subtree.
    fn below_apex(&mut self, apex: &str) -> String {
        let room = ORIGIN.matches('.').count() + 4 - apex.matches('.').count();
        let labels: Vec<&str> = (0..self.below(room + 1)).map(|_| self.pick(&LABELS)).collect();
        labels.into_iter().map(|label| format!("{label}.")).collect::<String>() + apex + "."
    }

    /// Where an alias or a server is.
    fn target(&mut self) -> String {
        match self.below(8) {
            0 => "elsewhere.example.net.".into(),
            1 => "example.org.".into(),
            _ => self.name(&["a", "b", "c"]),
        }
    }
}

/// Zones, and what stands where. Nothing stands below a DNAME record, in no zone: for those, servers refuse a zone, and
/// NSD has one tree for all. No wildcard is delegated: each server answers for those in its own way.
pub(super) struct Generator {
    random: Random,
    /// Name and text of each zone, the outermost first.
    zones: Vec<(String, String)>,
    /// Owners of any records, and those of DNAME records.
    owners: BTreeSet<String>,
    trees: BTreeSet<String>,
    /// Owners of CNAME records: for NSD, no zone has its apex there.
    aliases: BTreeSet<String>,
}

impl Generator {
    /// A zone, and up to this number of others below it.
    pub(super) fn zones(seed: u64, nested: usize) -> Vec<(String, String)> {
        let [owners, trees, aliases] = [const { BTreeSet::new() }; 3];
        let mut generator = Self { random: Random(seed), zones: Vec::new(), owners, trees, aliases };
        let names: Vec<String> = (0..TREES * 5).map(|_| generator.random.name(&LABELS)).collect();
        generator.zone(ORIGIN, "@ NS ns\nns A 192.0.2.53\n", names);
        for _ in 0..nested {
            let apex = generator.random.name(&["a", "b", "c"]).trim_end_matches('.').to_owned();
            let known = generator.zones.iter().any(|(other, _)| *other == apex);
            let other = generator.trees.contains(&apex) || generator.aliases.contains(&apex);
            if known || other || generator.is_in_tree(&apex) {
                continue;
            }
            let names: Vec<String> = (0..8).map(|_| generator.random.below_apex(&apex)).collect();
            let server = format!("@ NS {}\n", generator.random.target());
            generator.zone(&apex, &server, names);
        }
        generator.zones
    }

    /// A zone with delegations, aliases, wildcards and names without records.
    fn zone(&mut self, apex: &str, first: &str, mut names: Vec<String>) {
        let minimum = 60 + self.zones.len();
        let mut text =
            format!("$ORIGIN {apex}.\n$TTL 300\n@ SOA ns admin 1 3600 600 86400 {minimum}\n{first}");
        names.sort();
        names.dedup();
        // Those above come first.
        names.sort_by_key(|name| name.matches('.').count());
        for name in names {
            let plain = name.trim_end_matches('.');
            if self.is_in_tree(plain) || self.aliases.contains(plain) {
                continue;
            }
            if plain == apex {
                let _ = writeln!(text, "{name} TXT \"{}\"", self.random.below(100));
                continue;
            }
            self.records(&name, &mut text);
        }
        self.owners.insert(apex.to_owned());
        self.zones.push((apex.to_owned(), text));
    }

    /// Whether it is below a DNAME record.
    fn is_in_tree(&self, name: &str) -> bool {
        self.trees.iter().any(|tree| name.ends_with(&format!(".{tree}")))
    }

    fn records(&mut self, name: &str, text: &mut String) {
        let plain = name.trim_end_matches('.').to_owned();
        let wild = name.contains('*');
        let below = format!(".{plain}");
        let has_below = self.owners.iter().any(|owner| owner.ends_with(&below));
        let random = &mut self.random;
        match random.below(10) {
            0 | 1 if !self.owners.contains(&plain) => {
                let _ = writeln!(text, "{name} CNAME {}", random.target());
                self.aliases.insert(plain.clone());
            }
            2 if !wild && !self.trees.contains(&plain) => {
                let server = if random.below(2) == 0 { format!("ns.{name}") } else { random.target() };
                let _ = writeln!(text, "{name} NS {server}");
                if server.starts_with("ns.") {
                    let _ = writeln!(text, "{server} 60 A 192.0.2.9\n{server} AAAA 2001:db8::9");
                    self.owners.insert(server.trim_end_matches('.').to_owned());
                }
                if random.below(2) == 0 {
                    let _ = writeln!(text, "{name} DS 1 8 2 {:064x}", random.below(1 << 20));
                }
            }
            3 if !has_below && !self.owners.contains(&plain) => {
                let _ = writeln!(text, "{name} DNAME {}", random.target());
                self.trees.insert(plain.clone());
            }
            4 => {
                let _ = writeln!(text, "{name} MX 5 {}\n{name} MX 7 {}", random.target(), random.target());
            }
            5 => {
                let _ = writeln!(text, "{name} TXT \"{}\"", random.below(100));
            }
            6 => {
                let _ = writeln!(text, "{name} AAAA 2001:db8::{}", random.below(100));
            }
            _ => {
                let _ =
                    writeln!(text, "{name} 120 A 192.0.2.{}\n{name} 120 A 192.0.2.{}", random.below(50), 100);
            }
        }
        self.owners.insert(plain);
    }
}

/// All names of up to three labels in every subtree, and the zone's own.
pub(super) fn names() -> Vec<String> {
    let mut below = vec![String::new()];
    for _ in 0..3 {
        let longer: Vec<String> =
            below.iter().flat_map(|name| ASKED.map(|label| format!("{label}.{name}"))).collect();
        below.extend(longer);
        below.sort();
        below.dedup();
    }
    let mut names: Vec<String> = (0..TREES)
        .flat_map(|tree| below.iter().map(move |name| format!("{name}t{tree}.example.org.")))
        .collect();
    names.extend(
        ["example.org.", "ns.example.org.", "no.example.org.", "a.b.c.d.e.example.org.", "org."]
            .map(String::from),
    );
    names
}
