//! Slots with requests of their own, and identifiers within elements of BER.
//!
//! ```text
//!   request   30 0a a0 08 | id 1 | flow 1 | turn 1 | 00 ...
//!   reply     30 L  a2 L  | id 1 | code 1 | 00 ...                     L: one byte or more
//! ```

use super::*;

const ID: Id = Id { at: 4, echoed_at: 4, width: 1, bits: 8 };
const OUTER: Element = Element { at: 0, tag: 0x30 };
const INNER: Element = Element { at: 2, tag: 0xa2 };
const CODE: [Rule; 1] = [Rule::unless(5, [0xff, 0, 0, 0], [0; 4], Verdict::Corrupt)];

fn reply_rules() -> ReplyRules {
    ReplyRules { min: 10, max: 100, within: vec![OUTER, INNER], rules: Cow::Borrowed(&CODE) }
}

fn written(flow: u32, seq: u64) -> Vec<u8> {
    vec![0x30, 10, 0xa0, 8, seq as u8, flow as u8, (seq >> 8) as u8, 0, 0, 0, 0, 0]
}

struct Own {
    table: RequestTable,
    loaded: Loaded,
}

impl Own {
    /// Two flows of two slots, in which two or more requests have each identifier.
    fn new() -> Self {
        let table = RequestTable::of_slots(ID, reply_rules(), (2, 2), 0x5a, 2, written).unwrap();
        let loaded = Loaded::new(false, Requests::Prebuilt(&table), SECOND);
        Self { table, loaded }
    }

    /// The request that the slot has in flight or sends next.
    fn request(&self, slot: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let request = self.loaded.memory.request(slot);
        self.table.write(
            request,
            (slot as u32 / 2, slot as u32 % 2),
            self.loaded.memory.slot(slot).seq,
            &mut bytes,
        );
        bytes
    }

    /// A reply to it, with these lengths after the tags.
    fn reply(&self, slot: usize, lengths: [&[u8]; 2]) -> Vec<u8> {
        let [outer, inner] = lengths;
        let id = self.request(slot)[4];
        [&[0x30], outer, &[0xa2], inner, &[id], &[0; 20]].concat()
    }

    fn run(&self, slot: usize, payload: &[u8]) -> (u32, Vec<u8>) {
        self.loaded.run(&frame(false, PORTS[slot / 2], payload))
    }
}

/// Each slot sends the requests of its own, one after the other, unchanged; one identifier comes with other contents
/// each time.
#[test]
fn each_slot_sends_its_own_requests() {
    udpath_lab::needs_root!();
    let own = Own::new();
    let mut seen = std::collections::HashSet::new();
    for slot in 0..4 {
        own.loaded.launch(slot);
        let mut ids = Vec::new();
        for turn in 0..400 {
            let sent = own.request(slot);
            let (flow, seq) = own.table.transaction(own.loaded.memory.request(slot));
            assert_eq!((flow, &sent), (slot as u32 / 2, &written(flow, seq)));
            assert!(seen.insert(sent.clone()), "{slot} {turn}: {sent:?} again");
            ids.push(sent[4]);
            let (action, frame) = own.run(slot, &own.reply(slot, [&[24], &[22]]));
            assert_eq!(action, XDP_TX, "{slot} {turn}");
            assert!(frame[42..].starts_with(&own.request(slot)), "{slot} {turn}");
        }
        // Half of the 256 for each of two slots.
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!((distinct.len(), ids[0], ids[1]), (128, ids[128], ids[129]));
    }
    assert_eq!(
        own.loaded.counters(),
        Counters { ok: 1600, sent: 1600, received: 1600, ..Counters::default() }
    );
}

#[test]
fn requests_come_again_after_all_of_a_slot() {
    udpath_lab::needs_root!();
    let own = Own::new();
    let first = own.request(3);
    own.loaded.launch(3);
    for turn in 1..=16_384 {
        assert_eq!(own.run(3, &own.reply(3, [&[24], &[22]])).0, XDP_TX);
        assert_eq!(own.request(3) == first, turn == 16_384, "{turn}");
    }
}

