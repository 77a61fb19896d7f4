use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use udpath_stack::frame::Burst;
use udpath_stack::port::Port;
use udpath_stack::port::capture::{Capture, Frames, MAX_FRAME_LEN};
use udpath_stack::wire::{flow_of, payload_of};

use crate::presentable;

/// Counts the bytes written.
#[derive(Clone, Default)]
struct Scales(Arc<AtomicU64>);

impl Write for Scales {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A capture file: parsing ends and releases all memory; no frame has more bytes than the file; passed frames are
/// written.
pub fn capture(data: &[u8]) {
    looked_at(data);
    let scales = Scales::default();
    let mut capture = match Capture::new("it", io::Cursor::new(data.to_vec()), Some(scales.clone())) {
        Ok(capture) => capture,
        Err(error) => return presentable(&error, data.len()),
    };
    let (mut frames, mut bytes, mut burst) = (0, 0, Burst::new());
    while capture.receive(&mut burst) > 0 {
        for frame in &burst {
            assert!(frame.bytes().len() <= MAX_FRAME_LEN.min(data.len()));
            bytes += frame.bytes().len() as u64;
            frames += 1;
        }
        // Both return paths; which one depends on the frames so far.
        if frames % 2 == 0 {
            capture.transmit(&mut burst);
        } else {
            capture.recycle(&mut burst);
        }
        assert!(burst.is_empty());
    }
    capture.flush();
    let (counts, skipped) = (capture.counts(), capture.skipped());
    assert!(capture.at_end() && capture.outstanding() == 0);
    assert_eq!((counts.received, counts.invalid), (frames, skipped.snapped + skipped.too_long));
    assert!(counts.transmitted <= frames && bytes <= data.len() as u64);
    let written = scales.0.load(Ordering::Relaxed);
    assert!((24 + 16 * counts.transmitted..=24 + 16 * counts.transmitted + bytes).contains(&written));
    if let Some(error) = capture.error() {
        presentable(error, data.len());
    }
}

/// The same file, of any link type: what is found in its frames is not longer than the file, and what is left out can
/// be said.
fn looked_at(data: &[u8]) {
    let mut frames = match Frames::new("it", io::Cursor::new(data.to_vec())) {
        Ok(frames) => frames,
        Err(error) => return presentable(&error, data.len()),
    };
    let look = |frame: &[u8]| {
        assert!(!payload_of(frame).is_ok_and(|(_, payload)| payload.len() > data.len()));
        assert!(payload_of(frame).is_err() || flow_of(frame).is_ok());
    };
    loop {
        match frames.look(look) {
            Ok(Some(())) => {}
            Ok(None) => break,
            Err(error) => return presentable(&error, data.len()),
        }
    }
    assert!(frames.left_out().is_empty() == frames.left_out().to_string().is_empty());
}
