//! Spreading by policy: after each start of a unit, what selects in the reuseport groups of its programs is set again.
//!
//! ```text
//! policy:nsd.service:53/spread=round-robin ─▸ /etc/systemd/system/nsd.service.d/udpath-spread-53.conf
//!                                                 ExecStartPost=-+udpath policy spread nsd.service:53 round-robin
//! systemctl start ─▸ bind ─▸ ExecStartPost ─▸ groups of the unit's cgroup ─▸ group:PID/INODE:selection
//! ```
//! No hook of the kernel can attach a program to a group: `bpf_setsockopt` has no `SO_ATTACH_REUSEPORT_EBPF`. So the
//! service manager runs it once the programs have started, and it waits until their sockets are bound.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use error_reporter::Report;
use udpath_bpf::PolicyTarget;
use udpath_host::process::{self, Error, Selection, SocketId, SocketSetting, SocketValue};
use udpath_host::{Source, UnitName, processes, sockets};

use super::cgroup_of;
use super::effect::{cgroup, is_within};
use crate::machine::Machine;
use crate::persist::{trusted, word};
use crate::services::finished;
use crate::settings::{Setting, Value};

/// The machine's unit directory.
const UNITS: &str = "/etc/systemd/system";
/// What the names of drop-ins begin with, and end with.
const DROP_IN: (&str, &str) = ("udpath-spread", ".conf");
/// How long systemd may take to read its units again: a second for some hundred; a manager that needs longer hangs.
const RELOAD: Duration = Duration::from_secs(60);
/// How long a unit's sockets must stay the same before they count as bound. Shorter: a program that is still opening
/// sockets leaves the later ones without datagrams. Longer: a start takes longer.
const SETTLED: Duration = Duration::from_millis(300);

/// The drop-in of a unit, by its path.
pub(crate) fn drop_in(unit: &UnitName, port: Option<NonZeroU16>) -> String {
    let (begins, ends) = DROP_IN;
    let port = port.map_or_else(String::new, |port| format!("-{port}"));
    format!("{UNITS}/{unit}.d/{begins}{port}{ends}")
}

/// What a drop-in says; none if there is none.
///
/// # Errors
/// It was not written by udpath.
pub(crate) fn value(path: &str, text: Option<&str>) -> Result<Value, String> {
    let Some(text) = text else { return Ok(Value::Unset) };
    rule_in(text)
        .map(|rule| Value::of_socket(SocketValue::Selection(rule)))
        .ok_or_else(|| format!("{path} has no `policy spread` of udpath; remove or rename it"))
}

/// The rule at the end of its command.
fn rule_in(text: &str) -> Option<Selection> {
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStartPost="))?;
    let words: Vec<&str> = command.split(' ').collect();
    match words[..] {
        [_, "policy", "spread", _, rule] => rule.parse().ok(),
        _ => None,
    }
}

/// The text of a drop-in.
///
/// # Errors
/// A user other than root can replace this program, which the unit would run as root.
pub(crate) fn text(unit: &UnitName, port: Option<NonZeroU16>, rule: Selection) -> Result<String, String> {
    let program =
        env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))?;
    let program = trusted(&program).map_err(|error| error.to_string())?;
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    // `-`: without its sockets the service still starts; `+`: as root, whoever the service's user is.
    Ok(format!(
        "# Written by udpath {}; `udpath policy remove {unit}` removes it.\n\
         [Service]\nExecStartPost=-+{} policy spread {} {rule}\n",
        env!("CARGO_PKG_VERSION"),
        word(&program.to_string_lossy()),
        word(&format!("{unit}{port}")),
    ))
}

