//! Intact replies that said the same, as a template counts them.

use std::cell::Cell;

use udpath_load::result::Kind;

/// So many replies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    /// All of them.
    pub(crate) count: Cell<u64>,
    /// Those by which the server refused a request.
    pub(crate) refused: Cell<u64>,
}

impl Said {
    /// Counts one more.
    #[inline]
    pub(crate) fn count(&self, refuses: bool) {
        self.count.set(self.count.get() + 1);
        self.refused.set(self.refused.get() + u64::from(refuses));
    }
}

/// Those that came, with their names.
pub(crate) fn kinds(names: impl IntoIterator<Item = &'static str>, said: &[Said]) -> Vec<Kind> {
    let named = names.into_iter().zip(said).filter(|(_, said)| said.count.get() > 0);
    named
        .map(|(name, said)| Kind {
            name: name.to_owned(),
            count: said.count.get(),
            refused: said.refused.get(),
        })
        .collect()
}
