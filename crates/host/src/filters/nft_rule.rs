//! One rule of nftables, evaluated for a datagram: its expressions in order, over partially known registers.

use std::collections::BTreeMap;

use udpath_netlink::Attributes;
use udpath_netlink::netfilter::{be32, parts};
use udpath_netlink::numbers::*;

use super::Datagram;
use super::bits::{Bits, not};
use super::chain::{Action, Applies, Rule};
use super::nft_set::{Element, INTERVAL_END, Verdict, listed, verdict};
use super::nft_text::{self as text, Field};
use super::xtables_match;

/// Families of linux/netfilter.h.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// Registers: the verdict register; four of 16 bytes, or sixteen of 4 in the same space (`NFT_REG_1`, `NFT_REG32_00`).
const VERDICT: u32 = 0;
const REGISTERS: usize = 64;
/// A flag of a set element: the catch-all element.
const CATCH_ALL: u32 = 2;

/// A rule in the kernel's form.
#[derive(Debug)]
pub(super) struct RawRule {
    pub(super) family: u8,
    pub(super) table: String,
    pub(super) chain: String,
    pub(super) handle: Option<u64>,
    /// The list of expressions.
    pub(super) expressions: Vec<u8>,
}

/// Decodes a rule.
pub(super) fn rule(body: &[u8]) -> Option<RawRule> {
    let (family, is) = parts(body)?;
    Some(RawRule {
        family,
        table: is.text(NFTA_RULE_TABLE)?,
        chain: is.text(NFTA_RULE_CHAIN)?,
        handle: is.bytes(NFTA_RULE_HANDLE).and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?))),
        expressions: is.bytes(NFTA_RULE_EXPRESSIONS).unwrap_or_default().to_vec(),
    })
}

/// State of evaluating one rule.
pub(super) struct Evaluation<'a> {
    datagram: &'a Datagram,
    registers: Bits,
    /// The fields loaded into the registers, by first byte.
    fields: BTreeMap<usize, Field>,
    applies: Applies,
    action: Action,
    words: Vec<String>,
    /// Lookups in verdict maps with an unknown key: the possible verdicts.
    choices: Vec<Verdict>,
}

pub(super) type LookUp<'a> = dyn FnMut(&str) -> Option<Vec<Element>> + 'a;

impl<'a> Evaluation<'a> {
    pub(super) fn new(datagram: &'a Datagram) -> Self {
        Self {
            datagram,
            registers: Bits::unknown(REGISTERS),
            fields: BTreeMap::new(),
            applies: Applies::Yes,
            action: Action::Nothing,
            words: Vec::new(),
            choices: Vec::new(),
        }
    }

    pub(super) fn run(mut self, rule: &RawRule, look_up: &mut LookUp<'_>) -> Vec<Rule> {
        for expression in listed(Attributes::new(&rule.expressions)) {
            let name = expression.text(NFTA_EXPR_NAME).unwrap_or_default();
            self.step(&name, expression.nested(NFTA_EXPR_DATA), look_up);
            if self.applies == Applies::No {
                return Vec::new();
            }
        }
        let words = text::joined(&self.words);
        let (applies, handle) = (self.applies, rule.handle);
        if self.choices.is_empty() {
            return vec![Rule { applies, action: self.action, text: words, handle }];
        }
        let chosen = |verdict: Verdict| Rule {
            applies: Applies::Maybe,
            action: verdict.action,
            text: format!("{words} {}", verdict.text),
            handle,
        };
        self.choices.into_iter().map(chosen).collect()
    }

    fn meets(&mut self, applies: Applies) {
        self.applies = self.applies.min(applies);
    }

    fn says(&mut self, words: impl Into<String>) {
        self.words.push(words.into());
    }

    /// Loads the known bits of a field.
    fn load(&mut self, register: Option<u32>, field: Field, bits: &Bits) {
        let Some(at) = register.and_then(place) else { return };
        // The unused bytes of a register are 0.
        self.registers.overlay(at, &Bits::known(&[0; 4]));
        self.registers.overlay(at, bits);
        self.fields.insert(at, field);
    }

