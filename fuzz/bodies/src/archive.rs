//! Captured machines in one file.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use udpath_host::Source;
use udpath_support::Archive;

use crate::presentable;

/// An archive, raw and as the contents of a compressed one: no name escapes from it, and errors are one line.
pub fn archive(data: &[u8]) {
    read(data);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(data).expect("a vector takes all");
    read(&encoder.finish().expect("a vector takes all"));
}

fn read(bytes: &[u8]) {
    let archive = match Archive::read(bytes) {
        Ok(archive) => archive,
        Err(error) => return presentable(&error, bytes.len()),
    };
    for name in archive.top() {
        assert!(!name.is_empty() && name != ".." && !name.contains('/'), "{name:?}");
        let machine = archive.machine(name);
        for below in machine.names("/").unwrap_or_default() {
            assert!(!below.is_empty() && below != "..", "{below:?}");
            let _ = (machine.text(&below), machine.names(&below), machine.target(&below));
        }
        let source: &dyn Source = &machine;
        let _ = (source.links(), source.channels("../../eth0"));
    }
}
