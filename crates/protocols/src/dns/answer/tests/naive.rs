//! A second implementation: looks through all records as `domain` parsed them, name by name as text, and must come to the same
//! answers. Its replies have no addresses in the additional section.

use domain::zonefile::inplace::{Entry, Zonefile};
use proptest::prelude::*;

use super::*;

/// Owner, type and data as text, in lower case.
type Line = (String, u16, String);

struct Naive {
    apex: String,
    records: Vec<Line>,
}

/// Code, authority, answer, and the NS or SOA records of the authority section.
type Told = (u16, bool, Vec<Line>, Vec<Line>);

impl Naive {
    fn of(apex: &str, text: &str) -> Self {
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

    fn of_type(&self, name: &str, rtype: u16) -> Vec<Line> {
        self.records.iter().filter(|line| line.0 == name && line.1 == rtype).cloned().collect()
    }

    /// Whether a name, or one below it, has records.
    fn exists(&self, name: &str) -> bool {
        self.records.iter().any(|line| line.0 == name || line.0.ends_with(&format!(".{name}")))
    }

    fn soa(&self) -> Vec<Line> {
        self.of_type(&self.apex, rtype::SOA)
    }

    /// The name and those above it, down to the apex; nothing if it is not in the zone.
    fn path(&self, name: &str) -> Vec<String> {
        let mut path = vec![name.to_owned()];
        while path[path.len() - 1] != self.apex {
            let Some((_, above)) = path[path.len() - 1].split_once('.') else { return Vec::new() };
            path.push(above.to_owned());
        }
        path
    }

    /// RFC 1034, 4.3.2, with RFC 4592.
    fn answer(&self, name: &str, qtype: u16) -> Told {
        let (mut name, mut answer, mut seen) = (name.to_owned(), Vec::new(), Vec::new());
        loop {
            let path = self.path(&name);
            if path.is_empty() {
                return if answer.is_empty() {
                    (5, false, answer, vec![])
                } else {
                    (0, true, answer, vec![])
                };
            }
            let cut = path.iter().rev().skip(1).find(|above| !self.of_type(above, rtype::NS).is_empty());
            if let Some(cut) = cut.filter(|cut| **cut != name || qtype != rtype::DS) {
                return if answer.is_empty() {
                    (0, false, answer, self.of_type(cut, rtype::NS))
                } else {
                    (0, true, answer, vec![])
                };
            }
            let source = if self.exists(&name) {
                name.clone()
            } else {
                let encloser = path.iter().find(|above| self.exists(above)).unwrap();
                format!("*.{encloser}")
            };
            if !self.exists(&source) {
                return (3, true, answer, self.soa());
            }
            let own = |lines: Vec<Line>| lines.into_iter().map(|line| (name.clone(), line.1, line.2));
            let found = self.of_type(&source, qtype);
            let alias = self.of_type(&source, rtype::CNAME);
            if !found.is_empty() {
                answer.extend(own(found));
                return (0, true, answer, vec![]);
            }
            let [(_, _, target)] = &alias[..] else { return (0, true, answer, self.soa()) };
            let target = target.trim_end_matches('.').to_owned();
            answer.extend(own(alias));
            seen.push(source);
            // As the server: a chain that comes back to a node ends there.
            let next = if self.path(&target).is_empty() || self.exists(&target) {
                target.clone()
            } else {
                let path = self.path(&target);
                format!("*.{}", path.iter().find(|above| self.exists(above)).unwrap())
            };
            let leads_away =
                self.path(&target).iter().rev().skip(1).any(|at| !self.of_type(at, rtype::NS).is_empty());
            if seen.contains(&next) && !leads_away {
                return (0, true, answer, vec![]);
            }
            name = target;
        }
    }
}

fn told(reply: &[u8]) -> Told {
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

/// A name below the apex `x`, of few labels so that names meet.
fn name() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec!["a", "b", "c", "*"]);
    prop::collection::vec(label, 0..4)
        .prop_map(|labels| labels.into_iter().map(|label| format!("{label}.")).collect::<String>() + "x.")
}

/// The records of one name.
fn owner() -> impl Strategy<Value = String> {
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
            _ => data.iter().map(line).collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_answer_is_that_of_the_naive_search(
        owners in prop::collection::vec(owner(), 0..14),
        asked in prop::collection::vec((name(), prop::sample::select(vec![1, 2, 5, 6, 15, 16, 28, 43])), 1..30),
    ) {
        // One group of records per owner: the first.
        let mut zone = "$ORIGIN x.\n$TTL 7\nx. SOA ns.x. admin.x. 1 1 1 1 7\n".to_owned();
        let mut known = std::collections::HashSet::new();
        for lines in owners {
            if known.insert(lines.split(' ').next().unwrap().to_owned()) {
                zone += &lines;
            }
        }
        let (index, naive) = (index(&[&zone]), Naive::of("x", &zone));
        for (name, qtype) in asked {
            let reply = reply(&index, &query(&name, qtype, (0, &[])), 65_535);
            let (code, authoritative, mut answer, mut authority) = naive.answer(name.trim_end_matches('.'), qtype);
            answer.sort();
            authority.sort();
            prop_assert_eq!(told(&reply), (code, authoritative, answer, authority), "{} {} in\n{}", name, qtype, zone);
        }
    }
}
