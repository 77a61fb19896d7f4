//! Files that keep a plan across a boot, each in the format of the program that reads it.
//!
//! | settings | kept by |
//! |---|---|
//! | sysctls | `/etc/sysctl.d/90-udpath-ID.conf` (systemd-sysctl, procps), under a name that sorts last |
//! | RPS, RFS, XPS, NAPI | `/etc/udev/rules.d/90-udpath-ID.rules`, for the interface and for each queue as it appears |
//! | channels, rings, moderation, some offloads | a drop-in of the link file in effect, or `/etc/systemd/network/05-udpath-ID-IF.link`, with all of that file's settings |
//! | policies | `/etc/systemd/system/udpath-ID-policy.service`, before any service binds, from `/etc/udpath/ID-policy.json` |
//! | the rest, by queue rather than IRQ number | `/etc/systemd/system/udpath-ID.service`, which applies `/etc/udpath/ID.json` as apply ID again |
//!
//! The files are ordinary changes: shown in the plan, journaled before they are written, and removed by undo. They
//! refer to interfaces by name, and are read at boot in the initial network namespace, so settings of other namespaces
//! cannot be kept.

mod link;
mod program;
mod sysctl;
mod unit;

use std::fmt::Write as _;
use std::path::Path;

use thiserror::Error;

use crate::machine::Machine;
use crate::plan::{Change, Consent, Plan};
use crate::settings::{Item, Part, Setting, Value};
use link::Link;
pub(crate) use program::trusted;
use udpath_host::namespace;
use unit::Moment;
pub(crate) use unit::{escaped, word};

/// Why a plan cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PersistError {
    /// It was made in another network namespace.
    #[error(
        "cannot persist settings of this network namespace: files in /etc apply to the initial one, and would \
         change its interfaces of the same names; apply without --persist, from whatever creates the namespace \
         (in a unit: ExecStartPost=udpath apply PLAN.json --netns NAME)"
    )]
    Namespace,
    /// It names an object that a boot replaces.
    #[error("{setting} cannot be persisted: {why}")]
    Fleeting {
        /// The setting.
        setting: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// Another program's file is in the way.
    #[error("{0} exists and is not overwritten")]
    Exists(String),
    /// The program's path cannot be used in a unit.
    #[error("the unit needs the program's full path, without white space, not '{0}'")]
    Program(String),
    /// A user other than root can replace the program that the unit runs as root.
    #[error(
        "a unit would run {program} as root at each boot, and {part} {why}; install it where only root can write \
         (install -o root -g root -m 755 {program} /usr/sbin/udpath) and run that"
    )]
    Unsafe {
        /// The program.
        program: String,
        /// The part of its path.
        part: String,
        /// What is wrong with it.
        why: String,
    },
}

/// What applies, at boot, the settings no system file covers.
#[derive(Debug, Clone, Copy)]
pub struct Boot<'a> {
    /// This program, by its full path.
    pub program: &'a Path,
    /// The journal's folder.
    pub journal: &'a Path,
    /// Consents given now also apply at each boot.
    pub consent: &'a Consent,
}

/// The files that keep a plan.
#[derive(Debug)]
pub struct Kept {
    /// Changes to add to the plan.
    pub changes: Vec<Change>,
    /// Notes for the operator: files that set the same, and missing programs needed to read ours.
    pub notes: Vec<String>,
}

/// Why no file can keep a setting, and what to do instead: it names an object that a restart or a boot replaces.
#[must_use]
pub fn fleeting(setting: &Setting) -> Option<&'static str> {
    match setting {
        Setting::Irq(_) => Some("IRQ numbers change at boot; name it by its queue, as in eth0:irq/rx-0"),
        Setting::Socket { .. } => Some(
            "a restarted server has new sockets; set it in the server's configuration, or put \
             ExecStartPost=udpath apply --set port:PORT:... into its unit",
        ),
        Setting::Thread { .. } => {
            Some("thread IDs change at a restart; set CPUAffinity= in the service's unit")
        }
        _ => None,
    }
}

