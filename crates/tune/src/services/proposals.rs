//! How the knobs of a running server stand, and what its authors' guide would make of them.

use super::advisory::Advisory;
use super::config::{COMMAND_LINE, Config, File, Found};
use super::format::{Directive, Format};
use super::knob::{Edit, Knob, NO_FILE, Origin, Proposal};
use super::profile::{Kind, KnobProfile};
use super::{Service, ServiceError};

/// What proposals are made for.
struct Here {
    /// The number of CPUs.
    cpus: String,
    /// Where datagrams arrive, as knobs name it.
    interface: Option<String>,
}

/// Where a knob stands, or would.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The file and the section in it for a new line, if there is one.
    section: Option<(usize, usize)>,
    /// The line that sets it.
    pub(super) found: Option<Found<'a>>,
}

impl Service {
    /// The knobs that matter for UDP, in the profile's order; of one that several sections have, each.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        self.profile.knobs.iter().flat_map(|knob| self.rows(knob)).collect()
    }

    fn rows(&self, knob: &'static KnobProfile) -> Vec<Knob> {
        let places = self.places(knob);
        if knob.only.is_none() || places.len() < 2 || self.argument(knob).is_some() {
            return vec![self.knob(knob, &places)];
        }
        let numbered = places.iter().zip(1..);
        let rows = numbered.map(|(place, number)| {
            let of = self.label(place).unwrap_or_else(|| format!("{} {number}", knob.section));
            Knob { of: Some(of), ..self.knob(knob, std::slice::from_ref(place)) }
        });
        rows.collect()
    }

    /// What tells a section from others of its name: its port, or its name.
    fn label(&self, place: &Place<'_>) -> Option<String> {
        let (file, section) = place.section?;
        let File { parsed, format, .. } = &self.config.files[file];
        let value = |key: &str| {
            let own = |line: &&Directive| line.section == Some(section) && format.same(&line.key, key);
            let line = parsed.directives.iter().find(own)?;
            Some(format!("{key} {}", line.value.replace(['"', '\n'], "")))
        };
        value("port").or_else(|| value("name"))
    }

    /// The changes that the authors' guide would make for a machine with so many CPUs, where the server's datagrams
    /// arrive on `interface`, if that is known.
    #[must_use]
    pub fn proposals(&self, cpus: usize, interface: Option<&str>) -> Vec<Proposal> {
        let port = self.address.map_or(0, |address| address.port());
        let usual = self.profile.ports.contains(&port) || port == 0;
        let interface = interface.map(|name| if usual { name.to_owned() } else { format!("{name}@{port}") });
        let here = Here { cpus: cpus.to_string(), interface };
        let wanted = self.profile.knobs.iter().filter(|knob| !knob.many || cpus > 1);
        let wanted = wanted.filter(|knob| {
            let set = |key: &String| !self.config.find(&knob.section, key).is_empty();
            !knob.unless.iter().any(set)
        });
        wanted.filter_map(|knob| self.proposal(knob, &here)).collect()
    }

    /// Whether its configuration has an interface that it answers on over AF_XDP.
    pub(super) fn uses_xdp(&self) -> bool {
        let interfaces = self.profile.knobs.iter().filter(|knob| knob.kind == Kind::Interface);
        interfaces.into_iter().any(|knob| !self.config.find(&knob.section, knob.key()).is_empty())
    }

    /// The change of a knob to a value of the user's choice.
    ///
    /// # Errors
    /// There is no such knob, it cannot have the value, or it cannot be set in the files.
    pub fn propose(&self, name: &str, value: &str) -> Result<Proposal, ServiceError> {
        let knobs = &self.profile.knobs;
        let knob = knobs.iter().find(|knob| knob.name == name).ok_or_else(|| ServiceError::NoKnob {
            server: self.profile.name.clone(),
            knob: name.to_owned(),
            known: knobs
                .iter()
                .filter(|knob| knob.kind != Kind::Text)
                .map(|knob| knob.name.as_str())
                .collect(),
        })?;
        if !knob.kind.accepts(value, self.profile.numbers) {
            return Err(ServiceError::Value {
                knob: name.to_owned(),
                value: value.to_owned(),
                wanted: knob.kind.wanted(),
            });
        }
        self.changed(knob, value, |_| true)
    }

    /// The change of a knob to a value that it can have, in the places where `wanted` says so of the value there.
    fn changed(
        &self,
        knob: &'static KnobProfile,
        value: &str,
        wanted: impl Fn(Option<&str>) -> bool,
    ) -> Result<Proposal, ServiceError> {
        let edits = self.edits(knob, value, wanted)?;
        Ok(Proposal {
            knob: &knob.name,
            value: value.to_owned(),
            what: &knob.what,
            effect: &knob.effect,
            risk: &knob.risk,
            uncertain: knob.uncertain,
            bypasses_packet_filter: knob.bypasses_packet_filter,
            advisories: self.advisories(knob, value),
            edits,
        })
    }

    /// The advisories that a larger value is about, if it is larger than one in effect.
    fn advisories(&self, knob: &'static KnobProfile, wanted: &str) -> Vec<&'static Advisory> {
        let number = |text: &str| match text {
            // The default of one for each CPU.
            "cpus" => u64::try_from(self.cpus.len()).ok(),
            text => self.number(knob, text),
        };
        let default = self.default(knob);
        let now = |place: Place<'_>| number(place.found.map_or(default, |found| value_of(knob, found)));
        let larger = |now: Option<u64>| number(wanted).is_none_or(|new| now.is_none_or(|now| new > now));
        let version = self.version.as_deref();
        match self.places(knob).into_iter().any(|place| larger(now(place))) {
            true => knob.advisories.iter().filter(|advisory| !advisory.is_mended_in(version)).collect(),
            false => Vec::new(),
        }
    }

    /// The number that a value stands for, as the server reads it.
    pub(super) fn number(&self, knob: &KnobProfile, value: &str) -> Option<u64> {
        knob.kind.number(value, self.profile.numbers)
    }

    /// What a knob is without a line of the configuration, in the installed version.
    fn default(&self, knob: &'static KnobProfile) -> &'static str {
        knob.default_in(self.version.as_deref())
    }

    fn proposal(&self, knob: &'static KnobProfile, here: &Here) -> Option<Proposal> {
        let number = |text: &str| self.number(knob, if text == "cpus" { &here.cpus } else { text });
        let wanted = match knob.propose.as_deref()? {
            "cpus" => &here.cpus,
            "interface" => here.interface.as_ref()?,
            value => value,
        };
        let current: Vec<Option<&str>> = match self.argument(knob) {
            Some(value) => vec![Some(value)],
            None => self
                .places(knob)
                .into_iter()
                .map(|place| place.found.map(|found| value_of(knob, found)))
                .collect(),
        };
        let default = self.default(knob);
        let better = |now: &Option<&str>| {
            let now = now.unwrap_or(default);
            match knob.kind {
                Kind::Count | Kind::Bytes => {
                    number(now).is_some_and(|now| number(wanted).is_some_and(|new| now < new))
                }
                Kind::Switch | Kind::Flag => {
                    Kind::is_on(now).is_some_and(|now| Kind::is_on(wanted) == Some(!now))
                }
                Kind::Interface => now == default,
                Kind::Text => false,
            }
        };
        // Of several places, those that have more already keep it.
        current.iter().any(&better).then(|| self.changed(knob, wanted, |now| better(&now)).ok()).flatten()
    }

    fn knob(&self, knob: &'static KnobProfile, places: &[Place<'_>]) -> Knob {
        let last = places.iter().rev().find_map(|place| place.found);
        let (value, origin) = match (self.argument(knob), last) {
            (Some(value), _) => (Some(value.to_owned()), Origin::Arguments),
            (None, Some(found)) => {
                let path = self.config.files[found.file].path.clone();
                let value = match knob.kind {
                    Kind::Interface => {
                        let mut all: Vec<&str> = Vec::new();
                        for found in places.iter().filter_map(|place| place.found) {
                            let value = value_of(knob, found);
                            all.extend((!all.contains(&value)).then_some(value));
                        }
                        all.join(", ")
                    }
                    _ => self.taken(knob, value_of(knob, found)),
                };
                let origin = match path == COMMAND_LINE {
                    true => Origin::Arguments,
                    false => Origin::File(path, found.directive.line),
                };
                (Some(value), origin)
            }
            (None, None) if places.is_empty() => (None, Origin::Unused),
            (None, None) => (None, Origin::Default),
        };
        let (name, what) = (knob.name.as_str(), knob.what.as_str());
        let unknown = origin != Origin::Arguments && last.is_some_and(|found| !self.config.is_known(found));
        Knob { name, what, value, of: None, unknown, default: self.default(knob), origin }
    }

    /// A value as the server takes it: of a number with something stuck to it (`8;`), the number.
    fn taken(&self, knob: &KnobProfile, value: &str) -> String {
        let numbers = self.profile.numbers;
        let is_number = matches!(knob.kind, Kind::Count | Kind::Bytes);
        let cut = is_number && knob.kind.number(value, numbers.whole()).is_none();
        let number = self.number(knob, value).filter(|_| cut);
        number.map_or_else(|| value.to_owned(), |number| number.to_string())
    }

    /// The value that the server's arguments give a knob.
    fn argument(&self, knob: &KnobProfile) -> Option<&str> {
        let flag = knob.flag.as_deref()?;
        // coturn has a long option for each key of its file.
        let long = format!("--{}", knob.key());
        let names = [flag, &long];
        self.arguments.option(if self.profile.format == Format::Pairs { &names } else { &names[..1] })
    }

    /// Where a knob stands, or would: a line of the configuration, or its absence. A knob for certain sections only has
    /// one place in each of them.
    pub(super) fn places(&self, knob: &KnobProfile) -> Vec<Place<'_>> {
        let config = &self.config;
        if !knob.unused_with.is_empty() && self.arguments.has(&knob.unused_with) {
            return Vec::new();
        }
        let mut found = config.find(&knob.section, knob.key());
        let Some(only) = &knob.only else {
            let first = config.blocks(&knob.section).first().copied();
            // cf_section_sub_find() of FreeRADIUS returns the first; in other servers all sections of a name are one.
            if config.format == Format::Radius {
                found.retain(|found| found.block == first);
            }
            let section = first.and_then(|block| config.section(block));
            // Each line adds an interface.
            if knob.kind == Kind::Interface && !found.is_empty() {
                return found.into_iter().map(|found| Place { section: None, found: Some(found) }).collect();
            }
            return vec![match config.in_effect(&found) {
                None => Place { section, found: None },
                found => Place { section: None, found },
            }];
        };
        let mut blocks: Vec<usize> = Vec::new();
        for selected in config.find(&knob.section, &only.key) {
            let block = selected.block.filter(|block| !blocks.contains(block));
            blocks.extend(block.filter(|_| only.selects(&selected.directive.value)));
        }
        let place = |block| {
            let section = config.section(block);
            let found: Vec<Found<'_>> =
                found.iter().filter(|one| one.block == Some(block)).copied().collect();
            Place { section, found: config.in_effect(&found) }
        };
        blocks.into_iter().take(only.count()).map(place).collect()
    }

    /// What to change so that the knob has this value in every place where `change` says so of the value there.
    fn edits(
        &self,
        knob: &KnobProfile,
        wanted: &str,
        change: impl Fn(Option<&str>) -> bool,
    ) -> Result<Vec<Edit>, ServiceError> {
        let cannot = |why: String| ServiceError::Unsettable { knob: knob.name.clone(), why };
        let Config { files, .. } = &self.config;
        let places = self.places(knob);
        let on_line = self.argument(knob).is_some();
        let shell = self.profile.arguments.is_some() && knob.flag.is_some();
        if (on_line || shell) && places.iter().all(|place| place.found.is_none()) {
            return Err(cannot(format!(
                "it is an argument of the command line ({}); change it where the server is started",
                knob.flag.as_deref().unwrap_or_default()
            )));
        }
        // The shell file is only one of the places that a unit may have its arguments from.
        if let Some(found) = places.iter().find_map(|place| place.found).filter(|_| shell)
            && self.argument(knob) != Some(value_of(knob, found))
        {
            let (path, flag) = (&files[found.file].path, knob.flag.as_deref().unwrap_or_default());
            return Err(cannot(format!(
                "{path} says {flag} {}, and the running server was not started with that: what starts it does not use the \
                 file, or the file has changed since; change it where the server is started",
                value_of(knob, found)
            )));
        }
        if on_line && !shell {
            return Err(cannot("the server's command line overrides its configuration".to_owned()));
        }
        if self.has_no_file() {
            return Err(cannot(NO_FILE.to_owned()));
        }
        if places.is_empty() && self.arguments.has(&knob.unused_with) {
            let (options, section) = (knob.unused_with.join(" and "), &knob.section);
            return Err(cannot(format!(
                "{options} on its command line take the place of all its {section} sections"
            )));
        }
        if places.is_empty() {
            return Err(cannot(format!("the configuration has no {}", knob.section)));
        }
        // A flag has no value of its own.
        let (flag, off) = (knob.kind == Kind::Flag, Kind::is_on(wanted) == Some(false));
        if flag && off && places.iter().any(|place| place.found.is_some()) {
            return Err(cannot("remove its line by hand".to_owned()));
        }
        let text = if flag { "" } else { wanted };
        let edit = |Place { section, found }: Place<'_>| {
            if let Some(Found { file, directive, .. }) = found {
                let before = &files[file].text[directive.span.clone()];
                // Where the output of a command stands, a value stands in quotes.
                let before = if before.starts_with('`') { "\"" } else { before };
                let text = files[file].format.replaced(before, text);
                return Some(Edit::Replace { file, span: directive.span.clone(), text });
            }
            let (key, value) = (knob.key(), text);
            match section.filter(|_| self.drop_in.is_none() || knob.only.is_some()) {
                Some((file, section)) => {
                    let File { format, parsed, .. } = &files[file];
                    let (at, text) = format.inserted(parsed.sections.get(section)?, key, value)?;
                    Some(Edit::Replace { file, span: at..at, text })
                }
                None => {
                    self.config.format.file(&knob.section, &[(key, value)])?;
                    let (section, key, value) = (knob.section.clone(), key.to_owned(), value.to_owned());
                    Some(Edit::New { section, key, value })
                }
            }
        };
        let edits = places
            .into_iter()
            .filter(|place| change(place.found.map(|found| value_of(knob, found))))
            .map(edit)
            .collect::<Option<Vec<_>>>();
        let mut edits =
            edits.ok_or_else(|| cannot(format!("there is no {} section to put it in", knob.section)))?;
        let edited = edits.iter().find_map(|edit| match edit {
            Edit::Replace { file, .. } => files[*file].foreign.map(|line| (&files[*file].path, line)),
            Edit::New { .. } if self.drop_in.is_none() => {
                files.first().and_then(|file| Some((&file.path, file.foreign?)))
            }
            Edit::New { .. } => None,
        });
        if let Some((path, line)) = edited {
            return Err(cannot(format!(
                "{path}, line {line}, is not UTF-8, and an edit would lose what it says: write it as UTF-8"
            )));
        }
        // Sections of a file that is included twice are two places, and one text.
        let mut seen = Vec::new();
        edits.retain(|edit| {
            let new = !seen.contains(edit);
            seen.push(edit.clone());
            new
        });
        Ok(edits)
    }
}

/// The value of a line: of a flag, that it is there.
pub(super) fn value_of<'a>(knob: &KnobProfile, found: Found<'a>) -> &'a str {
    if knob.kind == Kind::Flag { "yes" } else { &found.directive.value }
}
