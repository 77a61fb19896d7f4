//! A machine in an archive, read as the machine itself would be.

use udpath_host::source::{ANSWERS, Answer, INDEX, Index, Question, Source, flat, sort};
use udpath_host::{Absence, Fact};

use super::Archive;

/// A machine in an archive.
#[derive(Debug, Clone)]
pub struct Captured<'a> {
    archive: &'a Archive,
    /// Prefix of every name: empty, or ending in a slash.
    prefix: String,
    index: Result<Index, String>,
}

impl Archive {
    /// The machine below one of its directories; the empty name is the archive's root.
    #[must_use]
    pub fn machine(&self, directory: &str) -> Captured<'_> {
        let mut captured = Captured { archive: self, prefix: String::new(), index: Ok(Index::default()) };
        if !directory.is_empty() {
            captured.prefix = format!("{directory}/");
        }
        let file = format!("{ANSWERS}/{INDEX}");
        if let Some(bytes) = self.file(&captured.key(&file)) {
            captured.index = serde_json::from_slice(bytes).map_err(|error| format!("{file}: {error}"));
        }
        captured
    }
}

impl Captured<'_> {
    fn key(&self, path: &str) -> String {
        format!("{}{}", self.prefix, flat(path)).trim_end_matches('/').to_owned()
    }

    fn index(&self) -> Result<&Index, Absence> {
        self.index.as_ref().map_err(|wrong| Absence::NotUnderstood(wrong.clone()))
    }

    /// Why a file or directory does not exist.
    fn why(&self, path: &str) -> Absence {
        match self.index() {
            Err(wrong) => wrong,
            Ok(index) => index.absent.get(path).cloned().unwrap_or(Absence::NotCaptured),
        }
    }
}

impl Source for Captured<'_> {
    fn text(&self, path: &str) -> Result<String, Absence> {
        let bytes = self.archive.file(&self.key(path)).ok_or_else(|| self.why(path))?;
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|_| Absence::NotUnderstood(format!("{path} is not UTF-8")))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        let names = self.archive.names(&self.key(directory)).ok_or_else(|| self.why(directory))?;
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        sort(&mut names);
        Ok(names)
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        self.index()?.links.get(link).cloned().ok_or_else(|| self.why(link))
    }

    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence> {
        let file = format!("{ANSWERS}/{}", question.file());
        let bytes = self.archive.file(&self.key(&file)).ok_or(Absence::NotCaptured)?;
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|_| Absence::NotUnderstood(format!("{file} is not UTF-8")))?;
        question.decode(text, &file)
    }
}
