//! Units apply the settings no system file covers, with this program, from a plan: policies before any service starts,
//! the others once the interfaces exist.

use std::fmt::Write as _;

use super::{Boot, PersistError, program};
use crate::journal;
use crate::settings::{Setting, Value};
use udpath_host::Source;

/// The machine's unit directory.
const UNITS: &str = "/etc/systemd/system";

/// When a unit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before services and their sockets: what they bind then has its policy. Limits are set by sysctl.d before.
    BeforeServices,
    /// Once the interfaces exist.
    WithInterfaces,
}

impl Moment {
    /// What the names of its files have in addition.
    const fn suffix(self) -> &'static str {
        match self {
            Self::BeforeServices => "-policy",
            Self::WithInterfaces => "",
        }
    }

    /// The target that starts it.
    const fn target(self) -> &'static str {
        match self {
            Self::BeforeServices => "sysinit.target",
            Self::WithInterfaces => "multi-user.target",
        }
    }
}

/// The unit, the plan, and the drop-in that starts the unit at boot.
///
/// # Errors
/// The program is not safe to run as root.
pub(super) fn files(
    source: &dyn Source,
    rest: &[(&Setting, &Value)],
    moment: Moment,
    id: u64,
    boot: &Boot<'_>,
    head: &str,
) -> Result<Vec<(String, String)>, PersistError> {
    let path = boot.program.to_string_lossy().into_owned();
    if !boot.program.is_absolute() || path.contains(|c: char| c.is_whitespace() || c == '%') {
        return Err(PersistError::Program(path));
    }
    let program = program::trusted(boot.program)?;
    let stem = format!("{id}{}", moment.suffix());
    let (file, name) = (format!("/etc/udpath/{stem}.json"), format!("udpath-{stem}.service"));
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
    let mut command = format!("{} apply {file} --adopt {id}", program.display());
    let journal = boot.journal.to_string_lossy();
    if journal != journal::DIRECTORY {
        let _ = write!(command, " --state {}", word(&journal));
    }
    for (option, names) in
        [("--allow", &boot.consent.insecure), ("--ignore-conflict", &boot.consent.ignore_conflicts)]
    {
        for name in names {
            let _ = write!(command, " {option} {}", word(name));
        }
    }
    // A later apply is also applied later at boot.
    let earlier: String = source
        .names(UNITS)
        .unwrap_or_default()
        .iter()
        .filter(|name| name.starts_with("udpath-") && name.ends_with(&format!("{}.service", moment.suffix())))
        .map(|name| format!(" {name}"))
        .collect();
    let order = match moment {
        // Services and sockets start after sysinit.target (systemd.service(5), "Default Dependencies").
        Moment::BeforeServices => format!(
            "DefaultDependencies=no\nConflicts=shutdown.target\n\
             After=local-fs.target systemd-sysctl.service{earlier}\nBefore=sysinit.target shutdown.target\n"
        ),
        Moment::WithInterfaces => {
            format!("Wants={devices}\nAfter={devices} network.target irqbalance.service{earlier}\n")
        }
    };
    let unit = format!(
        "{head}[Unit]\nDescription=Settings of udpath, apply {id}\n{order}RequiresMountsFor={}\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={command}\n",
        word(&journal)
    );
    // A file instead of the link `systemctl enable` would create, so that undo knows everything.
    let wants = format!("{head}[Unit]\nWants={name}\n");
    Ok(vec![
        (file, format!("{plan:#}\n")),
        (format!("{UNITS}/{name}"), unit),
        (format!("{UNITS}/{}.d/udpath-{stem}.conf", moment.target()), wants),
    ])
}

/// One word of a command line or list in a unit, with any special characters escaped (systemd.service(5), "Command
/// lines").
pub(crate) fn word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:,=+@".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    // A line of a unit's file must not end within a word.
    let escaped = text.chars().fold(String::new(), |mut escaped, letter| {
        match letter {
            control if control.is_ascii_control() => {
                let _ = write!(escaped, "\\x{:02x}", u32::from(control));
            }
            other => escaped.push(other),
        }
        escaped
    });
    format!("\"{escaped}\"")
}

/// A name escaped for use in a unit name, `systemd-escape`(1).
pub(crate) fn escaped(name: &str) -> String {
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
    use super::*;

    #[test]
    fn words_survive_systemd() {
        for (text, is) in [
            ("/var/lib/x", "/var/lib/x"),
            ("/srv/a b", "\"/srv/a b\""),
            ("50%$x", "\"50%%$$x\""),
            ("a\"\\", "\"a\\\"\\\\\""),
            ("", "\"\""),
            ("a\nUser=root\r", "\"a\\x0aUser=root\\x0d\""),
        ] {
            assert_eq!(word(text), is);
        }
    }
}
