//! A second implementation: looks through all records of the zone that is asked as `domain` parsed them, name by name
//! as text, and must come to the same answers. Its replies have no addresses in the additional section.

use domain::zonefile::inplace::{Entry, Zonefile};
use proptest::prelude::*;

use super::*;

/// Owner, type and data as text, in lower case.
pub(super) type Line = (String, u16, String);

/// The zones, the outermost first.
pub(super) struct Naive(pub(super) Vec<Zone>);

pub(super) struct Zone {
    pub(super) apex: String,
    pub(super) records: Vec<Line>,
}

/// Code, authority, answer, and the NS or SOA records of the authority section.
pub(super) type Told = (u16, bool, Vec<Line>, Vec<Line>);

impl Zone {
    pub(super) fn of(apex: &str, text: &str) -> Self {
        let mut zonefile = Zonefile::from(text);
        zonefile.set_default_class(domain::base::iana::Class::IN);
        let mut records = Vec::new();
        while let Some(Entry::Record(record)) = zonefile.next_entry().unwrap() {
            let line = (record.owner().to_string(), record.rtype().to_int(), record.data().to_string());
            records.push((line.0.to_lowercase(), line.1, line.2.to_lowercase()));
        }
        records.sort();
        records.dedup();
        Self { apex: apex.into(), records }
    }

    pub(super) fn of_type(&self, name: &str, rtype: u16) -> Vec<Line> {
        self.records.iter().filter(|line| line.0 == name && line.1 == rtype).cloned().collect()
    }

    /// Whether a name, or one below it, has records.
    pub(super) fn exists(&self, name: &str) -> bool {
        self.records.iter().any(|line| line.0 == name || line.0.ends_with(&format!(".{name}")))
    }

    fn soa(&self) -> Vec<Line> {
        self.of_type(&self.apex, rtype::SOA)
    }

    /// The name and those above it, down to the apex; nothing if it is not in the zone.
    pub(super) fn path(&self, name: &str) -> Vec<String> {
        let mut path = vec![name.to_owned()];
        while path[path.len() - 1] != self.apex {
            let Some((_, above)) = path[path.len() - 1].split_once('.') else { return Vec::new() };
            path.push(above.to_owned());
        }
        path
    }

    /// The name whose records answer a question for one in the zone: the wildcard's for a name that does not exist.
    pub(super) fn source(&self, name: &str) -> String {
        if self.exists(name) {
            return name.to_owned();
        }
        let path = self.path(name);
        format!("*.{}", path.iter().find(|above| self.exists(above)).unwrap())
    }

    /// The highest delegation on the way to a name.
    pub(super) fn cut(&self, name: &str) -> Option<String> {
        let path = self.path(name);
        path.into_iter().rev().skip(1).find(|above| !self.of_type(above, rtype::NS).is_empty())
    }
}

impl Naive {
    /// The deepest zone that has the name; the one above for DS records of an apex, if there is one.
    pub(super) fn asked(&self, name: &str, qtype: u16) -> Option<&Zone> {
        let around = self.0.iter().filter(|zone| !zone.path(name).is_empty());
        let mut around: Vec<&Zone> = around.collect();
        around.sort_by_key(|zone| zone.apex.len());
        match (around.pop(), around.pop()) {
            (Some(zone), Some(above)) if qtype == rtype::DS && zone.apex == name => Some(above),
            (zone, _) => zone,
        }
    }

    /// RFC 1034, 4.3.2, with RFC 4592.
    pub(super) fn answer(&self, name: &str, qtype: u16) -> Told {
        let (mut name, mut answer, mut seen) = (name.to_owned(), Vec::new(), Vec::new());
        loop {
            let Some(zone) = self.asked(&name, qtype) else {
                return if answer.is_empty() {
                    (5, false, answer, vec![])
                } else {
                    (0, true, answer, vec![])
                };
            };
            let cut = zone.cut(&name);
            if let Some(cut) = cut.filter(|cut| *cut != name || qtype != rtype::DS) {
                return if answer.is_empty() {
                    (0, false, answer, zone.of_type(&cut, rtype::NS))
                } else {
                    (0, true, answer, vec![])
                };
            }
            let source = zone.source(&name);
            if !zone.exists(&source) {
                return (3, true, answer, zone.soa());
            }
            let own = |lines: Vec<Line>| lines.into_iter().map(|line| (name.clone(), line.1, line.2));
            let found = zone.of_type(&source, qtype);
            let alias = zone.of_type(&source, rtype::CNAME);
            if !found.is_empty() {
                answer.extend(own(found));
                return (0, true, answer, vec![]);
            }
            let [(_, _, target)] = &alias[..] else { return (0, true, answer, zone.soa()) };
            let target = target.trim_end_matches('.').to_owned();
            answer.extend(own(alias));
            // As the server: a chain that comes back to a node ends there.
            seen.push((zone.apex.clone(), source));
            if let Some(next) = self.asked(&target, qtype)
                && next.cut(&target).is_none()
                && seen.contains(&(next.apex.clone(), next.source(&target)))
            {
                return (0, true, answer, vec![]);
            }
            name = target;
        }
    }
}

