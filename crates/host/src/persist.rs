//! Files that keep a plan over a boot, in the words of whoever reads them there.
//!
//! | settings | kept by |
//! |---|---|
//! | sysctls | `/etc/sysctl.d/90-udpath-ID.conf` (systemd-sysctl, procps) |
//! | RPS, RFS, XPS, NAPI | `/etc/udev/rules.d/90-udpath-ID.rules`, for the interface and for each queue as it comes |
//! | channels, rings, moderation, some offloads | `/etc/systemd/network/05-udpath-ID-IF.link`, with all that the link file in force says |
//! | the rest, by queue and not by number | `/etc/systemd/system/udpath-ID.service`, which applies `/etc/udpath/ID.json` |
//!
//! The files are changes like others: shown in the plan, in the journal before they are written, and removed by undo.

use std::fmt::Write as _;
use std::path::Path;

use thiserror::Error;

use crate::Source;
use crate::machine::Machine;
use crate::plan::{Change, Consent, Plan};
use crate::setting::{Item, Setting, Value};

/// Why a plan cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PersistError {
    /// It speaks of something that is another thing after a boot.
    #[error("{setting} cannot be kept over a boot: {why}")]
    Fleeting {
        /// The setting.
        setting: String,
        /// Why, and what would be right.
        why: &'static str,
    },
    /// Somebody else's file is in the way.
    #[error("{0} is there already, and is not overwritten")]
    Exists(String),
    /// The program's path does not fit into a unit.
    #[error("the unit needs a program by its full path without white space, not '{0}'")]
    Program(String),
}

/// How the kernel's words are called in a link file, systemd.link(5).
const LINK: [(&str, &str); 22] = [
    ("channels/rx", "RxChannels"),
    ("channels/tx", "TxChannels"),
    ("channels/other", "OtherChannels"),
    ("channels/combined", "CombinedChannels"),
    ("ring/rx", "RxBufferSize"),
    ("ring/tx", "TxBufferSize"),
    ("coalesce/rx-usecs", "RxCoalesceSec"),
    ("coalesce/tx-usecs", "TxCoalesceSec"),
    ("coalesce/rx-frames", "RxMaxCoalescedFrames"),
    ("coalesce/tx-frames", "TxMaxCoalescedFrames"),
    ("coalesce/adaptive-rx", "UseAdaptiveRxCoalesce"),
    ("coalesce/adaptive-tx", "UseAdaptiveTxCoalesce"),
    ("feature/rx-checksum", "ReceiveChecksumOffload"),
    ("feature/rx-gro", "GenericReceiveOffload"),
    ("feature/rx-gro-hw", "GenericReceiveOffloadHardware"),
    ("feature/rx-lro", "LargeReceiveOffload"),
    ("feature/rx-ntuple-filter", "NTupleFilter"),
    ("feature/rx-vlan-filter", "ReceiveVLANCTAGFilter"),
    ("feature/rx-vlan-hw-parse", "ReceiveVLANCTAGHardwareAcceleration"),
    ("feature/tx-generic-segmentation", "GenericSegmentationOffload"),
    ("feature/tx-tcp-segmentation", "TCPSegmentationOffload"),
    ("feature/tx-tcp6-segmentation", "TCP6SegmentationOffload"),
];

