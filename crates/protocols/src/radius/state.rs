//! What the workers of a server share: clients and users, which can be read again while it runs, and recent replies.
//!
//! ```text
//! reload: files ─▸ Data ─▸ Current ─▸ each worker's View
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use udpath_serve::Current;

use super::challenge::Challenges;
use super::clients::Clients;
use super::duplicates::Duplicates;
use super::text::FileError;
use super::users::Users;
use super::{CLIENTS, USERS};
use crate::{OptionError, Options};

/// The files of a server. Without them, it answers clients on this host, and has one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RadiusFiles {
    /// Clients and users.
    pub files: Option<(PathBuf, PathBuf)>,
}

impl RadiusFiles {
    /// From the options of `udpath serve radius`.
    pub(super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        let needs = |option, other| Err(OptionError::Needs { option, other });
        match (options.paths(&CLIENTS).last(), options.paths(&USERS).last()) {
            (Some(clients), Some(users)) => Ok(Self { files: Some((clients, users)) }),
            (None, None) => Ok(Self { files: None }),
            // Each alone would combine one's own file with an example that everybody knows.
            (Some(_), None) => needs(CLIENTS.name, USERS.name),
            (None, Some(_)) => needs(USERS.name, CLIENTS.name),
        }
    }
}

/// Clients and users of one moment.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) clients: Clients,
    pub(super) users: Users,
}

impl Data {
    fn read(files: &RadiusFiles) -> Result<Self, OptionError> {
        let Some((clients, users)) = &files.files else {
            return Ok(Self { clients: Clients::local(), users: Users::example() });
        };
        let failed = |option| move |error: FileError| invalid(option, error);
        Ok(Self {
            clients: Clients::read(clients).map_err(failed(CLIENTS.name))?,
            users: Users::read(users).map_err(failed(USERS.name))?,
        })
    }
}

/// A file that was not accepted, as the option that names it.
pub(super) fn invalid(option: &'static str, error: FileError) -> OptionError {
    OptionError::Invalid { option, value: error.path.display().to_string(), reason: error.reason }
}

/// What the workers of a server share.
#[derive(Debug)]
pub struct RadiusState {
    files: RadiusFiles,
    pub(super) current: Arc<Current<Data>>,
    pub(super) duplicates: Duplicates,
    pub(super) challenges: Challenges,
}

impl RadiusState {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or has a wrong line; the error names both.
    pub fn open(files: RadiusFiles) -> Result<Arc<Self>, OptionError> {
        let data = Data::read(&files)?;
        Ok(Self::with(files, data))
    }

    /// With data that was read.
    pub(super) fn with(files: RadiusFiles, data: Data) -> Arc<Self> {
        let current = Current::new(data);
        Arc::new(Self { files, current, duplicates: Duplicates::new(), challenges: Challenges::new() })
    }

    /// Reads the files again. Requests that arrive from now on are answered by what they say. Returns a sentence about
    /// it.
    ///
    /// # Errors
    /// Like those of [`RadiusState::open`]; the server goes on with what it has.
    pub fn reload(&self) -> Result<String, OptionError> {
        let data = self.current.replace(Data::read(&self.files)?);
        Ok(format!("clients: {}, users: {}", data.clients.count(), data.users.count()))
    }
}

#[cfg(test)]
mod tests {
    use udpath_serve::View;

    use super::*;

    fn options(given: &[(crate::OptionSpec, &str)]) -> Options {
        let mut options = Options::default();
        given.iter().for_each(|(spec, value)| options.push(spec, *value));
        options
    }

    #[test]
    fn files_come_in_pairs() {
        let of = |given: &[_]| RadiusFiles::from_options(&options(given)).map_err(|error| error.to_string());
        assert_eq!(of(&[]), Ok(RadiusFiles::default()));
        assert_eq!(of(&[(CLIENTS, "c"), (USERS, "u")]).unwrap().files, Some(("c".into(), "u".into())));
        assert_eq!(of(&[(CLIENTS, "c")]), Err("--clients needs --users".into()));
        assert_eq!(of(&[(USERS, "u")]), Err("--users needs --clients".into()));
    }

    #[test]
    fn a_reload_replaces_the_data_or_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write("clients", "10.0.0.0/8 secret");
        write("users", "bob Cleartext-Password := one");
        let files = RadiusFiles { files: Some((path("clients"), path("users"))) };
        let state = RadiusState::open(files).unwrap();
        let mut view = View::new(&state.current);
        assert!(view.get().users.find(b"bob").is_some());

        write("users", "carol Cleartext-Password := two");
        assert_eq!(state.reload().unwrap(), "clients: 1, users: 1");
        assert!(view.get().users.find(b"bob").is_none() && view.get().users.find(b"carol").is_some());

        write("clients", "10.0.0.0/8 secret\n10.0.0.0/9");
        let error = state.reload().unwrap_err().to_string();
        let shown = path("clients").display().to_string();
        assert_eq!(error, format!("invalid --clients {shown}: line 2: 10.0.0.0/9 has no secret"));
        std::fs::remove_file(path("clients")).unwrap();
        assert!(state.reload().unwrap_err().to_string().contains("cannot read it: No such file"));
        assert!(view.get().users.find(b"carol").is_some(), "nothing changed");
    }
}
