use std::sync::LazyLock;

use udpath_load::plan::MAX_FLOWS;
use udpath_load::template::{Judgement, Protocol};
use udpath_protocols::snmp::{Asker, Oid, Operation, Question, SnmpConfig, SnmpLoad, User};

const OPERATIONS: [Operation; 3] = [Operation::Get, Operation::GetNext, Operation::GetBulk];
const RUN: u64 = 7;

/// A load of each version and operation. Made once: the engine that version 3 assumes is always the same.
static LOADS: LazyLock<Vec<SnmpLoad>> = LazyLock::new(|| {
    let askers = [Asker::Community("public".into()), Asker::User(User { name: "joe".into(), auth: None })];
    let of = |asker: &Asker, operation| {
        let oids = ["1.3.6.1.2.1.1.3.0", "1.3.6.1.2.1.1.5"].map(|oid| oid.parse().expect("an OID")).into();
        let questions = vec![Question { operation, oids, repetitions: 3 }];
        SnmpLoad::new(RUN, SnmpConfig { asker: asker.clone(), questions }).expect("short enough")
    };
    askers.iter().flat_map(|asker| OPERATIONS.map(|operation| of(asker, operation))).collect()
});

/// Replies to the load. The first byte selects the version and the operation, the next four the flow, and the rest is
/// the reply: a valid one has the id of the request that it names, and every other flow's reply is another one's.
pub fn snmp_reply(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    let Some((flow, reply)) = rest.split_first_chunk() else { return };
    let flow = u32::from_be_bytes(*flow) % MAX_FLOWS;
    let mut template = LOADS[usize::from(*which) % LOADS.len()].template();
    let mut request = vec![0; template.min_size()];
    match template.check(flow, reply) {
        Judgement::Valid { seq } | Judgement::Refused { seq } => {
            assert!(seq < 1 << template.seq_bits());
            let len = template.write(flow, seq, &mut request);
            // Versions 2c and 3 without a code: the id is in the request's PDU, after its tag and length.
            let id = id_of(&request[..len]).expect("a request has an id");
            assert!(reply.windows(4).any(|bytes| bytes == id), "{id:?} is not in the reply");
        }
        Judgement::WrongFlow | Judgement::Corrupt => {}
    }
    // A request of its own is no reply.
    let len = template.write(flow, u64::from(*which), &mut request);
    assert_eq!(template.check(flow, &request[..len]), Judgement::Corrupt);
}

/// The four bytes that are the id: those of a request with the next sequence number differ in their last one.
fn id_of(request: &[u8]) -> Option<[u8; 4]> {
    let at = request.windows(4).position(|bytes| bytes[..2] == [2, 4] && bytes[2] & 0xc0 == 0x40)?;
    request.get(at + 2..)?.first_chunk().copied()
}

/// OIDs as users type them: what is accepted has an encoding whose text is the same, and what is not is named.
pub fn snmp_oid(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Oid>() {
        Ok(oid) => {
            let again = shown(oid.contents());
            let plain = text.strip_prefix('.').unwrap_or(text);
            let numbers =
                |text: &str| text.split('.').map(|part| part.parse::<u32>().ok()).collect::<Vec<_>>();
            assert_eq!(numbers(&again), numbers(plain), "{text}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An independent reading of an OID's encoding.
fn shown(contents: &[u8]) -> String {
    let mut parts = Vec::new();
    let mut part = 0_u64;
    for byte in contents {
        part = part * 128 + u64::from(byte % 128);
        if *byte < 128 {
            parts.push(std::mem::take(&mut part));
        }
    }
    let root = (parts[0] / 40).min(2);
    parts[0] -= root * 40;
    let all = std::iter::once(root).chain(parts).map(|part| part.to_string());
    all.collect::<Vec<_>>().join(".")
}
