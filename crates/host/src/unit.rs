//! Names of services of systemd's system manager, the only text of a control group that becomes a command or a file
//! name.
//!
//! ```text
//!  /system.slice/nsd.service                                     nsd.service
//!  /dns.slice/dns-auth.slice/nsd@2.service/below/x.service       nsd@2.service: what is below a unit belongs to it
//!  /user.slice/user-1000.slice/user@1000.service/nsd.service     none: a user's manager, whose units root does not have
//!  /docker/0f3a.../nsd.service, /lxc/web/system.slice/nsd.service   none: a container's
//! ```
//! Any user who has control groups of their own names them as they like: `x;reboot;.service`, `--force.service`,
//! `*.service`. None of these is below slices alone, and none of them is a name by the rules of systemd.unit(5).

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use crate::container::container;

/// What the name of a service ends with.
const SERVICE: &str = ".service";
/// What the name of a slice ends with.
const SLICE: &str = ".slice";
/// Longest name of a unit, bytes (`UNIT_NAME_MAX` of systemd).
const MAX: usize = 255;

/// The name of a service: ASCII letters, digits and `:-_.\@`, at most 255 bytes, ending in `.service`; neither an
/// option nor a pattern nor a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct UnitName(String);

/// A text that is not the name of a service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a service of systemd, such as nsd.service")]
pub struct WrongUnit(String);

impl UnitName {
    /// The service of the system manager that has a control group, by the group's path as in `/proc/PID/cgroup`. The
    /// text alone proves nothing to somebody who acts on it: ask systemd.
    #[must_use]
    pub fn of_cgroup(path: &str) -> Option<Self> {
        if container(path).is_some() {
            return None;
        }
        let mut around = None;
        for part in path.strip_prefix('/')?.split('/') {
            let Some(slice) = part.strip_suffix(SLICE) else {
                // systemd escapes names that files of a control group could have (`cg_escape`).
                let name = part.strip_prefix('_').unwrap_or(part);
                return name.parse().ok().filter(|unit: &Self| !unit.starts_with("user@"));
            };
            if slice == "user" || !is_within(slice, around) {
                return None;
            }
            around = Some(slice);
        }
        None
    }