/// Makes systemd read its units again.
///
/// # Errors
/// It does not.
pub(crate) fn reload(source: &dyn Source) -> Result<(), String> {
    if source.names("/run/systemd/system").is_err() {
        return Ok(());
    }
    let mut command = Command::new("systemctl");
    command.arg("daemon-reload");
    match finished(command, RELOAD).map_err(|error| format!("cannot run systemctl: {error}"))? {
        (Some(status), _) if status.success() => Ok(()),
        (Some(_), said) => Err(format!("systemctl daemon-reload failed: {said}")),
        (None, _) => Err(format!("systemctl daemon-reload did not end within {} s", RELOAD.as_secs())),
    }
}

/// All drop-ins: unit, port and rule.
pub(super) fn list(source: &dyn Source) -> Vec<(UnitName, Option<NonZeroU16>, Selection)> {
    let mut found = Vec::new();
    for folder in source.names(UNITS).unwrap_or_default() {
        let Some(Ok(unit)) = folder.strip_suffix(".d").map(str::parse::<UnitName>) else { continue };
        for name in source.names(&format!("{UNITS}/{folder}")).unwrap_or_default() {
            let (begins, ends) = DROP_IN;
            let port = name.strip_prefix(begins).and_then(|rest| rest.strip_suffix(ends));
            let port = match port.map(|port| port.strip_prefix('-').map(str::parse)) {
                Some(None) => None,
                Some(Some(Ok(port))) => Some(port),
                _ => continue,
            };
            let text = source.text(&drop_in(&unit, port)).unwrap_or_default();
            found.extend(rule_in(&text).map(|rule| (unit.clone(), port, rule)));
        }
    }
    found
}

/// A reuseport group of a cgroup's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The address its sockets share.
    pub address: SocketAddr,
    /// Cookies of its sockets.
    pub cookies: Vec<u64>,
    pid: u32,
    socket: SocketId,
}

impl Group {
    fn setting(&self) -> Setting {
        Setting::Socket { pid: self.pid, inode: self.socket.inode, setting: SocketSetting::Selection }
    }
}

/// The groups of two sockets or more of the programs in a cgroup, in the calling thread's network namespace.
fn groups(source: &dyn Source, target: &PolicyTarget) -> Result<Vec<Group>, String> {
    let mut listed = source.udp_sockets().map_err(|why| why.to_string())?.value;
    let ours = |address: &SocketAddr| target.port.is_none_or(|port| address.port() == port.get());
    listed.retain(|socket| ours(&socket.local) && socket.peer.is_none());
    let wanted: HashMap<u32, usize> = sockets::inodes(&mut listed);
    let scan = processes::scan(source, &wanted).map_err(|why| why.to_string())?;
    let holders: BTreeSet<u32> = scan.holders.iter().map(|holder| holder.pid).collect();
    let within = |pid: &u32| cgroup(source, *pid).is_some_and(|path| is_within(&path, &target.cgroup));
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for pid in holders.into_iter().filter(within) {
        let server = match process::find(pid) {
            Err(Error::NoProcess { .. }) => continue,
            server => server.map_err(|error| Report::new(error).to_string())?,
        };
        for group in server.groups.iter().filter(|group| group.members.len() > 1 && ours(&group.address)) {
            let members: Vec<_> = group.members.iter().map(|&at| &server.sockets[at]).collect();
            let cookies: Vec<u64> = members.iter().map(|member| member.id.cookie).collect();
            // Of several processes that have the same sockets, the first.
            if cookies.iter().all(|cookie| seen.insert(*cookie)) {
                let (pid, socket) = (members[0].pid, members[0].id);
                found.push(Group { address: group.address, cookies, pid, socket });
            }
        }
    }
    Ok(found)
}

