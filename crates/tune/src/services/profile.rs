//! What is known about each server: one file of `crates/tune/services`, checked by the tests.

mod kind;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::advisory::{self, Advisory};
use super::arguments::Arguments;
use super::format::Format;
use super::numbers::Numbers;
pub(super) use kind::Kind;

/// What is known about a server's program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// Its name, as Debian's package and its users call it.
    pub name: String,
    /// Debian's package, for the version.
    pub(super) package: String,
    /// Names of its executable.
    executables: Vec<String>,
    /// The format of its configuration.
    pub(super) format: Format,
    /// Debian's configuration file.
    pub(super) config: String,
    /// Options that name another file, or folder. Empty: its arguments are its configuration, and the file has them for
    /// the service manager.
    pub(super) config_options: Vec<String>,
    /// Letters of its options without a value (getopt(3)): they may stand in one word before another option,
    /// `-dc FILE`.
    #[serde(default)]
    pub(super) switches: String,
    /// What it may go by instead of a file.
    #[serde(default)]
    pub(super) instead: Vec<Instead>,
    /// The option names a folder: the file in it.
    pub(super) config_file: Option<String>,
    /// The option with another name for that file, without `.conf`.
    config_name: Option<String>,
    /// Where it looks for its file, in this order, unless it is given by a whole path.
    #[serde(default)]
    pub(super) searched: Vec<String>,
    /// It stays in the folder that it was started in. [`super::start`]
    #[serde(default)]
    pub(super) stays: bool,
    /// But not with one of these options.
    #[serde(default)]
    pub(super) moves_with: Vec<String>,
    /// Words of its command line that belong to no option are lines of its configuration, and then it reads no file of
    /// its own.
    #[serde(default)]
    pub(super) lines_as_words: bool,
    /// Where its packages have its configuration: files, and folders with all that is in them. Of a server that does
    /// not run as root, root changes no other file.
    pub(super) places: Vec<String>,
    /// How its numbers are written.
    #[serde(default)]
    pub(super) numbers: Numbers,
    /// How it is told to change its root once it has read its files.
    pub(super) chroot: Option<Chroot>,
    /// New lines may go into a file of their own, in a folder below the configuration's own that it includes.
    pub(super) drop_in: bool,
    /// A shell file whose variable has the server's arguments.
    pub(super) arguments: Option<String>,
    /// Its own checker; `{config}`, `{folder}` and `{program}` are replaced. Empty if it has none.
    pub(super) check: Vec<String>,
    /// What the checker has after its name for a server whose root is a folder, `{root}`. Empty: it cannot check such a
    /// server.
    #[serde(default)]
    pub(super) check_root: Vec<String>,
    /// As root, the checker changes its root as the server does, where its configuration says so.
    #[serde(default)]
    pub(super) check_changes_root: bool,
    /// The checker looks at the machine's interfaces, and loads nothing that the server's user could write.
    #[serde(default)]
    pub(super) check_sees_network: bool,
    /// How to find out that it serves.
    pub(super) probe: Probe,
    /// Options that name its port.
    #[serde(default)]
    pub(super) port_options: Vec<String>,
    /// The ports that it usually serves.
    pub(super) ports: Vec<u16>,
    /// What several instances on one port need.
    pub(super) instances: InstancesProfile,
    /// The XDP program that it leaves on interfaces when it ends, by the name that the kernel has.
    pub(super) xdp_program: Option<String>,
    /// The knobs that matter for UDP.
    #[serde(rename = "knob")]
    pub(super) knobs: Vec<KnobProfile>,
}

/// Where a server is told to change its root after it has read its configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chroot {
    /// The section of the line.
    pub(super) section: String,
    /// Its key.
    pub(super) key: String,
    /// An option that overrides it.
    pub(super) option: Option<String>,
}

/// Something that a server may go by instead of its configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Instead {
    /// Options that say so.
    options: Vec<String>,
    /// A file that it prefers to its own one once it exists, if no argument names a file.
    preferred: Option<String>,
    /// What it is, and how that is changed.
    pub(super) what: String,
}

