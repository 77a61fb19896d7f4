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
mod tests {
    use std::fs;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn patterns_folders_and_circles() {
        let root = folder(&[
            (
                "etc/s/s.conf",
                "server:\n  a: 1\ninclude: \"/etc/s/d/*.conf\"\ninclude: more\ninclude: /etc/s/gone\n",
            ),
            ("etc/s/d/2.conf", "server:\n  a: 2\n"),
            ("etc/s/d/1.conf", "include: /etc/s/s.conf\n"),
            ("etc/s/d/3.txt", "server:\n  a: 3\n"),
            ("etc/s/more/x", "server:\n  a: 4\n"),
            ("etc/s/more/.hidden", "server:\n  a: 5\n"),
        ]);
        let reader = Reader::own(root.path()).unwrap();
        let config = Config::read(&reader, "/etc/s/s.conf", Format::Clauses, None).unwrap();
        let paths: Vec<&str> = config.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["/etc/s/s.conf", "/etc/s/d/1.conf", "/etc/s/d/2.conf", "/etc/s/more/x"]);
        let values: Vec<&str> =
            config.find("server", "a").iter().map(|found| found.directive.value.as_str()).collect();
        assert_eq!(values, ["1", "2", "4"]);
        assert!(
            config.unread.len() == 1 && config.unread[0].starts_with("/etc/s/gone: No such"),
            "{:?}",
            config.unread
        );
        assert_eq!(config.drop_in.as_deref(), Some("/etc/s/d/udpath.conf"));
    }

    /// Path, line and value of a key's lines, in the order in which they are read.
    fn lines(format: Format, files: &[(&str, &str)], (section, key): (&str, &str)) -> Vec<String> {
        let root = folder(files);
        let reader = Reader::own(root.path()).unwrap();
        let config = Config::read(&reader, &format!("/{}", files[0].0), format, None).unwrap();
        assert_eq!(config.unread, Vec::<String>::new());
        let found = config.find(section, key);
        let shown = |one: &Found<'_>| {
            let path = &config.files[one.file].path;
            format!("{path}:{}={}", one.directive.line, one.directive.value)
        };
        let mut all: Vec<String> = found.iter().map(shown).collect();
        all.extend(config.in_effect(&found).map(|one| format!("in effect: {}", shown(&one))));
        all
    }

    #[test]
    fn an_include_has_the_place_and_the_clause_of_its_line() {
        let unbound: &[(&str, &str)] = &[
            (
                "u/u.conf",
                "server:\n  num-threads: 2\n  include: /u/d/*.conf\n  num-threads: 3\ninclude: /u/more\n  num-threads: 9\n",
            ),
            ("u/d/1.conf", "# no clause of its own\nnum-threads: 8\n"),
            ("u/d/2.conf", "num-threads: 7\n"),
            ("u/more", "  num-threads: 4\nremote-control:\n  num-threads: 5\n"),
        ];
        assert_eq!(
            lines(Format::Clauses, unbound, ("server", "num-threads")),
            [
                "/u/u.conf:2=2",
                "/u/d/1.conf:2=8",
                "/u/d/2.conf:1=7",
                "/u/u.conf:4=3",
                "/u/more:1=4",
                "in effect: /u/more:1=4",
            ]
        );
        // The clause of the included file holds on after it.
        assert_eq!(
            lines(Format::Clauses, unbound, ("remote-control", "num-threads")),
            ["/u/more:3=5", "/u/u.conf:6=9", "in effect: /u/u.conf:6=9",]
        );
        let bind: &[(&str, &str)] = &[
            ("b/n.conf", "options {\n  include \"/b/o\";\n};\ninclude \"/b/p\";\n"),
            ("b/o", "udp-receive-buffer 1;\n"),
            ("b/p", "udp-receive-buffer 2;\n"),
        ];
        assert_eq!(
            lines(Format::Braces, bind, ("options", "udp-receive-buffer")),
            ["/b/o:1=1", "in effect: /b/o:1=1"]
        );
        let radius: &[(&str, &str)] = &[
            (
                "r/radiusd.conf",
                "thread pool {\n  $INCLUDE sub/pool\n  start_servers = 9\n}\n$-INCLUDE gone\n$INCLUDE sites/\n",
            ),
            ("r/sub/pool", "start_servers = 3\n"),
            ("r/sites/a", "listen {\n  $INCLUDE listen.inc\n}\n"),
            ("r/sites/listen.inc", ""),
        ];
        // The first one counts.
        assert_eq!(
            lines(Format::Radius, radius, ("thread", "start_servers")),
            ["/r/sub/pool:1=3", "/r/radiusd.conf:3=9", "in effect: /r/sub/pool:1=3",]
        );
        let chrony: &[(&str, &str)] =
            &[("c/c.conf", "cmdport 1\nconfdir /c/d /c/none\ncmdport 3\n"), ("c/d/a.conf", "cmdport 2\n")];
        assert_eq!(lines(Format::Lines, chrony, ("", "cmdport")).last().unwrap(), "in effect: /c/c.conf:3=3");
        let rsyslog: &[(&str, &str)] = &[(
            "l/l.conf",
            "include(file=\"/l/gone\" mode=\"optional\")\ninput(type=\"imudp\" port=\"514\")\n",
        )];
        assert_eq!(lines(Format::Objects, rsyslog, ("input", "port")).len(), 2);
    }

    #[test]
    fn a_drop_in_goes_only_below_the_configurations_own_folder() {
        for (include, drop_in) in [
            ("/etc/s/d/*.conf", Some("/etc/s/d/udpath.conf")),
            ("/etc/modprobe.d/*.conf", None),
            ("/etc/s/../modprobe.d/*.conf", None),
            ("/etc/s/*.conf", None),
            ("/etc/s/none/*.conf", None),
            ("d/*.conf", None),
        ] {
            let root = folder(&[
                ("etc/s/s.conf", &format!("include {include}\n")),
                ("etc/s/d/x", ""),
                ("etc/modprobe.d/x", ""),
            ]);
            let reader = Reader::own(root.path()).unwrap();
            let config = Config::read(&reader, "/etc/s/s.conf", Format::Lines, None).unwrap();
            assert_eq!(config.drop_in.as_deref(), drop_in, "{include}");
        }
    }

    #[test]
    fn what_is_not_a_text_file_is_an_error() {
        let root = folder(&[("fifo/x", "")]);
        fs::write(root.path().join("x"), [0xff, 0xfe]).unwrap();
        std::os::unix::fs::symlink("/x", root.path().join("link")).unwrap();
        let fifo = root.path().join("f");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = Reader::own(root.path()).unwrap();
        for path in ["/x", "/link", "/f", "/fifo", "/gone"] {
            let error = Config::read(&reader, path, Format::Lines, None).unwrap_err();
            assert!(matches!(error, ServiceError::Unreadable { .. }), "{error}");
        }
        let reader = Reader::own(Path::new("/")).unwrap();
        for path in ["/dev/zero", "/proc/kmsg", "/proc/self/environ", "/sys/kernel/mm/ksm/run"] {
            assert!(Config::read(&reader, path, Format::Lines, None).is_err(), "{path}");
        }
    }

    #[test]
    fn patterns_of_everything_end_and_are_reported() {
        let root = folder(&[("s.conf", "include /**\ninclude /*/*/*/*/*\ninclude /proc/kmsg\n")]);
        let reader = Reader::own(root.path()).unwrap();
        let config = Config::read(&reader, "/s.conf", Format::Lines, None).unwrap();
        assert_eq!(config.files.len(), 1);
        assert_eq!(config.unread.len(), 1, "{:?}", config.unread);
        // Of this machine: more than may be looked at, and nothing of the kernel's.
        let mut reader = Reader::own(Path::new("/")).unwrap();
        let mut none = Vec::new();
        let found = reader.included(Path::new("/*/*/*/*/*"), &mut none);
        assert!(found.is_empty() && none[0].contains("names would have to be looked at"), "{none:?}");
    }
}
