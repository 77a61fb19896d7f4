//! The ethtool family: channels, rings, coalescing, offloads, RSS. Documentation/netlink/specs/ethtool.yaml.

use std::collections::BTreeMap;

use super::{Kernel, attributes, bitset};
use crate::netlink::numbers::*;
use crate::netlink::{Answers, Attributes, Refused, Writer};
use crate::snapshot::{
    ChannelCounts, Channels, Coalescing, Feature, Features, Fields, HashFields, Rings, Rss, RssContext,
};

/// The family's name.
pub(super) const ETHTOOL: &str = "ethtool";
/// Every message has its header as its first attribute.
const HEADER: u16 = 1;

/// How wide a coalescing value is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Byte,
    Word,
}

/// Coalescing values: ethtool's name, attribute, width.
pub(super) const COALESCING: [(&str, u16, Width); 27] = [
    ("rx-usecs", ETHTOOL_A_COALESCE_RX_USECS, Width::Word),
    ("rx-frames", ETHTOOL_A_COALESCE_RX_MAX_FRAMES, Width::Word),
    ("rx-usecs-irq", ETHTOOL_A_COALESCE_RX_USECS_IRQ, Width::Word),
    ("rx-frames-irq", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ, Width::Word),
    ("tx-usecs", ETHTOOL_A_COALESCE_TX_USECS, Width::Word),
    ("tx-frames", ETHTOOL_A_COALESCE_TX_MAX_FRAMES, Width::Word),
    ("tx-usecs-irq", ETHTOOL_A_COALESCE_TX_USECS_IRQ, Width::Word),
    ("tx-frames-irq", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ, Width::Word),
    ("stats-block-usecs", ETHTOOL_A_COALESCE_STATS_BLOCK_USECS, Width::Word),
    ("adaptive-rx", ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, Width::Byte),
    ("adaptive-tx", ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, Width::Byte),
    ("pkt-rate-low", ETHTOOL_A_COALESCE_PKT_RATE_LOW, Width::Word),
    ("rx-usecs-low", ETHTOOL_A_COALESCE_RX_USECS_LOW, Width::Word),
    ("rx-frames-low", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW, Width::Word),
    ("tx-usecs-low", ETHTOOL_A_COALESCE_TX_USECS_LOW, Width::Word),
    ("tx-frames-low", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW, Width::Word),
    ("pkt-rate-high", ETHTOOL_A_COALESCE_PKT_RATE_HIGH, Width::Word),
    ("rx-usecs-high", ETHTOOL_A_COALESCE_RX_USECS_HIGH, Width::Word),
    ("rx-frames-high", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH, Width::Word),
    ("tx-usecs-high", ETHTOOL_A_COALESCE_TX_USECS_HIGH, Width::Word),
    ("tx-frames-high", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH, Width::Word),
    ("sample-interval", ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL, Width::Word),
    ("cqe-mode-tx", ETHTOOL_A_COALESCE_USE_CQE_MODE_TX, Width::Byte),
    ("cqe-mode-rx", ETHTOOL_A_COALESCE_USE_CQE_MODE_RX, Width::Byte),
    ("tx-aggr-max-bytes", ETHTOOL_A_COALESCE_TX_AGGR_MAX_BYTES, Width::Word),
    ("tx-aggr-max-frames", ETHTOOL_A_COALESCE_TX_AGGR_MAX_FRAMES, Width::Word),
    ("tx-aggr-time-usecs", ETHTOOL_A_COALESCE_TX_AGGR_TIME_USECS, Width::Word),
];

/// Names the interface of a request.
pub(super) fn header(body: &mut Writer, interface: &str) {
    body.nest(HEADER, |header| {
        header.text(ETHTOOL_A_HEADER_DEV_NAME, interface);
    });
}

/// The single answer to a request, or what it means that there is none.
pub(super) fn single(answers: &Answers) -> Result<Attributes<'_>, Refused> {
    attributes(answers).next().ok_or_else(|| Refused::other("the kernel gave no answer"))
}

impl Kernel {
    /// Asks for what one message tells of an interface.
    pub(super) fn get(&mut self, command: u16, interface: &str) -> Result<Answers, Refused> {
        self.generic(ETHTOOL, command, false, |body| header(body, interface))
    }