impl Instead {
    /// Whether a server with these arguments goes by it. `named`: they name a file. `is_file`: whether it sees a file
    /// there.
    pub(super) fn holds(&self, arguments: &Arguments, named: bool, is_file: impl Fn(&str) -> bool) -> bool {
        let preferred = || self.preferred.as_ref().is_some_and(|path| is_file(path));
        arguments.has(&self.options) || !named && preferred()
    }
}

/// What several instances of a server on one port need. `{folder}` is the instance's own folder, `{n}` its number from
/// 1.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct InstancesProfile {
    /// Why there must be one only, and what to do instead.
    pub(super) shared_state: Option<String>,
    /// Why all datagrams of a flow must reach the same instance.
    pub(super) flow_state: Option<String>,
    /// Arguments that the command line must have: one of the words of each.
    pub(super) requires: Vec<Required>,
    /// Arguments that it must not have: none of the words.
    pub(super) forbids: Vec<Required>,
    /// Options with a value of each instance's own, which the command line gives.
    pub(super) differs: Vec<Differing>,
    /// Lines that the configuration must not have.
    pub(super) excludes: Vec<Excluded>,
    /// Options with a value of each instance's own.
    pub(super) options: Vec<[String; 2]>,
    /// Keys outside of all sections with a value of each instance's own: replaced where they stand, else added at the
    /// top.
    pub(super) set: BTreeMap<String, String>,
    /// Lines at the end of each instance's configuration.
    pub(super) append: Vec<String>,
    /// The account that it changes to, which owns the instance's folder.
    pub(super) user: Option<String>,
}

/// An argument that instances need, or must not have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Required {
    /// One of these words.
    pub(super) one_of: Vec<String>,
    /// Why.
    pub(super) why: String,
}

/// Options whose value, if there is one, must have a placeholder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Differing {
    /// The options.
    pub(super) options: Vec<String>,
    /// What would be right.
    pub(super) example: String,
    /// Why.
    pub(super) why: String,
}

/// Lines that only one process can have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Excluded {
    /// The section; empty for none.
    #[serde(default)]
    pub(super) section: String,
    /// The key.
    pub(super) key: String,
    /// Only with one of these values; empty for any.
    #[serde(default)]
    pub(super) values: Vec<String>,
    /// Why.
    pub(super) why: String,
}

/// A request that a serving server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// A DNS query; any response will do.
    Dns,
    /// An NTP request of a client.
    Ntp,
    /// A STUN binding request.
    Stun,
    /// No request is answered without a shared secret: a socket is bound to the port.
    Bound,
}

/// What of a running server shows the value of a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shows {
    /// Its processes: one for each, and others.
    Processes,
    /// Its threads, likewise.
    Threads,
    /// Its sockets at one address: as many.
    Sockets,
    /// Whether its sockets may share their address (`SO_REUSEPORT`).
    Reuseport,
    /// The receive buffer of each socket.
    ReceiveBuffer,
    /// The send buffer of each socket.
    SendBuffer,
    /// The interfaces with its XDP program.
    XdpProgram,
}

/// A knob of a server's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KnobProfile {
    /// Its name in requests.
    pub(super) name: String,
    /// The section it stands in; empty for none.
    #[serde(default)]
    pub(super) section: String,
    /// Its key, if not its name.
    key: Option<String>,
    /// How values are read.
    pub(super) kind: Kind,
    /// The server's default in the oldest version; `cpus` if it starts one for each CPU. See [`Self::default_in`].
    pub(super) default: String,
    /// Other defaults of later versions.
    #[serde(default, rename = "later-default")]
    later_defaults: Vec<LaterDefault>,
    /// The command-line option that overrides it.
    pub(super) flag: Option<String>,
    /// The value that the authors' guide would give it: a value, `cpus`, or `interface`, the one that the server's
    /// datagrams arrive on. Without, nothing is proposed.
    pub(super) propose: Option<String>,
    /// Proposed only for more than one CPU.
    #[serde(default)]
    pub(super) many: bool,
    /// What of the running server shows its value.
    pub(super) shows: Option<Shows>,
    /// How many more there are of those than the value says. Without: not known, so that only a change of their number
    /// shows anything.
    pub(super) besides: Option<u64>,
    /// Proposed only if none of these keys is set.
    #[serde(default)]
    pub(super) unless: Vec<String>,
    /// Options of the command line that take the place of all its sections.
    #[serde(default)]
    pub(super) unused_with: Vec<String>,
    /// Helps only under conditions that are not checked: worth a trial, not taken without one.
    #[serde(default)]
    pub(super) uncertain: bool,
    /// The packet filter sees none of the server's datagrams any more: that lowers security where there is one.
    #[serde(default)]
    pub(super) bypasses_packet_filter: bool,
    /// What a larger value exposes.
    #[serde(default, rename = "advisory")]
    pub(super) advisories: Vec<Advisory>,
    /// Only sections with such a line count, and all of them are set.
    pub(super) only: Option<Only>,
    /// What it is.
    pub(super) what: String,
    /// The effect that is expected from the proposal.
    #[serde(default)]
    pub(super) effect: String,
    /// What it may cost.
    #[serde(default)]
    pub(super) risk: String,
}

