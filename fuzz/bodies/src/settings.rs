//! Settings from users and files: `SETTING=VALUE`, plans as JSON, the journal.

use std::path::Path;

use udpath_tune::{Journal, Setting, SettingRequest};

use crate::presentable;

/// A request, or a plan in JSON: a valid one round-trips, an invalid one is reported.
pub fn settings(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if text.trim_start().starts_with('{') {
        if let Err(error) = SettingRequest::from_json(text) {
            presentable(&error, data.len());
        }
        return;
    }
    let request = match SettingRequest::parse(text, "") {
        Ok(request) => request,
        Err(error) => return presentable(&error, data.len()),
    };
    let setting: Setting = match request.name.parse() {
        Ok(setting) => setting,
        Err(error) => return presentable(&error, data.len()),
    };
    assert_eq!(setting.to_string().parse(), Ok(setting.clone()));
    let value = match setting.value(&request.value) {
        Ok(value) => value,
        Err(error) => return presentable(&error, data.len()),
    };
    let written = Setting::encode(&value);
    assert_eq!(setting.decode(written.as_deref()), Ok(value.clone()));
    // Exactly one shell line.
    assert_eq!(setting.shell(&value).lines().count(), 1);
    if let Some(place) = setting.place() {
        let text = place.form.write(&value).expect("a value of the setting has its file's form");
        assert_eq!(place.form.read(&text), Ok(value));
    }
}

/// A journal entry: it is parsed or reported; the settings of a parsed one are valid or reported.
pub fn journal(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match Journal::at(Path::new("journal")).read(7, text) {
        Err(error) => presentable(&error, data.len()),
        Ok(entry) => {
            for intent in &entry.intents {
                if let Err(error) = intent.parsed() {
                    presentable(&error, data.len());
                }
            }
        }
    }
}
