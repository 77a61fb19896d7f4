//! Signed zones. A zone of the naive search gets NSEC or NSEC3 records and signatures (of three bytes: nobody verifies
//! them), and what a client that asks for them gets must be as a validating resolver wants it: [`validator`].

use std::collections::{BTreeMap, BTreeSet};

use domain::base::iana::Rtype;
use sha1::{Digest as _, Sha1};

use super::naive::{APEXES, Line, Naive, Zone, name, owner, zone};
use super::*;
use proptest::prelude::*;

mod answers;
mod validator;

/// How the names of a zone are chained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chained {
    No,
    Nsec,
    /// With this number of iterations, and whether delegations that are not signed are left out.
    Nsec3(u16, bool),
}

/// Salt of all zones with NSEC3 records, and its text.
const SALT: (&[u8], &str) = (&[0xaa, 0xbb], "aabb");

/// The hash of a name in text form, in base 32 (RFC 5155, 5; RFC 4648, 7).
fn hash(name: &str, iterations: u16) -> String {
    let mut hash = [&name::from_text(name).unwrap()[..], SALT.0].concat();
    for _ in 0..=iterations {
        hash = [&Sha1::digest(&hash)[..], SALT.0].concat();
    }
    let bits = hash[..20].iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let bits: Vec<u8> = bits.collect();
    let digit = |bits: &[u8]| bits.iter().fold(0, |value, bit| value << 1 | usize::from(*bit));
    bits.chunks(5).map(|bits| char::from(b"0123456789abcdefghijklmnopqrstuv"[digit(bits)])).collect()
}

/// The labels of a name from the root, which are in the order of names.
fn labels(name: &str) -> Vec<&[u8]> {
    name.trim_end_matches('.').rsplit('.').map(str::as_bytes).collect()
}

/// The zone's records with the chain and the signatures.
fn sign(zone: &Zone, chained: Chained) -> String {
    if chained == Chained::No {
        return String::new();
    }
    let apex = &zone.apex;
    let mut text = format!("{apex}. DNSKEY 256 3 8 AQID\n");
    // Each name that the zone answers for, its types, and whether it is a delegation.
    let mut names: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    for (owner, rtype, _) in &zone.records {
        if zone.cut(owner).is_none_or(|cut| cut == *owner) {
            names.entry(owner).or_default().insert(*rtype);
        }
    }
    names.entry(apex).or_default().insert(48);
    let is_cut = |name: &str| zone.cut(name).is_some();
    let has = |name: &str| names.get(name).cloned().unwrap_or_default();
    let signs = |name: &str, rtype: u16| !is_cut(name) || [43, 47].contains(&rtype);
    let bitmap = |name: &str, more: &[u16]| {
        let mut types: BTreeSet<u16> = has(name);
        if is_cut(name) {
            types.retain(|rtype| [2, 43].contains(rtype));
        }
        types.extend(more);
        if types.iter().any(|rtype| signs(name, *rtype)) {
            types.insert(46);
        }
        types.into_iter().map(|rtype| Rtype::from_int(rtype).to_string()).collect::<Vec<_>>().join(" ")
    };
    let signature = |owner: &str, rtype: u16| {
        let labels = owner.trim_end_matches('.').split('.').filter(|label| *label != "*").count();
        let rtype = Rtype::from_int(rtype);
        format!("{owner}. RRSIG {rtype} 8 {labels} 7 20300101000000 20200101000000 1 {apex}. AQID\n")
    };
    match chained {
        Chained::No => {}
        Chained::Nsec => {
            let mut order: Vec<&str> = names.keys().copied().collect();
            order.sort_by_key(|name| labels(name));
            for (name, next) in order.iter().zip(order.iter().cycle().skip(1)) {
                text += &format!("{name}. NSEC {next}. {}\n{}", bitmap(name, &[47]), signature(name, 47));
            }
        }
        Chained::Nsec3(iterations, opt_out) => {
            let params = format!("{iterations} {}", SALT.1);
            text += &format!("{apex}. 0 NSEC3PARAM 1 0 {params}\n{}", signature(apex, 51));
            let is_chained = |name: &str| !opt_out || !is_cut(name) || has(name).contains(&43);
            let chained = names.keys().filter(|name| is_chained(name));
            let all: BTreeSet<String> = chained.flat_map(|name| zone.path(name)).collect();
            let mut hashes: Vec<(String, String)> =
                all.into_iter().map(|name| (hash(&name, iterations), name)).collect();
            hashes.sort();
            for ((hash, name), (next, _)) in hashes.iter().zip(hashes.iter().cycle().skip(1)) {
                let param = if name == apex { &[51][..] } else { &[] };
                let (owner, types) = (format!("{hash}.{apex}"), bitmap(name, param));
                let flags = u8::from(opt_out);
                text +=
                    &format!("{owner}. NSEC3 1 {flags} {params} {next} {types}\n{}", signature(&owner, 50));
            }
        }
    }
    for (name, types) in &names {
        let signed = types.iter().filter(|rtype| signs(name, **rtype));
        signed.for_each(|rtype| text += &signature(name, *rtype));
    }
    text
}

