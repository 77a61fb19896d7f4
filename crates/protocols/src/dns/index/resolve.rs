//! Who has a name, as seen while the index is built: the sorted records, searched by key.

use super::super::records::{Record, Records, boundaries, key_of};
use super::super::wire::rtype;

/// The names that have records, in the order of their keys.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) records: Records,
    list: Vec<NameEntry>,
    /// Zones in the order of their keys.
    by_apex: Vec<u16>,
}

/// A name's records in the list, and the zone that it belongs to.
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
    /// Gives each name to the deepest zone that has it. Other zones' records of the name go, except DS records at an apex, which
    /// the zone above has (RFC 4034, 5).
    pub(super) fn new(mut records: Records) -> Self {
        let mut by_apex: Vec<u16> = (0..).take(records.zones.len()).collect();
        by_apex.sort_unstable_by(|a, b| {
            records.zones[usize::from(*a)].apex.cmp(&records.zones[usize::from(*b)].apex)
        });
        let mut list = std::mem::take(&mut records.list);
        // The zones around the name, the deepest last; each begins at its apex, which is in the list.
        let mut around: Vec<u16> = Vec::new();
        let mut following = by_apex.iter().copied().peekable();
        let apex = |zone: u16| &records.zones[usize::from(zone)].apex[..];
        list.retain_mut(|record| {
            let key = records.key(record);
            while around.last().is_some_and(|zone| !key.starts_with(apex(*zone))) {
                around.pop();
            }
            while let Some(zone) = following.next_if(|zone| apex(*zone) <= key) {
                around.push(zone);
            }
            let Some(owner) = around.last().copied() else { return false };
            let stays = record.zone == owner || record.rtype == rtype::DS && key == apex(owner);
            record.zone = owner;
            stays
        });
        let mut names: Vec<NameEntry> = Vec::new();
        let mut last: Option<&[u8]> = None;
        for (at, record) in (0..).zip(&list) {
            let key = records.key(record);
            match names.last_mut() {
                Some(entry) if last == Some(key) => entry.count += 1,
                _ => names.push(NameEntry { first: at, count: 1, zone: record.zone }),
            }
            last = Some(key);
        }
        records.list = list;
        names.shrink_to_fit();
        Self { records, list: names, by_apex }
    }

    /// For each zone the loaded one right above it.
    pub(super) fn above(&self) -> Vec<Option<u16>> {
        let apex = |zone: u16| &self.records.zones[usize::from(zone)].apex[..];
        let mut above = vec![None; self.records.zones.len()];
        let mut around: Vec<u16> = Vec::new();
        for zone in &self.by_apex {
            while around.last().is_some_and(|outer| !apex(*zone).starts_with(apex(*outer))) {
                around.pop();
            }
            above[usize::from(*zone)] = around.last().copied();
            around.push(*zone);
        }
        above
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
        self.is_left_out(name)
            || self.key(name) != self.records.zones[usize::from(self.zone(name))].apex
                && !self.of_type(name, rtype::NS).is_empty()
    }

    /// The name with exactly this key.
    pub(super) fn exact(&self, key: &[u8]) -> Option<usize> {
        let place = self.lower_bound(key);
        (place < self.len() && self.key(place) == key).then_some(place)
    }

    /// Searches for a name as a question for it would (RFC 1034, 4.3.2).
    pub(super) fn resolve(&self, wire: &[u8]) -> Target {
        let key = key_of(wire);
        let (mut zone, mut encloser) = (None, 0);
        for end in boundaries(&key) {
            let (part, whole) = (&key[..end], end == key.len());
            zone = self.zone_at(part).or(zone);
            let Some(zone) = zone else { continue };
            let place = self.lower_bound(part);
            let found = (place < self.len()).then(|| self.key(place));
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
        let place = self.lower_bound(&wildcard);
        match (place < self.len()).then(|| self.key(place)) {
            Some(key) if key == wildcard => Target::Wildcard(place),
            Some(key) if key.starts_with(&wildcard) => Target::Empty(zone),
            _ => Target::Missing(zone),
        }
    }

    fn zone_at(&self, key: &[u8]) -> Option<u16> {
        let apex = |zone: &u16| &self.records.zones[usize::from(*zone)].apex[..];
        let place = self.by_apex.binary_search_by(|zone| apex(zone).cmp(key)).ok()?;
        self.by_apex.get(place).copied()
    }

    fn lower_bound(&self, key: &[u8]) -> usize {
        self.list.partition_point(|entry| self.records.key(&self.records.list[entry.first as usize]) < key)
    }
}
