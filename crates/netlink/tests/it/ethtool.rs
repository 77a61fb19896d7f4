//! What ethtool showed of the recorded machine: `fixtures/emulated/ethtool.txt`, a page after each
//! `$ ethtool PAGE IFACE`.

use std::collections::BTreeMap;

/// The lines of each page, by its argument and interface.
pub(crate) struct Pages(BTreeMap<(&'static str, &'static str), Vec<&'static str>>);

impl Pages {
    pub(crate) fn read() -> Self {
        let (mut pages, mut open) = (BTreeMap::new(), None);
        for line in include_str!("../../fixtures/emulated/ethtool.txt").lines() {
            if let Some(words) = line.strip_prefix("$ ethtool ") {
                open = words.split_once(' ');
            } else if let Some(page) = open {
                pages.entry(page).or_insert_with(Vec::new).push(line);
            }
        }
        Self(pages)
    }

    fn page(&self, page: &str, interface: &str) -> &[&'static str] {
        let found = self.0.iter().find(|(of, _)| **of == (page, interface));
        found.map_or_else(|| panic!("no page {page} {interface}"), |(_, lines)| lines.as_slice())
    }

    /// The number of a line `NAME: NUMBER` below a section's title, `""` for anywhere; `None` for `n/a`, or if the
    /// driver lacks the page.
    pub(crate) fn number(&self, page: &str, interface: &str, section: &str, name: &str) -> Option<u32> {
        let lines = self.page(page, interface).iter();
        let below = lines.skip_while(|line| !section.is_empty() && **line != section);
        let values = below.filter_map(|line| line.split_once(':')).filter(|(of, _)| *of == name);
        let value = values.map(|(_, value)| value.trim()).next()?;
        value.parse().ok()
    }

    /// Features: whether it is on, and whether that is fixed.
    pub(crate) fn features(&self, interface: &str) -> BTreeMap<&'static str, (bool, bool)> {
        let lines = self.page("-k", interface).iter().filter_map(|line| line.trim().split_once(": "));
        lines.map(|(name, value)| (name, (value.starts_with("on"), value.ends_with("[fixed]")))).collect()
    }

    /// Table and key.
    pub(crate) fn rss(&self, interface: &str) -> (Vec<u32>, String) {
        let lines = self.page("-x", interface);
        let rows = lines.iter().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        let entries = rows.filter_map(|row| Some(row.split_once(':')?.1)).flat_map(str::split_whitespace);
        let table = entries.map_while(|entry| entry.parse().ok()).collect();
        let key = lines.iter().skip_while(|line| **line != "RSS hash key:").nth(1);
        let key = key.filter(|key| key.contains(':')).copied().unwrap_or_default();
        (table, key.to_owned())
    }
}