/// The files that keep a plan, as changes to be added to it. `id`: of the apply they will belong to. `program`: this
/// one, by its full path. `consent`: what has been allowed is allowed at each boot.
///
/// # Errors
/// What cannot be kept, and why.
pub fn files(
    machine: &dyn Machine,
    plan: &Plan,
    id: u64,
    program: &str,
    consent: &Consent,
) -> Result<Vec<Change>, PersistError> {
    let changed = plan.changes.iter().map(|change| (&change.setting, &change.to));
    let wanted: Vec<(&Setting, &Value)> =
        changed.chain(plan.already.iter().map(|(setting, value)| (setting, value))).collect();
    let (mut sysctls, mut rules, mut links, mut rest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (setting, value) in wanted {
        let fleeting = |why| PersistError::Fleeting { setting: setting.to_string(), why };
        match setting {
            Setting::Sysctl(_) => sysctls.push((setting, value)),
            Setting::Interface(_, item) if setting.place().is_some() => rules.push((setting, item, value)),
            Setting::Interface(interface, item) => match link_key(item) {
                Some(key) if Link::of(machine.source(), interface).is_some() => {
                    links.push((interface, key, value));
                }
                _ => rest.push((setting, value)),
            },
            // The unit's own apply bans what it must.
            Setting::IrqbalanceBan | Setting::File(_) => {}
            Setting::Irq(_) => {
                return Err(fleeting("IRQs get other numbers; name it by its queue, as eth0:irq/rx-0"));
            }
            Setting::Socket { .. } => {
                return Err(fleeting(
                    "a restart makes new sockets; set it in the server's own configuration, or let its unit say \
                     ExecStartPost=udpath apply --set port:PORT:...",
                ));
            }
            Setting::Thread { .. } => {
                return Err(fleeting("threads get other numbers; set CPUAffinity= in the service's unit"));
            }
        }
    }
    let head = format!(
        "# Made by udpath {}, apply {id}; `udpath undo {id}` removes it.\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut files: Vec<(String, String)> = Vec::new();
    if !sysctls.is_empty() {
        let lines =
            sysctls.iter().filter_map(|(setting, value)| sysctl_line(setting, value)).collect::<String>();
        files.push((format!("/etc/sysctl.d/90-udpath-{id}.conf"), format!("{head}{lines}")));
    }
    if !rules.is_empty() {
        let lines =
            rules.iter().filter_map(|(setting, item, value)| rule(setting, item, value)).collect::<String>();
        files.push((format!("/etc/udev/rules.d/90-udpath-{id}.rules"), format!("{head}{lines}")));
    }
    let mut interfaces: Vec<&String> = links.iter().map(|(interface, ..)| *interface).collect();
    interfaces.sort();
    interfaces.dedup();
    for interface in interfaces {
        let Some(link) = Link::of(machine.source(), interface) else { continue };
        let keys = links.iter().filter(|(of, ..)| *of == interface).map(|(_, key, value)| (*key, *value));
        files.push((format!("/etc/systemd/network/05-udpath-{id}-{interface}.link"), link.file(&head, keys)));
    }
    if !rest.is_empty() {
        files.extend(unit(&rest, id, program, consent, &head)?);
    }
    files
        .into_iter()
        .map(|(path, text)| {
            let setting = Setting::File(path.clone());
            match machine.read(&setting) {
                Ok(Value::File(Some(_))) => Err(PersistError::Exists(path)),
                _ => Ok(Change {
                    setting,
                    from: Some(Value::File(None)),
                    to: Value::File(Some(text)),
                    irq: None,
                    reason: "keeps it over a boot".to_owned(),
                }),
            }
        })
        .collect()
}

/// With slashes, as sysctl.d(5) takes names that have dots of their own.
fn sysctl_line(setting: &Setting, value: &Value) -> Option<String> {
    let Setting::Sysctl(path) = setting else { return None };
    Some(format!("{path} = {}\n", setting.place()?.form.write(value)?))
}

/// udev writes what the kernel would be written: an attribute below the interface. Queues that come later, with more
/// channels, have an event of their own.
fn rule(setting: &Setting, item: &Item, value: &Value) -> Option<String> {
    let place = setting.place()?;
    let (interface, text) = (setting.interface()?, place.form.write(value)?);
    let attribute = place.path.strip_prefix(&format!("/sys/class/net/{interface}/"))?;
    // NAME is what an earlier rule has named it; nothing when it keeps the kernel's name.
    let mut lines = String::new();
    for name in [format!("KERNEL==\"{interface}\", NAME==\"\""), format!("NAME==\"{interface}\"")] {
        let _ = writeln!(
            lines,
            "ACTION==\"add|change|move\", SUBSYSTEM==\"net\", {name}, ATTR{{{attribute}}}=\"{text}\""
        );
    }
    if matches!(item, Item::Rps(_) | Item::Rfs(_) | Item::Xps(_) | Item::XpsRxqs(_)) {
        let (queue, file) = attribute.strip_prefix("queues/")?.split_once('/')?;
        let _ = writeln!(
            lines,
            "ACTION==\"add\", SUBSYSTEM==\"queues\", KERNEL==\"{queue}\", DEVPATH==\"*/net/{interface}/queues/{queue}\", \
             ATTR{{{file}}}=\"{text}\""
        );
    }
    Some(lines)
}

fn link_key(item: &Item) -> Option<&'static str> {
    let name = item.to_string();
    LINK.iter().find(|(known, _)| *known == name).map(|(_, key)| *key)
}

/// The link file that is in force for an interface: only one is, so ours must say all that it says.
struct Link {
    address: String,
    text: String,
}

impl Link {
    /// Nothing where systemd-udevd does not set up links, or the interface has no address of its own to know it by.
    fn of(source: &dyn Source, interface: &str) -> Option<Self> {
        let folder = format!("/sys/class/net/{interface}");
        let own =
            |file: &str| source.text(&format!("{folder}/{file}")).ok().map(|text| text.trim().to_owned());
        // NET_ADDR_PERM of linux/netdevice.h: the card's own.
        if own("addr_assign_type")? != "0" {
            return None;
        }
        let database = source.text(&format!("/run/udev/data/n{}", own("ifindex")?)).ok()?;
        let file = database.lines().find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE="))?;
        Some(Self { address: own("address")?, text: source.text(file).ok()? })
    }

    fn file<'a>(&self, head: &str, keys: impl Iterator<Item = (&'static str, &'a Value)>) -> String {
        let mut text = format!("{head}[Match]\nPermanentMACAddress={}\n\n[Link]\n", self.address);
        // The part of the file in force that is not about which links it is for.
        let mut inside = false;
        for line in self.text.lines().map(str::trim) {
            match line {
                "[Link]" => inside = true,
                _ if line.starts_with('[') => inside = false,
                _ if inside && !line.is_empty() && !line.starts_with(['#', ';']) => {
                    let _ = writeln!(text, "{line}");
                }
                _ => {}
            }
        }
        for (key, value) in keys {
            let _ = match value {
                // Times without a unit would be seconds.
                Value::Number(microseconds) if key.ends_with("CoalesceSec") => {
                    writeln!(text, "{key}={microseconds}us")
                }
                Value::Switch(on) => writeln!(text, "{key}={}", if *on { "yes" } else { "no" }),
                value => writeln!(text, "{key}={value}"),
            };
        }
        text
    }
}

