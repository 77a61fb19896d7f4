//! What the kernel engine looks at in a reply.
//!
//! ```text
//! version 2c   30 L | 02 01 01 | 04 community | a2 L | 02 04 request-id | 02 01 error-status | 02 01 error-index | ...
//! version 3    30 L | 02 01 03 | 30 L | 02 04 msgID | 02 msgMaxSize | ...
//! ```
//! An agent may write each length L in one byte or more. The requests are written before the run, and not changed: in
//! version 3 they are signed, and in version 2c the lengths before the request-id differ from one to the next.

use std::time::Duration;

use udpath_load::template::{Element, Id, Prebuilt, ReplyRules, Rule, Signed, Verdict, Written};

use super::MAX_MESSAGE;
use super::ber::tag;
use super::pdu::RESPONSE;

/// Bits of the sequence number in an id: 4 million requests of a flow may be in flight.
pub(super) const SEQ_BITS: u32 = 22;
/// Bytes of a version, an INTEGER.
const VERSION: usize = 3;
/// Bytes of tag and length, if the length has one byte.
const HEAD: usize = 2;
/// Bytes of an id.
const ID: usize = 4;
/// Bytes after the request-id: error-status, error-index and the list of variables, each at least.
const AFTER_REQUEST_ID: usize = 3 + 3 + HEAD;
/// Bytes after the msgID: msgMaxSize, flags and security model, each at least.
const AFTER_MESSAGE_ID: usize = 3 + 3 + 3;
/// An agent refuses messages whose time differs by more than 150 s from its own (RFC 3414, 3.2, step 7). What is left
/// of that after discovery, and for clocks that run apart.
const LIFETIME: Duration = Duration::from_secs(140);

/// Version 2c with this community. `None`: it is so long that its own length takes more than a byte.
pub(super) fn version_2c(community: &str) -> Option<Prebuilt> {
    let pdu = HEAD + VERSION + HEAD + Some(community.len()).filter(|len| *len < 0x80)?;
    let request_id = pdu + HEAD + HEAD;
    let error_status = request_id + ID;
    let rules = vec![
        before_id(request_id),
        Rule::unless(error_status, [0xff, 0xff, 0, 0xff], [2, 1, 0, 2], Verdict::Corrupt),
        Rule::unless(error_status, [0, 0, 0xff, 0], [0; 4], Verdict::Refused),
    ];
    let within = [Element { at: 0, tag: tag::SEQUENCE }, Element { at: pdu, tag: RESPONSE }];
    Some(prebuilt(request_id, AFTER_REQUEST_ID, within, rules, None))
}

/// Version 3. What an agent reports instead of answering is seen by the complete check only.
pub(super) fn version_3() -> Prebuilt {
    let header = HEAD + VERSION;
    let message_id = header + HEAD + HEAD;
    let within = [0, header].map(|at| Element { at, tag: tag::SEQUENCE });
    prebuilt(message_id, AFTER_MESSAGE_ID, within, vec![before_id(message_id)], Some(LIFETIME))
}

/// Tag and length of an id.
fn before_id(at: usize) -> Rule {
    Rule::unless(at - HEAD, [0xff, 0xff, 0, 0], [tag::INTEGER, ID as u8, 0, 0], Verdict::Corrupt)
}

fn prebuilt(
    at: usize,
    after: usize,
    within: [Element; 2],
    rules: Vec<Rule>,
    lifetime: Option<Duration>,
) -> Prebuilt {
    Prebuilt {
        requests: Written::Signed(Signed { per_id: 1, lifetime, remembered: None }),
        id: Id { at, echoed_at: at, width: ID, bits: SEQ_BITS },
        reply: ReplyRules {
            min: at + ID + after,
            max: MAX_MESSAGE,
            within: within.to_vec(),
            rules: rules.into(),
        },
    }
}
