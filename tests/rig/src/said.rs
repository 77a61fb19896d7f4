//! The output and exit code of a finished run.

use std::process::Output;

use crate::{check_documents, one_sentence};

/// A finished run.
#[derive(Debug)]
pub struct Said {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// All of stdout.
    pub out: String,
    /// All of stderr.
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("it speaks UTF-8");
        let said = Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
        check_documents("the program", &said.out);
        said
    }
}

impl Said {
    /// Asserts that it exited with `code` and one sentence that contains `part`.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn refused(&self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        one_sentence(part, &self.err);
        assert!(self.err.contains(part), "{part:?} is not in {}", self.err);
    }

    /// Asserts that it succeeded.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn fine(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self
    }
}
