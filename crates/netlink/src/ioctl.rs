//! The ioctls of network devices: the same settings as the ethtool family on older kernels, and what that family lacks
//! (the driver's name and counters, flow rules, time stamping before Linux 6.14).
//!
//! The structures are those of linux/ethtool.h. Any socket of the network namespace carries an ioctl.

pub mod device;

pub use crate::sys::{
    COUNTERS, Command, DRIVER, FLAGS, GRO, GSO, HASH_FIELDS, PERMANENT_ADDRESS, RSS, RULE, RULE_COUNT, RULES,
    RX_CHECKSUM, SCATTER_GATHER, SET_GRO, SET_GSO, SET_HASH_FIELDS, SET_RSS, SET_RX_CHECKSUM,
    SET_SCATTER_GATHER, SET_TSO, SET_TX_CHECKSUM, STRING_COUNTS, STRINGS, TSO, TX_CHECKSUM, UNCHANGED,
    ethtool, ethtool_value, time_stamping,
};
