//! Unpacks a capture's archive independently of the program's own reader.

use std::fs;
use std::io::Read;
use std::path::Path;

/// All texts of an archive, and its file names.
pub(crate) fn unpacked(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(path).unwrap()));
    let entries = archive.entries().unwrap();
    entries
        .map(|entry| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text)
        })
        .collect()
}
