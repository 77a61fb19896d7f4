//! What a configuration includes: where the files are, and which.
//!
//! ```text
//! include: "more.conf"         Unbound, NSD, chrony, rsyslog, BIND: in the folder that the server was started in, or has changed to
//!                              with `directory`; where that is not known the include is not read, and said so
//! $INCLUDE sites/              FreeRADIUS, Knot: beside the file that says it
//! ```

use std::io;
use std::path::{Path, PathBuf};

use super::super::format::Format;
use super::super::glob;
use super::super::reader::Reader;
use super::{Config, Holds, folder_of};

/// Most files of one configuration. FreeRADIUS has about a hundred; more come from a pattern that was not meant.
const MAX_FILES: usize = 512;
/// How deep files include others. Deeper is a circle.
const MAX_DEPTH: usize = 16;
/// Why a relative path is not read.
const NOT_KNOWN: &str =
    "is relative to the folder that the server was started in, which is not known; write the whole path";
/// What is known while files are read.
pub(super) struct Taking<'a> {
    pub(super) reader: &'a mut Reader,
    /// The folder of the main file.
    pub(super) main: PathBuf,
    /// What relative paths are beneath; `None`: that is not known.
    pub(super) folder: Option<PathBuf>,
    /// The files that are being read: one of them again would be a circle.
    pub(super) open: Vec<usize>,
    /// How often a file was taken: one that is included twice is read twice.
    pub(super) taken: usize,
}

impl Config {
    /// Takes what an include of the file `from` names; returns what holds then.
    pub(super) fn include(
        &mut self,
        taking: &mut Taking<'_>,
        (from, line): (usize, usize),
        (includes, optional): (&[String], bool),
        mut holds: Holds,
    ) -> Holds {
        // FreeRADIUS (cf_file.c) and Knot have paths relative to the file that names them.
        let own = matches!(self.format, Format::Radius | Format::Indented);
        let by_folder = self.format == Format::Radius && includes.iter().all(|path| path.ends_with('/'));
        let (mut found, mut none): (Vec<PathBuf>, _) = (Vec::new(), Vec::new());
        // Also of what may be absent: it is not known whether it is.
        let place = format!("({}, line {line})", self.files[from].path);
        let mut unsure = Vec::new();
        for include in includes {
            match self.alternatives(&taking.main, include) {
                Ok((paths, several)) => {
                    for path in paths {
                        let folder = match path.is_absolute() {
                            true => Some(Path::new("/")),
                            false if own => Some(folder_of(&self.files[from].path)),
                            false => taking.folder.as_deref(),
                        };
                        self.relative |= !own && path.is_relative();
                        match folder {
                            Some(folder) => found.extend(taking.reader.included(
                                &folder.join(path),
                                self.format,
                                several,
                                &mut none,
                            )),
                            None => {
                                unsure.push(format!("{include}: {NOT_KNOWN} {place}"));
                                break;
                            }
                        }
                    }
                }
                Err(why) => unsure.push(format!("{include}: {why} {place}")),
            }
        }
        if includes.len() > 1 {
            // Of several folders, chronyd reads the files by their names, and of one name only the first (conf.c,
            // search_dirs).
            found.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
            found.dedup_by(|one, other| one.file_name() == other.file_name());
        }
        self.unread.extend(none.into_iter().filter(|_| !optional).chain(unsure));
        for path in found {
            let name = path.display().to_string();
            let known = self.files.iter().position(|file| Path::new(&file.path) == path);
            // A circle; and of a folder, FreeRADIUS reads what it has not read yet (cf_file.c, cf_file_check).
            if known.is_some_and(|file| by_folder || taking.open.contains(&file)) {
                continue;
            }
            if taking.taken >= MAX_FILES || taking.open.len() > MAX_DEPTH {
                self.unread.push(format!("{name}: more than {MAX_FILES} files, or {MAX_DEPTH} levels"));
                return holds;
            }
            let file = match known {
                Some(file) => file,
                None => match taking.reader.text(&name) {
                    Ok(text) => self.add(&name, text),
                    Err(cause) if optional && cause.kind() == io::ErrorKind::NotFound => continue,
                    Err(cause) => {
                        self.unread.push(format!("{}: {cause}", name.replace(char::is_control, "?")));
                        continue;
                    }
                },
            };
            holds = self.take(taking, file, holds);
        }
        holds
    }

    /// The paths that an include stands for, and whether its braces make several patterns of it. `main`: the folder of
    /// the main file.
    fn alternatives(&self, main: &Path, include: &str) -> Result<(Vec<PathBuf>, bool), String> {
        let plain = |include: &str| PathBuf::from(include.trim_end_matches('/'));
        match self.format {
            Format::Radius => {
                let here = main.display().to_string();
                let include = include.replace("${confdir}", &here).replace("${raddbdir}", &here);
                if include.contains("${") || include.contains("$ENV{") {
                    return Err("has a variable whose value is not known here".to_owned());
                }
                Ok((vec![plain(&include)], false))
            }
            // GLOB_BRACE and GLOB_TILDE (configlexer.lex of both), as soon as the path has one letter of a pattern.
            Format::Clauses if include.contains(['*', '?', '[', '{', '~']) => {
                let paths = glob::alternatives(include)?;
                if paths.iter().any(|path| path.starts_with('~')) {
                    return Err(
                        "begins with the home folder of whoever started it; write the whole path".to_owned()
                    );
                }
                Ok((paths.iter().map(|path| plain(path)).collect(), true))
            }
            _ => Ok((vec![plain(include)], false)),
        }
    }
}
