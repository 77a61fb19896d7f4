//! Who has a name, as seen while the index is built: the sorted records, searched by key.

use super::super::records::{Record, Records, boundaries, is_hashed, key_of};
use super::super::wire::rtype;

/// The names that have records, zone by zone. Each zone is a tree of its own: what another loaded zone has below it
/// neither makes nor hides names of it.
///
/// ```text
/// zone x      x, a.b.x, *.x, c.x        list, in the order of the zones and of their keys
/// zone b.x    b.x, d.b.x                a question for a.b.x is for the deepest zone, b.x: there is none
/// ```
#[derive(Debug)]
pub(super) struct Names {
    pub(super) records: Records,
    list: Vec<NameEntry>,
    /// For each zone where its names begin in the list; and the list's end.
    trees: Vec<usize>,
    /// Zones in the order of their keys.
    by_apex: Vec<u16>,
    /// For each zone the loaded one right above it.
    above: Vec<Option<u16>>,
    /// For each zone its NSEC3 records and their signatures, in the order of their owners: those are hashes, and no
    /// names of the zone (RFC 5155, 7.2.8).
    hashed: Vec<Vec<Record>>,
    /// For each zone whether it has any signatures.
    signed: Vec<bool>,
}

/// A name's records in the list, and the zone that has them.
#[derive(Debug, Clone, Copy)]
struct NameEntry {
    first: u32,
    count: u32,
    zone: u16,
}

/// Where the search for a name ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// At a name with records.
    Name(usize),
    /// At this wildcard.
    Wildcard(usize),
    /// At a name without records, but with names below it, in this zone.
    Empty(u16),
    /// Nowhere in this zone: the name does not exist.
    Missing(u16),
    /// At a name that is delegated to other servers.
    Cut(usize),
    /// With another server, or below a DNAME record.
    Elsewhere,
}

impl Names {
    pub(super) fn new(mut records: Records) -> Self {
        let zones = records.zones.len();
        // Those of a zone stay in the order of their keys.
        records.list.sort_by_key(|record| record.zone);
        let mut signed = vec![false; zones];
        let mut hashed = vec![Vec::new(); zones];
        for record in &records.list {
            let zone = usize::from(record.zone);
            signed[zone] |= record.rtype == rtype::RRSIG;
            if is_hashed(&records, record) {
                hashed[zone].push(*record);
            }
        }
        let mut all = std::mem::take(&mut records.list);
        all.retain(|record| !is_hashed(&records, record));
        records.list = all;
        let mut list: Vec<NameEntry> = Vec::new();
        let mut last: Option<(u16, &[u8])> = None;
        for (at, record) in (0..).zip(&records.list) {
            let name = (record.zone, records.key(record));
            match list.last_mut() {
                Some(entry) if last == Some(name) => entry.count += 1,
                _ => list.push(NameEntry { first: at, count: 1, zone: record.zone }),
            }
            last = Some(name);
        }
        list.shrink_to_fit();
        let first_of = |zone: usize| list.partition_point(|entry| usize::from(entry.zone) < zone);
        let trees = (0..=zones).map(first_of).collect();
        let apex = |zone: u16| &records.zones[usize::from(zone)].apex[..];
        let mut by_apex: Vec<u16> = (0..).take(zones).collect();
        by_apex.sort_unstable_by_key(|zone| apex(*zone));
        let mut above = vec![None; zones];
        let mut around: Vec<u16> = Vec::new();
        for zone in &by_apex {
            while around.last().is_some_and(|outer| !apex(*zone).starts_with(apex(*outer))) {
                around.pop();
            }
            above[usize::from(*zone)] = around.last().copied();
            around.push(*zone);
        }
        Self { records, list, trees, by_apex, above, hashed, signed }
    }

    /// The loaded zone right above a zone.
    pub(super) fn above(&self, zone: u16) -> Option<u16> {
        self.above.get(usize::from(zone)).copied().flatten()
    }

