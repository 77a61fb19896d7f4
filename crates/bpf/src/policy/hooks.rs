//! The pinned links of the policy programs, and all programs that run at their hooks.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya::Ebpf;
use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSock, CgroupSockAddr, ProgramError, loaded_programs};
use aya_obj::generated::bpf_attach_type;

use super::{NAME, refused};
use crate::attach::{self, errno, find, load_error};
use crate::{Error, sys};
use udpath_files::kernel;

/// A hook, by the name of its program and of its link.
struct Hook {
    name: &'static str,
    at: bpf_attach_type,
}

const HOOKS: [Hook; 5] = [
    Hook { name: "bind4", at: bpf_attach_type::BPF_CGROUP_INET4_BIND },
    Hook { name: "bind6", at: bpf_attach_type::BPF_CGROUP_INET6_BIND },
    Hook { name: "connect4", at: bpf_attach_type::BPF_CGROUP_INET4_CONNECT },
    Hook { name: "connect6", at: bpf_attach_type::BPF_CGROUP_INET6_CONNECT },
    Hook { name: "sock_create", at: bpf_attach_type::BPF_CGROUP_INET_SOCK_CREATE },
];

/// No flag: a link never excludes other programs, and the kernel accepts no flags for one (`cgroup_bpf_link_attach`).
const BESIDE_OTHERS: CgroupAttachMode = CgroupAttachMode::Single;

/// A program at a hook that policies use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The hook: `bind4`.
    pub hook: &'static str,
    /// Its ID, as in `bpftool prog show id N`.
    pub id: u32,
    /// Its name; empty if it has none, or has just been unloaded.
    pub name: String,
}

/// Hooks without an attached program.
pub(super) fn missing(folder: &Path) -> Result<Vec<&'static str>, Error> {
    let mut missing = Vec::new();
    for hook in &HOOKS {
        if attached(&folder.join(hook.name))?.is_none() {
            missing.push(hook.name);
        }
    }
    Ok(missing)
}

/// IDs of the attached programs.
pub(super) fn programs(folder: &Path) -> Result<Vec<u32>, Error> {
    let mut programs = Vec::new();
    for hook in &HOOKS {
        programs.extend(attached(&folder.join(hook.name))?);
    }
    Ok(programs)
}

/// The program of a link; `None` if there is no link, or it is not attached: `bpftool link detach` leaves such a one.
fn attached(path: &Path) -> Result<Option<u32>, Error> {
    let failed = |error: io::Error| refused(path, error.into());
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| refused(path, error.into()))?;
    let link = match sys::pinned(&name) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // `bpf_cgroup_link_show_fdinfo` of kernel/bpf/cgroup.c: 0 after it was detached.
    let about = kernel::text(format!("/proc/self/fdinfo/{}", link.as_raw_fd())).map_err(failed)?;
    let field = |key: &str| about.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let is_attached = field("cgroup_id:").is_some_and(|id| id != "0");
    Ok(field("prog_id:").and_then(|id| id.parse().ok()).filter(|_| is_attached))
}

/// Attaches the programs whose links are missing, and pins the links.
pub(super) fn attach(object: &mut Ebpf, folder: &Path, root: &Path) -> Result<(), Error> {
    let cgroup = udpath_files::folder(root).map_err(|error| refused(root, error.into()))?;
    for hook in &HOOKS {
        let path = folder.join(hook.name);
        if attached(&path)?.is_some() {
            continue;
        }
        let link = match hook.at {
            bpf_attach_type::BPF_CGROUP_INET_SOCK_CREATE => {
                let program: &mut CgroupSock = find(object, hook.name)?;
                attach::verified(|| program.load()).map_err(|error| load_error(NAME, error.into()))?;
                let link = program.attach(&cgroup, BESIDE_OTHERS);
                link.and_then(|id| program.take_link(id)).map(FdLink::try_from)
            }
            _ => {
                let program: &mut CgroupSockAddr = find(object, hook.name)?;
                attach::verified(|| program.load()).map_err(|error| load_error(NAME, error.into()))?;
                let link = program.attach(&cgroup, BESIDE_OTHERS);
                link.and_then(|id| program.take_link(id)).map(FdLink::try_from)
            }
        };
        let link = link.map_err(|error| not_attached(hook.name, root, &error))?;
        let link =
            link.map_err(|_| refused(root, "the kernel has no BPF links (Linux 5.7 and later have)".into()))?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(refused(&path, error.into()));
            }
            _ => {}
        }
        link.pin(&path).map_err(|error| refused(&path, attach::cause(&error)))?;
    }
    Ok(())
}

fn not_attached(hook: &'static str, root: &Path, error: &ProgramError) -> Error {
    let source = match errno(error) {
        // Loading has just succeeded, so it is not a lack of permission: `__cgroup_bpf_attach` refuses to mix modes.
        Some(libc::EPERM) => format!(
            "another program holds it alone (attached without BPF_F_ALLOW_MULTI); `bpftool cgroup show {}` names it",
            root.display()
        )
        .into(),
        _ => attach::cause(error),
    };
    Error::Attach { program: NAME, interface: format!("{hook} of {}", root.display()), source }
}

/// The programs that run for sockets of a cgroup at the hooks that policies use, in the order in which they run; those
/// of policies included.
///
/// # Errors
/// It is not a cgroup of version 2, or permission is denied.
pub fn programs_at(cgroup: &Path) -> Result<Vec<Program>, Error> {
    let failed = |error: io::Error| refused(cgroup, error.into());
    let folder = udpath_files::folder(cgroup).map_err(failed)?;
    let mut found = Vec::new();
    for hook in &HOOKS {
        let ids = sys::effective_programs(folder.as_fd(), hook.at).map_err(failed)?;
        found.extend(ids.into_iter().map(|id| Program { hook: hook.name, id, name: String::new() }));
    }
    for info in loaded_programs().flatten() {
        for program in found.iter_mut().filter(|program| program.id == info.id()) {
            program.name = info.name_as_str().unwrap_or_default().to_owned();
        }
    }
    Ok(found)
}
