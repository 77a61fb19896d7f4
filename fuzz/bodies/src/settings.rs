//! What people and files say of settings: `SETTING=VALUE`, plans as JSON, the journal.

use std::path::Path;

use udpath_tune::{Journal, Setting, SettingRequest};

use crate::presentable;

/// A request, or a plan in JSON: what is understood is written as it is read; what is not is told.
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
    // A shell gets a line, and no second one.
    assert_eq!(setting.shell(&value).lines().count(), 1);
    if let Some(place) = setting.place() {
        let text = place.form.write(&value).expect("a value of the setting has its file's form");
        assert_eq!(place.form.read(&text), Ok(value));
    }
}

/// An entry of the journal: read or told; and what is read has words that are understood, or is told.
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
