//! Which files of a server's configuration root writes: those that nobody else can change, where the server's profile
//! has them.
//!
//! A server's arguments and files say where its configuration is, and both may be its user's: a user can start
//! `chronyd -f /etc/ld.so.conf`, or write `confdir /etc/modprobe.d`. So of a server that does not run as root, only
//! files in the places of its profile are changed; of one that does, only if all of its files are root's.

use std::fs;
use std::path::Path;

use udpath_files::owners::{Changeable, only_root, only_root_writes};

use super::config::has_parents;
use super::{FileChange, Service};

/// Why a file is not changed, for the middle of a sentence.
pub(crate) fn changeable(why: &Changeable) -> String {
    format!("others than root can change it ({why}); udpath changes only what root alone can")
}

impl Service {
    /// Whether a change to its configuration could be carried out, as far as the owners of its files decide: of root's
    /// server, all of them must be root's alone; of another's, one to change is enough.
    #[must_use]
    pub fn is_changeable(&self) -> bool {
        let mut roots =
            self.config.files.iter().map(|file| only_root(Path::new(&self.here(&file.path))).is_ok());
        if self.rights.is_root() { roots.all(|roots| roots) } else { roots.any(|roots| roots) }
    }

    /// Whether root may change these files.
    ///
    /// # Errors
    /// Which not, why, and what to do instead.
    pub(super) fn writable(&self, files: &[FileChange]) -> Result<(), String> {
        let user = self.rights.user;
        let by_hand = || match user {
            0 => "change it by hand, as `udpath plan` shows".to_owned(),
            user => {
                format!("change it by hand, as user {user} where it is that user's; `udpath plan` shows how")
            }
        };
        for file in files {
            let real = only_root_writes(Path::new(&self.here(&file.path)))
                .map_err(|why| format!("{}: {}. Fix: {}", file.path, changeable(&why), by_hand()))?;
            if !self.rights.is_root() && !self.is_place(&file.path, &real) {
                return Err(format!(
                    "{} is not in {}, and user {user}, which the server runs as, may have chosen it. Fix: {}",
                    file.path,
                    self.profile.places.join(", "),
                    by_hand()
                ));
            }
        }
        // What root's server reads, and its checker, which root runs too, is a program of a kind.
        for file in self.config.files.iter().filter(|_| self.rights.is_root()) {
            only_root(Path::new(&self.here(&file.path)))
                .map_err(|why| format!("root's server reads {}: {}", file.path, changeable(&why)))?;
        }
        Ok(())
    }

    /// Whether a file is where the server's packages have its configuration: by its name, and with links resolved.
    fn is_place(&self, path: &str, real: &Path) -> bool {
        let path = Path::new(path);
        let known = |place: &String| {
            let root = fs::canonicalize(self.here(place));
            path.starts_with(place) && root.is_ok_and(|root| real.starts_with(root))
        };
        !has_parents(path) && self.profile.places.iter().any(known)
    }
}
