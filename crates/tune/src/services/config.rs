//! The configuration of a server: its file and all that it includes, as the server sees them.
//!
//! ```text
//! server:                 a line has the clause that it stands in, also across files,
//!   include: threads      and its place among all lines: where it is included, not where its file comes in a list
//!   num-threads: 2        ◂─ of several the last one counts (FreeRADIUS: the first)
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::ServiceError;
use super::format::{Directive, Format, Include, Parsed};
use super::reader::Reader;

/// Most files of one configuration. FreeRADIUS has about a hundred; more come from a pattern that was not meant.
const MAX_FILES: usize = 512;
/// How deep files include others. Deeper is a circle.
const MAX_DEPTH: usize = 16;
/// The name of the files that are added to a folder of drop-ins.
const DROP_IN: &str = "udpath.conf";

/// A configuration that was read.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) format: Format,
    /// The main file first, then the included ones in the order in which they are included.
    pub(super) files: Vec<File>,
    /// All lines in the order in which the server reads them: file, line of it, and the section that holds there.
    lines: Vec<(usize, usize, String)>,
    /// Included files that could not be read, and why.
    pub(super) unread: Vec<String>,
    /// Where new lines may go, if the main file includes a folder of such files.
    pub(super) drop_in: Option<String>,
}

/// A file of it.
#[derive(Debug)]
pub(super) struct File {
    /// As the server names it.
    pub(super) path: String,
    /// How to read it; differs from the configuration's for a file of /etc/default.
    pub(super) format: Format,
    pub(super) text: String,
    pub(super) parsed: Parsed,
}

/// A line with a key, in one of the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    /// Which file.
    pub(super) file: usize,
    pub(super) directive: &'a Directive,
}

impl Config {
    /// Reads the file `main` and all that it includes, and the shell file with the server's arguments, if there is one, with the
    /// server's rights.
    ///
    /// # Errors
    /// The main file cannot be read.
    pub(super) fn read(
        reader: &Reader,
        main: &str,
        format: Format,
        arguments: Option<&str>,
    ) -> Result<Self, ServiceError> {
        let (path, arguments) = (main.to_owned(), arguments.map(str::to_owned));
        let read = reader.run(move |mut reader| -> io::Result<Self> {
            let text = reader.text(&path)?;
            let mut config =
                Self { format, files: Vec::new(), lines: Vec::new(), unread: Vec::new(), drop_in: None };
            let folder = Path::new(&path).parent().unwrap_or(Path::new("/")).to_owned();
            let seen = BTreeSet::from([PathBuf::from(&path)]);
            let mut taking = Taking { reader: &mut reader, folder: folder.clone(), seen };
            config.take(&mut taking, &path, text, "", 0);
            if let Some(path) = arguments {
                config.add_arguments(&mut reader, &path);
            }
            config.drop_in = config.find_drop_in(&reader, &folder);
            Ok(config)
        });
        let user = reader.rights.user;
        read.flatten().map_err(|cause| ServiceError::Unreadable { path: main.to_owned(), user, cause })
    }

    /// A configuration of one file with this text; what it includes is not read.
    pub(super) fn of_text(main: &str, format: Format, text: &str) -> Self {
        let parsed = format.parse(text);
        let file = File { path: main.to_owned(), format, text: text.to_owned(), parsed };
        let mut config =
            Self { format, files: vec![file], lines: Vec::new(), unread: Vec::new(), drop_in: None };
        config.add_lines(0);
        config
    }

    fn add_arguments(&mut self, reader: &mut Reader, path: &str) {
        if let Ok(text) = reader.text(path) {
            let format = Format::Shell;
            self.files.push(File { path: path.to_owned(), format, parsed: format.parse(&text), text });
            self.add_lines(self.files.len() - 1);
        }
    }

    /// The lines of a file that includes none, with their own sections.
    fn add_lines(&mut self, file: usize) {
        let of = &self.files[file];
        let lines = of.parsed.directives.iter().enumerate();
        self.lines.extend(lines.map(|(at, line)| (file, at, of.section_name(line.section, "").to_owned())));
    }

    /// Takes a file and, at their places, those that it includes. `section`: what holds at its beginning; returns what holds at its
    /// end.
    fn take(
        &mut self,
        taking: &mut Taking<'_>,
        path: &str,
        text: String,
        section: &str,
        depth: usize,
    ) -> String {
        let parsed = self.format.parse(&text);
        let file = self.files.len();
        let statements = statements(&parsed);
        self.files.push(File { path: path.to_owned(), format: self.format, text, parsed });
        // In NSD and Unbound a clause holds until the next one, across files; elsewhere braces or files end sections.
        let runs_on = self.format == Format::Clauses;
        let mut holds = section.to_owned();
        for statement in statements {
            let of = &self.files[file];
            match statement {
                Statement::Section(at) if runs_on => of.parsed.sections[at].name.clone_into(&mut holds),
                Statement::Section(_) => {}
                Statement::Directive(at) => {
                    let own = of.section_name(of.parsed.directives[at].section, section);
                    let name = if runs_on { holds.clone() } else { own.to_owned() };
                    self.lines.push((file, at, name));
                }
                Statement::Include(at) => {
                    let Include { path: include, section: within, optional, .. } = &of.parsed.includes[at];
                    let (include, optional) = (include.clone(), *optional);
                    let own = of.section_name(*within, section);
                    let begins = if runs_on { holds.clone() } else { own.to_owned() };
                    let ends = self.include(taking, path, (&include, optional), &begins, depth);
                    if runs_on {
                        holds = ends;
                    }
                }
            }
        }
        holds
    }