/// A default that a version began with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaterDefault {
    /// The first release that has it, as its authors number it.
    since: String,
    /// The default.
    default: String,
}

impl KnobProfile {
    /// The server's default in this version of its package; `cpus` if it starts one for each CPU. That of the oldest
    /// version if it is not known: a proposal then may say what is so already, and never lowers anything.
    pub(super) fn default_in(&self, version: Option<&str>) -> &str {
        let later = self.later_defaults.iter().rev();
        let begun = |later: &&LaterDefault| {
            version.is_some_and(|version| advisory::order(version, &later.since) != Ordering::Less)
        };
        later.into_iter().find(begun).map_or(&self.default, |later| &later.default)
    }
}

/// Selects sections by one of their lines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Only {
    /// The key of the line.
    pub(super) key: String,
    /// The values that select, in any case.
    pub(super) values: Vec<String>,
    /// They are modules that the sections load: their names have the case of their files, and a module that is loaded
    /// already is not loaded again, so that the first of the sections counts.
    #[serde(default)]
    loads: bool,
}

impl Only {
    /// Whether a section with this value of the key is one of them.
    pub(super) fn selects(&self, value: &str) -> bool {
        let same = |one: &String| if self.loads { one == value } else { one.eq_ignore_ascii_case(value) };
        self.values.iter().any(same)
    }

    /// How many of them count.
    pub(super) const fn count(&self) -> usize {
        if self.loads { 1 } else { usize::MAX }
    }
}

impl Profile {
    /// The profile of a program, by the name of its executable.
    pub(super) fn of(executable: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.executables.iter().any(|name| name == executable))
    }

    /// The profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The names of all profiles.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        PROFILES.iter().map(|profile| profile.name.as_str()).collect()
    }
}

impl Profile {
    /// The configuration file that these arguments name, as they do; `None`: the usual one.
    pub(super) fn config_named(&self, arguments: &Arguments) -> Option<String> {
        let given = arguments.any(&self.config_options);
        let Some(file) = &self.config_file else { return given.map(str::to_owned) };
        let named = self.config_name.as_ref().and_then(|option| arguments.option(&[option]));
        if given.is_none() && named.is_none() {
            return None;
        }
        let usual = self.config.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = given.unwrap_or(usual);
        Some(named.map_or_else(|| format!("{folder}/{file}"), |name| format!("{folder}/{name}.conf")))
    }
}

impl KnobProfile {
    /// Its key in the configuration.
    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.name)
    }
}

/// All profiles.
static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let files = [
        include_str!("../../services/nsd.toml"),
        include_str!("../../services/knot.toml"),
        include_str!("../../services/unbound.toml"),
        include_str!("../../services/bind9.toml"),
        include_str!("../../services/dnsdist.toml"),
        include_str!("../../services/freeradius.toml"),
        include_str!("../../services/chrony.toml"),
        include_str!("../../services/rsyslog.toml"),
        include_str!("../../services/coturn.toml"),
        include_str!("../../services/nfcapd.toml"),
    ];
    files.into_iter().map(|text| toml::from_str(text).expect("the tests read every profile")).collect()
});

#[cfg(test)]
mod tests;
