//! Other programs that write the same settings, and how each conflict is resolved before anything is written.
//!
//! | conflict | behavior | resolution |
//! |---|---|---|
//! | irqbalance | moves IRQs every 10 s | ban the plan's IRQs over its socket, as a change of the plan; undo removes the ban |
//! | tuned | writes its profile's settings on start, reload, or device hotplug | refuse if the profile sets the same thing, and name the file to change |
//!
//! `--ignore-conflict NAME` overrides this. The other programs that [`Setting::conflicts`] lists write on an event (a
//! start, a reload, a link that comes up), not continuously; they are named when a value has drifted.

use std::collections::BTreeSet;

use crate::machine::Machine;
use crate::plan::{Change, PlanError};
use crate::settings::{Phase, Setting, Value};
use udpath_host::Source;
use udpath_host::actors;

/// Programs that change settings: the name used here, and the names used by [`actors`].
const PROGRAMS: [(&str, &[&str]); 6] = [
    ("irqbalance", &["irqbalance"]),
    ("tuned", &["tuned"]),
    ("NetworkManager", &["NetworkManager"]),
    ("systemd-networkd", &["systemd-networkd"]),
    ("bpftune", &["bpftune"]),
    ("cloud agents", &["google-guest-agent", "walinuxagent", "amazon-ec2-net-utils"]),
];

/// Directories of tuned profiles; later ones override (tuned 2.20; 2.23 and later add a folder `profiles`).
const TUNED: [&str; 4] = ["/usr/lib/tuned", "/usr/lib/tuned/profiles", "/etc/tuned", "/etc/tuned/profiles"];
/// Maximum include depth of tuned profiles; the shipped ones are three deep.
const INCLUDES: usize = 8;

/// The pid of the running irqbalance.
#[must_use]
pub fn irqbalance(source: &dyn Source) -> Option<u32> {
    actors::running(source, &["irqbalance"]).into_values().next()
}

/// Whether a running irqbalance balances this IRQ: it may move it at any time, and a value written by others does not
/// last.
pub(crate) fn is_balanced(machine: &dyn Machine, setting: &Setting) -> bool {
    if setting.phase() != Phase::Irqs || irqbalance(machine.source()).is_none() {
        return false;
    }
    let left_alone = machine.irq(setting).ok().zip(machine.read(&Setting::IrqbalanceBan).ok());
    !left_alone.is_some_and(|(irq, banned)| banned.irqs().is_some_and(|banned| banned.contains(&irq)))
}

