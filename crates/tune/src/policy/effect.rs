//! Whether a policy has its effect: on the sockets that exist, and on those to come.
//!
//! A container's sockets are in a network namespace of its own: those of the policy's cgroup are looked at one by one.

use std::collections::{BTreeMap, HashMap};

use error_reporter::Report;
use udpath_bpf::{Policies, Policy, PolicyOption, PolicyTarget};
use udpath_host::namespace::{Place, inside};
use udpath_host::sockets::Socket;
use udpath_host::source::Folder;
use udpath_host::{Source, limits, processes, sockets};

use super::{ceiling, open, root};

/// What a policy that is set does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// All sockets that it is about have the value; there may be none.
    Full,
    /// It is set, and the sockets that exist cannot be checked: why.
    Unseen(String),
    /// It comes with the next bind: why, and what makes it come.
    Later(String),
    /// It does not have the effect that was asked for: why.
    Broken(String),
}

/// The effect of an option that is set to `value`, on sockets of the calling thread's network namespace, and of those
/// of the cgroup's processes.
pub fn effect(source: &dyn Source, target: &PolicyTarget, option: PolicyOption, value: u32) -> Effect {
    let policies = match open(source) {
        Ok(Some(policies)) => policies,
        Ok(None) => return Effect::Broken("it has been removed".to_owned()),
        Err(why) => return Effect::Broken(why),
    };
    match policies.missing() {
        Ok(hooks) if !hooks.is_empty() => {
            return Effect::Broken(format!(
                "nothing runs at {}: the link was removed or detached; undo it and set it again",
                hooks.join(", ")
            ));
        }
        _ => {}
    }
    if let Some(why) = clamped(source, option, value) {
        return Effect::Broken(why);
    }
    on_sockets(source, &policies, target, option, value)
}

/// Does the limit clamp a buffer at the next bind?
fn clamped(source: &dyn Source, option: PolicyOption, value: u32) -> Option<String> {
    let path = ceiling(option)?;
    let limit: u32 = source.text(&format!("/proc/sys/{path}")).ok()?.trim().parse().ok()?;
    let name = path.replace('/', ".");
    (value / 2 > limit).then(|| {
        format!(
            "{name} is {limit}, so a socket bound now gets {}; raise it to {}",
            limit.saturating_mul(2),
            value / 2
        )
    })
}

fn on_sockets(
    source: &dyn Source,
    policies: &Policies,
    target: &PolicyTarget,
    option: PolicyOption,
    value: u32,
) -> Effect {
    let (mut early, mut seen) = (Vec::new(), false);
    let sockets = match of_target(source, policies, target, option) {
        Ok(sockets) => sockets,
        Err(why) => {
            return Effect::Unseen(format!("for the next bind; which sockets have it is not known: {why}"));
        }
    };
    for found in sockets {
        seen = true;
        let has = has(&found.socket, option);
        if has == Some(value) {
            continue;
        }
        let outcome = found.socket.cookie.and_then(|cookie| policies.outcome(cookie).ok()?);
        let place = format!("port {} of {} (pid {})", found.socket.local.port(), found.name, found.pid);
        let got = outcome.and_then(|outcome| outcome.get(option));
        match (got, has) {
            _ if outcome.is_some_and(|outcome| outcome.was_refused(option)) => {
                return Effect::Broken(format!("the kernel refused it for {place}"));
            }
            (Some(got), Some(has)) if got != has => {
                return Effect::Broken(format!(
                    "{place} has {has}: the program itself set it after its bind, and wins"
                ));
            }
            (Some(got), _) if got == value => {}
            // For a bind to any port, and for a connect, SO_REUSEPORT is never set.
            (None, _) if outcome.is_some() && option == PolicyOption::Reuseport => {}
            // Bound without a policy, under another one, or under a lower limit.
            _ => early.push(place),
        }
    }
    match early.as_slice() {
        [] if !seen && !exists(source, &target.cgroup) => {
            Effect::Later(format!("nothing runs in {} now; in effect when it starts", target.cgroup))
        }
        [] => Effect::Full,
        [one] => Effect::Later(format!("{one} was bound before; in effect when it is restarted")),
        [one, rest @ ..] => Effect::Later(format!(
            "{one} and {} more were bound before; in effect when they are restarted",
            rest.len()
        )),
    }
}

/// A socket, and the process that has it.
struct Found {
    socket: Socket,
    pid: u32,
    name: String,
}

/// The bound sockets whose option this policy decides, and no more specific one.
fn of_target(
    source: &dyn Source,
    policies: &Policies,
    target: &PolicyTarget,
    option: PolicyOption,
) -> Result<Vec<Found>, String> {
    let mut found = of_namespace(source, policies, target, option)?;
    for pid in elsewhere(source, &target.cgroup) {
        let there = inside(&Place::Process(pid), || of_namespace(&Folder::live(), policies, target, option));
        // The sockets of a process that has ended are gone with it.
        if let Ok(there) = there {
            found.extend(there?);
        }
    }
    found.sort_by_key(|found| (found.socket.local.port(), found.pid));
    Ok(found)
}

