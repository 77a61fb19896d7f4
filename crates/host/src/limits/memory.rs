//! Memory limits of control groups of version 2, in which what waits in sockets counts. In version 1 it has a limit of
//! its own, which no manager of services sets.
//!
//! ```text
//! GROUP/memory.max       and of every ancestor: all of them apply
//!      /memory.current   what is used, with the cache of files, which the kernel takes back first
//!      /memory.stat      that cache; what sockets hold
//!      /memory.events    how often the limit was reached, and processes killed
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Membership, Mounts};
use crate::text::{Malformed, optional};
use crate::{Missing, Source};

/// A memory limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// Its control group, as a path below the mount point.
    pub group: String,
    /// The limit in bytes.
    pub max: u64,
    /// Bytes in use, the cache of files included.
    pub used: u64,
    /// Bytes of it that the kernel can take back: files' pages and the like.
    pub reclaimable: u64,
    /// Bytes of it that sockets hold: datagrams that wait.
    pub sockets: u64,
    /// How often the limit was reached since the group was created.
    pub reached: u64,
    /// Processes killed since then because nothing could be taken back.
    pub killed: u64,
}

/// The memory limits of a group and its ancestors.
pub(super) fn limits(
    source: &dyn Source,
    mounts: &Mounts,
    membership: &Membership,
    missing: &mut Vec<Missing>,
) -> Vec<MemoryLimit> {
    // Version 1 counts sockets elsewhere.
    if membership.controllers.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (folder, group) in mounts.folders(membership) {
        let what = format!("memory limit of {group}");
        let mut read = |file: &str| optional(source, missing, &what, &format!("{folder}/{file}"), bytes);
        let Some(max) = read("memory.max").flatten() else { continue };
        let Some(used) = read("memory.current").flatten() else { continue };
        let text = |file: &str| source.text(&format!("{folder}/{file}")).unwrap_or_default();
        let (stat, events) = (text("memory.stat"), text("memory.events"));
        let of_stat = |key: &str| value(&stat, key);
        let caches = ["active_file", "inactive_file", "slab_reclaimable"].map(of_stat);
        found.push(MemoryLimit {
            group,
            max,
            used,
            reclaimable: caches.into_iter().fold(0, u64::saturating_add).min(used),
            sockets: of_stat("sock"),
            reached: value(&events, "max"),
            killed: value(&events, "oom_kill"),
        });
    }
    found
}

/// `268435456`; `max` is no limit.
fn bytes(text: &str) -> Result<Option<u64>, Malformed> {
    match text.trim() {
        "max" => Ok(None),
        number => number.parse().map(Some).map_err(|_| Malformed::new(0, text, "not a number of bytes")),
    }
}

/// The value of a key, 0 if it is not there: `sock 4096`.
fn value(text: &str, key: &str) -> u64 {
    let of_key = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(of_key).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memberships;
    use crate::source::Folder;

    #[test]
    fn limits_of_a_service_and_of_the_groups_above() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let service = |name: &str| format!("sys/fs/cgroup/system.slice/nsd.service/{name}");
        file(&service("memory.max"), "268435456\n");
        file(&service("memory.current"), "260046848\n");
        file(
            &service("memory.stat"),
            "anon 50000000\nfile 9000\nsock 200000000\ninactive_file 4096\nactive_file 1000\nslab_reclaimable 904\n",
        );
        file(&service("memory.events"), "low 0\nhigh 0\nmax 812\noom 3\noom_kill 1\noom_group_kill 0\n");
        file("sys/fs/cgroup/system.slice/memory.max", "max\n");
        file("sys/fs/cgroup/system.slice/memory.current", "999\n");
        let mounts = Mounts::parse("29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let source = Folder::captured(folder.path());
        let read = |cgroup: &str| {
            let mut missing = Vec::new();
            let found = limits(&source, &mounts, &memberships(cgroup).unwrap()[0], &mut missing);
            assert_eq!(missing, []);
            found
        };
        let nsd = MemoryLimit {
            group: "/system.slice/nsd.service".into(),
            max: 268_435_456,
            used: 260_046_848,
            reclaimable: 6000,
            sockets: 200_000_000,
            reached: 812,
            killed: 1,
        };
        assert_eq!(read("0::/system.slice/nsd.service\n"), [nsd]);
        assert_eq!(read("0::/system.slice/ntp.service\n"), []);
        assert_eq!(read("4:memory:/system.slice/nsd.service\n"), [], "version 1");
        assert!(bytes("many").is_err());
    }
}
