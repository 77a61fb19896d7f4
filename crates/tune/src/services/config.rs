//! The configuration of a server: its file and all that it includes, as the server sees them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ServiceError;
use super::format::{Directive, Format, Parsed, Section};

/// Most files of one configuration. FreeRADIUS has about a hundred; more come from a pattern that was not meant.
const MAX_FILES: usize = 512;
/// Largest file that is read, bytes. Zones and lists of blocked names have files of their own; a larger file is data,
/// and is reported as not read.
const MAX_FILE: u64 = 4 << 20;
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
    /// Reads the file `main` and all that it includes. `view`: what the server's paths begin with for this process.
    pub(super) fn read(view: &str, main: &str, format: Format) -> Result<Self, ServiceError> {
        let text = text(&format!("{view}{main}"))
            .map_err(|cause| ServiceError::Unreadable { path: format!("{view}{main}"), cause })?;
        let folder = Path::new(main).parent().unwrap_or(Path::new("/")).to_owned();
        let mut config = Self { format, files: Vec::new(), unread: Vec::new() };
        let mut seen = BTreeSet::from([PathBuf::from(main)]);
        config.take(view, main, text, &folder, &mut seen, 0);
        Ok(config)
    }

    /// A configuration of one file with this text; what it includes is not read.
    pub(super) fn of_text(main: &str, format: Format, text: &str) -> Self {
        let parsed = format.parse(text);
        let file = File { path: main.to_owned(), format, text: text.to_owned(), parsed };
        Self { format, files: vec![file], unread: Vec::new() }
    }

    /// Adds the shell file with the server's arguments, if there is one.
    pub(super) fn add_arguments(&mut self, view: &str, path: &str) {
        if let Ok(text) = text(&format!("{view}{path}")) {
            let format = Format::Shell;
            self.files.push(File { path: path.to_owned(), format, parsed: format.parse(&text), text });
        }
    }

    fn take(
        &mut self,
        view: &str,
        path: &str,
        text: String,
        folder: &Path,
        seen: &mut BTreeSet<PathBuf>,
        depth: usize,
    ) {
        let parsed = self.format.parse(&text);
        let included: Vec<PathBuf> =
            parsed.includes.iter().flat_map(|include| matched(view, folder, include)).collect();
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
            match self::text(&format!("{view}{name}")) {
                Ok(text) => self.take(view, &name, text, folder, seen, depth + 1),
                Err(cause) => self.unread.push(format!("{name}: {cause}")),
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

    /// The path of a drop-in, if the main file includes a folder of them that exists.
    pub(super) fn drop_in(&self, view: &str) -> Option<String> {
        let includes = &self.files.first()?.parsed.includes;
        let mut folders = includes.iter().filter_map(|include| include.strip_suffix("/*.conf"));
        let folder = folders
            .find(|folder| folder.starts_with('/') && Path::new(&format!("{view}{folder}")).is_dir())?;
        Some(format!("{folder}/{DROP_IN}"))
    }
}

impl File {
    fn section(&self, at: Option<usize>) -> Option<&Section> {
        self.parsed.sections.get(at?)
    }
}

/// The files that an include means, as the server names them: a path, a pattern, or a folder.
fn matched(view: &str, folder: &Path, include: &str) -> Vec<PathBuf> {
    let here = folder.display().to_string();
    let include = include.replace("${confdir}", &here).replace("${raddbdir}", &here);
    let path = folder.join(include.trim_end_matches('/'));
    let seen = format!("{view}{}", path.display());
    let plain = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // What FreeRADIUS and Knot skip in a folder: hidden files and those of editors.
        !name.starts_with('.') && !name.ends_with('~') && path.is_file()
    };
    let mut found: Vec<PathBuf> = if Path::new(&seen).is_dir() {
        let entries = fs::read_dir(&seen).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| plain(path)).take(MAX_FILES).collect()
    } else if include.contains(['*', '?', '[']) {
        let pattern = format!("{}{}", glob::Pattern::escape(view), path.display());
        glob::glob(&pattern)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|path| path.is_file())
            .take(MAX_FILES)
            .collect()
    } else {
        // Also if it does not exist: its absence is reported.
        vec![PathBuf::from(&seen)]
    };
    found.sort();
    let own = |path: PathBuf| match view {
        "" => path,
        view => path.strip_prefix(view).map_or(path.clone(), |rest| Path::new("/").join(rest)),
    };
    found.into_iter().map(own).collect()
}

fn text(path: &str) -> io::Result<String> {
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if about.len() > MAX_FILE {
        return Err(io::Error::other(format!("larger than {MAX_FILE} bytes")));
    }
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
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
        let view = root.path().display().to_string();
        let config = Config::read(&view, "/etc/s/s.conf", Format::Clauses).unwrap();
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
        assert_eq!(config.drop_in(&view).as_deref(), Some("/etc/s/d/udpath.conf"));
    }

    #[test]
    fn what_is_not_a_text_file_is_an_error() {
        let root = folder(&[]);
        fs::write(root.path().join("x"), [0xff, 0xfe]).unwrap();
        let path = root.path().join("x").display().to_string();
        let error = Config::read("", &path, Format::Lines).unwrap_err();
        assert!(matches!(error, ServiceError::Unreadable { .. }), "{error}");
        assert!(Config::read("", "/dev/zero", Format::Lines).is_err());
    }
}
