//! The pointers of the arrays without the kernel: these tests reach the memory as the kernel does, from the headers.
//! Under Miri they show that no reference of one side ends a pointer of the other (`make miri`).

use super::{Batch, Messages};

#[test]
fn what_is_written_through_the_headers_is_received() {
    let mut messages = Messages::new(3, 16);
    for round in 0..2_u8 {
        for i in 0..messages.count() {
            // SAFETY: a header whose io vector `Messages::new` set for 16 bytes; no reference to any of it is alive.
            unsafe {
                let header = messages.headers.pointer(i);
                (*(*header).msg_hdr.msg_iov).iov_base.cast::<u8>().write_bytes(round + i as u8, 5);
                (*header).msg_len = 5;
            }
        }
        messages = std::convert::identity(messages);
        for i in 0..messages.count() {
            assert_eq!(messages.received(i), [round + i as u8; 5]);
        }
    }
}

#[test]
fn what_is_pushed_is_read_through_the_headers() {
    let mut batch = Batch::new(4, 64, 16);
    for round in 0..2_u8 {
        batch.clear();
        for len in [3, 3, 2, 7] {
            batch.push(|bytes| {
                bytes[..len].fill(round + len as u8);
                len
            });
        }
        batch = std::convert::identity(batch);
        let (first, count) = batch.described();
        let read = |i: usize| {
            // SAFETY: a described header, whose io vector `push` set for these lengths.
            unsafe {
                let hdr = &raw const (*first.add(i)).msg_hdr;
                let part = (*hdr).msg_iov;
                let bytes = std::slice::from_raw_parts((*part).iov_base.cast::<u8>(), (*part).iov_len);
                (bytes.to_vec(), (*hdr).msg_controllen > 0)
            }
        };
        let [a, b, c] = [3, 2, 7].map(|len| len + round);
        let expected = [(vec![a, a, a, a, a, a, b, b], true), (vec![c; 7], false)];
        assert_eq!((0..count).map(read).collect::<Vec<_>>(), expected);
    }
}
