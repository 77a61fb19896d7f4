//! The names of what answers say, in the words of the standards: results count answers by them.

use udpath_load::result::Kind;

use super::discovery::complaint;
use super::pdu::{Pdu, REPORT};
use crate::said::{self, Said};

/// An answer with the values asked for.
const ANSWERED: &str = "answered";
/// One to GETBULK with none.
const EMPTY: &str = "no variables";
/// Error-status 1 to 18 (RFC 3416, 3).
const ERRORS: [&str; 18] = [
    "tooBig",
    "noSuchName",
    "badValue",
    "readOnly",
    "genErr",
    "noAccess",
    "wrongType",
    "wrongLength",
    "wrongEncoding",
    "wrongValue",
    "noCreation",
    "inconsistentValue",
    "resourceUnavailable",
    "commitFailed",
    "undoFailed",
    "authorizationError",
    "notWritable",
    "inconsistentName",
];
/// Exceptions in place of a value, from tag 0x80 (RFC 3416, 3).
const EXCEPTIONS: [&str; 3] = ["noSuchObject", "noSuchInstance", "endOfMibView"];
/// A Report that counts something else than those below.
const OTHER_REPORT: &str = "Report";
/// The counters that a Report names, usmStats 1 to 6 (RFC 3414, 5).
const REPORTS: [&str; 6] = [
    "usmStatsUnsupportedSecLevels",
    "usmStatsNotInTimeWindows",
    "usmStatsUnknownUserNames",
    "usmStatsUnknownEngineIDs",
    "usmStatsWrongDigests",
    "usmStatsDecryptionErrors",
];

/// Places of the first of each, in the order in which [`Answers::kinds`] names them.
const FIRST_ERROR: usize = 2;
const FIRST_EXCEPTION: usize = FIRST_ERROR + ERRORS.len();
const FIRST_REPORT: usize = FIRST_EXCEPTION + EXCEPTIONS.len();
const PLACES: usize = FIRST_REPORT + 1 + REPORTS.len();

/// The answers of an agent, by what they say.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    said: [Said; PLACES],
}

impl Answers {
    /// Counts an answer with the values asked for.
    #[inline]
    pub(super) fn answered(&self) {
        self.said[0].count(false);
    }

    /// Counts an answer that refuses.
    pub(super) fn refused(&self, answer: &Pdu<'_>) {
        // Tags and numbers outside of the lists are judged wrong before.
        let place = match (answer.tag, answer.error, answer.exception()) {
            (REPORT, ..) => FIRST_REPORT + usize::from(complaint(answer)),
            (_, 1.., _) => FIRST_ERROR + answer.error as usize - 1,
            (.., Some(tag)) => FIRST_EXCEPTION + usize::from(tag & 0x0f),
            (.., None) => 1,
        };
        if let Some(said) = self.said.get(place) {
            said.count(true);
        }
    }

    /// Those that came; none if all were answered.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let names = [ANSWERED, EMPTY].into_iter().chain(ERRORS).chain(EXCEPTIONS);
        let kinds = said::kinds(names.chain([OTHER_REPORT]).chain(REPORTS), &self.said);
        if kinds.iter().all(|kind| kind.refused == 0) { Vec::new() } else { kinds }
    }
}