/// The files that keep a plan, as changes to add to it. `id`: the number of the apply they belong to.
///
/// # Errors
/// What cannot be kept, and why.
pub fn files(machine: &dyn Machine, plan: &Plan, id: u64, boot: &Boot<'_>) -> Result<Kept, PersistError> {
    let source = machine.source();
    if !namespace::is_initial(source) {
        return Err(PersistError::Namespace);
    }
    let changed = plan.changes.iter().map(|change| (&change.setting, &change.to));
    let wanted: Vec<(&Setting, &Value)> =
        changed.chain(plan.already.iter().map(|(setting, value)| (setting, value))).collect();
    for (setting, _) in &wanted {
        if let Some(why) = fleeting(setting) {
            return Err(PersistError::Fleeting { setting: setting.to_string(), why });
        }
    }
    let (mut sysctls, mut rules, mut links, mut rest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut policies = Vec::new();
    for (setting, value) in wanted {
        match setting {
            Setting::Sysctl(key) => {
                let text = setting.place().and_then(|place| place.form.write(value));
                sysctls.extend(text.map(|text| (key.as_str(), text)));
            }
            Setting::Interface(_, item) if setting.place().is_some() => rules.push((setting, item, value)),
            Setting::Interface(interface, item) => match link::key(item) {
                Some(key) => links.push((interface, key, setting, value)),
                None => rest.push((setting, value)),
            },
            // The unit's own apply adds the bans it needs.
            // A drop-in is there after a boot.
            Setting::Spread { .. } | Setting::Instances { .. } => {}
            Setting::IrqbalanceBan | Setting::File(_) | Setting::Config(_) | Setting::Restart(_) => {}
            Setting::Policy { .. } => policies.push((setting, value)),
            // Refused above.
            Setting::Irq(_) | Setting::Socket { .. } | Setting::Thread { .. } => {}
        }
    }
    let head = format!(
        "# Written by udpath {}, apply {id}; `udpath undo {id}` removes it.\n",
        env!("CARGO_PKG_VERSION")
    );
    let (mut files, mut notes): (Vec<(String, String)>, Vec<String>) = (Vec::new(), Vec::new());
    if !sysctls.is_empty() {
        let keys: Vec<(&str, &str)> = sysctls.iter().map(|(key, text)| (*key, text.as_str())).collect();
        let (path, others) = sysctl::place(source, id, &keys);
        // With slashes, as sysctl.d(5) requires for names that contain dots.
        let lines = keys.iter().fold(String::new(), |text, (key, value)| format!("{text}{key} = {value}\n"));
        files.push((path, format!("{head}{lines}")));
        notes.extend(others);
    }
    if !rules.is_empty() {
        let lines =
            rules.iter().filter_map(|(setting, item, value)| rule(setting, item, value)).collect::<String>();
        files.push((format!("/etc/udev/rules.d/90-udpath-{id:06}.rules"), format!("{head}{lines}")));
    }
    let mut interfaces: Vec<&String> = links.iter().map(|(interface, ..)| *interface).collect();
    interfaces.sort();
    interfaces.dedup();
    for interface in interfaces {
        let own = || links.iter().filter(|(of, ..)| *of == interface);
        let keys: Vec<(&str, &Value)> = own().map(|(_, key, _, value)| (*key, *value)).collect();
        match Link::of(source, interface).and_then(|link| link.file(&head, id, &keys)) {
            Some(file) => files.push(file),
            None => rest.extend(own().map(|(.., setting, value)| (*setting, *value))),
        }
    }
    for (moment, settings) in [(Moment::BeforeServices, policies), (Moment::WithInterfaces, rest)] {
        if !settings.is_empty() {
            files.extend(unit::files(source, &settings, moment, id, boot, &head)?);
        }
    }
    if !files.is_empty() && source.names("/run/systemd/system").is_err() {
        notes.push(
            "systemd is not running: at boot these files take effect only if something else reads them"
                .to_owned(),
        );
    }
    let changes = files.into_iter().map(|(path, text)| {
        let setting = Setting::File(path.clone());
        match machine.read(&setting) {
            Ok(Value::File(Some(_))) => Err(PersistError::Exists(path)),
            _ => Ok(Change {
                setting,
                from: Some(Value::File(None)),
                to: Value::File(Some(text)),
                irq: None,
                reason: "persists it".to_owned(),
            }),
        }
    });
    Ok(Kept { changes: changes.collect::<Result<_, _>>()?, notes })
}

/// udev writes the value as the kernel expects it, to an attribute of the interface. Queues added later, with more
/// channels, get their own event.
fn rule(setting: &Setting, item: &Item, value: &Value) -> Option<String> {
    let place = setting.place()?;
    let (interface, text) = (setting.interface()?, place.form.write(value)?);
    let attribute = place.path.strip_prefix(&format!("/sys/class/net/{interface}/"))?;
    // NAME is the name given by an earlier rule; empty if the interface keeps the kernel's name.
    let mut lines = String::new();
    for name in [format!("KERNEL==\"{interface}\", NAME==\"\""), format!("NAME==\"{interface}\"")] {
        let _ = writeln!(
            lines,
            "ACTION==\"add|change|move\", SUBSYSTEM==\"net\", {name}, ATTR{{{attribute}}}=\"{text}\""
        );
    }
    if let Part::Queue(_) = item.part {
        let (queue, file) = attribute.strip_prefix("queues/")?.split_once('/')?;
        let _ = writeln!(
            lines,
            "ACTION==\"add\", SUBSYSTEM==\"queues\", KERNEL==\"{queue}\", DEVPATH==\"*/net/{interface}/queues/{queue}\", \
             ATTR{{{file}}}=\"{text}\""
        );
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Live, SettingRequest};

    /// A file-backed machine, below a folder.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Live) {
        let folder = tempfile::tempdir().unwrap();
        let initial = ("proc/sys/net/core/netdev_max_backlog", "1000\n");
        for (path, text) in files.iter().chain([&initial]) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let live = Live::at(folder.path());
        (folder, live)
    }

    fn kept(live: &Live, already: &[(&str, &str)]) -> Result<Vec<(String, String)>, PersistError> {
        let already = already.iter().map(|(name, value)| {
            let setting: Setting = name.parse().unwrap();
            let value = setting.value(value).unwrap();
            (setting, value)
        });
        let plan = Plan { changes: vec![], already: already.collect() };
        let consent = Consent { ignore_conflicts: ["tuned".to_owned()].into(), ..Consent::default() };
        let boot = Boot {
            program: Path::new("/usr/bin/env"),
            journal: Path::new(crate::journal::DIRECTORY),
            consent: &consent,
        };
        Ok(files(live, &plan, 7, &boot)?
            .changes
            .into_iter()
            .map(|change| match (change.setting, change.to) {
                (Setting::File(path), Value::File(Some(text))) => (path, text),
                other => panic!("{other:?}"),
            })
            .collect())
    }

    #[test]
    fn each_setting_is_kept_by_the_right_file() {
        let link = "# theirs\n[Match]\nOriginalName=*\n[Link]\nNamePolicy=keep kernel\nMACAddressPolicy=persistent\n";
        let (_folder, live) = machine(&[
            ("sys/class/net/eth0/addr_assign_type", "0\n"),
            ("sys/class/net/eth0/address", "02:00:00:00:00:01\n"),
            ("sys/class/net/eth0/ifindex", "3\n"),
            ("run/udev/data/n3", "I:1\nE:ID_NET_LINK_FILE=/usr/lib/systemd/network/99-default.link\n"),
            ("usr/lib/systemd/network/99-default.link", link),
        ]);
        let files = kept(
            &live,
            &[
                ("sysctl:net.core.rmem_max", "4194304"),
                ("eth0:rps/rx-1", "0-3"),
                ("eth0:napi/defer-hard-irqs", "2"),
                ("eth0:channels/combined", "8"),
                ("eth0:coalesce/rx-usecs", "20"),
                ("eth0:feature/rx-gro", "off"),
                ("eth0:irq/rx-0", "3"),
            ],
        )
        .unwrap();
        let of = |path: &str| {
            files.iter().find(|(found, _)| found == path).unwrap_or_else(|| panic!("{path}")).1.as_str()
        };
        assert!(of("/etc/sysctl.d/90-udpath-000007.conf").ends_with("\nnet/core/rmem_max = 4194304\n"));
        let rules = of("/etc/udev/rules.d/90-udpath-000007.rules");
        assert!(rules.contains(r#", NAME=="eth0", ATTR{queues/rx-1/rps_cpus}="f""#), "{rules}");
        assert!(
            rules.contains(r#"KERNEL=="rx-1", DEVPATH=="*/net/eth0/queues/rx-1", ATTR{rps_cpus}="f""#),
            "{rules}"
        );
        assert!(rules.contains(r#"ATTR{napi_defer_hard_irqs}="2""#), "{rules}");
        let link = of("/etc/systemd/network/05-udpath-000007-eth0.link");
        assert!(
            link.contains(
                "[Match]\nPermanentMACAddress=02:00:00:00:00:01\n\n[Link]\nNamePolicy=keep kernel\n"
            ),
            "{link}"
        );
        assert!(
            link.ends_with("MACAddressPolicy=persistent\n\n[Link]\nCombinedChannels=8\nRxCoalesceSec=20us\nGenericReceiveOffload=no\n"),
            "{link}"
        );
        let unit = of("/etc/systemd/system/udpath-7.service");
        assert!(
            unit.contains(
                "\nExecStart=/usr/bin/env apply /etc/udpath/7.json --adopt 7 --ignore-conflict tuned\n"
            ),
            "{unit}"
        );
        assert!(unit.contains("Wants=sys-subsystem-net-devices-eth0.device\n"), "{unit}");
        let requests = SettingRequest::from_json(of("/etc/udpath/7.json")).unwrap();
        assert_eq!(
            (requests.len(), requests[0].name.as_str(), requests[0].from.as_deref()),
            (1, "eth0:irq/rx-0", None)
        );
        assert_eq!(files.len(), 6);
    }

    #[test]
    fn without_udevd_the_unit_keeps_what_a_link_file_would() {
        let (_folder, live) = machine(&[]);
        let files = kept(&live, &[("br-lan:channels/combined", "8")]).unwrap();
        assert!(files[1].1.contains(r"sys-subsystem-net-devices-br\x2dlan.device"), "{}", files[1].1);
    }

    #[test]
    fn settings_of_another_network_namespace_are_not_kept() {
        let (folder, live) = machine(&[]);
        fs::remove_file(folder.path().join("proc/sys/net/core/netdev_max_backlog")).unwrap();
        let said = kept(&live, &[("sysctl:net.ipv4.ip_default_ttl", "70")]).unwrap_err().to_string();
        assert!(said.contains("--netns NAME"), "{said}");
    }

    #[test]
    fn policies_are_kept_by_a_unit_before_services_and_their_limits_by_sysctl_d() {
        let (_folder, live) = machine(&[
            ("etc/systemd/system/udpath-3.service", ""),
            ("etc/systemd/system/udpath-4-policy.service", ""),
        ]);
        let policy = ("policy:/system.slice/nsd.service/receive-buffer", "8M");
        let files = kept(&live, &[policy, ("sysctl:net.core.rmem_max", "4194304")]).unwrap();
        let names: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        let units = "/etc/systemd/system";
        assert_eq!(
            names,
            [
                "/etc/sysctl.d/90-udpath-000007.conf",
                "/etc/udpath/7-policy.json",
                &format!("{units}/udpath-7-policy.service"),
                &format!("{units}/sysinit.target.d/udpath-7-policy.conf"),
            ]
        );
        let unit = &files[2].1;
        // Not after the unit of other settings, which itself waits for sysinit.target.
        assert!(
            unit.contains(
                "After=local-fs.target systemd-sysctl.service udpath-4-policy.service\nBefore=sysinit.target"
            ),
            "{unit}"
        );
        assert!(unit.contains(" apply /etc/udpath/7-policy.json --adopt 7 "), "{unit}");
    }

    #[test]
    fn a_unit_runs_after_those_of_earlier_applies() {
        let (_folder, live) = machine(&[("etc/systemd/system/udpath-3.service", "")]);
        let files = kept(&live, &[("eth0:irq/rx-0", "3")]).unwrap();
        assert!(files[1].1.contains("irqbalance.service udpath-3.service\n"), "{}", files[1].1);
    }

    #[test]
    fn renumbered_objects_and_foreign_files_are_rejected() {
        let (_folder, live) = machine(&[("etc/sysctl.d/90-udpath-000007.conf", "theirs\n")]);
        for (name, value, says) in [
            ("irq:57:affinity", "3", "eth0:irq/rx-0"),
            ("thread:8/9:affinity", "3", "CPUAffinity="),
            ("sysctl:net.core.rmem_max", "1", "not overwritten"),
        ] {
            let error = kept(&live, &[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
