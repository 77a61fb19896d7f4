//! The rules: parsing them and looking a function up.

use std::collections::HashMap;
use std::sync::LazyLock;

use thiserror::Error;

use super::class::Class;
use crate::symbols::Frame;

/// The built-in rules.
const BUILT_IN: &str = include_str!("rules.txt");

/// Starts a line with a call chain of the section, for the tests.
const EXAMPLE: &str = "= ";

/// Which class each function belongs to.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    classes: Table<Entry>,
    locks: Table<String>,
}

/// The meaning of a section's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Of this class.
    Class(Class),
    /// Of this class, if it is the innermost frame.
    Leaf(Class),
    /// No class: its caller decides.
    Pass,
}

/// Maps names of functions and modules to their meaning.
#[derive(Debug, Clone)]
struct Table<T> {
    exact: HashMap<String, T>,
    beginnings: HashMap<String, T>,
    modules: HashMap<String, T>,
    /// Length of the longest prefix, in bytes.
    longest: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let (exact, beginnings, modules) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { exact, beginnings, modules, longest: 0 }
    }
}

/// Why rules cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RulesError {
    /// A section names an unknown class.
    #[error("line {line}: unknown class {name:?}; the classes are {known}")]
    NoClass {
        /// From 1.
        line: usize,
        /// As written.
        name: String,
        /// The known classes.
        known: String,
    },
    /// A name before the first section.
    #[error("line {line}: {word:?} comes before the first [section]")]
    NoSection {
        /// From 1.
        line: usize,
        /// The name.
        word: String,
    },
    /// A `*` that is not at the end, or a lone `*`.
    #[error("line {line}: {word:?} is not a function name; expected name, name* or @module")]
    Name {
        /// From 1.
        line: usize,
        /// As written.
        word: String,
    },
    /// A duplicate name, in the same section or in another.
    #[error("line {line}: duplicate entry {word:?}")]
    Twice {
        /// From 1.
        line: usize,
        /// The name.
        word: String,
    },
}

/// The section that names are added to.
enum Section {
    Class(Entry),
    Lock(String),
}

impl Rules {
    /// The built-in rules.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::parse(BUILT_IN).unwrap_or_default());
        &RULES
    }

    /// Parses rules.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let (mut rules, mut section) = (Self::default(), None);
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.starts_with(EXAMPLE) {
                continue;
            }
            if let Some(title) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = Some(header(number, title)?);
                continue;
            }
            for word in line.split_whitespace() {
                let inserted = match &section {
                    None => return Err(RulesError::NoSection { line: number, word: word.into() }),
                    Some(Section::Class(entry)) => rules.classes.insert(word, *entry),
                    Some(Section::Lock(name)) => rules.locks.insert(word, name.clone()),
                };
                inserted.map_err(|wrong| wrong.at(number, word))?;
            }
        }
        Ok(rules)
    }

    /// The class of a frame; `None` if its caller decides.
    pub(super) fn class(&self, frame: Frame<'_>, innermost: bool) -> Option<Class> {
        match self.classes.get(frame)? {
            Entry::Class(class) => Some(*class),
            Entry::Leaf(class) => innermost.then_some(*class),
            Entry::Pass => None,
        }
    }

    /// The owner of the lock that is taken in this frame.
    pub(super) fn lock(&self, frame: Frame<'_>) -> Option<&str> {
        self.locks.get(frame).map(String::as_str)
    }
}

fn header(line: usize, title: &str) -> Result<Section, RulesError> {
    if title == "pass" {
        return Ok(Section::Class(Entry::Pass));
    }
    if let Some(name) = title.strip_prefix("lock ") {
        return Ok(Section::Lock(name.trim().to_owned()));
    }
    let (name, leaf) = title.strip_suffix(" leaf").map_or((title, false), |name| (name, true));
    let class = name.parse().map_err(|()| {
        let known = Class::ALL.iter().map(|class| class.name()).collect::<Vec<_>>().join(", ");
        RulesError::NoClass { line, name: title.to_owned(), known }
    })?;
    Ok(Section::Class(if leaf { Entry::Leaf(class) } else { Entry::Class(class) }))
}

/// Why a word is invalid.
enum Wrong {
    Name,
    Twice,
}

impl Wrong {
    fn at(self, line: usize, word: &str) -> RulesError {
        let word = word.to_owned();
        match self {
            Self::Name => RulesError::Name { line, word },
            Self::Twice => RulesError::Twice { line, word },
        }
    }
}

