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
use super::zone::{self, Faults, ZoneError};

/// All that may change while the server runs.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) index: Index,
    pub(super) secrets: Secrets,
    /// What is left out of the zones.
    pub(super) faults: Faults,
}

/// Where the data come from.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    pub(super) zones: Vec<PathBuf>,
    pub(super) secrets: Option<PathBuf>,
    /// Whether a fault keeps the zones from being loaded.
    pub(super) strict: bool,
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
    let (index, faults) = zones(sources)?;
    Ok(Data { index, secrets, faults })
}

fn zones(sources: &Sources) -> Result<(Index, Faults), ZoneError> {
    let (records, mut faults) = zone::load(&sources.zones)?;
    let index = Index::build(records, &mut faults)?;
    let nothing = index.zones() == 0 && !sources.zones.is_empty();
    if !faults.is_empty() && (sources.strict || nothing) {
        return Err(ZoneError::Faults(faults.to_string()));
    }
    Ok((index, faults))
}

/// Loads again. On an error everything stays as it is, and so it does if a file loses its zone or more of its records
/// than it has lost: what is served is better than what would be left out. Faults that cost nothing, as a signature
/// that is missing, keep no zone from a reload: signatures of the others expire meanwhile.
pub(super) fn reload(current: &Arc<Current<Data>>, sources: &Sources) -> Result<Arc<Data>, LoadError> {
    let secrets = match &sources.secrets {
        Some(file) => Secrets::read(file)?,
        // Made at the start: clients keep their cookies.
        None => current.latest().secrets.clone(),
    };
    let (index, faults) = zones(sources)?;
    if faults.cost_more_than(&current.latest().faults) {
        return Err(ZoneError::Faults(faults.to_string()).into());
    }
    Ok(current.replace(Data { index, secrets, faults }))
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
        let sources = Sources { zones: vec![file.path().into()], ..Sources::default() };
        let current = Current::new(load(&sources).unwrap());
        let mut view = View::new(&current);
        assert_eq!(view.get().index.names(), 2);
        file.write_all(b"b A 192.0.2.2\n").unwrap();
        assert_eq!(reload(&current, &sources).unwrap().index.names(), 3);
        assert_eq!(view.get().index.names(), 3);

        // What was whole and is no more changes nothing.
        file.write_all(b"c A nonsense\n").unwrap();
        let error = reload(&current, &sources).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}:5:", file.path().display())), "{error}");
        assert_eq!(view.get().index.names(), 3);
    }

    #[test]
    fn a_fault_known_from_the_start_keeps_no_reload_from_being_taken() {
        let (bad, mut good) = (zone::file("$ORIGIN y.\n@ 1 SOA . . 1 1 1 1 1\na A x\n"), zone::file(ZONE));
        let zones = vec![bad.path().into(), good.path().into()];
        let sources = Sources { zones, ..Sources::default() };
        let current = Current::new(load(&sources).unwrap());
        assert_eq!(current.latest().faults.left_out().as_deref(), Some("1 record"));
        good.write_all(b"b A 192.0.2.2\n").unwrap();
        assert_eq!(reload(&current, &sources).unwrap().index.names(), 4);
        good.write_all(b"c A x\n").unwrap();
        reload(&current, &sources).unwrap_err();
        assert_eq!(current.latest().index.names(), 4);
    }

    #[test]
    fn what_is_only_said_keeps_no_zone_from_a_reload_and_excuses_no_loss() {
        const SIGNATURE: &[u8] = b"@ RRSIG SOA 13 1 1 20370101000000 20200101000000 1 x. AAAA\n";
        let (mut signed, mut other) = (zone::file(ZONE), zone::file("$ORIGIN y.\n@ 1 SOA . . 1 1 1 1 1\n"));
        let sources =
            Sources { zones: vec![signed.path().into(), other.path().into()], ..Sources::default() };
        let current = Current::new(load(&sources).unwrap());
        // No keys, and no other signatures.
        signed.write_all(SIGNATURE).unwrap();
        other.write_all(b"b A 192.0.2.2\n").unwrap();
        let data = reload(&current, &sources).unwrap();
        assert!(!data.faults.is_empty() && data.faults.left_out().is_none(), "{}", data.faults);
        assert_eq!(data.index.names(), 4);
        // It is as whole as before, and stays so.
        let whole = std::fs::read(signed.path()).unwrap();
        for broken in [&b""[..], b"$ORIGIN x.\n", &[&whole[..], b"c A nonsense\n"].concat()] {
            std::fs::write(signed.path(), broken).unwrap();
            reload(&current, &sources).unwrap_err();
            assert_eq!(current.latest().index.names(), 4);
        }
        std::fs::write(signed.path(), whole).unwrap();
        other.write_all(b"c A 192.0.2.2\n").unwrap();
        assert_eq!(reload(&current, &sources).unwrap().index.names(), 5);
    }

    #[test]
    fn a_strict_start_and_one_with_nothing_left_are_refused() {
        let (good, bad) = (zone::file(ZONE), zone::file("$ORIGIN y.\n@ 1 SOA . . 1 1 1 1 1\n$FROB\n"));
        let both: Vec<PathBuf> = vec![good.path().into(), bad.path().into()];
        let load = |zones: &[PathBuf], strict| {
            let sources = Sources { zones: zones.to_vec(), strict, ..Sources::default() };
            load(&sources).map(|data| data.index.zones()).map_err(|error| error.to_string())
        };
        assert_eq!(load(&both, false), Ok(1));
        let named = format!("{}:3: unknown directive $FROB", bad.path().display());
        assert!(load(&both, true).unwrap_err().starts_with(&named));
        assert!(load(&both[1..], false).unwrap_err().starts_with(&named));
        assert_eq!(load(&both[..1], true), Ok(1));
        assert_eq!(load(&[], true), Ok(0));
    }
}