    pub(super) fn channels(&mut self, interface: &str) -> Result<Channels, Refused> {
        let answers = self.get(ETHTOOL_MSG_CHANNELS_GET, interface)?;
        let is = single(&answers)?;
        Ok(Channels {
            now: ChannelCounts {
                rx: is.u32(ETHTOOL_A_CHANNELS_RX_COUNT),
                tx: is.u32(ETHTOOL_A_CHANNELS_TX_COUNT),
                other: is.u32(ETHTOOL_A_CHANNELS_OTHER_COUNT),
                combined: is.u32(ETHTOOL_A_CHANNELS_COMBINED_COUNT),
            },
            max: ChannelCounts {
                rx: is.u32(ETHTOOL_A_CHANNELS_RX_MAX),
                tx: is.u32(ETHTOOL_A_CHANNELS_TX_MAX),
                other: is.u32(ETHTOOL_A_CHANNELS_OTHER_MAX),
                combined: is.u32(ETHTOOL_A_CHANNELS_COMBINED_MAX),
            },
        })
    }

    pub(super) fn rings(&mut self, interface: &str) -> Result<Rings, Refused> {
        let answers = self.get(ETHTOOL_MSG_RINGS_GET, interface)?;
        let is = single(&answers)?;
        Ok(Rings {
            rx: is.u32(ETHTOOL_A_RINGS_RX),
            rx_max: is.u32(ETHTOOL_A_RINGS_RX_MAX),
            tx: is.u32(ETHTOOL_A_RINGS_TX),
            tx_max: is.u32(ETHTOOL_A_RINGS_TX_MAX),
            rx_buf_len: is.u32(ETHTOOL_A_RINGS_RX_BUF_LEN),
            cqe_size: is.u32(ETHTOOL_A_RINGS_CQE_SIZE),
            tx_push: is.u32(ETHTOOL_A_RINGS_TX_PUSH).map(|on| on != 0),
            rx_push: is.u32(ETHTOOL_A_RINGS_RX_PUSH).map(|on| on != 0),
            tcp_data_split: is.u32(ETHTOOL_A_RINGS_TCP_DATA_SPLIT),
        })
    }

    pub(super) fn coalescing(&mut self, interface: &str) -> Result<Coalescing, Refused> {
        let answers = self.get(ETHTOOL_MSG_COALESCE_GET, interface)?;
        let is = single(&answers)?;
        Ok(COALESCING
            .iter()
            .filter_map(|(name, kind, _)| Some(((*name).to_owned(), is.u32(*kind)?)))
            .collect())
    }

    pub(super) fn features(&mut self, interface: &str) -> Result<Features, Refused> {
        let answers = self.get(ETHTOOL_MSG_FEATURES_GET, interface)?;
        let is = single(&answers)?;
        let [hardware, wanted, active, never] = [
            ETHTOOL_A_FEATURES_HW,
            ETHTOOL_A_FEATURES_WANTED,
            ETHTOOL_A_FEATURES_ACTIVE,
            ETHTOOL_A_FEATURES_NOCHANGE,
        ]
        .map(|kind| bitset::read(is.nested(kind)));
        let on = |set: &BTreeMap<String, bool>, name: &str| set.get(name).copied().unwrap_or(false);
        // The first set has a mask of all features, so it names every one there is.
        // Bits that stand for no offload have no name.
        Ok(hardware
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, changeable)| {
                let feature = Feature {
                    active: on(&active, name),
                    wanted: on(&wanted, name),
                    changeable: *changeable && !on(&never, name),
                };
                (name.clone(), feature)
            })
            .collect())
    }

    /// Since Linux 6.3; further contexts since 6.12.
    pub(super) fn rss(&mut self, interface: &str) -> Result<Rss, Refused> {
        let answers = self.get(ETHTOOL_MSG_RSS_GET, interface)?;
        let functions = self.hash_functions()?;
        let main = context(single(&answers)?, &functions);
        let others = self.generic(ETHTOOL, ETHTOOL_MSG_RSS_GET, true, |body| {
            header(body, interface);
            body.u32(ETHTOOL_A_RSS_START_CONTEXT, 1);
        });
        let contexts = match &others {
            Ok(answers) => attributes(answers)
                .filter_map(|is| {
                    let own = RssContext { fields: hash_fields(is), ..context(is, &functions) };
                    Some((is.u32(ETHTOOL_A_RSS_CONTEXT)?, own))
                })
                .collect(),
            // An older kernel knows no dump of them.
            Err(_) => BTreeMap::new(),
        };
        Ok(Rss { main, contexts })
    }

    /// Since Linux 6.17; none before.
    pub(super) fn hash_fields(&mut self, interface: &str) -> Result<Option<HashFields>, Refused> {
        let answers = self.get(ETHTOOL_MSG_RSS_GET, interface)?;
        let is = single(&answers)?;
        Ok(hash_fields(is))
    }

    /// The names of the bits that stand for hash functions, from the first on.
    pub(super) fn hash_functions(&mut self) -> Result<Vec<String>, Refused> {
        self.strings(ETH_SS_RSS_HASH_FUNCS)
    }

    /// The kernel's own names for the bits of a set, from the first on.
    pub(super) fn strings(&mut self, names: u16) -> Result<Vec<String>, Refused> {
        let answers = self.generic(ETHTOOL, ETHTOOL_MSG_STRSET_GET, false, |body| {
            // Of no device; the header must be there all the same.
            body.nest(HEADER, |_| {});
            body.nest(ETHTOOL_A_STRSET_STRINGSETS, |sets| {
                sets.nest(ETHTOOL_A_STRINGSETS_STRINGSET, |set| {
                    set.u32(ETHTOOL_A_STRINGSET_ID, names.into());
                });
            });
        })?;
        let set =
            single(&answers)?.nested(ETHTOOL_A_STRSET_STRINGSETS).nested(ETHTOOL_A_STRINGSETS_STRINGSET);
        let strings = set.nested(ETHTOOL_A_STRINGSET_STRINGS);
        Ok(strings
            .iter()
            .filter(|(kind, _)| *kind == ETHTOOL_A_STRINGS_STRING)
            .filter_map(|(_, string)| Attributes::new(string).text(ETHTOOL_A_STRING_VALUE))
            .collect())
    }
}

