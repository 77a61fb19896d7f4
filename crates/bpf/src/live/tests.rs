//! The program with a device that does not support XDP transmit, and rejected frames. Loading requires CAP_BPF and
//! CAP_SYS_ADMIN.

use error_reporter::Report;

use super::*;

fn filled(len: usize, frames: usize) -> LiveFrames {
    let mut live = LiveFrames::open("lo", len).expect("the program loads (needs CAP_BPF and CAP_SYS_ADMIN)");
    for number in 0..frames {
        live.frame(len).unwrap().fill(number as u8);
    }
    live
}

/// The loopback has no ndo_xdp_xmit: the redirect fails for each frame, and the test run does not report it.
#[test]
fn rejected_frames_keep_waiting() {
    udpath_lab::needs_root!();
    let mut live = filled(69, 100);
    for _ in 0..2 {
        let offered = live.send();
        assert_eq!((offered.frames, offered.taken), (0, 0));
        assert!(offered.failed.unwrap().to_string().contains("accepts no frames from XDP"));
        assert_eq!(live.waiting(), 100);
    }
    for (number, frame) in live.iter().enumerate() {
        assert_eq!(frame, [number as u8; 69]);
    }
    live.clear();
    assert_eq!((live.waiting(), live.iter().count()), (0, 0));
}

/// Longer than the kernel's test run accepts: its error is returned, and nothing was offered.
#[test]
fn frames_the_kernel_rejects_keep_waiting() {
    udpath_lab::needs_root!();
    let mut live = filled(4096, 3);
    let offered = live.send();
    assert_eq!((offered.frames, offered.taken, live.waiting()), (0, 0, 3));
    assert_eq!(offered.failed.unwrap().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn the_frame_buffer_is_bounded() {
    udpath_lab::needs_root!();
    let mut live = filled(1514, LiveFrames::MOST);
    assert!(live.is_full() && live.frame(60).is_none());
    assert_eq!(live.iter().filter(|frame| frame.len() == 1514).count(), LiveFrames::MOST);
}

#[test]
fn invalid_arguments_are_rejected() {
    for len in [0, 13, 4097] {
        let error = Report::new(LiveFrames::open("lo", len).unwrap_err()).to_string();
        assert!(error.contains("expected 14 to 4096 bytes"), "{error}");
    }
    for name in ["nowhere0", "zero\0byte"] {
        let error = LiveFrames::open(name, 60).unwrap_err();
        assert!(matches!(error, Error::NoInterface { .. }), "{error}");
    }
}
