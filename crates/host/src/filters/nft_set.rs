//! Sets of nftables and the verdicts in them: an element is a value, or the begin or end of an interval; an element of
//! a verdict map also decides.

use udpath_netlink::netfilter::{be32, parts};
use udpath_netlink::numbers::*;
use udpath_netlink::{Attributes, Writer};

use super::chain::Action;
use crate::client::Client;

/// Verdicts: `NF_*` of linux/netfilter.h, `NFT_*` of linux/netfilter/nf_tables.h.
pub(super) const DROP: i32 = 0;
const ACCEPT: i32 = 1;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;
/// A flag of a set element: the end of an interval.
pub(super) const INTERVAL_END: u32 = 1;
/// Most elements of a set that are read: larger sets are blocklists of sources, which are unknown anyway. A larger set
/// may contain any value.
const MOST_ELEMENTS: usize = 65_536;

/// An element of a set.
#[derive(Debug, Clone)]
pub(super) struct Element {
    pub(super) key: Vec<u8>,
    pub(super) flags: u32,
    /// The upper end of a range over concatenated fields, each within its own bounds.
    pub(super) to: bool,
    pub(super) verdict: Option<Verdict>,
}

/// The verdict of a rule, or of an element of a verdict map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) action: Action,
    pub(super) text: String,
}

/// The elements of a list.
pub(super) fn listed(list: Attributes<'_>) -> impl Iterator<Item = Attributes<'_>> {
    list.iter().filter(|(kind, _)| *kind == NFTA_LIST_ELEM).map(|(_, value)| Attributes::new(value))
}

/// Decodes a verdict.
pub(super) fn verdict(data: Attributes<'_>) -> Option<Verdict> {
    let is = data.nested(NFTA_DATA_VERDICT);
    let code = be32(is, NFTA_VERDICT_CODE)?.cast_signed();
    let to = || is.text(NFTA_VERDICT_CHAIN).unwrap_or_default();
    let (action, text) = match code {
        DROP => (Action::End, "drop".to_owned()),
        ACCEPT => (Action::Accept, "accept".to_owned()),
        JUMP => (Action::Jump(to()), format!("jump {}", to())),
        GOTO => (Action::Goto(to()), format!("goto {}", to())),
        RETURN => (Action::Return, "return".to_owned()),
        // Queues, and codes of later kernels; continuing is not a verdict.
        code if code >= 0 => (Action::End, "queue".to_owned()),
        _ => (Action::Nothing, String::new()),
    };
    Some(Verdict { action, text })
}

/// A set's elements; [`None`] if they cannot be read or are too many.
pub(super) fn elements(client: &mut Client, family: u8, table: &str, set: &str) -> Option<Vec<Element>> {
    let mut body = Writer::default();
    body.text(NFTA_SET_ELEM_LIST_TABLE, table).text(NFTA_SET_ELEM_LIST_SET, set);
    let answers = client.nft_list(NFT_MSG_GETSETELEM, family, &body).ok()?;
    let mut all: Vec<Element> = Vec::new();
    for body in answers.bodies() {
        let (_, is) = parts(body)?;
        all.extend(listed(is.nested(NFTA_SET_ELEM_LIST_ELEMENTS)).filter_map(element));
        if all.len() > MOST_ELEMENTS {
            return None;
        }
    }
    // An end sorts before a start at the same value.
    all.sort_by(|a, b| (&a.key, a.flags & INTERVAL_END == 0).cmp(&(&b.key, b.flags & INTERVAL_END == 0)));
    Some(all)
}

/// Decodes an element.
pub(super) fn element(is: Attributes<'_>) -> Option<Element> {
    let flags = be32(is, NFTA_SET_ELEM_FLAGS).unwrap_or(0);
    let key = is.nested(NFTA_SET_ELEM_KEY).bytes(NFTA_DATA_VALUE).unwrap_or_default().to_vec();
    let verdict = verdict(is.nested(NFTA_SET_ELEM_DATA));
    Some(Element { key, flags, to: is.has(NFTA_SET_ELEM_KEY_END), verdict })
}
