//! The output of `status`, redacted: names of settings, numbers and known words are kept.

use serde_json::Value;

use super::words::{is_mask, is_plain};
use super::{Kind, Redactor};

/// Words allowed as values, in addition to those of [`is_plain`].
const VALUES: [&str; 14] = [
    "unknown",
    "by-cpu",
    "by-flow",
    "toeplitz",
    "xor",
    "crc32",
    "sdfn",
    "sd",
    "equal",
    "not there",
    "rps",
    "rxqs",
    "whole",
    "nothing",
];

impl Redactor {
    /// The JSON of `status`.
    pub fn status(&mut self, value: &mut Value) {
        self.part("", false, value);
    }

    /// One value of it; `secret`: the setting's values are secret.
    fn part(&mut self, key: &str, secret: bool, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.replaced(key, secret, text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.part(key, secret, value)),
            Value::Object(fields) => {
                let setting = fields.get("setting").and_then(Value::as_str).unwrap_or_default();
                let secret =
                    ["rss/key", "secret", "_key", "password"].iter().any(|word| setting.contains(word))
                        && !(self.keep_rss_key && setting.contains("rss/key"));
                for (key, value) in fields.iter_mut() {
                    self.part(key, secret, value);
                }
            }
            _ => {}
        }
    }

    fn replaced(&mut self, key: &str, secret: bool, text: &str) -> String {
        let word =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '/' | '_');
        match key {
            "schema" | "state" | "scope" | "cost" if text.len() <= 32 && text.chars().all(word) => {
                text.to_owned()
            }
            "user" => self.people(text),
            "setting" => match text.strip_prefix("file:") {
                Some(path) => {
                    self.file_path(path).map_or("file:redacted".to_owned(), |path| format!("file:{path}"))
                }
                None => self.text(text),
            },
            "before" | "applied" | "now" => {
                let fine = is_plain(text) || is_mask(text) || VALUES.contains(&text);
                match fine && !secret {
                    true => text.to_owned(),
                    false => {
                        self.count(Kind::Configuration);
                        "redacted".to_owned()
                    }
                }
            }
            // `network namespace 4026532 (dns)`: users choose the names.
            "elsewhere" => self.text(text.split(" (").next().unwrap_or_default()),
            "suspects" | "note" => self.sentence(text),
            _ => "redacted".to_owned(),
        }
    }

    /// A user, and the invoking user behind sudo: `root (ada)`.
    fn people(&mut self, text: &str) -> String {
        let mut found = String::new();
        let inside = |c: char| !c.is_whitespace() && !matches!(c, '(' | ')' | ',');
        let mut rest = text;
        while let Some(start) = rest.find(inside) {
            let end = rest[start..].find(|c| !inside(c)).map_or(rest.len(), |end| start + end);
            let name = &rest[start..end];
            found.push_str(&rest[..start]);
            found.push_str(&if matches!(name, "root" | "for" | "as" | "sudo") {
                name.to_owned()
            } else {
                self.user(name)
            });
            rest = &rest[end..];
        }
        found + rest
    }
}