/// A unit that applies a plan at each boot, the plan, and what makes the boot want the unit.
fn unit(
    rest: &[(&Setting, &Value)],
    id: u64,
    program: &str,
    consent: &Consent,
    head: &str,
) -> Result<Vec<(String, String)>, PersistError> {
    if !Path::new(program).is_absolute() || program.contains(|c: char| c.is_whitespace() || c == '%') {
        return Err(PersistError::Program(program.to_owned()));
    }
    let (file, name) = (format!("/etc/udpath/{id}.json"), format!("udpath-{id}.service"));
    let changes: Vec<serde_json::Value> = rest
        .iter()
        .map(|(setting, value)| {
            serde_json::json!({
                "setting": setting.to_string(), "to": Setting::encode(value), "reason": format!("kept by apply {id}")
            })
        })
        .collect();
    let plan = serde_json::json!({ "schema": crate::plan::SCHEMA, "changes": changes });
    let mut devices: Vec<String> = rest
        .iter()
        .filter_map(|(setting, _)| setting.interface())
        .map(|interface| format!("sys-subsystem-net-devices-{}.device", escaped(interface)))
        .collect();
    devices.sort();
    devices.dedup();
    let devices = devices.join(" ");
    let mut command = format!("{program} apply {file}");
    for (option, names) in [("--allow", &consent.insecure), ("--despite", &consent.despite)] {
        for name in names {
            let _ = write!(command, " {option} {name}");
        }
    }
    let unit = format!(
        "{head}[Unit]\nDescription=Settings of udpath, apply {id}\nWants={devices}\nAfter={devices} network.target irqbalance.service\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={command}\n"
    );
    // Instead of the link that `systemctl enable` would make: a file, so that undo knows all of it.
    let wants = format!("{head}[Unit]\nWants={name}\n");
    Ok(vec![
        (file, format!("{plan:#}\n")),
        (format!("/etc/systemd/system/{name}"), unit),
        (format!("/etc/systemd/system/multi-user.target.d/udpath-{id}.conf"), wants),
    ])
}

