//! The container that a control group belongs to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A container, as far as a control group's name identifies it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Container {
    /// Its runtime: `docker`, `containerd`, `cri-o`, `podman`, `lxc`, `systemd-nspawn`.
    pub runtime: String,
    /// Its identifier or name.
    pub id: String,
}

/// How runtimes name a container's group: the prefix of the identifier, and the runtime.
const PREFIXES: [(&str, &str); 7] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
    ("machine-", "systemd-nspawn"),
    ("systemd-nspawn@", "systemd-nspawn"),
    ("lxc.payload.", "lxc"),
];

/// The container of a group, by the runtimes' naming:
///
/// ```text
/// /system.slice/docker-<64 digits>.scope              docker with systemd
/// /docker/<64 digits>                                 docker without
/// /kubepods.slice/.../cri-containerd-<64 digits>.scope
/// /machine.slice/libpod-<64 digits>.scope
/// /lxc/NAME, /lxc.payload.NAME
/// ```
pub fn container(group: &str) -> Option<Container> {
    let parts: Vec<&str> = group.split('/').filter(|part| !part.is_empty()).collect();
    let found = |runtime: &str, id: &str| Container { runtime: runtime.to_owned(), id: id.to_owned() };
    // The innermost container counts.
    for (at, part) in parts.iter().enumerate().rev() {
        let name = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".service")).unwrap_or(part);
        for (prefix, runtime) in PREFIXES {
            // A normal unit may be called docker-registry.service: an identifier has only digits.
            let id = name
                .strip_prefix(prefix)
                .filter(|id| !matches!(runtime, "docker" | "containerd" | "cri-o" | "podman") || is_id(id));
            if let Some(id) = id.filter(|id| !id.is_empty()) {
                return Some(found(runtime, id));
            }
        }
        let around = at.checked_sub(1).map(|at| parts[at]);
        match around {
            Some("docker") if is_id(name) => return Some(found("docker", name)),
            Some("lxc") => return Some(found("lxc", name)),
            // Kubernetes without systemd names the container by its identifier alone.
            Some(pod) if pod.starts_with("pod") && is_id(name) => return Some(found("containerd", name)),
            _ => {}
        }
    }
    None
}

/// 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_by_the_names_that_runtimes_give() {
        let id = "0f3a".repeat(16);
        let of = |group: String| container(&group).map(|found| (found.runtime, found.id));
        for (group, runtime) in [
            (format!("/system.slice/docker-{id}.scope"), "docker"),
            (format!("/docker/{id}"), "docker"),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-{id}.scope"
                ),
                "containerd",
            ),
            (format!("/kubepods/burstable/pod77-aa/{id}"), "containerd"),
            (format!("/kubepods.slice/kubepods-pod1.slice/crio-{id}.scope/container"), "cri-o"),
            (format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope"), "podman"),
        ] {
            assert_eq!(of(group), Some((runtime.into(), id.clone())));
        }
        assert_eq!(of("/lxc/web/system.slice/nsd.service".into()), Some(("lxc".into(), "web".into())));
        assert_eq!(of("/lxc.payload.web".into()), Some(("lxc".into(), "web".into())));
        assert_eq!(of("/system.slice/docker-registry.service".into()), None);
        assert_eq!(of("/system.slice/nsd.service".into()), None);
    }
}
