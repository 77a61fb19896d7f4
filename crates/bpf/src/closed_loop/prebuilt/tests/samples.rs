//! Copies of replies for user space.

use super::*;

/// Every reply is copied as long as user space keeps up; then as many as there are places.
#[test]
fn replies_are_copied_for_user_space() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let memory = &bench.loaded.memory;
    let mut samples = memory.samples().unwrap();
    let first = bench.launch(0);
    let answer = |seq: u64| {
        let len = 12 + seq as usize * 7 % 1000;
        let mut reply = bench.reply(0, seq, len);
        let last = reply.len() - 1;
        reply[last] = seq as u8;
        reply[3] = if seq % 7 == 3 { 5 } else { 0 };
        let judged = if reply[3] == 5 { Judged::Refused } else { Judged::Ok };
        let sample = Sample { request: memory.request(0), judged };
        assert_eq!(bench.action(&reply), XDP_TX);
        (sample, reply)
    };
    for seq in first..first + 100 {
        let expected = answer(seq);
        let mut seen = Vec::new();
        samples.read(1000, |sample, reply| seen.push((sample, reply.to_vec())));
        assert_eq!(seen, [expected], "{seq}");
    }
    for seq in first + 100..first + 1100 {
        answer(seq);
    }
    let mut seen = 0;
    samples.read(5, |_, _| seen += 1);
    assert_eq!(seen, 5, "no more than asked for");
    samples.read(100_000, |_, _| seen += 1);
    assert!((32..=32 * memory.cpus()).contains(&seen), "{seen}");
    samples.read(1, |sample, _| panic!("{sample:?} again"));
}

#[test]
fn a_copy_is_restored_to_the_request_as_written() {
    let own = requests(&[40, 41]);
    let id = Id { at: 3, echoed_at: 5, width: 4, bits: 20 };
    let table = RequestTable::new(own.clone(), id, REPLY, (2, 2), 77).unwrap();
    for (request, own) in (0..).zip(&own) {
        let mut sent = Vec::new();
        table.write(request, (1, 1), 99, &mut sent);
        assert_ne!(sent[3..7], own[3..7]);
        assert_eq!((&sent[..4], &sent[7..]), (&own[..4], &own[7..]), "only the low 20 bits");
        assert_eq!(sent[4] >> 4, own[4] >> 4);
        let mut reply = vec![0; 20];
        reply[5..9].copy_from_slice(&sent[3..7]);
        table.restore(request, &mut reply);
        assert_eq!(reply[5..9], own[3..7]);
    }
    let mut sent = vec![1];
    table.write(2, (0, 0), 0, &mut sent);
    assert!(sent.is_empty(), "no such request");
}