impl<T> Table<T> {
    fn insert(&mut self, word: &str, value: T) -> Result<(), Wrong> {
        let (map, name) = match (word.strip_prefix('@'), word.strip_suffix('*')) {
            (Some(module), _) => (&mut self.modules, module),
            (None, Some(beginning)) => {
                self.longest = self.longest.max(beginning.len());
                (&mut self.beginnings, beginning)
            }
            (None, None) => (&mut self.exact, word),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Wrong::Name);
        }
        match map.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(Wrong::Twice),
        }
    }

    /// By function name, then by the longest matching prefix, then by module.
    fn get(&self, frame: Frame<'_>) -> Option<&T> {
        // Parts that a compiler split off a function: name.isra.0, name.constprop.2, name.cold.
        let name = frame.function.split('.').next().unwrap_or_default();
        let beginning = || {
            let most = name.len().min(self.longest);
            (1..=most).rev().find_map(|len| self.beginnings.get(name.get(..len)?))
        };
        let module = || frame.module.and_then(|module| self.modules.get(module));
        self.exact.get(name).or_else(beginning).or_else(module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge<'a>(rules: &'a Rules, chain: &[&str]) -> (Class, Option<&'a str>) {
        let frames: Vec<Frame<'_>> = chain.iter().map(|function| Frame { function, module: None }).collect();
        let verdict = rules.judge(frames);
        (verdict.class, verdict.lock)
    }

    #[test]
    fn the_built_in_rules_are_rules() {
        Rules::parse(BUILT_IN).unwrap();
        // Every class except those without functions.
        let rules = Rules::built_in();
        let none = [Class::User, Class::Unclassified];
        for class in Class::ALL.iter().filter(|class| !none.contains(class)) {
            let known = rules.classes.exact.values().chain(rules.classes.beginnings.values());
            assert!(known.into_iter().any(|entry| *entry == Entry::Class(*class)), "{}", class.name());
        }
    }

    #[test]
    fn each_example_belongs_to_its_section() {
        let mut section = "";
        let mut examples = 0;
        for line in BUILT_IN.lines() {
            if let Some(title) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = title;
            }
            let Some(chain) = line.strip_prefix(EXAMPLE) else { continue };
            let chain: Vec<_> = chain.split(';').rev().collect();
            let (class, lock) = judge(Rules::built_in(), &chain);
            match section.strip_prefix("lock ") {
                Some(name) => assert_eq!((class, lock), (Class::Lock, Some(name)), "{chain:?}"),
                None => assert_eq!(class.name(), section.trim_end_matches(" leaf"), "{chain:?}"),
            }
            examples += 1;
        }
        assert!(examples > 0);
    }

    #[test]
    fn the_documentation_has_a_row_for_each_class() {
        let page = include_str!("../../../../docs/reading-a-profile.md");
        let table = page.split("| class |").nth(1).unwrap().split("\n\n").next().unwrap();
        let rows: Vec<_> =
            table.lines().skip(2).map(|row| row.split('|').nth(1).unwrap_or_default().trim()).collect();
        let classes = Class::ALL.iter().filter(|class| **class != Class::Idle);
        assert_eq!(rows, classes.map(|class| class.title()).collect::<Vec<_>>());
    }

    #[test]
    fn the_most_exact_rule_decides() {
        let rules = Rules::parse(
            "[ip]\nip_* # most of it\n[routing]\nip_route_*\nip_mr\n[pass]\nip_route_x\n[syscall leaf]\nentry\n\
             [lock]\nspin*\n[lock mine]\nip_mr\n[lock of-card]\n@card",
        )
        .unwrap();
        assert_eq!(judge(&rules, &["ip_rcv", "entry"]).0, Class::Ip);
        assert_eq!(judge(&rules, &["ip_route_input.isra.0"]).0, Class::Routing);
        assert_eq!(judge(&rules, &["ip_mr"]).0, Class::Routing);
        assert_eq!(judge(&rules, &["memcpy", "ip_route_x", "ip_rcv"]).0, Class::Ip);
        assert_eq!(judge(&rules, &["entry"]).0, Class::Syscall);
        assert_eq!(judge(&rules, &["unheard_of", "entry"]).0, Class::Unclassified);
        assert_eq!(judge(&rules, &["spin_slow", "spin", "unheard_of", "ip_mr"]), (Class::Lock, Some("mine")));
        assert_eq!(judge(&rules, &["spin"]), (Class::Lock, Some("other")));
        let card = [Frame { function: "spin", module: None }, Frame { function: "x", module: Some("card") }];
        assert_eq!(rules.judge(card).lock, Some("of-card"));
    }

    #[test]
    fn invalid_rules_are_reported_with_their_line() {
        for (text, says) in [
            ("x", "line 1: \"x\" comes before"),
            ("# x\n[nothing]\n", "line 2: unknown class \"nothing\"; the classes are nic-driver"),
            ("[ip]\na*b", "line 2: \"a*b\" is not a function name"),
            ("[ip]\n*", "\"*\" is not a function name"),
            ("[ip]\n@", "\"@\" is not a function name"),
            ("[ip]\na b\n[tcp] # again\nc a", "line 4: duplicate entry \"a\""),
        ] {
            let error = Rules::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