/// Sets what selects in the reuseport groups of a cgroup's programs, once they have been bound: within `wait`. Not
/// journaled: a restart, which runs it again, makes new groups. If one group fails, those before it are as they were.
///
/// # Errors
/// There is no group within that time; one has a program that could not be restored; or it cannot be set.
pub fn select(
    machine: &dyn Machine,
    target: &PolicyTarget,
    rule: Selection,
    wait: Duration,
) -> Result<Vec<Group>, String> {
    let found = bound(machine.source(), target, wait)?;
    for group in &found {
        if let Some(lost) = machine.lost(&group.setting()) {
            return Err(format!("the group of {} is left alone: it {}", group.address, lost.words));
        }
    }
    let value = Value::of_socket(SocketValue::Selection(rule));
    let mut done = Vec::new();
    for group in &found {
        let setting = group.setting();
        let set = machine.read(&setting).and_then(|before| machine.write(&setting, &value).map(|()| before));
        match set {
            Ok(before) => done.push((setting, before)),
            Err(refusal) => {
                for (setting, before) in done.iter().rev() {
                    // The first error is the one to report.
                    let _ = machine.write(setting, before);
                }
                return Err(refusal.to_string());
            }
        }
    }
    Ok(found)
}

/// Waits until the groups stay the same.
fn bound(source: &dyn Source, target: &PolicyTarget, wait: Duration) -> Result<Vec<Group>, String> {
    let end = Instant::now() + wait;
    let mut before = Vec::new();
    loop {
        let now = groups(source, target)?;
        let late = Instant::now() >= end;
        if !now.is_empty() && (now == before || late) {
            return Ok(now);
        }
        if late {
            let port = target.port.map_or_else(String::new, |port| format!(" on port {port}"));
            return Err(format!(
                "the programs of {} have no reuseport group{port} after {} s; they must open several sockets with \
                 SO_REUSEPORT",
                target.cgroup,
                wait.as_secs()
            ));
        }
        before = now;
        thread::sleep(SETTLED.min(end.saturating_duration_since(Instant::now())));
    }
}

/// Why a drop-in that is set has no effect now; `None` if it has.
pub(crate) fn pending(
    machine: &dyn Machine,
    unit: &UnitName,
    port: Option<NonZeroU16>,
    value: &Value,
) -> Option<String> {
    let source = machine.source();
    let cgroup = match cgroup_of(source, unit) {
        Ok(cgroup) => cgroup,
        Err(why) => return Some(why),
    };
    let groups = match groups(source, &PolicyTarget { cgroup, port }) {
        Ok(groups) => groups,
        Err(why) => return Some(format!("whether it is in effect is not known: {why}")),
    };
    if groups.is_empty() {
        return Some(format!("{unit} has no reuseport group now; in effect after its next start"));
    }
    for group in groups {
        let setting = group.setting();
        match machine.read(&setting) {
            Ok(now) if now.is(value) => {
                if let Some(why) = machine.broken(&setting, value) {
                    return Some(why);
                }
            }
            Ok(now) => {
                return Some(format!(
                    "the group of {} is {now:#}, as its program was started before; in effect when it is restarted",
                    group.address
                ));
            }
            Err(refusal) => return Some(refusal.to_string()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_in_says_what_was_asked() {
        let port = NonZeroU16::new(53);
        let nsd = "nsd.service".parse().unwrap();
        assert_eq!(drop_in(&nsd, port), "/etc/systemd/system/nsd.service.d/udpath-spread-53.conf");
        assert_eq!(drop_in(&nsd, None), "/etc/systemd/system/nsd.service.d/udpath-spread.conf");
        let written =
            "# x\n[Service]\nExecStartPost=-+/usr/sbin/udpath policy spread nsd.service:53 field:1+8\n";
        let field = Selection::Field { offset: 1, length: 8 };
        assert_eq!(rule_in(written), Some(field));
        assert_eq!(value("/x", Some(written)), Ok(Value::of_socket(SocketValue::Selection(field))));
        assert_eq!(value("/x", None), Ok(Value::Unset));
        for other in ["", "[Service]\nExecStartPost=/bin/true\n", "ExecStartPost=-+/x policy spread a b\n"] {
            assert!(value("/x", Some(other)).unwrap_err().starts_with("/x has no"), "{other}");
        }
    }
}
