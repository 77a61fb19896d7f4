//! The pointers of a burst without the kernel: its part is played by functions that reach the memory as the kernel
//! does, from the headers. Under Miri they show that no reference of one side ends a pointer of the other
//! (`make miri`).

use super::*;

const PEER: &str = "192.0.2.7:53";

/// Plays `recvmmsg`: writes datagram `i`, of `i + 1` bytes `i`, its sender and control bytes.
fn deliver(burst: &mut Burst, count: usize) -> ReceiveResult {
    burst.reopen();
    let first = burst.headers.pointer(0);
    for i in 0..count {
        // SAFETY: a header of the burst, whose pointers were set by `Burst::new` for this much memory; no reference to
        // any of it is alive.
        unsafe {
            let header = first.add(i);
            let hdr = &raw mut (*header).msg_hdr;
            let part = (*hdr).msg_iov;
            (*part).iov_base.cast::<u8>().write_bytes(i as u8, i + 1);
            let name = RawAddr::encode(PEER.parse().unwrap());
            (*hdr).msg_name.cast::<u8>().copy_from(name.as_ptr().cast(), name.len() as usize);
            (*hdr).msg_namelen = name.len();
            let mut control = Control::of_source("198.51.100.1".parse().unwrap());
            if !(*hdr).msg_control.is_null() {
                (*hdr).msg_control.cast::<u8>().copy_from(control.as_mut_ptr().cast(), control.len());
                (*hdr).msg_controllen = control.len() as _;
            }
            (*header).msg_len = (i + 1) as u32;
        }
    }
    burst.received(count)
}

/// Plays `sendmmsg`: the peer, control length and payload of each queued message.
fn collect(burst: &Burst) -> Vec<(Vec<u8>, usize, Vec<u8>)> {
    let first = burst.outbox.headers();
    let read = |i: usize| {
        // SAFETY: a queued header, whose pointers `Outbox::queue` set for these lengths.
        unsafe {
            let hdr = &raw const (*first.add(i)).msg_hdr;
            let name = std::slice::from_raw_parts((*hdr).msg_name.cast::<u8>(), (*hdr).msg_namelen as usize);
            let part = (*hdr).msg_iov;
            let payload = std::slice::from_raw_parts((*part).iov_base.cast::<u8>(), (*part).iov_len);
            let mut control = Vec::new();
            if !(*hdr).msg_control.is_null() {
                control.resize((*hdr).msg_controllen, 0_u8);
                control.as_mut_ptr().copy_from((*hdr).msg_control.cast(), control.len());
            }
            (name.to_vec(), control.len(), payload.to_vec())
        }
    };
    (0..burst.outbox.queued()).map(read).collect()
}

/// Echoes two bursts, with the references that the dispatch holds, and moves the burst in between.
fn echo(ancillary: Ancillary, segmentation: bool) -> Vec<(Vec<u8>, usize, Vec<u8>)> {
    let mut burst = Burst::new(4, 1024, ancillary, segmentation).unwrap();
    for _ in 0..2 {
        assert_eq!(deliver(&mut burst, 3), ReceiveResult::Datagrams(3));
        for i in 0..3 {
            let (datagram, buffer) = burst.datagram(i);
            assert_eq!(datagram.peer.decode().to_string(), PEER);
            assert_eq!(datagram.control.is_some(), ancillary.any());
            let len = datagram.payload.len();
            buffer[..len].copy_from_slice(datagram.payload);
            buffer[len..len + 4].fill(0xff);
            burst.queue(i, len.min(2));
        }
        burst = std::convert::identity(burst);
    }
    collect(&burst)
}

#[test]
fn pointers_and_references_do_not_end_each_other() {
    let name = RawAddr::encode(PEER.parse().unwrap());
    // SAFETY: the address is `len` bytes long.
    let name = unsafe { std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), name.len() as usize) };
    let wildcard = Ancillary { packet_info: true, timestamps: false };
    for (ancillary, control) in [(Ancillary::default(), 0), (wildcard, 32)] {
        let apart = [vec![0], vec![1, 1], vec![2, 2]];
        let expected: Vec<_> = apart.iter().map(|reply| (name.to_vec(), control, reply.clone())).collect();
        assert_eq!(echo(ancillary, false), expected);
        // Joined for segmentation: the second and the third.
        let joined = [(name.to_vec(), control, vec![0]), (name.to_vec(), control + 24, vec![1, 1, 2, 2])];
        assert_eq!(echo(ancillary, true), joined);
    }
}
