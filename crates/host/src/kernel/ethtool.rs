//! The ethtool family: channels, rings, coalescing, offloads, RSS. Documentation/netlink/specs/ethtool.yaml.

use std::collections::BTreeMap;

use udpath_netlink::ethtool::{self, COALESCING, bitset, single};
use udpath_netlink::numbers::*;
use udpath_netlink::{Answers, Attributes, Error, attributes};

use super::Kernel;
use crate::snapshot::{
    ChannelCounts, Channels, Coalescing, Feature, Features, Fields, HashFields, Rings, Rss, RssContext,
};

impl Kernel {
    /// The answer to one request about an interface.
    pub(super) fn get(&mut self, command: u16, interface: &str) -> Result<Answers, Error> {
        ethtool::get(self.generic()?, command, interface)
    }

    pub(super) fn channels(&mut self, interface: &str) -> Result<Channels, Error> {
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

    pub(super) fn rings(&mut self, interface: &str) -> Result<Rings, Error> {
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

    pub(super) fn coalescing(&mut self, interface: &str) -> Result<Coalescing, Error> {
        let answers = self.get(ETHTOOL_MSG_COALESCE_GET, interface)?;
        let is = single(&answers)?;
        Ok(COALESCING
            .iter()
            .filter_map(|(name, kind, _)| Some(((*name).to_owned(), is.u32(*kind)?)))
            .collect())
    }

    pub(super) fn features(&mut self, interface: &str) -> Result<Features, Error> {
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
        // The first set has a mask of all features, so it lists every existing one. Bits without an offload have no
        // name.
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

    /// Since Linux 6.3; additional contexts since 6.12.
    pub(super) fn rss(&mut self, interface: &str) -> Result<Rss, Error> {
        let answers = self.get(ETHTOOL_MSG_RSS_GET, interface)?;
        let functions = self.hash_functions()?;
        let main = context(single(&answers)?, &functions);
        let others = ethtool::dump(self.generic()?, ETHTOOL_MSG_RSS_GET, interface, |body| {
            body.u32(ETHTOOL_A_RSS_START_CONTEXT, 1);
        });
        let contexts = match &others {
            Ok(answers) => attributes(answers)
                .filter_map(|is| {
                    let own = RssContext { fields: hash_fields(is), ..context(is, &functions) };
                    Some((is.u32(ETHTOOL_A_RSS_CONTEXT)?, own))
                })
                .collect(),
            // An older kernel cannot dump them.
            Err(_) => BTreeMap::new(),
        };
        Ok(Rss { main, contexts })
    }

    /// Since Linux 6.17; `None` before.
    pub(super) fn hash_fields(&mut self, interface: &str) -> Result<Option<HashFields>, Error> {
        let answers = self.get(ETHTOOL_MSG_RSS_GET, interface)?;
        let is = single(&answers)?;
        Ok(hash_fields(is))
    }

    /// The names of the hash function bits, from bit 0.
    pub(super) fn hash_functions(&mut self) -> Result<Vec<String>, Error> {
        self.strings(ETH_SS_RSS_HASH_FUNCS)
    }

    /// The kernel's names for the bits of a string set, from bit 0.
    pub(super) fn strings(&mut self, names: u16) -> Result<Vec<String>, Error> {
        ethtool::strings(self.generic()?, names)
    }
}

/// `None` if the kernel does not report them for this context.
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
    use udpath_netlink::Writer;

    use super::*;

    #[test]
    fn a_context_is_decoded() {
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
        // netdev_features.h and the loopback driver: checksums cannot be turned off, and loopback is always on.
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