/// None where the kernel does not tell them of this context.
fn hash_fields(is: Attributes<'_>) -> Option<HashFields> {
    let flows = is.nested(ETHTOOL_A_RSS_FLOW_HASH);
    let fields = |kind| flows.u32(kind).map(Fields);
    let there = is.has(ETHTOOL_A_RSS_FLOW_HASH);
    there.then(|| HashFields { udp4: fields(ETHTOOL_A_FLOW_UDP4), udp6: fields(ETHTOOL_A_FLOW_UDP6) })
}

fn context(is: Attributes<'_>, functions: &[String]) -> RssContext {
    let table = is.bytes(ETHTOOL_A_RSS_INDIR).unwrap_or_default();
    let (table, _) = table.as_chunks::<4>();
    RssContext {
        table: table.iter().map(|entry| u32::from_ne_bytes(*entry)).collect(),
        key: is.bytes(ETHTOOL_A_RSS_HKEY).unwrap_or_default().to_vec(),
        function: is.u32(ETHTOOL_A_RSS_HFUNC).and_then(|bits| function(bits, functions)),
        transform: is.u32(ETHTOOL_A_RSS_INPUT_XFRM).filter(|bits| *bits != 0),
        fields: None,
    }
}

/// The name of the hash function whose bit is set.
pub(super) fn function(bits: u32, functions: &[String]) -> Option<String> {
    functions.get(usize::try_from(bits.trailing_zeros()).ok()?).cloned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_context_is_read_as_the_kernel_writes_it() {
        let mut writer = Writer::default();
        writer.u32(ETHTOOL_A_RSS_HFUNC, 1);
        writer.bytes(ETHTOOL_A_RSS_INDIR, &[0_u32, 1, 0, 1].map(u32::to_ne_bytes).concat());
        writer.bytes(ETHTOOL_A_RSS_HKEY, &[0x6d, 0x5a]);
        let bytes = writer.finish();
        let functions = ["toeplitz", "xor"].map(str::to_owned);
        let wanted = RssContext {
            table: vec![0, 1, 0, 1],
            key: vec![0x6d, 0x5a],
            function: Some("toeplitz".into()),
            ..RssContext::default()
        };
        assert_eq!(context(Attributes::new(&bytes), &functions), wanted);
        assert_eq!(context(Attributes::new(&[]), &functions), RssContext::default());
        assert_eq!((function(2, &functions), function(8, &functions)), (Some("xor".into()), None));
    }

    #[test]
    fn the_loopback_has_features_and_no_rings() {
        let mut kernel = Kernel::open();
        let features = kernel.features("lo").unwrap();
        assert!(features.len() > 40, "{features:?}");
        // netdev_features.h and the loopback driver: it can never be without checksums, and always loops.
        let loops = Feature { active: true, wanted: true, changeable: false };
        assert_eq!(
            features.get("loopback").map(|f| (f.active, f.changeable)),
            Some((loops.active, loops.changeable))
        );
        assert_eq!(kernel.rings("lo").unwrap_err().errno, Some(libc::EOPNOTSUPP));
        assert_eq!(kernel.hash_functions().unwrap()[..2], ["toeplitz", "xor"]);
    }
    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), bits: u32) {
            let functions = ["toeplitz".to_owned()];
            let _ = (context(Attributes::new(&bytes), &functions), function(bits, &functions));
            let _ = bitset::read(Attributes::new(&bytes));
        }
    }
}