/// A name as a part of a unit's, `systemd-escape`(1).
fn escaped(name: &str) -> String {
    let plain = |at: usize, byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':') || (byte == b'.' && at > 0)
    };
    name.bytes().enumerate().fold(String::new(), |mut text, (at, byte)| {
        if plain(at, byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Live, Wish};

    /// A machine of files, below a folder.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Live) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
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
        let consent = Consent { despite: ["tuned".to_owned()].into(), ..Consent::default() };
        let files = files(live, &plan, 7, "/usr/bin/udpath", &consent)?;
        Ok(files
            .into_iter()
            .map(|change| match (change.setting, change.to) {
                (Setting::File(path), Value::File(Some(text))) => (path, text),
                other => panic!("{other:?}"),
            })
            .collect())
    }

    #[test]
    fn each_setting_is_kept_by_whoever_understands_it() {
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
        assert!(of("/etc/sysctl.d/90-udpath-7.conf").ends_with("\nnet/core/rmem_max = 4194304\n"));
        let rules = of("/etc/udev/rules.d/90-udpath-7.rules");
        assert!(rules.contains(r#", NAME=="eth0", ATTR{queues/rx-1/rps_cpus}="f""#), "{rules}");
        assert!(
            rules.contains(r#"KERNEL=="rx-1", DEVPATH=="*/net/eth0/queues/rx-1", ATTR{rps_cpus}="f""#),
            "{rules}"
        );
        assert!(rules.contains(r#"ATTR{napi_defer_hard_irqs}="2""#), "{rules}");
        let link = of("/etc/systemd/network/05-udpath-7-eth0.link");
        assert!(
            link.contains(
                "[Match]\nPermanentMACAddress=02:00:00:00:00:01\n\n[Link]\nNamePolicy=keep kernel\n"
            ),
            "{link}"
        );
        assert!(
            link.ends_with("CombinedChannels=8\nRxCoalesceSec=20us\nGenericReceiveOffload=no\n"),
            "{link}"
        );
        let unit = of("/etc/systemd/system/udpath-7.service");
        assert!(
            unit.contains("\nExecStart=/usr/bin/udpath apply /etc/udpath/7.json --despite tuned\n"),
            "{unit}"
        );
        assert!(unit.contains("Wants=sys-subsystem-net-devices-eth0.device\n"), "{unit}");
        let wishes = Wish::from_json(of("/etc/udpath/7.json")).unwrap();
        assert_eq!(
            (wishes.len(), wishes[0].name.as_str(), wishes[0].from.as_deref()),
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
    fn what_a_boot_renumbers_and_what_is_somebody_elses_is_refused() {
        let (_folder, live) = machine(&[("etc/sysctl.d/90-udpath-7.conf", "theirs\n")]);
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
