//! Socket policies on this machine: where they are kept, and how they are read and written.
//!
//! ```text
//! policy:nsd.service/receive-buffer=8M ── unit.rs ─▸ policy:/system.slice/nsd.service/receive-buffer=8388608
//!                                                        │ udpath_bpf::Policies, at /sys/fs/bpf/udpath/policy
//! status ── effect.rs: is it so? ◂── sockets, limits ────┘
//! ```
//! A policy has no process and no file: it is an element of a map in the kernel, and gone with a boot. Only `spread` is
//! a drop-in of the unit: `spread.rs`.

mod effect;
mod process;
mod remove;
mod report;
pub(crate) mod spread;
mod unit;

use std::path::{Path, PathBuf};

use error_reporter::Report;
use udpath_bpf::{Policies, Policy, PolicyOption, PolicyTarget};
use udpath_host::{Source, limits};

pub use effect::{Effect, effect};
pub use process::cgroup_of_process;
pub use remove::applies_of;
pub use report::{EffectState, Other, PolicyReport, Reported, SCHEMA};
pub use spread::{Group as SpreadGroup, select as spread};
pub(crate) use unit::{cgroup_of, of_slice};

pub use crate::settings::policy::rule as spread_rule;
use crate::settings::{Value, policy::whose};

/// Where the BPF file system is mounted: systemd mounts it there, and bpftool looks there.
const BPFFS: &str = "/sys/fs/bpf";

/// Where cgroup v2 is mounted, if its root is visible there.
///
/// # Errors
/// Why there are no policies on this machine.
pub fn root(source: &dyn Source) -> Result<PathBuf, String> {
    let mounts = limits::mounts(source, &mut Vec::new());
    let root = mounts.unified().ok_or(
        "this machine has no cgroup v2 mounted, only version 1; mount one beside it (mount -t cgroup2 none \
         /sys/fs/cgroup/unified) or boot with systemd.unified_cgroup_hierarchy=1",
    )?;
    // Every cgroup but the root has this file.
    match source.text(&format!("{root}/cgroup.type")) {
        Ok(_) => Err(format!(
            "{root} is not the root of cgroup v2 but a container's part of it; run it on the host"
        )),
        Err(_) => Ok(PathBuf::from(root)),
    }
}

/// The BPF file system.
fn bpffs(source: &dyn Source) -> Result<&'static Path, String> {
    let mounts =
        source.text("/proc/self/mounts").map_err(|why| format!("cannot read /proc/self/mounts: {why}"))?;
    let mut mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        (words.next()? == BPFFS).then(|| words.next())?
    });
    match mounted.next_back() {
        Some("bpf") => Ok(Path::new(BPFFS)),
        _ => Err(format!("no BPF file system is mounted at {BPFFS}; mount it with mount -t bpf bpf {BPFFS}")),
    }
}

fn open(source: &dyn Source) -> Result<Option<Policies>, String> {
    root(source)?;
    Policies::open(bpffs(source)?).map_err(|error| Report::new(error).to_string())
}

/// The value of one option.
pub(crate) fn read(
    source: &dyn Source,
    target: &PolicyTarget,
    option: PolicyOption,
) -> Result<Value, String> {
    let Some(policies) = open(source)? else { return Ok(Value::Unset) };
    let policy = policies.get(target).map_err(|error| Report::new(error).to_string())?;
    Ok(Value::of_policy(option, policy.get(option)))
}

/// Sets one option. The first policy attaches the programs, and without the last they are gone.
pub(crate) fn write(
    source: &dyn Source,
    target: &PolicyTarget,
    option: PolicyOption,
    value: Option<u32>,
) -> Result<(), String> {
    let root = root(source)?;
    let failed = |error: udpath_bpf::Error| Report::new(error).to_string();
    let mut policies = match (value, open(source)?) {
        // An installation that was cut short leaves a part.
        (None, None) => return Policies::uninstall(bpffs(source)?).map_err(failed),
        (None, Some(policies)) => policies,
        (Some(_), _) => Policies::install(bpffs(source)?, &root).map_err(failed)?,
    };
    let mut policy = policies.get(target).map_err(failed)?;
    policy.set(option, value);
    policies.set(target, &policy).map_err(failed)?;
    match policies.list().map_err(failed)?.is_empty() {
        true => Policies::uninstall(bpffs(source)?).map_err(failed),
        false => Ok(()),
    }
}

