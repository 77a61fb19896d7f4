//! Labs without root: the process becomes root of a user namespace of its own, which may have network namespaces.

use std::fs;
use std::io;

use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::{Error, sys};

/// The user map of the initial user namespace: every number stands for itself.
const INITIAL: [&str; 3] = ["0", "0", "4294967295"];

/// Makes this process root of a user namespace of its own, with a network namespace and a /run of its own, so that
/// labs can be built without root. **Call it first thing in `main`**: the kernel allows it to a process with one thread
/// only. Gives what will be missing there, as [`missing`] does; it is for the user to know.
///
/// The process itself has no network there but that of its labs, and files of other users, root's included, belong to
/// nobody. Labs made there end with the process, and nobody else sees them: not `ip netns`, not `udpath lab list`.
///
/// # Errors
/// More than one thread runs, or this kernel does not give ordinary users such namespaces.
pub fn enter_user_namespace() -> Result<Vec<&'static str>, Error> {
    let threads =
        fs::read_dir("/proc/self/task").map_err(|source| failed("count the threads", source))?.count();
    if threads != 1 {
        return Err(Error::Threads { threads });
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::new_user().map_err(refused)?;
    // The kernel wants groups given up before it lets an ordinary user map one.
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        let path = format!("/proc/self/{file}");
        fs::write(&path, text).map_err(|source| failed(&format!("write {path}"), source))?;
    }
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave).map_err(|errno| failed("detach the mounts", errno.into()))?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"tmpfs", c"/run", c"tmpfs", safe, Some(c"mode=0755"))
        .map_err(|errno| failed("mount a /run of its own", errno.into()))?;
    Ok(missing())
}

/// What this process lacks for a whole lab: a sentence each; none for root in the initial user namespace.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    if is_inside() {
        return vec![
            "BPF programs (XDP, the kernel engine, socket choice by eBPF) need CAP_BPF in the initial user namespace: run as root",
            "NAPI cannot be switched on at a link by XDP, so frames sent with XDP_TX do not arrive: run as root",
            "the transmit mapping (XPS) cannot be set: the kernel asks for CAP_NET_ADMIN in the initial user namespace",
            "the lab cannot be kept, and other programs cannot see it: run as root for `udpath lab up`",
        ];
    }
    if rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    vec!["labs need root, or a user namespace (enter_user_namespace)"]
}

/// Is this process in a user namespace other than the initial one?
pub(crate) fn is_inside() -> bool {
    // A kernel without user namespaces has no such file.
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.split_whitespace().eq(INITIAL))
}

fn failed(what: &str, source: io::Error) -> Error {
    Error::system(format!("enter a user namespace: {what}"), source)
}

fn refused(source: io::Error) -> Error {
    let why = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "this system does not give them to ordinary users (kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns); run as root"
        }
        Some(libc::ENOSPC | libc::EUSERS) => {
            "none are left (user.max_user_namespaces); raise it, or run as root"
        }
        _ => return failed("unshare", source),
    };
    Error::system("enter a user namespace", io::Error::other(why))
}
