//! Any message from the kernel is read without a panic; real ones are in `tests/it/filters.rs`.

use proptest::prelude::*;
use udpath_netlink::Attributes;

use super::super::nft_set::element;
use super::*;

fn datagram() -> Datagram {
    let address = "10.0.0.2:7000".parse().unwrap();
    Datagram { interface: "eth0".into(), index: Some(2), address, bridged: false }
}

const EXPRESSIONS: [&str; 12] = [
    "payload",
    "meta",
    "ct",
    "cmp",
    "range",
    "bitwise",
    "immediate",
    "lookup",
    "limit",
    "match",
    "target",
    "other",
];

proptest! {
    #[test]
    fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (chain(&bytes), rule(&bytes));
        let _ = element(Attributes::new(&bytes));
    }

    /// Known expressions with attributes of any content.
    #[test]
    fn no_rule_makes_it_panic(
        list in prop::collection::vec(
            (0..EXPRESSIONS.len(), prop::collection::vec((1_u16..8, prop::collection::vec(any::<u8>(), 0..24)), 0..7)),
            0..6,
        ),
        small in any::<bool>(),
    ) {
        let mut expressions = Writer::default();
        for (name, attributes) in &list {
            expressions.nest(NFTA_LIST_ELEM, |element| {
                element.text(NFTA_EXPR_NAME, EXPRESSIONS[*name]).nest(NFTA_EXPR_DATA, |data| {
                    for (kind, value) in attributes {
                        // Small numbers are registers, keys, lengths.
                        let number = [0, 0, 0, value.first().map_or(0, |byte| byte % 24)];
                        data.bytes(*kind, if small { &number } else { value });
                    }
                });
            });
        }
        let rule = RawRule {
            family: INET,
            table: "t".into(),
            chain: "c".into(),
            handle: None,
            expressions: expressions.finish(),
        };
        let mut sets = |_: &str| Some(vec![Element { key: vec![0; 4], flags: 0, to: false, verdict: None }]);
        let _ = Evaluation::new(&datagram()).run(&rule, &mut sets);
    }
}
