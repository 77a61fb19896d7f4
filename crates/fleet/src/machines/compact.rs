//! Many machines in little memory: a text is kept once, a fact is three numbers, 12 bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use udpath_advise::Finding;

use super::facts::Fact;
use super::files::Entry;
use super::input::Seen;
use super::result::Source;

/// A text, by its number in [`Machines::texts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Text(u32);

/// The machines of a folder.
#[derive(Debug, Default)]
pub(super) struct Machines {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Text>,
    pub(super) list: Vec<Machine>,
}

/// What is kept of a file.
#[derive(Debug)]
pub(super) struct Machine {
    /// The machine's name.
    pub(super) name: String,
    /// The file, from the folder on.
    pub(super) file: String,
    /// What it is.
    pub(super) source: Source,
    /// When, milliseconds since 1970.
    pub(super) taken: u64,
    /// Its interfaces, and whether each is a device.
    pub(super) interfaces: Vec<(Text, bool)>,
    /// Its facts.
    pub(super) facts: Vec<CompactFact>,
    /// Its findings, the most severe of each id.
    pub(super) findings: Vec<Finding>,
}

/// A fact as numbers of texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct CompactFact {
    pub(super) interface: Option<Text>,
    pub(super) name: Text,
    pub(super) value: Text,
}

impl Machines {
    /// Adds what a file says.
    pub(super) fn add(&mut self, entry: &Entry, seen: Seen) {
        let interfaces =
            seen.facts.interfaces.iter().map(|(name, device)| (self.number(name), *device)).collect();
        let mut fact = |fact: &Fact| CompactFact {
            interface: fact.interface.as_deref().map(|name| self.number(name)),
            name: self.number(&fact.name),
            value: self.number(&fact.value),
        };
        let facts = seen.facts.list.iter().map(&mut fact).collect();
        // The most severe come first.
        let mut known = HashSet::new();
        let findings = seen.findings.into_iter().filter(|finding| known.insert(finding.id.clone())).collect();
        self.list.push(Machine {
            name: entry.machine.clone(),
            file: entry.shown.clone(),
            source: seen.source,
            taken: seen.taken,
            interfaces,
            facts,
            findings,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The text of a number.
    pub(super) fn text(&self, text: Text) -> &str {
        self.texts.get(text.0 as usize).map_or("", |text| text)
    }

    fn number(&mut self, text: &str) -> Text {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        // Each text is part of a file in memory: there are fewer than 2^32.
        let number = Text(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }
}