/// A process of each other network namespace that the cgroup's processes are in.
fn elsewhere(source: &dyn Source, path: &str) -> Vec<u32> {
    let own = source.target("/proc/thread-self/ns/net").ok();
    let mut namespaces = BTreeMap::new();
    let names = source.names("/proc").unwrap_or_default();
    for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
        if cgroup(source, pid).is_some_and(|cgroup| is_within(&cgroup, path))
            && let Ok(namespace) = source.target(&format!("/proc/{pid}/ns/net"))
            && own.as_ref() != Some(&namespace)
        {
            namespaces.entry(namespace).or_insert(pid);
        }
    }
    namespaces.into_values().collect()
}

/// Those of the calling thread's network namespace.
fn of_namespace(
    source: &dyn Source,
    policies: &Policies,
    target: &PolicyTarget,
    option: PolicyOption,
) -> Result<Vec<Found>, String> {
    let list = policies.list().map_err(|error| Report::new(error).to_string())?;
    let mut listed = source.udp_sockets().map_err(|why| why.to_string())?.value;
    listed.retain(|socket| target.port.is_none_or(|port| socket.local.port() == port.get()));
    let wanted: HashMap<u32, usize> = sockets::inodes(&mut listed);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let scan = processes::scan(source, &wanted).map_err(|why| why.to_string())?;
    let (mut cgroups, mut found): (HashMap<u32, Option<String>>, _) = (HashMap::new(), Vec::new());
    for (inode, at) in &wanted {
        let holders = scan.holders.iter().filter(|holder| holder.inode == *inode);
        let Some(pid) = holders.map(|holder| holder.pid).min() else { continue };
        let cgroup = cgroups.entry(pid).or_insert_with(|| cgroup(source, pid));
        let Some(cgroup) = cgroup.as_deref() else { continue };
        let socket = &listed[*at];
        if decides(&list, cgroup, socket.local.port(), option) == Some(target) {
            let name = scan.seen.iter().find(|seen| seen.pid == pid).map(|seen| seen.name.clone());
            found.push(Found { socket: socket.clone(), pid, name: name.unwrap_or_default() });
        }
    }
    Ok(found)
}

/// The policy that decides an option of a socket, as `bpf/policy.bpf.c` finds it: of the deepest cgroup, and there for
/// its port before any port.
pub(crate) fn decides<'a>(
    list: &'a [(PolicyTarget, Policy)],
    cgroup: &str,
    port: u16,
    option: PolicyOption,
) -> Option<&'a PolicyTarget> {
    let about = list.iter().filter(|(target, policy)| {
        policy.get(option).is_some()
            && is_within(cgroup, &target.cgroup)
            && target.port.is_none_or(|of| of.get() == port)
    });
    let depth = |target: &PolicyTarget| target.cgroup.split('/').filter(|name| !name.is_empty()).count();
    about.map(|(target, _)| target).max_by_key(|target| (depth(target), target.port.is_some()))
}

pub(super) fn is_within(cgroup: &str, other: &str) -> bool {
    other == "/" || cgroup.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The process's cgroup of version 2.
pub(super) fn cgroup(source: &dyn Source, pid: u32) -> Option<String> {
    let text = source.text(&format!("/proc/{pid}/cgroup")).ok()?;
    let all = limits::memberships(&text).ok()?;
    all.into_iter().find(|membership| membership.controllers.is_none()).map(|membership| membership.path)
}

fn exists(source: &dyn Source, cgroup: &str) -> bool {
    root(source).is_ok_and(|root| source.names(&format!("{}{cgroup}", root.display())).is_ok())
}

/// What the socket has now, where the kernel reports it.
fn has(socket: &Socket, option: PolicyOption) -> Option<u32> {
    match option {
        PolicyOption::ReceiveBuffer => socket.memory.map(|memory| memory.receive_buffer),
        PolicyOption::SendBuffer => socket.memory.map(|memory| memory.send_buffer),
        PolicyOption::Reuseport => socket.options.as_ref().map(|options| options.reuseport.into()),
        PolicyOption::Priority | PolicyOption::Mark => None,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    #[test]
    fn the_deepest_cgroup_decides_and_its_port_before_any_port() {
        let one = |cgroup: &str, port: u16, option: PolicyOption| {
            let mut policy = Policy::default();
            policy.set(option, Some(1));
            (PolicyTarget { cgroup: cgroup.to_owned(), port: NonZeroU16::new(port) }, policy)
        };
        use PolicyOption::{Mark, Priority};
        let list = [
            one("/", 53, Mark),
            one("/a", 0, Mark),
            one("/a", 53, Mark),
            one("/a/b", 0, Mark),
            one("/a/b/c", 0, Priority),
        ];
        let decided = |cgroup: &str, port: u16| {
            let found = decides(&list, cgroup, port, Mark)?;
            list.iter().position(|(target, _)| target == found)
        };
        assert_eq!(decided("/a/b/c", 53), Some(3));
        assert_eq!((decided("/a", 53), decided("/a", 54)), (Some(2), Some(1)));
        assert_eq!((decided("/ab", 53), decided("/ab", 54)), (Some(0), None));
    }
}
