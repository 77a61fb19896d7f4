//! The configuration of a server: its file and all that it includes, as the server sees them.
//!
//! ```text
//! server:                 a line has the clause that it stands in, also across files,
//!   include: threads      and its place among all lines: where it is included, not where its file comes in a list
//!   num-threads: 2        ◂─ of several the last one counts (FreeRADIUS: the first)
//! ```

mod includes;

use std::io;
use std::path::{Component, Path};
use std::time::SystemTime;

use super::ServiceError;
use super::format::{Directive, EXPANDED, Format, Parsed, line_at};
use super::reader::{Reader, Text};
use includes::Taking;

/// What stands for the path of the main file, if there is none.
pub(super) const COMMAND_LINE: &str = "the command line";
/// The name of the files that are added to a folder of drop-ins.
const DROP_IN: &str = "udpath.conf";

/// A configuration that was read.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) format: Format,
    /// The main file first, then the included ones in the order in which they are included.
    pub(super) files: Vec<File>,
    /// All lines in the order in which the server reads them; those of a file that is included twice, twice.
    lines: Vec<Line>,
    /// The sections in that order: the file and the index in it.
    blocks: Vec<(usize, usize)>,
    /// Included files that could not be read, and why.
    pub(super) unread: Vec<String>,
    /// A path of it is relative to the folder that the server was started in.
    pub(super) relative: bool,
    /// Where new lines may go, if the main file includes a folder of such files.
    pub(super) drop_in: Option<String>,
}

/// A line where the server reads it.
#[derive(Debug)]
struct Line {
    file: usize,
    /// Which line of the file.
    at: usize,
    holds: Holds,
}

/// The section that holds at a place.
#[derive(Debug, Clone, Default)]
struct Holds {
    /// Empty outside of all.
    name: String,
    /// Which of the sections with this name.
    block: Option<usize>,
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
    /// The first line with bytes that are no UTF-8: an edit would lose them.
    pub(super) foreign: Option<usize>,
    /// When it was changed last.
    pub(super) changed: Option<SystemTime>,
}

/// A line with a key, in one of the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    /// Which file.
    pub(super) file: usize,
    /// Which section: lines of one section may stand in several files.
    pub(super) block: Option<usize>,
    pub(super) directive: &'a Directive,
}