    /// Takes what an include of the file `from` names; returns the section that holds then.
    fn include(
        &mut self,
        taking: &mut Taking<'_>,
        from: &str,
        (include, optional): (&str, bool),
        section: &str,
        depth: usize,
    ) -> String {
        // FreeRADIUS (cf_file.c) and Knot have paths relative to the file that names them.
        let own = matches!(self.format, Format::Radius | Format::Indented);
        let folder = Path::new(from).parent().filter(|_| own).unwrap_or(&taking.folder);
        let place = place(folder, &taking.folder, include);
        let mut none = Vec::new();
        let found = taking.reader.included(&place, &mut none);
        self.unread.extend(none.into_iter().filter(|_| !optional));
        let mut holds = section.to_owned();
        for path in found {
            if !taking.seen.insert(path.clone()) {
                continue;
            }
            let name = path.display().to_string();
            if self.files.len() >= MAX_FILES || depth >= MAX_DEPTH {
                self.unread.push(format!("{name}: more than {MAX_FILES} files, or {MAX_DEPTH} levels"));
                return holds;
            }
            match taking.reader.text(&name) {
                Ok(text) => holds = self.take(taking, &name, text, &holds, depth + 1),
                Err(cause) if optional && cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => self.unread.push(format!("{}: {cause}", name.replace(char::is_control, "?"))),
            }
        }
        holds
    }

    /// The lines with this key, in sections of this name, in the order in which the server reads them; empty for lines outside of
    /// all sections.
    pub(super) fn find(&self, section: &str, key: &str) -> Vec<Found<'_>> {
        let lines = self.lines.iter().filter(|(.., name)| name == section);
        let found = lines
            .map(|(file, at, _)| Found { file: *file, directive: &self.files[*file].parsed.directives[*at] });
        found.filter(|found| found.directive.key.eq_ignore_ascii_case(key)).collect()
    }

    /// Of several lines with one key, the one that counts.
    pub(super) fn in_effect<'a>(&self, found: &[Found<'a>]) -> Option<Found<'a>> {
        // cf_pair_find() of FreeRADIUS returns the first.
        let line = if self.format == Format::Radius { found.first() } else { found.last() };
        line.copied()
    }

    /// The sections of this name, by file and index.
    pub(super) fn sections(&self, name: &str) -> Vec<(usize, usize)> {
        let of = |(file, one): (usize, &File)| {
            let named = one.parsed.sections.iter().enumerate().filter(|(_, section)| section.name == name);
            named.map(|(at, _)| (file, at)).collect::<Vec<_>>()
        };
        self.files.iter().enumerate().flat_map(of).collect()
    }

    /// The path of a drop-in, if the main file includes a folder of them that exists below its own: not any folder that a line
    /// may name.
    fn find_drop_in(&self, reader: &Reader, own: &Path) -> Option<String> {
        let includes = &self.files.first()?.parsed.includes;
        let mut folders = includes.iter().filter_map(|include| include.path.strip_suffix("/*.conf"));
        let folder = folders.find(|folder| {
            let path = Path::new(folder);
            let below = path.strip_prefix(own).is_ok_and(|rest| rest.components().next().is_some());
            below && !has_parents(path) && reader.is_folder(folder)
        })?;
        Some(format!("{folder}/{DROP_IN}"))
    }
}

impl File {
    /// The name of a section; outside of all, what holds at the beginning of the file.
    fn section_name<'a>(&'a self, at: Option<usize>, outside: &'a str) -> &'a str {
        at.and_then(|at| self.parsed.sections.get(at)).map_or(outside, |section| &section.name)
    }
}

/// What stays the same while files are read.
struct Taking<'a> {
    reader: &'a mut Reader,
    /// That of the main file.
    folder: PathBuf,
    /// Files that were read already: a circle ends.
    seen: BTreeSet<PathBuf>,
}

/// What a file consists of, by its index in the lists of its kind.
#[derive(Clone, Copy)]
enum Statement {
    Section(usize),
    Directive(usize),
    Include(usize),
}

/// All of a file in the order of its text.
fn statements(parsed: &Parsed) -> Vec<Statement> {
    let sections = parsed.sections.iter().enumerate().map(|(at, one)| (one.start, Statement::Section(at)));
    let lines = parsed.directives.iter().enumerate();
    let lines = lines.map(|(at, one)| (one.span.start, Statement::Directive(at)));
    let includes = parsed.includes.iter().enumerate().map(|(at, one)| (one.at, Statement::Include(at)));
    let mut all: Vec<(usize, Statement)> = sections.chain(lines).chain(includes).collect();
    all.sort_by_key(|(start, _)| *start);
    all.into_iter().map(|(_, statement)| statement).collect()
}

/// What an include names, as the server has it. `main`: the folder of the main file.
fn place(folder: &Path, main: &Path, include: &str) -> PathBuf {
    let here = main.display().to_string();
    let include = include.replace("${confdir}", &here).replace("${raddbdir}", &here);
    folder.join(include.trim_end_matches('/'))
}

/// Whether a path has a `..`, so that its beginning does not say where it leads.
pub(super) fn has_parents(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests;