    fn step(&mut self, name: &str, is: Attributes<'_>, look_up: &mut LookUp<'_>) {
        match name {
            "payload" if is.has(NFTA_PAYLOAD_SREG) => self.effect("payload set"),
            "payload" => {
                let number = |kind| be32(is, kind).unwrap_or(0) as usize;
                let (base, offset) = (number(NFTA_PAYLOAD_BASE), number(NFTA_PAYLOAD_OFFSET));
                let len = number(NFTA_PAYLOAD_LEN).min(REGISTERS);
                let field = Field::payload(self.datagram.address.is_ipv4(), base, offset, len);
                let bits = header(self.datagram, base).part(offset, len);
                self.load(be32(is, NFTA_PAYLOAD_DREG), field, &bits);
            }
            "meta" if !is.has(NFTA_META_DREG) => self.effect("meta set"),
            "meta" => {
                let key = be32(is, NFTA_META_KEY).and_then(|key| u16::try_from(key).ok()).unwrap_or(u16::MAX);
                self.load(be32(is, NFTA_META_DREG), Field::Meta(key), &meta(self.datagram, key));
            }
            "ct" if !is.has(NFTA_CT_DREG) => self.effect("ct set"),
            "ct" => {
                let key = be32(is, NFTA_CT_KEY).unwrap_or(u32::MAX);
                self.load(be32(is, NFTA_CT_DREG), Field::Ct(key), &Bits::unknown(16));
            }
            "cmp" => self.compare(is),
            "range" => self.range(is),
            "bitwise" => self.bitwise(is),
            "immediate" => self.immediate(is),
            "lookup" => self.look_up(is, look_up),
            "counter" | "last" => {}
            "log" | "notrack" | "dup" => self.effect(name),
            "limit" | "quota" | "connlimit" => {
                self.meets(Applies::Maybe);
                self.says(name);
            }
            "reject" | "queue" | "nat" | "masq" | "redir" | "tproxy" | "synproxy" | "fwd" => {
                self.action = Action::End;
                self.says(name);
            }
            "match" => {
                let called = is.text(NFTA_MATCH_NAME).unwrap_or_default();
                let info = is.bytes(NFTA_MATCH_INFO).unwrap_or_default();
                let (applies, words) = xtables_match::match_of(&called, info, self.datagram);
                self.meets(applies);
                self.says(words);
            }
            "target" => {
                let called = is.text(NFTA_TARGET_NAME).unwrap_or_default();
                self.action = xtables_match::target_of(&called);
                self.says(called);
            }
            // It loads something, or ends the rule here on a condition of its own.
            other => {
                self.registers = Bits::unknown(REGISTERS);
                self.fields.clear();
                self.meets(Applies::Maybe);
                self.says(other);
            }
        }
    }

    fn effect(&mut self, name: &str) {
        if self.action == Action::Nothing {
            self.action = Action::Effect;
        }
        self.says(name);
    }

    /// The field in a register, and the register's offset.
    fn source(&self, is: Attributes<'_>, kind: u16) -> (usize, Field) {
        let at = be32(is, kind).and_then(place).unwrap_or(REGISTERS);
        (at, self.fields.get(&at).cloned().unwrap_or(Field::Unknown))
    }

    fn compare(&mut self, is: Attributes<'_>) {
        let (at, field) = self.source(is, NFTA_CMP_SREG);
        let data = is.nested(NFTA_CMP_DATA).bytes(NFTA_DATA_VALUE).unwrap_or_default();
        let bits = self.registers.part(at, data.len());
        let (applies, operator) = match be32(is, NFTA_CMP_OP) {
            Some(0) => (bits.equals(data), ""),
            Some(1) => (not(bits.equals(data)), "!= "),
            Some(2) => (bits.is(data, std::cmp::Ordering::is_lt), "< "),
            Some(3) => (bits.is(data, std::cmp::Ordering::is_le), "<= "),
            Some(4) => (bits.is(data, std::cmp::Ordering::is_gt), "> "),
            Some(5) => (bits.is(data, std::cmp::Ordering::is_ge), ">= "),
            _ => (Applies::Maybe, "? "),
        };
        self.meets(applies);
        self.says(field.compared(operator, data));
    }

