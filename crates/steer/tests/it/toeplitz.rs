//! The Toeplitz hash: Microsoft's own vectors, and the tables against the definition.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use udpath_steer::Flow;
use udpath_steer::toeplitz::{Fields, Input, Key, KeyError, Toeplitz, Transform};

/// "Verifying the RSS Hash Calculation" (Microsoft): destination, source, hash of addresses, hash with ports.
const VECTORS: [(&str, &str, u32, u32); 8] = [
    ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
    ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
    ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
    ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
    ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
    ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
    ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c_461c, 0xdde5_1bbf),
    (
        "[fe80::200:f8ff:fe21:67cf]:38024",
        "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
        0x4b61_e985,
        0x02d1_feef,
    ),
];

const TRANSFORMS: [Transform; 3] = [Transform::None, Transform::SymmetricXor, Transform::SymmetricOrXor];
const FIELDS: [Fields; 2] = [Fields::Addresses, Fields::AddressesPorts];

#[test]
fn microsofts_vectors() {
    let key = Key::microsoft();
    let table = Toeplitz::new(key.clone());
    // Bytes past the fortieth do not matter.
    let longer = Toeplitz::new(Key::new(&[key.bytes(), &[0xa5; 12]].concat()).unwrap());
    for (destination, source, addresses, ports) in VECTORS {
        let flow = Flow::udp(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
        for (fields, hash) in FIELDS.into_iter().zip([addresses, ports]) {
            let input = Input::new(&flow, fields, Transform::None);
            assert_eq!(table.hash(&flow, fields, Transform::None), hash, "{flow} {fields}");
            assert_eq!(longer.hash(&flow, fields, Transform::None), hash, "{flow} {fields}");
            assert_eq!(key.hash_bitwise(&input), hash, "{flow} {fields}");
        }
    }
}

#[test]
fn keys_are_read_as_ethtool_prints_them() {
    let key = Key::microsoft();
    let text = key.to_string();
    assert!(text.starts_with("6d:5a:56:da:") && text.len() == 119, "{text}");
    assert_eq!(text.parse(), Ok(key.clone()));
    assert_eq!(text.replace(':', "").to_uppercase().parse(), Ok(key.clone()));
    assert_eq!("microsoft".parse(), Ok(key.clone()));
    assert_eq!(serde_json::from_str::<Key>(&serde_json::to_string(&key).unwrap()).unwrap(), key);
    let symmetric: Key = "symmetric".parse().unwrap();
    assert!(symmetric.to_string().starts_with("6d:5a:6d:5a:"));
    let error = |text: &str| text.parse::<Key>().unwrap_err();
    assert_eq!(error("6d:5a"), KeyError::Length { bytes: 2 });
    assert_eq!(error(""), KeyError::Length { bytes: 0 });
    assert_eq!(error("6d:5x"), KeyError::NotHexadecimal { at: 5 });
    assert_eq!(error(":6d"), KeyError::NotHexadecimal { at: 1 });
    assert_eq!(error("6d:5:aa"), KeyError::HalfByte { at: 5 });
    assert_eq!(error("6d:5"), KeyError::HalfByte { at: 5 });
    assert_eq!(error(&"6d".repeat(300)), KeyError::Length { bytes: 257 });
    assert!(error("6d:5x").to_string().contains("character 5"));
}

fn key() -> impl Strategy<Value = Key> {
    prop::collection::vec(any::<u8>(), 40..=60).prop_map(|bytes| Key::new(&bytes).unwrap())
}

fn flow() -> impl Strategy<Value = Flow> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>())
        .prop_map(|(a, b)| (IpAddr::V4(Ipv4Addr::from(a)), IpAddr::V4(Ipv4Addr::from(b))));
    // Out of the range that is IPv4 in another form.
    let v6 = (any::<[u8; 15]>(), any::<[u8; 15]>()).prop_map(|(a, b)| {
        let address = |rest: [u8; 15]| {
            let mut all = [0x20; 16];
            all[1..].copy_from_slice(&rest);
            IpAddr::V6(Ipv6Addr::from(all))
        };
        (address(a), address(b))
    });
    (prop_oneof![v4, v6], any::<u16>(), any::<u16>())
        .prop_map(|((a, b), from, to)| Flow::udp(SocketAddr::new(a, from), SocketAddr::new(b, to)).unwrap())
}

proptest! {
    #[test]
    fn tables_and_definition_agree(key in key(), flow in flow()) {
        let table = Toeplitz::new(key.clone());
        for (fields, transform) in FIELDS.iter().flat_map(|f| TRANSFORMS.iter().map(move |t| (*f, *t))) {
            let input = Input::new(&flow, fields, transform);
            let expected = key.hash_bitwise(&input);
            prop_assert_eq!(table.hash(&flow, fields, transform), expected);
            prop_assert_eq!(table.hash_input(&input), expected);
        }
    }

    #[test]
    fn symmetric_hashes_know_no_direction(key in key(), flow in flow()) {
        let table = Toeplitz::new(key);
        let symmetric = Toeplitz::new(Key::symmetric());
        for fields in FIELDS {
            for transform in [Transform::SymmetricXor, Transform::SymmetricOrXor] {
                prop_assert_eq!(
                    table.hash(&flow, fields, transform),
                    table.hash(&flow.reversed(), fields, transform)
                );
            }
            prop_assert_eq!(
                symmetric.hash(&flow, fields, Transform::None),
                symmetric.hash(&flow.reversed(), fields, Transform::None)
            );
        }
    }

    #[test]
    fn it_is_linear(key in key(), flow in flow(), other in any::<u16>()) {
        // hash(a ^ b) = hash(a) ^ hash(b) for the ports, whatever the addresses.
        let table = Toeplitz::new(key);
        let hash = |port| table.hash(&flow.with_source_port(port), Fields::AddressesPorts, Transform::None);
        prop_assert_eq!(hash(flow.source_port ^ other) ^ hash(0), hash(flow.source_port) ^ hash(other));
    }

    #[test]
    fn no_text_panics_as_a_key(text in "[0-9a-f:]{0,130}|\\PC{0,20}") {
        if let Ok(key) = text.parse::<Key>() {
            prop_assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
}