/// A snapshot of which programs of the table are running, shared by any number of settings.
#[derive(Debug)]
pub struct Running(BTreeSet<&'static str>);

impl Running {
    /// Takes the snapshot.
    #[must_use]
    pub fn find(source: &dyn Source) -> Self {
        let known: Vec<&str> = PROGRAMS.iter().flat_map(|(_, names)| *names).copied().collect();
        let running = actors::running(source, &known);
        let runs = |names: &[&str]| names.iter().any(|name| running.contains_key(name));
        Self(PROGRAMS.iter().filter(|(_, names)| runs(names)).map(|(name, _)| *name).collect())
    }

    /// The conflicts of a setting that are running programs; the rest are events, named when no program is to blame.
    #[must_use]
    pub fn suspects(&self, setting: &Setting) -> Vec<String> {
        let (programs, events): (Vec<&str>, Vec<&str>) = setting
            .conflicts()
            .iter()
            .partition(|conflict| PROGRAMS.iter().any(|(name, _)| name == *conflict));
        let running = programs.into_iter().filter(|name| self.0.contains(name));
        let running: Vec<String> = running.map(|name| format!("{name}, which runs")).collect();
        if running.is_empty() { events.into_iter().map(str::to_owned).collect() } else { running }
    }
}

/// Finds programs that would change the plan's settings back. Adds the resolving changes to the plan, or fails with the
/// reason.
pub(crate) fn resolve(
    machine: &dyn Machine,
    changes: &mut Vec<Change>,
    ignore_conflicts: &BTreeSet<String>,
) -> Result<(), PlanError> {
    let mut running = actors::running(machine.source(), &["irqbalance", "tuned"]);
    running.retain(|name, _| !ignore_conflicts.contains(*name));
    if let Some(pid) = running.get("irqbalance") {
        changes.extend(ban(machine, changes, *pid)?);
    }
    if running.contains_key("tuned") {
        let text = machine.source().text("/etc/tuned/active_profile").unwrap_or_default();
        let lines: Vec<Line> =
            text.split_whitespace().flat_map(|name| profile(machine.source(), name, 0)).collect();
        for change in changes.iter() {
            if let Some(line) = lines.iter().find(|line| line.sets(&change.setting)) {
                let why = format!(
                    "tuned is running and sets it too (line {} of {}); change it there, or use --ignore-conflict tuned",
                    line.number, line.file
                );
                return Err(PlanError::Conflict { setting: change.setting.to_string(), why });
            }
        }
    }
    Ok(())
}

/// Makes irqbalance leave alone the IRQs whose affinity is set.
fn ban(machine: &dyn Machine, changes: &[Change], pid: u32) -> Result<Option<Change>, PlanError> {
    let moved: Vec<&Change> = changes.iter().filter(|change| change.setting.phase() == Phase::Irqs).collect();
    let Some(first) = moved.first() else { return Ok(None) };
    let conflict = |setting: &Setting, why: String| PlanError::Conflict { setting: setting.to_string(), why };
    let mut irqs = BTreeSet::new();
    for change in &moved {
        let channels = |other: &&Change| {
            other.setting.phase() == Phase::Channels
                && other.setting.interface() == change.setting.interface()
        };
        if change.setting.interface().is_some() && changes.iter().any(|other| channels(&other)) {
            let why = format!(
                "irqbalance (pid {pid}) must be told to ignore the IRQ, but its number is unknown until the \
                 channels change; make two plans, or use --ignore-conflict irqbalance"
            );
            return Err(conflict(&change.setting, why));
        }
        irqs.insert(machine.irq(&change.setting)?);
    }
    let found = machine.read(&Setting::IrqbalanceBan).map_err(|refusal| {
        let why = format!(
            "irqbalance (pid {pid}) moves IRQs every 10 s and cannot be told to ignore this one ({}); stop it, or \
             ban the IRQ in its configuration and use --ignore-conflict irqbalance",
            refusal.why
        );
        conflict(&first.setting, why)
    })?;
    let banned = found.irqs().cloned().unwrap_or_default();
    if irqs.is_subset(&banned) {
        return Ok(None);
    }
    Ok(Some(Change {
        setting: Setting::IrqbalanceBan,
        to: Value::Irqs(banned.union(&irqs).copied().collect()),
        from: Some(found),
        irq: None,
        reason: format!("irqbalance (pid {pid}) would move these IRQs within 10 s"),
    }))
}

/// A line of a tuned profile that sets something.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    file: String,
    number: usize,
    section: String,
    key: String,
}

impl Line {
    fn sets(&self, setting: &Setting) -> bool {
        let Some((section, key)) = setting.row().extra.tuned else { return false };
        let same = match setting {
            Setting::Sysctl(path) if key == "*" => self.key.replace('.', "/") == *path,
            _ => self.key == key,
        };
        self.section == section && same
    }
}

/// The lines of a profile and of the profiles it includes.
fn profile(source: &dyn Source, name: &str, depth: usize) -> Vec<Line> {
    let files = TUNED.iter().rev().map(|folder| format!("{folder}/{name}/tuned.conf"));
    let Some((file, text)) =
        files.map(|file| (source.text(&file), file)).find_map(|(text, file)| Some((file, text.ok()?)))
    else {
        return Vec::new();
    };
    let lines = lines(&file, &text);
    let includes =
        text.lines().filter_map(|line| line.trim().strip_prefix("include")?.trim_start().strip_prefix('='));
    let names: Vec<&str> =
        includes.flat_map(|names| names.split([',', ' ', '\t'])).filter(|name| !name.is_empty()).collect();
    if depth >= INCLUDES {
        return lines;
    }
    lines.into_iter().chain(names.into_iter().flat_map(|name| profile(source, name, depth + 1))).collect()
}