    fn range(&mut self, is: Attributes<'_>) {
        let (at, field) = self.source(is, NFTA_RANGE_SREG);
        let end = |kind| is.nested(kind).bytes(NFTA_DATA_VALUE).unwrap_or_default();
        let (from, to) = (end(NFTA_RANGE_FROM_DATA), end(NFTA_RANGE_TO_DATA));
        let bits = self.registers.part(at, from.len());
        let inside = bits.is(from, std::cmp::Ordering::is_ge).min(bits.is(to, std::cmp::Ordering::is_le));
        let outside = be32(is, NFTA_RANGE_OP) == Some(1);
        self.meets(if outside { not(inside) } else { inside });
        let operator = if outside { "!= " } else { "" };
        self.says(format!("{}-{}", field.compared(operator, from), field.value(to)));
    }

    fn bitwise(&mut self, is: Attributes<'_>) {
        let (at, field) = self.source(is, NFTA_BITWISE_SREG);
        let value = |kind| is.nested(kind).bytes(NFTA_DATA_VALUE).unwrap_or_default();
        let (mask, xor) = (value(NFTA_BITWISE_MASK), value(NFTA_BITWISE_XOR));
        // 0: mask and xor; others shift, or use a second register.
        let bits = match be32(is, NFTA_BITWISE_OP) {
            None | Some(0) => self.registers.part(at, mask.len()).masked(mask, xor),
            _ => Bits::unknown(16),
        };
        self.load(be32(is, NFTA_BITWISE_DREG), field.masked(mask), &bits);
    }

    fn immediate(&mut self, is: Attributes<'_>) {
        let data = is.nested(NFTA_IMMEDIATE_DATA);
        if be32(is, NFTA_IMMEDIATE_DREG) == Some(VERDICT) {
            if let Some(verdict) = verdict(data) {
                self.action = verdict.action;
                self.says(verdict.text);
            }
        } else {
            let value = data.bytes(NFTA_DATA_VALUE).unwrap_or_default();
            self.load(be32(is, NFTA_IMMEDIATE_DREG), Field::Unknown, &Bits::known(value));
        }
    }

    fn look_up(&mut self, is: Attributes<'_>, look_up: &mut LookUp<'_>) {
        let (at, field) = self.source(is, NFTA_LOOKUP_SREG);
        let name = is.text(NFTA_LOOKUP_SET).unwrap_or_default();
        let inverted = be32(is, NFTA_LOOKUP_FLAGS).is_some_and(|flags| flags & 1 != 0);
        let into = be32(is, NFTA_LOOKUP_DREG);
        let map = if into == Some(VERDICT) { "vmap " } else { "" };
        self.says(format!("{} {}{map}{}", field.name(), if inverted { "!= " } else { "" }, text::set(&name)));
        let known = self.registers.part(at, REGISTERS);
        let elements = if known.any() || into == Some(VERDICT) { look_up(&name) } else { None };
        let Some(elements) = elements else {
            self.meets(Applies::Maybe);
            if into == Some(VERDICT) {
                self.action = Action::End;
            }
            return self.forget(into);
        };
        let (applies, chosen) = contains(&elements, &known);
        self.meets(if inverted { not(applies) } else { applies });
        if into != Some(VERDICT) {
            return self.forget(into);
        }
        match chosen {
            Some(Verdict { action, text }) => {
                self.action = action;
                self.says(text);
            }
            None if applies == Applies::Maybe => {
                let verdicts = elements.iter().filter_map(|element| element.verdict.clone());
                for verdict in verdicts {
                    if !self.choices.contains(&verdict) {
                        self.choices.push(verdict);
                    }
                }
            }
            None => {}
        }
    }

