//! What workers answer from, and how it is loaded: [`Current`] replaces it while they answer.
//!
//! ```text
//! SIGHUP ─▸ a thread of its own: files ─▸ new Data ─▸ Current
//!                                 └▸ error: the old Data stay
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use udpath_serve::Current;

use super::cookie::{SecretError, Secrets};
use super::index::Index;
use super::zone::{self, ZoneError};

/// All that may change while the server runs.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) index: Index,
    pub(super) secrets: Secrets,
}

/// Where the data come from.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    pub(super) zones: Vec<PathBuf>,
    pub(super) secrets: Option<PathBuf>,
}

/// Why data cannot be loaded. The message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A zone.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// The cookies' secrets.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The kernel has no random bytes for a secret.
    #[error("cannot make a secret for cookies: {0}")]
    Random(std::io::Error),
}

/// Loads for the first time.
pub(super) fn load(sources: &Sources) -> Result<Data, LoadError> {
    let secrets = match &sources.secrets {
        Some(file) => Secrets::read(file)?,
        None => Secrets::random().map_err(LoadError::Random)?,
    };
    Ok(Data { index: Index::build(zone::load(&sources.zones)?)?, secrets })
}

/// Loads again. On an error everything stays as it is.
pub(super) fn reload(current: &Arc<Current<Data>>, sources: &Sources) -> Result<Arc<Data>, LoadError> {
    let secrets = match &sources.secrets {
        Some(file) => Secrets::read(file)?,
        // Made at the start: clients keep their cookies.
        None => current.latest().secrets.clone(),
    };
    Ok(current.replace(Data { index: Index::build(zone::load(&sources.zones)?)?, secrets }))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use udpath_serve::View;

    use super::*;

    const ZONE: &str = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\na A 192.0.2.1\n";

    #[test]
    fn a_reload_takes_all_files_or_changes_nothing() {
        let mut file = zone::file(ZONE);
        let sources = Sources { zones: vec![file.path().into()], secrets: None };
        let current = Current::new(load(&sources).unwrap());
        let mut view = View::new(&current);
        assert_eq!(view.get().index.names(), 2);
        file.write_all(b"b A 192.0.2.2\n").unwrap();
        assert_eq!(reload(&current, &sources).unwrap().index.names(), 3);
        assert_eq!(view.get().index.names(), 3);

        file.write_all(b"c A nonsense\n").unwrap();
        let error = reload(&current, &sources).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}:5:", file.path().display())), "{error}");
        assert_eq!(view.get().index.names(), 3);
    }
}