/// `key=value` lines by section; a section's `type=` names the plugin if its title does not.
fn lines(file: &str, text: &str) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let (mut section, mut first) = (String::new(), 0);
    for (line, number) in text.lines().zip(1..) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            (section, first) = (name.trim().to_owned(), found.len());
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().to_owned();
            if key == "type" {
                section = value.trim().to_owned();
                found[first..].iter_mut().for_each(|line| line.section.clone_from(&section));
            }
            found.push(Line { file: file.to_owned(), number, section: section.clone(), key });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::plan::{Consent, Plan};
    use crate::{Live, SettingRequest};

    #[test]
    fn a_running_tuned_that_sets_the_same_is_named_with_the_line_to_change() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/77/comm", "tuned\n"),
            ("proc/77/cmdline", "/usr/bin/python3\0-Es\0/usr/sbin/tuned\0-l\0"),
            ("proc/78/comm", "sshd\n"),
            ("etc/tuned/active_profile", "mine\n"),
            ("etc/tuned/mine/tuned.conf", "[main]\ninclude=network-throughput\n"),
            (
                "usr/lib/tuned/network-throughput/tuned.conf",
                "[main]\ninclude=mine\n[sysctl]\nnet.core.rmem_max=9\n",
            ),
            ("proc/sys/net/core/rmem_max", "9\n"),
            ("proc/sys/net/core/wmem_max", "9\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        // Identified by its script, since an interpreter runs it.
        symlink("/usr/bin/python3.11", folder.path().join("proc/77/exe")).unwrap();
        symlink("/usr/sbin/sshd", folder.path().join("proc/78/exe")).unwrap();
        let machine = Live::at(folder.path());
        let plan = |request: &str, consent: &Consent| {
            Plan::resolve(&machine, vec![SettingRequest::parse(request, "").unwrap()], consent)
        };
        let error = plan("sysctl:net.core.rmem_max=10", &Consent::default()).unwrap_err().to_string();
        assert!(error.contains("line 4 of /usr/lib/tuned/network-throughput/tuned.conf"), "{error}");
        assert_eq!(plan("sysctl:net.core.wmem_max=10", &Consent::default()).unwrap().changes.len(), 1);
        let ignore_conflicts =
            Consent { ignore_conflicts: ["tuned".to_owned()].into(), ..Consent::default() };
        assert_eq!(plan("sysctl:net.core.rmem_max=10", &ignore_conflicts).unwrap().changes.len(), 1);
        let setting = "sysctl:net.core.rmem_max".parse().unwrap();
        assert_eq!(Running::find(machine.source()).suspects(&setting), ["tuned, which runs"]);
        let events = Running(BTreeSet::new()).suspects(&setting);
        assert!(!events.is_empty() && events.iter().all(|event| !event.contains("which runs")), "{events:?}");
    }

    #[test]
    fn profile_lines_are_matched_by_plugin() {
        let text = "[main]\nsummary=x\n[sysctl]\n# no\nnet.core.rmem_max = 1 # why\n[mine]\nchannels=combined 4\ntype=net\n";
        let found = lines("f", text);
        let sets =
            |name: &str| found.iter().find(|line| line.sets(&name.parse().unwrap())).map(|line| line.number);
        assert_eq!(sets("sysctl:net.core.rmem_max"), Some(5));
        assert_eq!(sets("sysctl:net.core.wmem_max"), None);
        assert_eq!(sets("eth0:channels/rx"), Some(7));
        assert_eq!(sets("eth0:ring/rx"), None);
    }
}
