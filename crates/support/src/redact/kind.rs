//! What is replaced, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// IPv4 and IPv6 addresses of sockets, peers, rules.
    Address,
    /// Link-layer addresses.
    LinkAddress,
    /// Names of this host and its domain.
    HostName,
    /// User account names.
    UserName,
    /// Arguments of programs.
    CommandLine,
    /// Paths below home directories.
    HomePath,
    /// UUIDs, identifiers of containers and machines, serial numbers.
    Identifier,
    /// Keys of RSS.
    RssKey,
    /// Folders of programs.
    Path,
    /// Names that processes and threads set for themselves.
    ProcessName,
    /// Instances of units, names of containers and of other control groups.
    Unit,
    /// Names of configuration files.
    FileName,
    /// Values in configuration files, if they may be anything.
    Configuration,
    /// Names of chains and tables of nftables.
    ChainName,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Address,
        Self::LinkAddress,
        Self::HostName,
        Self::UserName,
        Self::CommandLine,
        Self::HomePath,
        Self::Identifier,
        Self::RssKey,
        Self::Path,
        Self::ProcessName,
        Self::Unit,
        Self::FileName,
        Self::Configuration,
        Self::ChainName,
    ];

    /// A description for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Address => "IP addresses",
            Self::LinkAddress => "link-layer addresses",
            Self::HostName => "host names",
            Self::UserName => "user names",
            Self::CommandLine => "command lines",
            Self::HomePath => "paths in home directories",
            Self::Identifier => "identifiers",
            Self::RssKey => "RSS keys",
            Self::Path => "folders of programs",
            Self::ProcessName => "process and thread names",
            Self::Unit => "units, containers, groups",
            Self::FileName => "configuration file names",
            Self::Configuration => "configuration values",
            Self::ChainName => "nftables names",
        }
    }

    /// How it is replaced.
    #[must_use]
    pub const fn how(self) -> &'static str {
        match self {
            Self::Address => {
                "another address of the same kind; networks stay networks; loopback, multicast and unspecified ones stay"
            }
            Self::LinkAddress => "the maker's three bytes, and three others",
            Self::HostName => "host-N",
            Self::UserName => "user-N",
            Self::CommandLine => "the program's name; of a known daemon's interpreter also its script",
            Self::HomePath => "/home/user-N and the last part",
            Self::Identifier => "as many other digits; serial numbers by 'serial'",
            Self::Path => "/redacted and the program's name; folders of distributions stay",
            Self::ProcessName => "the program's name, thread-N; what begins the program's name stays",
            Self::Unit => "instance-N, container-N, group-N; names of units stay",
            Self::FileName => "NN-file-N, in the same order",
            Self::Configuration => "'redacted', or nothing; numbers and known words of known keys stay",
            Self::ChainName => "table-N, chain-N; those of iptables stay",
            Self::RssKey => "nothing; well-known keys stay; --keep-rss-key keeps them",
        }
    }
}
