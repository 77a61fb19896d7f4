//! Identifiers of one byte, and none. A flow then has one request in flight: slot 0 is that of flow 0.

use super::*;

fn bench(id: Id) -> Bench {
    bench_over(false, id)
}

fn bench_over(ipv6: bool, id: Id) -> Bench {
    let table = RequestTable::new(requests(&LENGTHS), id, REPLY, (2, 1), 0x0123_4567_89ab_cdef).unwrap();
    let loaded = Loaded::new(ipv6, Requests::Prebuilt(&table), SECOND);
    Bench { table, loaded }
}

/// The payload of a frame that the program sent.
fn sent(bench: &Bench, reply: &[u8]) -> Vec<u8> {
    let (action, frame) = bench.loaded.run(&frame(false, PORTS[0], reply));
    assert_eq!(action, XDP_TX);
    // The shortest frames are padded.
    let udp_len = u16::from_be_bytes([frame[38], frame[39]]);
    frame[42..34 + usize::from(udp_len)].to_vec()
}

#[test]
fn without_an_identifier_any_reply_answers_the_request_in_flight() {
    let bench = bench(Id::NONE);
    assert_eq!(bench.action(&bench.reply(0, 0, 20)), XDP_DROP, "nothing is in flight");
    assert_eq!(bench.launch(0), 0);
    let mut request = 0;
    for seq in 0..30 {
        // Each slot sends every second request: there are two of them.
        request = (request + 2) % LENGTHS.len() as u32;
        let next = sent(&bench, &bench.reply(0, seq, 20));
        assert_eq!(bench.loaded.memory.request(0), request);
        assert_eq!(next, bench.request(0, seq + 1, request), "{seq}");
        assert_eq!(next, requests(&LENGTHS)[request as usize], "{seq}: as it was given");
    }
    let counters = bench.counters();
    assert_eq!((counters.ok, counters.corrupt, counters.received, counters.unsent), (30, 1, 31, 0));
}

#[test]
fn identifiers_of_one_byte_are_written_at_even_and_odd_places() {
    for at in [2, 3] {
        let bench = bench(Id { at, echoed_at: 4, width: 1, bits: 8 });
        bench.launch(0);
        let mut seen = std::collections::BTreeSet::new();
        for seq in 0..300 {
            let reply = bench.reply(0, seq, 20);
            let next = sent(&bench, &reply);
            assert_eq!(next, bench.request(0, seq + 1, bench.loaded.memory.request(0)), "{at} {seq}");
            seen.insert(next[at]);
            // A copy of it: its identifier is that of a request before.
            assert_eq!(bench.action(&reply), XDP_DROP);
        }
        assert_eq!(seen.len(), 256);
        let counters = bench.counters();
        assert_eq!((counters.ok, counters.duplicate, counters.corrupt), (300, 300, 0));
        // Over IPv6 the checksum is written from the request's sum: it must hold with the identifier.
        let bench = bench_over(true, Id { at, echoed_at: 4, width: 1, bits: 8 });
        bench.launch(0);
        for seq in 0..300 {
            let (action, out) = bench.loaded.run(&frame(true, PORTS[0], &bench.reply(0, seq, 20)));
            assert_eq!((action, ipv6_udp_residue(&out)), (XDP_TX, 0), "{seq}");
        }
    }
}