/// The zone `x` with NSEC or, if `hashed`, NSEC3 records, and signatures of 64 bytes, as those of ECDSA.
pub(in crate::dns) fn signed(text: &str, hashed: bool) -> String {
    let chained = if hashed { Chained::Nsec3(0, false) } else { Chained::Nsec };
    let signatures = sign(&Zone::of("x", text), chained).replace("AQID", &format!("{}==", "A".repeat(86)));
    format!("{text}{signatures}")
}

fn chained() -> impl Strategy<Value = Chained> {
    let hashed = [0, 3].map(|iterations| [false, true].map(|opt_out| Chained::Nsec3(iterations, opt_out)));
    let all = [&[Chained::No, Chained::Nsec, Chained::Nsec][..], hashed.as_flattened()].concat();
    prop::sample::select(all)
}

/// A query that asks for signatures.
pub(in crate::dns) fn secure_query(name: &str, qtype: u16) -> Vec<u8> {
    query(name, qtype, (1, &[0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_answer_of_signed_zones_is_whole(
        owners in prop::collection::vec(owner(), 0..14),
        outer in chained(),
        nested in prop::collection::vec(
            (prop::sample::select(APEXES.to_vec()), prop::collection::vec(owner(), 0..14), chained()), 0..4
        ),
        asked in prop::collection::vec((name(), prop::sample::select(vec![1, 2, 5, 6, 15, 16, 28, 43])), 1..30),
    ) {
        let mut zones = vec![("x", zone("x", 1, &owners), outer)];
        for (apex, owners, chained) in nested {
            if zones.iter().all(|(other, ..)| *other != apex) {
                zones.push((apex, zone(apex, 1 + zones.len(), &owners), chained));
            }
        }
        let naive = Naive(zones.iter().map(|(apex, text, _)| Zone::of(apex, text)).collect());
        let signed: Vec<String> =
            zones.iter().zip(&naive.0).map(|((_, text, how), zone)| text.clone() + &sign(zone, *how)).collect();
        let texts: Vec<&str> = signed.iter().map(|text| &text[..]).collect();
        let index = index(&texts);
        let how: Vec<Chained> = zones.iter().map(|(.., how)| *how).collect();
        let apexes = zones.iter().map(|(apex, ..)| (format!("{apex}."), rtype::DS));
        for (name, qtype) in asked.into_iter().chain(apexes) {
            let plain = naive::told(&reply(&index, &query(&name, qtype, (0, &[])), 65_535));
            let (code, aa, mut answer, mut authority) = naive.answer(name.trim_end_matches('.'), qtype);
            answer.sort();
            authority.sort();
            prop_assert_eq!(plain, (code, aa, answer, authority), "{} {} in\n{}", name, qtype, texts.join("\n"));
            let secure = reply(&index, &secure_query(&name, qtype), 65_535);
            if let Err(why) = validator::validate(&naive, &how, name.trim_end_matches('.'), qtype, &secure) {
                prop_assert!(false, "{} {}: {}\n{}\nin\n{}", name, qtype, why, said(&secure), texts.join("\n"));
            }
        }
    }
}
