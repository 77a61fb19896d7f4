//! Captured machines in one file.

use flate2::Crc;
use udpath_host::Source;
use udpath_support::Archive;

use crate::presentable;

/// An archive, raw and as the contents of a compressed one: no name escapes from it, and errors are one line.
pub fn archive(data: &[u8]) {
    read(data);
    read(&gzip(data));
}

/// A gzip file of `data` as stored blocks (RFC 1951, 3.2.4; RFC 1952). A compressor takes longer than what is tested.
fn gzip(data: &[u8]) -> Vec<u8> {
    let mut crc = Crc::new();
    crc.update(data);
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = data.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let len = block.len() as u16;
        file.push(u8::from(blocks.peek().is_none()));
        file.extend(len.to_le_bytes());
        file.extend((!len).to_le_bytes());
        file.extend(block);
    }
    file.extend(crc.sum().to_le_bytes());
    file.extend((data.len() as u32).to_le_bytes());
    file
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