    /// Map values are not looked up.
    fn forget(&mut self, register: Option<u32>) {
        if register.is_some_and(|register| register != VERDICT) {
            self.load(register, Field::Unknown, &Bits::unknown(16));
        }
    }
}

/// Whether a set contains the key at the start of the registers, and a map's verdict for it.
fn contains(elements: &[Element], registers: &Bits) -> (Applies, Option<Verdict>) {
    let catch_all = elements.iter().find(|element| element.flags & CATCH_ALL != 0);
    let other = || match catch_all {
        Some(element) => (Applies::Yes, element.verdict.clone()),
        None => (Applies::No, None),
    };
    let keys: Vec<_> = elements.iter().filter(|element| element.flags & CATCH_ALL == 0).collect();
    if keys.iter().any(|element| element.to) {
        return (Applies::Maybe, None);
    }
    if keys.iter().any(|element| element.flags & INTERVAL_END != 0) {
        let len = keys[0].key.len();
        let value = registers.part(0, len);
        let Some(value) = value.whole() else { return (Applies::Maybe, None) };
        return match keys.iter().rev().find(|element| element.key.as_slice() <= value) {
            Some(element) if element.flags & INTERVAL_END == 0 => (Applies::Yes, element.verdict.clone()),
            _ => other(),
        };
    }
    let mut best = other();
    for element in keys {
        match registers.equals(&element.key) {
            Applies::Yes => return (Applies::Yes, element.verdict.clone()),
            Applies::Maybe => best = (Applies::Maybe, None),
            Applies::No => {}
        }
    }
    best
}

/// Offset of a register.
fn place(register: u32) -> Option<usize> {
    match register {
        1..=4 => Some((register as usize - 1) * 16),
        8..=23 => Some((register as usize - 8) * 4),
        _ => None,
    }
}

/// The known part of a header: link, network or transport.
fn header(datagram: &Datagram, base: usize) -> Bits {
    let ip = datagram.ip();
    let mut bits = Bits::unknown(64);
    match (base, datagram.address.is_ipv4()) {
        (1, true) => {
            bits.put(0, &[0x45]);
            // Unfragmented: no more fragments, and no offset.
            bits.overlay(6, &Bits::unknown(2).masked(&[0xc0, 0], &[0, 0]));
            bits.put(9, &[libc::IPPROTO_UDP as u8]);
            if let Some(std::net::IpAddr::V4(ip)) = ip {
                bits.put(16, &ip.octets());
            }
        }
        (1, false) => {
            bits.put(6, &[libc::IPPROTO_UDP as u8]);
            if let Some(std::net::IpAddr::V6(ip)) = ip {
                bits.put(24, &ip.octets());
            }
        }
        (2, _) => bits.put(2, &datagram.address.port().to_be_bytes()),
        _ => {}
    }
    bits
}

/// The known metadata of a packet.
fn meta(datagram: &Datagram, key: u16) -> Bits {
    let ipv4 = datagram.address.is_ipv4();
    match key {
        NFT_META_PROTOCOL => Bits::known(&if ipv4 { 0x0800_u16 } else { 0x86dd }.to_be_bytes()),
        NFT_META_NFPROTO => Bits::known(&[if ipv4 { IPV4 } else { IPV6 }]),
        NFT_META_L4PROTO => Bits::known(&[libc::IPPROTO_UDP as u8]),
        // Only for this host (`PACKET_HOST`): the program takes nothing else.
        NFT_META_PKTTYPE => Bits::known(&[0]),
        NFT_META_IIF => match datagram.index {
            Some(index) => Bits::known(&index.to_ne_bytes()),
            None => Bits::unknown(4),
        },
        NFT_META_IIFNAME if datagram.index.is_some() => {
            let mut name = Bits::known(&[0; 16]);
            name.put(0, datagram.interface.as_bytes());
            name
        }
        _ => Bits::unknown(16),
    }
}
