//! What the kernel engine looks at in a reply: its code and identifier. The complete check verifies the authenticators.
//!
//! Requests are signed, identifier included, so they are written before the run. A flow has 256 identifiers, and uses
//! each with several requests in turn: a server that remembers the last request of each identifier, as FreeRADIUS does,
//! never sees that one again.

use std::borrow::Cow;
use std::time::Duration;

use udpath_load::template::{Id, Prebuilt, ReplyRules, Rule, Signed, Verdict, Written};

use super::super::packet::{Code, HEADER};
use super::super::users::Verdict as Outcome;
use super::LoadConfig;

/// The longest reply that fits an Ethernet frame over IPv4, bytes.
const MAX_REPLY: usize = 1472;
/// How long servers remember requests: RFC 5080, 2.2.2 suggests "a short time", which is 5 s in FreeRADIUS and udpath.
const REMEMBERED: Duration = Duration::from_secs(5);

const ACCEPTED: [Rule; 4] = verdicts(Code::ACCESS_ACCEPT, Verdict::Refused);
const REJECTED: [Rule; 4] = verdicts(Code::ACCESS_REJECT, Verdict::Refused);
const CHALLENGED: [Rule; 4] = verdicts(Code::ACCESS_CHALLENGE, Verdict::Refused);
/// Users have different verdicts: the complete check knows which.
const ANY: [Rule; 4] = verdicts(Code::ACCESS_ACCEPT, Verdict::Valid);
const ACCOUNTED: [Rule; 1] =
    [Rule::unless(0, CODE, [Code::ACCOUNTING_RESPONSE.0, 0, 0, 0], Verdict::Corrupt)];
const CODE: [u8; 4] = [0xff, 0, 0, 0];

/// A reply with code `expected` is valid, with another verdict `other`.
const fn verdicts(expected: Code, other: Verdict) -> [Rule; 4] {
    [
        Rule::when(0, CODE, [expected.0, 0, 0, 0], Verdict::Valid),
        Rule::when(0, [0xfe, 0, 0, 0], [Code::ACCESS_ACCEPT.0, 0, 0, 0], other),
        Rule::when(0, CODE, [Code::ACCESS_CHALLENGE.0, 0, 0, 0], other),
        Rule::when(0, [0; 4], [0; 4], Verdict::Corrupt),
    ]
}

/// Accept and Reject differ in the lowest bit.
const _: () = assert!(Code::ACCESS_ACCEPT.0 == 2 && Code::ACCESS_REJECT.0 == 3);

pub(super) fn prebuilt(config: &LoadConfig) -> Prebuilt {
    let users = config.users.all();
    let all = |is: fn(&Outcome) -> bool| users.iter().all(|user| is(&user.verdict));
    let rules: &[Rule] = if config.accounting {
        &ACCOUNTED
    } else if all(|verdict| matches!(verdict, Outcome::Accept)) {
        &ACCEPTED
    } else if all(|verdict| matches!(verdict, Outcome::Reject)) {
        &REJECTED
    } else if all(|verdict| matches!(verdict, Outcome::Challenge { .. })) {
        &CHALLENGED
    } else {
        &ANY
    };
    Prebuilt {
        requests: Written::Signed(Signed { per_id: 2, lifetime: None, remembered: Some(REMEMBERED) }),
        id: Id { at: 1, echoed_at: 1, width: 1, bits: u8::BITS },
        reply: ReplyRules { min: HEADER, max: MAX_REPLY, within: Vec::new(), rules: Cow::Borrowed(rules) },
    }
}