    /// The zone that questions for a name and type go to: the deepest; for DS records of an apex the one above (RFC
    /// 4035, 3.1.4.1).
    pub(super) fn asked(&self, key: &[u8], rtype: u16) -> Option<u16> {
        let ends: Vec<usize> = boundaries(key).collect();
        let (end, zone) = ends.into_iter().rev().find_map(|end| Some((end, self.zone_at(&key[..end])?)))?;
        let above = self.above(zone).filter(|_| rtype == rtype::DS && end == key.len());
        Some(above.unwrap_or(zone))
    }

    /// If the name is in or below another loaded zone, which then answers for it: how much of the key that zone's apex
    /// is.
    pub(super) fn nested(&self, name: usize) -> Option<usize> {
        let key = self.key(name);
        let own = self.apex(self.zone(name)).len();
        boundaries(key).filter(|end| *end > own).find(|end| self.zone_at(&key[..*end]).is_some())
    }

    /// What the zone above has for DS records of a zone's apex; `None` if there is none or the apex is not one of its
    /// names.
    pub(super) fn signing(&self, zone: u16) -> Option<Target> {
        let target = self.search(self.above(zone)?, self.apex(zone));
        matches!(target, Target::Name(_) | Target::Cut(_) | Target::Empty(_)).then_some(target)
    }

    /// Whether a zone has any signatures.
    pub(super) fn is_signed(&self, zone: u16) -> bool {
        self.signed.get(usize::from(zone)).copied().unwrap_or_default()
    }

