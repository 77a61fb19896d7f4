//! The configuration of a server: its file and all that it includes, as the server sees them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::ServiceError;
use super::format::{Directive, Format, Parsed, Section};
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
            let mut config = Self { format, files: Vec::new(), unread: Vec::new(), drop_in: None };
            let folder = Path::new(&path).parent().unwrap_or(Path::new("/")).to_owned();
            let mut seen = BTreeSet::from([PathBuf::from(&path)]);
            config.take(&mut reader, &path, text, &folder, &mut seen, 0);
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
        Self { format, files: vec![file], unread: Vec::new(), drop_in: None }
    }

    fn add_arguments(&mut self, reader: &mut Reader, path: &str) {
        if let Ok(text) = reader.text(path) {
            let format = Format::Shell;
            self.files.push(File { path: path.to_owned(), format, parsed: format.parse(&text), text });
        }
    }

    fn take(
        &mut self,
        reader: &mut Reader,
        path: &str,
        text: String,
        folder: &Path,
        seen: &mut BTreeSet<PathBuf>,
        depth: usize,
    ) {
        let parsed = self.format.parse(&text);
        let mut included: Vec<PathBuf> = Vec::new();
        for include in &parsed.includes {
            included.extend(reader.included(&place(folder, include), &mut self.unread));
        }
        self.files.push(File { path: path.to_owned(), format: self.format, text, parsed });
        for path in included {
            if !seen.insert(path.clone()) {
                continue;
            }
            let name = path.display().to_string();
            if self.files.len() >= MAX_FILES || depth >= MAX_DEPTH {
                self.unread.push(format!("{name}: more than {MAX_FILES} files, or {MAX_DEPTH} levels"));
                return;
            }
            match reader.text(&name) {
                Ok(text) => self.take(reader, &name, text, folder, seen, depth + 1),
                Err(cause) => self.unread.push(format!("{}: {cause}", name.replace(char::is_control, "?"))),
            }
        }
    }

    /// The lines with this key, in sections of this name; empty for lines outside of all sections.
    pub(super) fn find(&self, section: &str, key: &str) -> Vec<Found<'_>> {
        let mut found = Vec::new();
        for (file, of) in self.files.iter().enumerate() {
            let wanted = |directive: &&Directive| {
                directive.key.eq_ignore_ascii_case(key)
                    && of.section(directive.section).map_or("", |section| &section.name) == section
            };
            found.extend(
                of.parsed.directives.iter().filter(wanted).map(|directive| Found { file, directive }),
            );
        }
        found
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
        let mut folders = includes.iter().filter_map(|include| include.strip_suffix("/*.conf"));
        let folder = folders.find(|folder| {
            let path = Path::new(folder);
            let below = path.strip_prefix(own).is_ok_and(|rest| rest.components().next().is_some());
            below && !has_parents(path) && reader.is_folder(folder)
        })?;
        Some(format!("{folder}/{DROP_IN}"))
    }
}

impl File {
    fn section(&self, at: Option<usize>) -> Option<&Section> {
        self.parsed.sections.get(at?)
    }
}

/// What an include names, as the server has it.
fn place(folder: &Path, include: &str) -> PathBuf {
    let here = folder.display().to_string();
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
