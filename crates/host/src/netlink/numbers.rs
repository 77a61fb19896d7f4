//! The numbers of the kernel's interface by the kernel's own names, each in the order of its header.
//!
//! Written down here rather than taken from the installed headers, which are often older than the kernel that runs.
//! They are part of the kernel's promise to user space and never change; the test below compares every one with what
//! the running kernel says of itself (BTF).

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: u16 = $value;)*

        #[cfg(test)]
        const ALL: &[(&str, u16)] = &[$((stringify!($name), $value)),*];
    };
}

numbers! {
    // linux/genetlink.h
    CTRL_CMD_GETFAMILY = 3;
    CTRL_ATTR_FAMILY_ID = 1;
    CTRL_ATTR_FAMILY_NAME = 2;

    // linux/netlink.h
    NLMSGERR_ATTR_MSG = 1;

    // linux/ethtool.h: sets of names.
    ETH_SS_STATS = 1;
    ETH_SS_RSS_HASH_FUNCS = 5;

    // linux/ethtool_netlink.h: requests. Replies count differently, and are told by the request they answer.
    ETHTOOL_MSG_STRSET_GET = 1;
    ETHTOOL_MSG_FEATURES_GET = 11;
    ETHTOOL_MSG_FEATURES_SET = 12;
    ETHTOOL_MSG_RINGS_GET = 15;
    ETHTOOL_MSG_RINGS_SET = 16;
    ETHTOOL_MSG_CHANNELS_GET = 17;
    ETHTOOL_MSG_CHANNELS_SET = 18;
    ETHTOOL_MSG_COALESCE_GET = 19;
    ETHTOOL_MSG_COALESCE_SET = 20;
    ETHTOOL_MSG_TSINFO_GET = 25;
    ETHTOOL_MSG_RSS_GET = 38;
    ETHTOOL_MSG_TSCONFIG_GET = 46;
    ETHTOOL_MSG_RSS_SET = 48;

    // Every message has its header as attribute 1.
    ETHTOOL_A_HEADER_DEV_NAME = 2;

    ETHTOOL_A_BITSET_NOMASK = 1;
    ETHTOOL_A_BITSET_BITS = 3;
    ETHTOOL_A_BITSET_BITS_BIT = 1;
    ETHTOOL_A_BITSET_BIT_NAME = 2;
    ETHTOOL_A_BITSET_BIT_VALUE = 3;

    ETHTOOL_A_STRSET_STRINGSETS = 2;
    ETHTOOL_A_STRINGSETS_STRINGSET = 1;
    ETHTOOL_A_STRINGSET_ID = 1;
    ETHTOOL_A_STRINGSET_STRINGS = 3;
    ETHTOOL_A_STRINGS_STRING = 1;
    ETHTOOL_A_STRING_VALUE = 2;

    ETHTOOL_A_FEATURES_HW = 2;
    ETHTOOL_A_FEATURES_WANTED = 3;
    ETHTOOL_A_FEATURES_ACTIVE = 4;
    ETHTOOL_A_FEATURES_NOCHANGE = 5;

    ETHTOOL_A_RINGS_RX_MAX = 2;
    ETHTOOL_A_RINGS_TX_MAX = 5;
    ETHTOOL_A_RINGS_RX = 6;
    ETHTOOL_A_RINGS_TX = 9;
    ETHTOOL_A_RINGS_RX_BUF_LEN = 10;
    ETHTOOL_A_RINGS_TCP_DATA_SPLIT = 11;
    ETHTOOL_A_RINGS_CQE_SIZE = 12;
    ETHTOOL_A_RINGS_TX_PUSH = 13;
    ETHTOOL_A_RINGS_RX_PUSH = 14;

    ETHTOOL_A_CHANNELS_RX_MAX = 2;
    ETHTOOL_A_CHANNELS_TX_MAX = 3;
    ETHTOOL_A_CHANNELS_OTHER_MAX = 4;
    ETHTOOL_A_CHANNELS_COMBINED_MAX = 5;
    ETHTOOL_A_CHANNELS_RX_COUNT = 6;
    ETHTOOL_A_CHANNELS_TX_COUNT = 7;
    ETHTOOL_A_CHANNELS_OTHER_COUNT = 8;
    ETHTOOL_A_CHANNELS_COMBINED_COUNT = 9;

    ETHTOOL_A_COALESCE_RX_USECS = 2;
    ETHTOOL_A_COALESCE_RX_MAX_FRAMES = 3;
    ETHTOOL_A_COALESCE_RX_USECS_IRQ = 4;
    ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ = 5;
    ETHTOOL_A_COALESCE_TX_USECS = 6;
    ETHTOOL_A_COALESCE_TX_MAX_FRAMES = 7;
    ETHTOOL_A_COALESCE_TX_USECS_IRQ = 8;
    ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ = 9;
    ETHTOOL_A_COALESCE_STATS_BLOCK_USECS = 10;
    ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX = 11;
    ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX = 12;
    ETHTOOL_A_COALESCE_PKT_RATE_LOW = 13;
    ETHTOOL_A_COALESCE_RX_USECS_LOW = 14;
    ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW = 15;
    ETHTOOL_A_COALESCE_TX_USECS_LOW = 16;
    ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW = 17;
    ETHTOOL_A_COALESCE_PKT_RATE_HIGH = 18;
    ETHTOOL_A_COALESCE_RX_USECS_HIGH = 19;
    ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH = 20;
    ETHTOOL_A_COALESCE_TX_USECS_HIGH = 21;
    ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH = 22;
    ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL = 23;
    ETHTOOL_A_COALESCE_USE_CQE_MODE_TX = 24;
    ETHTOOL_A_COALESCE_USE_CQE_MODE_RX = 25;
    ETHTOOL_A_COALESCE_TX_AGGR_MAX_BYTES = 26;
    ETHTOOL_A_COALESCE_TX_AGGR_MAX_FRAMES = 27;
    ETHTOOL_A_COALESCE_TX_AGGR_TIME_USECS = 28;

    ETHTOOL_A_TSINFO_TIMESTAMPING = 2;
    ETHTOOL_A_TSINFO_TX_TYPES = 3;
    ETHTOOL_A_TSINFO_RX_FILTERS = 4;
    ETHTOOL_A_TSINFO_PHC_INDEX = 5;

    ETHTOOL_A_TSCONFIG_HWTSTAMP_PROVIDER = 2;
    ETHTOOL_A_TSCONFIG_TX_TYPES = 3;
    ETHTOOL_A_TSCONFIG_RX_FILTERS = 4;
    ETHTOOL_A_TS_HWTSTAMP_PROVIDER_INDEX = 1;

    ETHTOOL_A_RSS_CONTEXT = 2;
    ETHTOOL_A_RSS_HFUNC = 3;
    ETHTOOL_A_RSS_INDIR = 4;
    ETHTOOL_A_RSS_HKEY = 5;
    ETHTOOL_A_RSS_INPUT_XFRM = 6;
    ETHTOOL_A_RSS_START_CONTEXT = 7;
    ETHTOOL_A_RSS_FLOW_HASH = 8;
    ETHTOOL_A_FLOW_UDP4 = 6;
    ETHTOOL_A_FLOW_UDP6 = 7;

    // linux/inet_diag.h
    INET_DIAG_SKMEMINFO = 7;
    INET_DIAG_SKV6ONLY = 11;

    // linux/netfilter/nf_tables.h
    NFT_MSG_GETTABLE = 1;
    NFT_MSG_GETCHAIN = 4;
    NFT_MSG_GETRULE = 7;
    NFT_MSG_GETSETELEM = 13;
    NFTA_TABLE_NAME = 1;
    NFTA_TABLE_FLAGS = 2;
    NFTA_CHAIN_TABLE = 1;
    NFTA_CHAIN_NAME = 3;
    NFTA_CHAIN_HOOK = 4;
    NFTA_CHAIN_POLICY = 5;
    NFTA_CHAIN_USE = 6;
    NFTA_CHAIN_TYPE = 7;
    NFTA_HOOK_HOOKNUM = 1;
    NFTA_HOOK_PRIORITY = 2;
    NFTA_HOOK_DEV = 3;
    NFTA_HOOK_DEVS = 4;
    NFTA_DEVICE_NAME = 1;
    NFTA_LIST_ELEM = 1;
    NFTA_RULE_TABLE = 1;
    NFTA_RULE_CHAIN = 2;
    NFTA_RULE_HANDLE = 3;
    NFTA_RULE_EXPRESSIONS = 4;
    NFTA_EXPR_NAME = 1;
    NFTA_EXPR_DATA = 2;
    NFTA_DATA_VALUE = 1;
    NFTA_DATA_VERDICT = 2;
    NFTA_VERDICT_CODE = 1;
    NFTA_VERDICT_CHAIN = 2;
    NFTA_PAYLOAD_DREG = 1;
    NFTA_PAYLOAD_BASE = 2;
    NFTA_PAYLOAD_OFFSET = 3;
    NFTA_PAYLOAD_LEN = 4;
    NFTA_PAYLOAD_SREG = 5;
    NFTA_META_DREG = 1;
    NFTA_META_KEY = 2;
    NFTA_CT_DREG = 1;
    NFTA_CT_KEY = 2;
    NFTA_CMP_SREG = 1;
    NFTA_CMP_OP = 2;
    NFTA_CMP_DATA = 3;
    NFTA_RANGE_SREG = 1;
    NFTA_RANGE_OP = 2;
    NFTA_RANGE_FROM_DATA = 3;
    NFTA_RANGE_TO_DATA = 4;
    NFTA_BITWISE_SREG = 1;
    NFTA_BITWISE_DREG = 2;
    NFTA_BITWISE_MASK = 4;
    NFTA_BITWISE_XOR = 5;
    NFTA_BITWISE_OP = 6;
    NFTA_IMMEDIATE_DREG = 1;
    NFTA_IMMEDIATE_DATA = 2;
    NFTA_LOOKUP_SET = 1;
    NFTA_LOOKUP_SREG = 2;
    NFTA_LOOKUP_DREG = 3;
    NFTA_LOOKUP_FLAGS = 5;
    NFTA_SET_ELEM_LIST_TABLE = 1;
    NFTA_SET_ELEM_LIST_SET = 2;
    NFTA_SET_ELEM_LIST_ELEMENTS = 3;
    NFTA_SET_ELEM_KEY = 1;
    NFTA_SET_ELEM_DATA = 2;
    NFTA_SET_ELEM_FLAGS = 3;
    NFTA_SET_ELEM_KEY_END = 10;
    NFTA_MATCH_NAME = 1;
    NFTA_MATCH_INFO = 3;
    NFTA_TARGET_NAME = 1;
    NFT_META_PROTOCOL = 1;
    NFT_META_IIF = 4;
    NFT_META_IIFNAME = 6;
    NFT_META_NFPROTO = 15;
    NFT_META_L4PROTO = 16;
    NFT_META_PKTTYPE = 19;

    // linux/netfilter/nfnetlink_hook.h
    NFNLA_HOOK_HOOKNUM = 1;
    NFNLA_HOOK_PRIORITY = 2;
    NFNLA_HOOK_DEV = 3;
    NFNLA_HOOK_FUNCTION_NAME = 4;
    NFNLA_HOOK_MODULE_NAME = 5;
    NFNLA_HOOK_CHAIN_INFO = 6;
    NFNLA_HOOK_INFO_DESC = 1;
    NFNLA_HOOK_INFO_TYPE = 2;
    NFNLA_CHAIN_TABLE = 1;
    NFNLA_CHAIN_FAMILY = 2;
    NFNLA_CHAIN_NAME = 3;
    NFNLA_HOOK_BPF_ID = 1;

    // linux/netdev.h
    NETDEV_CMD_DEV_GET = 1;
    NETDEV_CMD_QUEUE_GET = 10;
    NETDEV_CMD_NAPI_GET = 11;
    NETDEV_CMD_QSTATS_GET = 12;
    NETDEV_CMD_NAPI_SET = 14;
    NETDEV_A_DEV_IFINDEX = 1;
    NETDEV_A_DEV_XDP_FEATURES = 3;
    NETDEV_A_DEV_XDP_ZC_MAX_SEGS = 4;
    NETDEV_A_DEV_XDP_RX_METADATA_FEATURES = 5;
    NETDEV_A_QUEUE_ID = 1;
    NETDEV_A_QUEUE_IFINDEX = 2;
    NETDEV_A_QUEUE_TYPE = 3;
    NETDEV_A_QUEUE_NAPI_ID = 4;
    NETDEV_A_QUEUE_XSK = 7;
    NETDEV_A_NAPI_IFINDEX = 1;
    NETDEV_A_NAPI_ID = 2;
    NETDEV_A_NAPI_IRQ = 3;
    NETDEV_A_NAPI_PID = 4;
    NETDEV_A_NAPI_DEFER_HARD_IRQS = 5;
    NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT = 6;
    NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT = 7;
    NETDEV_A_NAPI_THREADED = 8;
    NETDEV_A_QSTATS_IFINDEX = 1;
    NETDEV_A_QSTATS_QUEUE_TYPE = 2;
    NETDEV_A_QSTATS_QUEUE_ID = 3;
    NETDEV_A_QSTATS_SCOPE = 4;
    NETDEV_A_QSTATS_RX_PACKETS = 8;
    NETDEV_A_QSTATS_RX_BYTES = 9;
    NETDEV_A_QSTATS_TX_PACKETS = 10;
    NETDEV_A_QSTATS_TX_BYTES = 11;
    NETDEV_A_QSTATS_RX_ALLOC_FAIL = 12;
    NETDEV_A_QSTATS_RX_HW_DROPS = 13;
    NETDEV_A_QSTATS_RX_HW_DROP_OVERRUNS = 14;
    NETDEV_A_QSTATS_RX_HW_DROP_RATELIMITS = 23;
    NETDEV_A_QSTATS_TX_HW_DROPS = 24;
    NETDEV_A_QSTATS_TX_HW_DROP_ERRORS = 25;
    NETDEV_A_QSTATS_TX_HW_DROP_RATELIMITS = 32;
    NETDEV_A_QSTATS_TX_STOP = 33;
    NETDEV_A_QSTATS_TX_WAKE = 34;

    // linux/rtnetlink.h, linux/if_link.h
    RTM_GETLINK = 18;
    RTM_NEWQDISC = 36;
    RTM_DELQDISC = 37;
    RTM_GETQDISC = 38;
    IFLA_ADDRESS = 1;
    IFLA_IFNAME = 3;
    IFLA_MTU = 4;
    IFLA_LINK = 5;
    IFLA_MASTER = 10;
    IFLA_TXQLEN = 13;
    IFLA_LINKINFO = 18;
    IFLA_STATS64 = 23;
    IFLA_CARRIER = 33;
    IFLA_LINK_NETNSID = 37;
    IFLA_XDP = 43;
    IFLA_PERM_ADDRESS = 54;
    IFLA_INFO_KIND = 1;
    IFLA_INFO_DATA = 2;
    IFLA_VLAN_ID = 1;
    IFLA_XDP_ATTACHED = 2;
    IFLA_XDP_PROG_ID = 4;
    IFLA_XDP_DRV_PROG_ID = 5;
    IFLA_XDP_SKB_PROG_ID = 6;
    IFLA_XDP_HW_PROG_ID = 7;
    TCA_KIND = 1;
    TCA_STATS2 = 7;
    TCA_STATS_BASIC = 1;
    TCA_STATS_QUEUE = 3;
    TCA_STATS_PKT64 = 8;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::btf;

    /// The newest of them, RSS_SET and its companions, came with this kernel; an older one lacks some, and those alone
    /// are not compared.
    const NEWEST: (u32, u32) = (6, 17);
    /// Of modules that are not built in everywhere: names begin so.
    const OF_MODULES: [&str; 2] = ["IFLA_VLAN_ID", "NFNLA_"];

    fn release() -> (u32, u32) {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    #[test]
    fn they_are_the_running_kernels() {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let kernel: BTreeMap<String, u32> = btf::enumerators(&bytes).unwrap();
        let mut compared = 0;
        for (name, ours) in ALL {
            match kernel.get(*name) {
                Some(theirs) => {
                    assert_eq!(u32::from(*ours), *theirs, "{name}");
                    compared += 1;
                }
                None => assert!(
                    release() < NEWEST || OF_MODULES.iter().any(|start| name.starts_with(start)),
                    "the kernel has no {name}"
                ),
            }
        }
        // Linux 6.1 has these many.
        assert!(compared > 80, "{compared}");
    }
}