    /// A zone's NSEC3 records and their signatures, in the order of their owners.
    pub(super) fn hashed(&self, zone: u16) -> &[Record] {
        self.hashed.get(usize::from(zone)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The names of a zone of which it has what is to be signed: not those below its delegations. In the order of their
    /// keys.
    pub(super) fn authoritative(&self, zone: u16) -> Vec<usize> {
        let mut cut: Option<&[u8]> = None;
        let mut names = Vec::new();
        for name in self.trees[usize::from(zone)]..self.trees[usize::from(zone) + 1] {
            let key = self.key(name);
            if cut.is_none_or(|cut| !key.starts_with(cut)) {
                cut = self.is_cut(name).then_some(key);
                names.push(name);
            }
        }
        names
    }

    /// How many labels of a name are in front of its closest encloser in a zone: 0 for a name that exists.
    pub(super) fn in_front(&self, zone: u16, key: &[u8]) -> usize {
        let exists = |end: &usize| {
            let place = self.lower_bound(zone, &key[..*end]);
            self.key_at(zone, place).is_some_and(|found| found.starts_with(&key[..*end]))
        };
        boundaries(key).filter(|end| *end > self.apex(zone).len() && !exists(end)).count()
    }

    /// The key of a name without that of its zone's apex.
    pub(super) fn relative_key(&self, name: usize) -> &[u8] {
        self.key(name).get(self.apex(self.zone(name)).len()..).unwrap_or_default()
    }

    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The records of a name, by type.
    pub(super) fn records_of(&self, name: usize) -> &[Record] {
        let NameEntry { first, count, .. } = self.list[name];
        &self.records.list[first as usize..][..count as usize]
    }

    /// The records of one type.
    pub(super) fn of_type(&self, name: usize, rtype: u16) -> &[Record] {
        let all = self.records_of(name);
        let first = all.partition_point(|record| record.rtype < rtype);
        let len = all[first..].partition_point(|record| record.rtype == rtype);
        &all[first..][..len]
    }

    /// The key of a name.
    pub(super) fn key(&self, name: usize) -> &[u8] {
        self.records.key(&self.records.list[self.list[name].first as usize])
    }

    /// The zone of a name.
    pub(super) fn zone(&self, name: usize) -> u16 {
        self.list[name].zone
    }

    /// Whether the name is the apex of a zone that is left out.
    pub(super) fn is_left_out(&self, name: usize) -> bool {
        self.records.zones[usize::from(self.zone(name))].left_out
    }

    /// Whether the answers for the name are others' matter: NS records below the apex, or a zone that is left out.
    pub(super) fn is_cut(&self, name: usize) -> bool {
        self.is_left_out(name) || !self.is_apex(name) && !self.of_type(name, rtype::NS).is_empty()
    }

    /// Whether it is the apex of its zone.
    pub(super) fn is_apex(&self, name: usize) -> bool {
        self.key(name) == self.apex(self.zone(name))
    }

    /// The name of a zone with exactly this key.
    pub(super) fn exact(&self, zone: u16, key: &[u8]) -> Option<usize> {
        let place = self.lower_bound(zone, key);
        (self.key_at(zone, place) == Some(key)).then_some(place)
    }

    /// Searches for a name as a question for it would (RFC 1034, 4.3.2).
    pub(super) fn resolve(&self, wire: &[u8], rtype: u16) -> Target {
        let key = key_of(wire);
        self.asked(&key, rtype).map_or(Target::Elsewhere, |zone| self.search(zone, &key))
    }

    /// Searches in one zone.
    pub(super) fn search(&self, zone: u16, key: &[u8]) -> Target {
        let apex = self.apex(zone);
        if !key.starts_with(apex) {
            return Target::Elsewhere;
        }
        let mut encloser = apex.len();
        for end in boundaries(key).filter(|end| *end >= apex.len()) {
            let (part, whole) = (&key[..end], end == key.len());
            let place = self.lower_bound(zone, part);
            let found = self.key_at(zone, place);
            if found == Some(part) {
                let leads_away =
                    self.is_cut(place) || !whole && !self.of_type(place, rtype::DNAME).is_empty();
                match (leads_away, whole) {
                    (true, true) if !self.is_left_out(place) => return Target::Cut(place),
                    (true, _) => return Target::Elsewhere,
                    (false, true) => return Target::Name(place),
                    (false, false) => {}
                }
            } else if found.is_some_and(|key| key.starts_with(part)) {
                if whole {
                    return Target::Empty(zone);
                }
            } else {
                return self.wildcard(&key[..encloser], zone);
            }
            encloser = end;
        }
        Target::Elsewhere
    }

    /// Where a name goes that does not exist, right below one that does (RFC 4592, 2.2).
    fn wildcard(&self, encloser: &[u8], zone: u16) -> Target {
        let wildcard = [encloser, b"\x01*"].concat();
        let place = self.lower_bound(zone, &wildcard);
        match self.key_at(zone, place) {
            Some(key) if key == wildcard => Target::Wildcard(place),
            Some(key) if key.starts_with(&wildcard) => Target::Empty(zone),
            _ => Target::Missing(zone),
        }
    }

    /// The key of a zone's apex.
    pub(super) fn apex(&self, zone: u16) -> &[u8] {
        &self.records.zones[usize::from(zone)].apex
    }

    fn zone_at(&self, key: &[u8]) -> Option<u16> {
        let place = self.by_apex.binary_search_by(|zone| self.apex(*zone).cmp(key)).ok()?;
        self.by_apex.get(place).copied()
    }

    /// The key at a place of the list, if the zone's names reach as far.
    fn key_at(&self, zone: u16, place: usize) -> Option<&[u8]> {
        (place < self.trees[usize::from(zone) + 1]).then(|| self.key(place))
    }

    /// The place of the zone's first name that is not before the key.
    fn lower_bound(&self, zone: u16, key: &[u8]) -> usize {
        let tree = self.trees[usize::from(zone)]..self.trees[usize::from(zone) + 1];
        let key_of = |entry: &NameEntry| self.records.key(&self.records.list[entry.first as usize]);
        tree.start + self.list[tree].partition_point(|entry| key_of(entry) < key)
    }
}