/// After a lost request, both sides go on with the next one.
#[test]
fn a_lost_request_is_not_sent_again() {
    udpath_lab::needs_root!();
    let own = Own::new();
    let (memory, mut late) = (&own.loaded.memory, Vec::new());
    for turn in 0..3 {
        let seq = own.loaded.launch(0);
        assert_eq!(memory.request(0), turn);
        late.push(own.reply(0, [&[24], &[22]]));
        assert!(memory.give_up(0, seq));
    }
    assert_eq!(memory.request(0), 3);
    own.loaded.launch(0);
    for reply in &late {
        assert_eq!(own.run(0, reply).0, XDP_DROP);
    }
    assert_eq!(own.run(0, &own.reply(0, [&[24], &[22]])).0, XDP_TX);
    assert_eq!(own.run(0, &late[0]).0, XDP_DROP);
    let expected = Counters { ok: 1, sent: 1, received: 5, late: 3, duplicate: 1, ..Counters::default() };
    assert_eq!(Counters { reordered: 0, ..own.loaded.counters() }, expected);
}

#[test]
fn lengths_of_any_form_move_the_identifier() {
    udpath_lab::needs_root!();
    let own = Own::new();
    own.loaded.launch(0);
    let forms: [&[u8]; 4] = [&[24], &[0x81, 24], &[0x82, 0, 24], &[0x84, 0, 0, 0, 24]];
    let mut ok = 0;
    for outer in forms {
        for inner in forms {
            let reply = own.reply(0, [outer, inner]);
            let mut other_code = reply.clone();
            other_code[outer.len() + inner.len() + 3] = 1;
            assert_eq!(own.run(0, &other_code).0, XDP_DROP, "{outer:?} {inner:?}");
            assert_eq!(own.run(0, &reply).0, XDP_TX, "{outer:?} {inner:?}");
            ok += 1;
        }
    }
    let mut corrupt = ok;
    for (at, value) in [(0, 0x31), (2, 0xa0), (1, 0x85), (3, 0xff)] {
        let mut reply = own.reply(0, [&[24], &[22]]);
        reply[at] = value;
        assert_eq!(own.run(0, &reply).0, XDP_DROP, "{at}");
        corrupt += 1;
    }
    // Long lengths leave less of the reply than it must have at least.
    let long = own.reply(0, [&[0x84, 0, 0, 0, 9], &[0x84, 0, 0, 0, 1]]);
    for len in [2, 7, 12, 17] {
        assert_eq!(own.run(0, &long[..len]).0, XDP_DROP, "{len}");
        corrupt += 1;
    }
    assert_eq!(
        own.loaded.counters(),
        Counters { ok, sent: ok, corrupt, received: ok + corrupt, ..Counters::default() }
    );
}

#[test]
fn own_requests_that_cannot_work_are_rejected() {
    let table = |reply: ReplyRules, slots, per_id, write: fn(u32, u64) -> Vec<u8>| {
        RequestTable::of_slots(ID, reply, slots, 0, per_id, write).map(drop).unwrap_err()
    };
    let without = |flow, _| written(flow, 7);
    assert_eq!(table(reply_rules(), (1, 1), 1, without), TableError::Declaration(Declared::Id));
    let cut = |flow, seq| [&[0x30, 0x85], &written(flow, seq)[..]].concat();
    assert_eq!(table(reply_rules(), (1, 1), 1, cut), TableError::Declaration(Declared::Element));
    for within in [vec![OUTER; 3], vec![Element { at: 9, tag: 0x30 }]] {
        let reply = ReplyRules { within, ..reply_rules() };
        assert_eq!(table(reply, (1, 1), 1, written), TableError::Declaration(Declared::Element));
    }
    assert_eq!(table(reply_rules(), (1, 64), 1, written), TableError::InFlight { bits: 8, most: 32 });
    assert_eq!(table(reply_rules(), (4097, 1), 2, written), TableError::Slots { most: 4096 });
    assert_eq!(table(reply_rules(), (0, 1), 2, written), TableError::Requests(0));
    assert!(RequestTable::of_slots(ID, reply_rules(), (4096, 1), 0, 2, written).is_ok());
}