pub(super) fn told(reply: &[u8]) -> Told {
    let message = Message::from_octets(reply).unwrap();
    let lines = |section: domain::base::message::RecordSection<'_, &[u8]>| {
        let line = |record: domain::base::record::ParsedRecord<'_, &[u8]>| {
            let record = record.into_record::<AllRecordData<_, _>>().unwrap().unwrap();
            let (owner, data) = (record.owner().to_string(), record.data().to_string());
            (owner.to_lowercase(), record.rtype().to_int(), data.to_lowercase())
        };
        let mut lines: Vec<Line> = section.map(|record| line(record.unwrap())).collect();
        lines.sort();
        lines
    };
    let header = message.header();
    let code = u16::from(header.rcode().to_int());
    (code, header.aa(), lines(message.answer().unwrap()), lines(message.authority().unwrap()))
}

/// Apexes below `x`: one in the other, and with a label between.
pub(super) const APEXES: [&str; 5] = ["a.x", "b.a.x", "a.b.x", "c.c.a.x", "b.c.x"];

/// A name below the apex `x`, of few labels so that names meet.
pub(super) fn name() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec!["a", "b", "c", "*"]);
    prop::collection::vec(label, 0..4)
        .prop_map(|labels| labels.into_iter().map(|label| format!("{label}.")).collect::<String>() + "x.")
}

/// The records of one name.
pub(super) fn owner() -> impl Strategy<Value = String> {
    let data = (0..4_u8, name(), 0..9_u8);
    (name(), 0..12_u8, prop::collection::vec(data, 1..3)).prop_map(|(owner, kind, data)| {
        let wildcard = owner.starts_with('*');
        let line = |(which, target, n): &(u8, String, u8)| match which {
            0 => format!("{owner} A 192.0.2.{n}\n"),
            1 => format!("{owner} MX {n} {target}\n"),
            2 => format!("{owner} TXT \"{n}\"\n"),
            _ => format!("{owner} AAAA 2001:db8::{n}\n"),
        };
        match kind {
            0..3 if owner != "x." => format!("{owner} CNAME {}\n", data[0].1),
            3 if owner != "x." && !wildcard => format!("{owner} NS {}\n", data[0].1),
            4 if owner != "x." => format!("{owner} CNAME {}y.\n", data[0].1),
            5 if owner != "x." => format!("{owner} DS {} 8 9 00\n", data[0].2),
            _ => data.iter().map(line).collect(),
        }
    })
}

/// The zone of these records: of those with the same owner the first, and none that an apex may not have.
pub(super) fn zone(apex: &str, minimum: usize, owners: &[String]) -> String {
    let mut zone = format!("$ORIGIN {apex}.\n$TTL 7\n{apex}. SOA ns.x. admin.x. 1 1 1 1 {minimum}\n");
    let mut known = std::collections::HashSet::new();
    for lines in owners {
        let mut words = lines.split(' ');
        let (owner, rtype) = (words.next().unwrap().trim_end_matches('.'), words.next());
        let inside = owner.ends_with(&format!(".{apex}")) || owner == apex && rtype != Some("CNAME");
        if inside && known.insert(owner.to_owned()) {
            zone += lines;
        }
    }
    zone
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_answer_is_that_of_the_naive_search(
        owners in prop::collection::vec(owner(), 0..14),
        nested in prop::collection::vec((prop::sample::select(APEXES.to_vec()), prop::collection::vec(owner(), 0..14)), 0..4),
        asked in prop::collection::vec((name(), prop::sample::select(vec![1, 2, 5, 6, 15, 16, 28, 43])), 1..30),
    ) {
        let mut zones = vec![("x", zone("x", 1, &owners))];
        for (apex, owners) in nested {
            if zones.iter().all(|(other, _)| *other != apex) {
                zones.push((apex, zone(apex, 1 + zones.len(), &owners)));
            }
        }
        let texts: Vec<&str> = zones.iter().map(|(_, text)| &text[..]).collect();
        let naive = Naive(zones.iter().map(|(apex, text)| Zone::of(apex, text)).collect());
        let index = index(&texts);
        let apexes = zones.iter().map(|(apex, _)| (format!("{apex}."), rtype::DS));
        for (name, qtype) in asked.into_iter().chain(apexes) {
            let reply = reply(&index, &query(&name, qtype, (0, &[])), 65_535);
            let (code, authoritative, mut answer, mut authority) = naive.answer(name.trim_end_matches('.'), qtype);
            answer.sort();
            authority.sort();
            let expected = (code, authoritative, answer, authority);
            prop_assert_eq!(told(&reply), expected, "{} {} in\n{}", name, qtype, texts.join("\n"));
        }
    }
}