impl Config {
    /// Reads the file `main` and all that it includes, and the shell file with the server's arguments, if there is one,
    /// with the server's rights.
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
            let mut config = Self::of_main(&mut reader, &path, format, text);
            if let Some(path) = arguments {
                config.add_arguments(&mut reader, &path);
            }
            config.drop_in = config.find_drop_in(&reader, folder_of(&path));
            Ok(config)
        });
        let user = reader.rights.user;
        read.flatten().map_err(|cause| ServiceError::Unreadable { path: main.to_owned(), user, cause })
    }

    /// Reads a configuration whose lines are given, with what they include. It has no file of its own.
    ///
    /// # Errors
    /// The server's rights cannot be taken.
    pub(super) fn of_lines(reader: &Reader, format: Format, lines: &[String]) -> io::Result<Self> {
        let text = lines.iter().map(|line| format!("{line}\n")).collect();
        reader.run(move |mut reader| {
            let text = Text { text, foreign: None, changed: None };
            Self::of_main(&mut reader, COMMAND_LINE, format, text)
        })
    }

    fn of_main(reader: &mut Reader, path: &str, format: Format, text: Text) -> Self {
        let mut config = Self::empty(format);
        let (main, folder) = (folder_of(path).to_owned(), reader.start.clone());
        let mut taking = Taking { reader, main, folder, open: Vec::new(), taken: 0 };
        let file = config.add(path, text);
        config.take(&mut taking, file, Holds::default());
        config
    }

    fn empty(format: Format) -> Self {
        let (files, lines, blocks, unread) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { format, files, lines, blocks, unread, relative: false, drop_in: None }
    }

    /// A configuration of one file with this text; what it includes is not read.
    pub(super) fn of_text(main: &str, format: Format, text: &str) -> Self {
        let mut config = Self::empty(format);
        config.add(main, Text { text: text.to_owned(), foreign: None, changed: None });
        config.add_lines(0);
        config
    }

    /// Adds a file, but not its lines.
    fn add(&mut self, path: &str, text: Text) -> usize {
        self.files.push(File::new(path, self.format, text));
        self.files.len() - 1
    }

    fn add_arguments(&mut self, reader: &mut Reader, path: &str) {
        if let Ok(text) = reader.text(path) {
            self.files.push(File::new(path, Format::Shell, text));
            self.add_lines(self.files.len() - 1);
        }
    }

    /// The lines of a file that includes none, with their own sections.
    fn add_lines(&mut self, file: usize) {
        let first = self.blocks.len();
        let parsed = &self.files[file].parsed;
        self.blocks.extend((0..parsed.sections.len()).map(|section| (file, section)));
        let lines = parsed.directives.iter().enumerate().map(|(at, line)| {
            let name = line.section.map_or_else(String::new, |section| parsed.sections[section].name.clone());
            Line { file, at, holds: Holds { name, block: line.section.map(|section| first + section) } }
        });
        self.lines.extend(lines);
    }

    /// Takes the lines of a file and, at their places, of those that it includes. `outside`: what holds at its
    /// beginning; returns what holds at its end.
    fn take(&mut self, taking: &mut Taking<'_>, file: usize, outside: Holds) -> Holds {
        taking.open.push(file);
        taking.taken += 1;
        // In NSD and Unbound a clause holds until the next one, across files; elsewhere braces or files end sections.
        let runs_on = self.format == Format::Clauses;
        let mut holds = outside.clone();
        let mut own: Vec<Holds> = Vec::new();
        let File { path, parsed, .. } = &self.files[file];
        self.unread.extend(parsed.unread.iter().map(|(line, what)| format!("{path}, line {line}: {what}")));
        for statement in statements(&self.files[file].parsed) {
            let parsed = &self.files[file].parsed;
            let at_place = |section: Option<usize>, holds: &Holds| match section.filter(|_| !runs_on) {
                _ if runs_on => holds.clone(),
                Some(section) => own.get(section).unwrap_or(&outside).clone(),
                None => outside.clone(),
            };
            match statement {
                Statement::Section(at) => {
                    let name = parsed.sections[at].name.clone();
                    holds = Holds { name, block: Some(self.blocks.len()) };
                    own.push(holds.clone());
                    self.blocks.push((file, at));
                }
                Statement::Directive(at) => {
                    let line = &parsed.directives[at];
                    let holds = at_place(line.section, &holds);
                    // Unbound and named change to it at once, so that what follows is beneath it.
                    if matches!(self.format, Format::Clauses | Format::Braces)
                        && ["server", "options"].iter().any(|name| self.format.same(name, &holds.name))
                        && self.format.same(&line.key, "directory")
                    {
                        let folder = Path::new(&line.value);
                        let known = taking.folder.take().map(|before| before.join(folder));
                        taking.folder = known.or_else(|| folder.is_absolute().then(|| folder.to_owned()));
                    }
                    if let Some(value) = self.referred(file, at, &holds) {
                        self.files[file].parsed.directives[at].value = value;
                    }
                    self.lines.push(Line { file, at, holds });
                }
                Statement::Include(at) => {
                    let include = &parsed.includes[at];
                    let (paths, optional) = (include.paths.clone(), include.optional);
                    let begins = at_place(include.section, &holds);
                    let line = line_at(&self.files[file].text, include.at);
                    let ends = self.include(taking, (file, line), (&paths, optional), begins);
                    if runs_on {
                        holds = ends;
                    }
                }
            }
        }
        taking.open.pop();
        holds
    }

    /// What a value `${NAME}` of FreeRADIUS stands for: that of an earlier line of its own section, or else of one
    /// outside of all. `None`: it is no such value.
    fn referred(&self, file: usize, at: usize, holds: &Holds) -> Option<String> {
        let File { format: Format::Radius, text, parsed, .. } = &self.files[file] else { return None };
        // In single quotes nothing is expanded.
        let written = &text[parsed.directives[at].span.clone()];
        let name = written.trim_matches('"').strip_prefix("${")?.strip_suffix('}')?;
        let directive = |line: &Line| &self.files[line.file].parsed.directives[line.at];
        let mut named = self.lines.iter().filter(|line| directive(line).key == name);
        let found = (named.clone().find(|line| line.holds.block == holds.block))
            .or_else(|| named.find(|line| line.holds.block.is_none()))?;
        Some(directive(found).value.clone())
    }

    /// The lines with this key, in sections of this name, in the order in which the server reads them; empty for lines
    /// outside of all sections.
    pub(super) fn find(&self, section: &str, key: &str) -> Vec<Found<'_>> {
        let lines =
            self.lines.iter().filter(|line| self.files[line.file].format.same(&line.holds.name, section));
        let found = lines.map(|line| Found {
            file: line.file,
            block: line.holds.block,
            directive: &self.files[line.file].parsed.directives[line.at],
        });
        found.filter(|found| self.files[found.file].format.same(&found.directive.key, key)).collect()
    }

    /// Whether a value is what it says: not the output of a command, nor a variable that is not known here.
    pub(super) fn is_known(&self, found: Found<'_>) -> bool {
        let File { format, text, .. } = &self.files[found.file];
        let written = text.get(found.directive.span.clone()).unwrap_or_default();
        match format {
            Format::Objects => !written.starts_with('`'),
            Format::Radius => {
                let value = &found.directive.value;
                let expands = EXPANDED.iter().any(|begin| value.contains(begin));
                written.starts_with('\'') || !expands && !written.starts_with('`')
            }
            _ => true,
        }
    }

    /// The file of a section, and its index there.
    pub(super) fn section(&self, block: usize) -> Option<(usize, usize)> {
        self.blocks.get(block).copied()
    }

    /// Of several lines with one key, the one that counts.
    pub(super) fn in_effect<'a>(&self, found: &[Found<'a>]) -> Option<Found<'a>> {
        // cf_pair_find() of FreeRADIUS returns the first.
        let line = if self.format == Format::Radius { found.first() } else { found.last() };
        line.copied()
    }

    /// The sections of this name, in the order in which the server reads them.
    pub(super) fn blocks(&self, name: &str) -> Vec<usize> {
        let named = self.blocks.iter().enumerate().filter(|(_, (file, section))| {
            let file = &self.files[*file];
            file.format.same(&file.parsed.sections[*section].name, name)
        });
        named.map(|(block, _)| block).collect()
    }

    /// The path of a drop-in, if the main file includes a folder of them that exists below its own: not any folder that
    /// a line may name.
    fn find_drop_in(&self, reader: &Reader, own: &Path) -> Option<String> {
        let main = &self.files.first()?.parsed;
        let all = statements(main);
        // Where clauses run on, a file with one of its own must not change what the next line belongs to.
        let fits = |at: usize, after: Option<&Statement>| {
            let section = main.includes[at].section.map(|section| &main.sections[section].name);
            self.format != Format::Clauses
                || matches!(after, None | Some(Statement::Section(_)))
                || section.is_some_and(|name| self.format.same(name, "server"))
        };
        let includes = all.iter().enumerate().filter_map(|(number, statement)| match statement {
            Statement::Include(at) if fits(*at, all.get(number + 1)) => Some(&main.includes[*at]),
            _ => None,
        });
        let paths = includes.flat_map(|include| &include.paths);
        let mut folders = paths.filter_map(|path| path.strip_suffix("/*.conf"));
        let folder = folders.find(|folder| {
            let path = Path::new(folder);
            let below = path.strip_prefix(own).is_ok_and(|rest| rest.components().next().is_some());
            below && !has_parents(path) && reader.is_folder(folder)
        })?;
        Some(format!("{folder}/{DROP_IN}"))
    }
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

/// The folder of a file.
fn folder_of(path: &str) -> &Path {
    Path::new(path).parent().unwrap_or(Path::new("/"))
}

impl File {
    fn new(path: &str, format: Format, Text { text, foreign, changed }: Text) -> Self {
        Self { path: path.to_owned(), format, parsed: format.parse(&text), text, foreign, changed }
    }
}

/// Whether a path has a `..`, so that its beginning does not say where it leads.
pub(super) fn has_parents(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests;
