//! Requested settings, before they are checked against the machine.

use super::{Document, Entry, PlanError, SCHEMA};
use crate::settings::{CONFIG, RESTART};

/// A setting by name and its requested value; `*` for every queue and `port:53:` for the server on a port are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRequest {
    /// The setting's name, as it was written.
    pub name: String,
    /// The value, as it was written.
    pub value: String,
    /// The value that it must currently have, as written in a plan's JSON.
    pub from: Option<String>,
    /// Why.
    pub reason: String,
}

impl SettingRequest {
    /// From `SETTING=VALUE`; the name may also refer to a port, `port:53:receive-buffer`.
    ///
    /// # Errors
    /// There is no value.
    pub fn parse(text: &str, reason: &str) -> Result<Self, PlanError> {
        // The name of an interface may contain a '=', and so may the value of a sysctl.
        let object = text.find(':').unwrap_or(0);
        let split = text[object..].find('=').map(|at| object + at);
        let at = split.ok_or_else(|| PlanError::NoValue(text.to_owned()))?;
        let (name, value) = (text[..at].trim().to_owned(), text[at + 1..].trim().to_owned());
        Ok(Self { name, value, from: None, reason: reason.to_owned() })
    }

    /// From a plan's JSON.
    ///
    /// # Errors
    /// It is not a plan, or of another version.
    pub fn from_json(text: &str) -> Result<Vec<Self>, PlanError> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| PlanError::Json(error.to_string()))?;
        if document.schema != SCHEMA {
            return Err(PlanError::Json(format!(
                "its schema is {:?}, but this program reads {SCHEMA}",
                document.schema
            )));
        }
        document.changes.into_iter().map(Self::of_entry).collect()
    }

    fn of_entry(entry: Entry) -> Result<Self, PlanError> {
        let Entry { setting: name, from, to, reason, about: _, file: _ } = entry;
        if name.starts_with(CONFIG) || name.starts_with(RESTART) {
            return Err(PlanError::Json(format!(
                "{name:?} is taken from no file: ask for it by --service or --set service:PORT:KNOB=VALUE"
            )));
        }
        let value = to.ok_or_else(|| PlanError::Json(format!("{name:?} has no 'to'")))?;
        Ok(Self { name, value, from, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_split_at_the_first_equals_sign_after_the_colon() {
        for (text, name, value) in [
            ("eth0:rps/rx-0=0-3", "eth0:rps/rx-0", "0-3"),
            ("a=b:qdisc=mq", "a=b:qdisc", "mq"),
            ("sysctl:kernel.core_pattern=x=y", "sysctl:kernel.core_pattern", "x=y"),
            ("thread:8/9:affinity = 3", "thread:8/9:affinity", "3"),
            ("port:53:threads=one-per-cpu:2-7", "port:53:threads", "one-per-cpu:2-7"),
        ] {
            let request = SettingRequest::parse(text, "").unwrap();
            assert_eq!((request.name.as_str(), request.value.as_str()), (name, value));
        }
        assert!(
            SettingRequest::parse("eth0:rps/rx-0", "").unwrap_err().to_string().contains("SETTING=VALUE")
        );
    }

    #[test]
    fn other_json_is_rejected() {
        for (text, says) in [
            ("{}", "schema"),
            (r#"{"schema":"udpath.plan/9","changes":[]}"#, "udpath.plan/9"),
            (r#"{"schema":"udpath.plan/2","changes":[{"setting":"eth0:qdisc","to":null}]}"#, "no 'to'"),
            (r#"{"schema":"udpath.plan/2","changes":[{"setting":"config:/etc/x","to":""}]}"#, "--service"),
            (
                r#"{"schema":"udpath.plan/2","changes":[{"setting":"restart:nsd@[::]:5 x","to":""}]}"#,
                "--service",
            ),
            ("nonsense", "line 1"),
        ] {
            let error = SettingRequest::from_json(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