    /// `nsd` of `nsd.service`.
    #[must_use]
    pub fn stem(&self) -> &str {
        self.0.strip_suffix(SERVICE).unwrap_or(&self.0)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `dns-auth` is the slice within `dns`, and no slice without a dash is within another (systemd.slice(5)).
fn is_within(slice: &str, around: Option<&str>) -> bool {
    let own = match around {
        None => Some(slice),
        Some(around) => slice.strip_prefix(around).and_then(|rest| rest.strip_prefix('-')),
    };
    own.is_some_and(|own| !own.is_empty() && !own.contains('-'))
}

impl FromStr for UnitName {
    type Err = WrongUnit;

    fn from_str(text: &str) -> Result<Self, WrongUnit> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
        let stem = text.strip_suffix(SERVICE).unwrap_or_default();
        let is_name = !stem.is_empty()
            && text.len() <= MAX
            && !stem.starts_with(['-', '.', '@'])
            && !stem.ends_with('@')
            && text.bytes().all(plain);
        if is_name { Ok(Self(text.to_owned())) } else { Err(WrongUnit(text.to_owned())) }
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Deref for UnitName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<std::ffi::OsStr> for UnitName {
    fn as_ref(&self) -> &std::ffi::OsStr {
        self.0.as_ref()
    }
}

impl PartialEq<str> for UnitName {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl<'de> Deserialize<'de> for UnitName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for UnitName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "UnitName".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// Reads a name that an earlier version wrote, which took any text; what is not a name is [`None`].
///
/// # Errors
/// It is not a text.
pub(crate) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UnitName>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(path: &str) -> Option<String> {
        UnitName::of_cgroup(path).map(|unit| unit.to_string())
    }

    #[test]
    fn a_service_of_the_system_manager_is_named_by_its_whole_path() {
        for (path, unit) in [
            ("/system.slice/nsd.service", "nsd.service"),
            ("/nsd.service", "nsd.service"),
            ("/dns.slice/dns-auth.slice/nsd@eth0.service", "nsd@eth0.service"),
            ("/system.slice/system-udpath\\x2dntp.slice/udpath-ntp@1.service", "udpath-ntp@1.service"),
            ("/system.slice/__x.service", "_x.service"),
            ("/system.slice/nsd.service/ssh.service", "nsd.service"),
            ("/system.slice/nsd.service/x;id>pwned;.service", "nsd.service"),
        ] {
            assert_eq!(of(path).as_deref(), Some(unit), "{path}");
        }
    }

    #[test]
    fn nobody_else_names_a_unit() {
        let id = "0f3a".repeat(16);
        let docker = format!("/system.slice/docker-{id}.scope/system.slice/nsd.service");
        let pod = format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope/nsd.service");
        for path in [
            // Of a user.
            "/user.slice/user-1000.slice/user@1000.service/app.slice/nsd.service",
            "/user.slice/user-1000.slice/user@1000.service",
            "/user.slice/user-1000.slice/session-3.scope/nsd.service",
            "/user.slice/nsd.service",
            "/system.slice/user@1000.service",
            // Of a container.
            "/lxc/web/system.slice/nsd.service",
            "/lxc.payload.web/system.slice/nsd.service",
            "/machine.slice/systemd-nspawn@web.service/payload/system.slice/nsd.service",
            docker.as_str(),
            pod.as_str(),
            // Of a group that somebody was given, or made to look like slices.
            "/mine/nsd.service",
            "/a-b.slice/nsd.service",
            "/system.slice/dns.slice/nsd.service",
            "/dns.slice/dns-.slice/nsd.service",
            "/.slice/nsd.service",
            "/../nsd.service",
            "nsd.service",
            "",
            "/",
            "/system.slice",
            // Text.
            "/system.slice/x;id>pwned;.service",
            "/system.slice/--force.service",
            "/system.slice/*.service",
            "/system.slice/a b.service",
            "/system.slice/a\n.service",
            "/system.slice/é.service",
            "/system.slice/nsd@.service",
            "/system.slice/.service",
            "/system.slice/..service",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        assert!("a".repeat(247).parse::<UnitName>().is_err());
        assert!(format!("{}.service", "a".repeat(247)).parse::<UnitName>().is_ok());
        assert!(format!("{}.service", "a".repeat(248)).parse::<UnitName>().is_err());
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        #[derive(Debug, Deserialize)]
        struct Process {
            #[serde(default, deserialize_with = "lenient")]
            unit: Option<UnitName>,
        }
        let read = |text: &str| serde_json::from_str::<Process>(text).unwrap().unit;
        assert_eq!(read(r#"{"unit": "nsd.service"}"#).as_deref(), Some("nsd.service"));
        for other in [r#"{"unit": "x;id.service"}"#, r#"{"unit": null}"#, "{}"] {
            assert_eq!(read(other), None);
        }
        assert!(serde_json::from_str::<UnitName>("\"--force.service\"").is_err());
        let unit: UnitName = "a\\x2db.service".parse().unwrap();
        assert_eq!(serde_json::to_string(&unit).unwrap(), r#""a\\x2db.service""#);
    }

    proptest! {
        #[test]
        fn no_text_of_proc_yields_anything_but_a_name(
            path in prop_oneof![
                any::<String>(),
                "(/(system|user|a|a-b|user-1000)\\.slice){0,3}/[ -~]{0,12}\\.service(/[ -~]{0,8}\\.service)?",
                "[/a-z.@;*$ '\"\n-]{0,24}\\.service",
            ],
        ) {
            if let Some(unit) = UnitName::of_cgroup(&path) {
                let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:-_.\\@";
                prop_assert!(unit.chars().all(|letter| alphabet.contains(letter)), "{unit}");
                prop_assert!(!unit.starts_with(['-', '.']) && unit.ends_with(SERVICE) && unit.len() <= MAX);
                prop_assert!(!path.starts_with("/user.slice/") && path.contains(unit.as_str()));
                prop_assert_eq!(unit.parse::<UnitName>(), Ok(unit));
            }
        }
    }
}
