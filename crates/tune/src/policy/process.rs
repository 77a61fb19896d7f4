//! The cgroup by which a policy finds a running program again at its next start.

use udpath_host::Source;

use super::root;

/// The cgroup of a process.
///
/// # Errors
/// Why a policy for it would not be one for the next start of the same program.
pub fn cgroup_of_process(source: &dyn Source, pid: u32) -> Result<String, String> {
    root(source)?;
    let path = format!("/proc/{pid}/cgroup");
    let text = source.text(&path).map_err(|why| format!("cannot read {path}: {why}"))?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    lasting(own.ok_or_else(|| format!("process {pid} has no cgroup of version 2"))?).map(str::to_owned)
}

/// A cgroup that belongs to a program, and not to everything or to a login. Who has control groups of their own names
/// them as they like; this name becomes part of a setting's.
fn lasting(cgroup: &str) -> Result<&str, String> {
    let name = cgroup.rsplit_once('/').map_or(cgroup, |(_, name)| name);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/:-_.\\@".contains(&byte);
    match cgroup {
        _ if !cgroup.starts_with('/') || !cgroup.bytes().all(plain) => {
            Err(format!("its cgroup {cgroup:?} is not named as systemd and container runtimes do"))
        }
        "/" => Err("it runs in the root cgroup, which is not its own; run it as a unit".to_owned()),
        _ if name.starts_with("session-") && name.ends_with(".scope") => {
            Err(format!("it runs in a login session, whose cgroup {cgroup} ends with it; run it as a unit"))
        }
        _ => Ok(cgroup),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cgroup_of_its_own_is_found_again() {
        for own in ["/system.slice/nsd.service", "/lxc/dns", "/system.slice/docker-0f3a.scope"] {
            assert_eq!(lasting(own), Ok(own));
        }
        assert!(lasting("/").unwrap_err().contains("root cgroup"));
        for strange in ["/x=1/nsd.service", "/a b", "/$(id)", "/../x;y", "", "nsd.service"] {
            let why = lasting(strange).unwrap_err();
            assert!(why.contains("not named as systemd"), "{strange}: {why}");
        }
        let session = "/user.slice/user-0.slice/session-3.scope";
        assert!(lasting(session).unwrap_err().contains(session));
    }
}