/// The target that a text names: a unit, or a cgroup by its path, and a port.
///
/// # Errors
/// It names none, or systemd does not know the unit.
pub fn target(source: &dyn Source, text: &str) -> Result<PolicyTarget, String> {
    let (whose, port) = whose(text).map_err(|why| {
        format!("{text:?} is not a target such as nsd.service or /system.slice/nsd.service: {why}")
    })?;
    let cgroup =
        if whose.starts_with('/') { of_path(source, whose)?.to_owned() } else { cgroup_of(source, whose)? };
    Ok(PolicyTarget { cgroup, port })
}

/// The cgroup that a path names: as /proc/PID/cgroup shows it, or as its folder below the mount of cgroup v2.
///
/// # Errors
/// It is a folder of cgroup v1, which has no policies.
pub(crate) fn of_path<'a>(source: &dyn Source, path: &'a str) -> Result<&'a str, String> {
    let mounts = limits::mounts(source, &mut Vec::new());
    let unified = mounts.unified();
    let below = unified
        .and_then(|root| path.strip_prefix(root))
        .filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match below {
        Some("") => Ok("/"),
        Some(cgroup) => Ok(cgroup),
        None if path.starts_with("/sys/fs/cgroup/") => {
            let at = unified.map_or_else(String::new, |root| format!(", which is mounted at {root}"));
            Err(format!("{path} is not in cgroup v2{at}: policies are for cgroups of v2"))
        }
        None => Ok(path),
    }
}

/// All policies of this machine.
///
/// # Errors
/// It has no cgroup v2 or no BPF file system, or permission is denied.
pub fn list(source: &dyn Source) -> Result<Vec<(PolicyTarget, Policy)>, String> {
    match open(source)? {
        Some(policies) => policies.list().map_err(|error| Report::new(error).to_string()),
        None => Ok(Vec::new()),
    }
}

/// Programs of others that run when a program of `cgroup` binds, connects or creates a socket, before those of udpath
/// if they belong to a deeper cgroup: they can deny a bind, or set the same options.
///
/// # Errors
/// As [`list`].
pub fn others(source: &dyn Source, cgroup: &str) -> Result<Vec<udpath_bpf::CgroupProgram>, String> {
    let root = root(source)?;
    let own = root.join(cgroup.trim_start_matches('/'));
    let folder = if own.is_dir() { own } else { root };
    let mut programs = udpath_bpf::programs_at(&folder).map_err(|error| Report::new(error).to_string())?;
    let ours = match open(source)? {
        Some(policies) => policies.programs().map_err(|error| Report::new(error).to_string())?,
        None => Vec::new(),
    };
    programs.retain(|program| !ours.contains(&program.id));
    Ok(programs)
}

/// Whether a policy can set a socket's option, by the name that both have.
#[must_use]
pub fn has_option(name: &str) -> bool {
    PolicyOption::ALL.into_iter().any(|option| option.name() == name)
}

/// The sysctl that limits a buffer at bind, by its path below /proc/sys.
pub(crate) fn ceiling(option: PolicyOption) -> Option<&'static str> {
    match option {
        PolicyOption::ReceiveBuffer => Some("net/core/rmem_max"),
        PolicyOption::SendBuffer => Some("net/core/wmem_max"),
        PolicyOption::Reuseport | PolicyOption::Priority | PolicyOption::Mark => None,
    }
}

#[cfg(test)]
mod tests {
    use udpath_host::source::Folder;

    use super::*;

    #[test]
    fn a_folder_below_the_mount_is_its_cgroup() {
        for (mounted, paths) in [
            (
                "/sys/fs/cgroup",
                [
                    ("/sys/fs/cgroup/a/b", Ok("/a/b")),
                    ("/sys/fs/cgroup", Ok("/")),
                    ("/system.slice", Ok("/system.slice")),
                ],
            ),
            (
                "/sys/fs/cgroup/unified",
                [
                    ("/sys/fs/cgroup/unified/a", Ok("/a")),
                    ("/sys/fs/cgroup/cpu/a", Err("which is mounted at /sys/fs/cgroup/unified")),
                    ("/sys/fs/cgroup/unifiedly", Err("is not in cgroup v2")),
                ],
            ),
            (
                "/other",
                [("/other", Ok("/")), ("/others", Ok("/others")), ("/sys/fs/cgroup/a", Err("/other"))],
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let own = folder.path().join("proc/self");
            std::fs::create_dir_all(&own).unwrap();
            let line = format!("29 23 0:26 / {mounted} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
            std::fs::write(own.join("mountinfo"), line).unwrap();
            let source = Folder::captured(folder.path());
            for (path, wanted) in paths {
                match (of_path(&source, path), wanted) {
                    (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{path}"),
                    (Err(why), Err(part)) => assert!(why.contains(part), "{path}: {why}"),
                    (found, wanted) => panic!("{path}: {found:?}, not {wanted:?}"),
                }
            }
        }
    }
}
