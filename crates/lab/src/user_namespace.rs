//! Labs without root: the process becomes root of a new user namespace, which may have network namespaces.

use std::io;

use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::{Error, sys};
use udpath_files::kernel;

/// The user map of the initial user namespace: the identity.
const INITIAL: [&str; 3] = ["0", "0", "4294967295"];

/// Moves this process into a new user namespace, as its root, with a new network namespace and a new /run, so that labs
/// can be built without root. **Call it before starting any thread**: the kernel rejects it otherwise. Returns what is
/// not possible there, as [`missing`] does.
///
/// The process has no network there but its labs, and files of all other users appear to belong to `nobody`. Labs end
/// with the process and are visible only to it, not to `ip netns` or `udpath lab list`.
///
/// # Errors
/// More than one thread runs, or the system does not allow user namespaces.
pub fn enter_user_namespace() -> Result<Vec<&'static str>, Error> {
    let threads =
        kernel::numbers("/proc/self/task").map_err(|source| failed("count the threads", source))?.len();
    if threads != 1 {
        return Err(Error::Threads { threads });
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::new_user().map_err(refused)?;
    // Without privileges, gid_map is writable only once setgroups is denied.
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        let path = format!("/proc/self/{file}");
        kernel::write(&path, &text).map_err(|source| failed(&format!("write {path}"), source))?;
    }
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave).map_err(|errno| failed("detach the mounts", errno.into()))?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"tmpfs", c"/run", c"tmpfs", safe, Some(c"mode=0755"))
        .map_err(|errno| failed("mount a /run of its own", errno.into()))?;
    Ok(missing())
}

/// What this process cannot do in a lab, a sentence each; empty for root in the initial user namespace.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    if is_inside() {
        return vec![
            "BPF programs (XDP, the kernel engine, socket choice by eBPF) need CAP_BPF in the initial user namespace: run as root",
            "NAPI cannot be enabled with XDP, so frames sent with XDP_TX do not arrive: run as root",
            "the transmit mapping (XPS) needs CAP_NET_ADMIN in the initial user namespace: run as root",
            "the lab cannot be kept, and other programs cannot see it: run `udpath lab up` as root",
        ];
    }
    if rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    vec!["labs need root, or a user namespace (enter_user_namespace)"]
}

/// True if this process is in a user namespace other than the initial one.
pub(crate) fn is_inside() -> bool {
    // A kernel without user namespaces has no such file.
    kernel::text("/proc/self/uid_map").is_ok_and(|map| !map.split_whitespace().eq(INITIAL))
}

fn failed(what: &str, source: io::Error) -> Error {
    Error::system(format!("enter a user namespace: {what}"), source)
}

fn refused(source: io::Error) -> Error {
    let why = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "this system does not allow them without root; run as root, or allow them: \
             sysctl kernel.unprivileged_userns_clone=1 (Debian) or \
             sysctl kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
        }
        Some(libc::ENOSPC | libc::EUSERS) => {
            "the limit user.max_user_namespaces is reached; run as root, or raise it: \
             sysctl user.max_user_namespaces=10000"
        }
        _ => return failed("unshare", source),
    };
    Error::system("enter a user namespace", io::Error::other(why))
}
