//! A unit without the drop-in that multiplies it, and what is written for its instances.

use std::path::Path;

use udpath_host::{Source, UnitName};

use super::file::{Line, drop_in, lines};
use super::manager::properties;
use crate::persist::{escaped, word};
use crate::policy::of_slice;

/// What a unit says of its service that its instances do not say: the commands around the program, which run once, in
/// the unit; what the supervisor decides; and what only one of them can have.
const LEFT_OUT: [&str; 20] = [
    "ExecCondition",
    "ExecStartPre",
    "ExecStart",
    "ExecStartPost",
    "ExecReload",
    "ExecStop",
    "ExecStopPost",
    "Restart",
    "RestartSec",
    "RestartForceExitStatus",
    "RestartPreventExitStatus",
    "StartLimitInterval",
    "StartLimitBurst",
    "StartLimitAction",
    "FailureAction",
    "PIDFile",
    "CPUAffinity",
    "Slice",
    "RuntimeDirectoryPreserve",
    "RemainAfterExit",
];
/// Settings with which instances cannot be separate units, as far as their value is not `no`, and why.
const EXCLUDED: [(&str, &str); 7] = [
    ("DynamicUser", "each instance would run as another user; set DynamicUser=no and a User="),
    ("BusName", "only one process can have its D-Bus name"),
    ("RootDirectory", "its configuration is in a root of its own"),
    ("RootImage", "its configuration is in a root of its own"),
    ("PrivateNetwork", "each instance would have a network of its own"),
    ("NetworkNamespacePath", "its sockets are in another network namespace than those of udpath"),
    ("Sockets", "a socket unit opens its sockets; let the program open them"),
];

/// A unit, as its files define it.
#[derive(Debug)]
pub struct Original {
    unit: UnitName,
    lines: Vec<Line>,
}

/// One instance of a unit.
#[derive(Debug, Clone, Copy)]
pub struct Instance<'a> {
    /// From 1.
    pub number: usize,
    /// Its CPU.
    pub cpu: u32,
    /// The program and its arguments.
    pub command: &'a [String],
    /// A folder of its own, which it may write.
    pub folder: &'a Path,
}

/// The unit of an instance.
#[must_use]
pub fn instance_name(unit: &str, number: usize) -> String {
    format!("udpath-{}@{number}.service", stem(unit))
}

/// `ntp` of `ntp.service`.
pub(super) fn stem(unit: &str) -> &str {
    unit.strip_suffix(".service").unwrap_or(unit)
}

impl Original {
    /// Reads the files of a unit.
    ///
    /// # Errors
    /// systemd is not running or does not have this unit, a file cannot be read, or it cannot be multiplied and why.
    pub fn read(source: &dyn Source, unit: &UnitName) -> Result<Self, String> {
        let names = ["LoadState", "FragmentPath", "DropInPaths", "TriggeredBy"];
        let [state, fragment, drop_ins, triggers] = properties(source, unit, names)?;
        if state != "loaded" || fragment.is_empty() {
            return Err(format!("systemd has no unit {unit} that could be started (LoadState={state})"));
        }
        let own = drop_in(unit);
        let mut found = Vec::new();
        for path in std::iter::once(fragment.as_str()).chain(drop_ins.split_whitespace()) {
            if path != own {
                let text = source.text(path).map_err(|error| format!("cannot read {path}: {error}"))?;
                found.extend(lines(&text));
            }
        }
        if triggers.split_whitespace().any(|trigger| trigger.ends_with(".socket")) {
            let line =
                |value: &str| Line { section: "Service".into(), key: "Sockets".into(), value: value.into() };
            found.push(line(&triggers));
        }
        Self::of(unit, found)
    }

    fn of(unit: &UnitName, lines: Vec<Line>) -> Result<Self, String> {
        let original = Self { unit: unit.clone(), lines };
        match original.refused() {
            Some(why) => Err(format!("{unit} cannot be multiplied: {why}")),
            None => Ok(original),
        }
    }

    /// The values of a key since it was last set to nothing.
    fn all(&self, section: &str, key: &str) -> Vec<&str> {
        let found = self.lines.iter().filter(|line| line.section == section && line.key == key);
        let found: Vec<&str> = found.map(|line| line.value.as_str()).collect();
        let reset = found.iter().rposition(|value| value.is_empty()).map_or(0, |at| at + 1);
        found[reset..].to_vec()
    }

    /// The value of a key of its service.
    fn last(&self, key: &str) -> Option<&str> {
        self.all("Service", key).last().copied()
    }

    /// Why it cannot be multiplied.
    fn refused(&self) -> Option<String> {
        match self.last("Type") {
            Some("forking") => {
                return Some(
                    "it goes to the background (Type=forking); give it Type=exec and its option to stay in the \
                     foreground, in a drop-in"
                        .to_owned(),
                );
            }
            Some(kind @ ("oneshot" | "dbus")) => return Some(format!("it is not a server (Type={kind})")),
            _ => {}
        }
        let on = |key| self.last(key).filter(|value| !matches!(*value, "no" | "false" | "off" | "0"));
        for (key, why) in EXCLUDED {
            if let Some(value) = on(key) {
                return Some(format!("{why} ({key}={value})"));
            }
        }
        let commands = self.all("Service", "ExecStart");
        match commands.as_slice() {
            [one] if split(one).0.contains('@') => {
                return Some(format!("its program has another name than its file (ExecStart={one})"));
            }
            [_] => {}
            _ => return Some(format!("it has {} commands ExecStart=, not one", commands.len())),
        }
        self.copied().find_map(|line| {
            let letter = self.resolved(&line.value).err()?;
            Some(format!("{}= has the specifier %{letter}; write what it means instead", line.key))
        })
    }

    /// The lines that are those of each instance too.
    fn copied(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.section == "Service" && !LEFT_OUT.contains(&line.key.as_str()))
    }

    /// A value with the specifiers resolved that would mean the instance's unit in its file.
    ///
    /// # Errors
    /// The letter of one that is the unescaped form of another.
    fn resolved(&self, value: &str) -> Result<String, char> {
        let (prefix, instance) = stem(&self.unit).split_once('@').unwrap_or((stem(&self.unit), ""));
        let (mut text, mut letters) = (String::new(), value.chars());
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            match letters.next() {
                Some('n') => text.push_str(&self.unit),
                Some('N') => text.push_str(stem(&self.unit)),
                Some('p') => text.push_str(prefix),
                Some('i') => text.push_str(instance),
                Some('j') => text.push_str(prefix.rsplit('-').next().unwrap_or(prefix)),
                Some(letter @ ('I' | 'P' | 'J' | 'f')) => return Err(letter),
                other => text.extend(std::iter::once('%').chain(other)),
            }
        }
        Ok(text)
    }

    /// The account that it runs as; `None` for root.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.last("User").filter(|user| *user != "root")
    }

    /// The slice of the instances: within that of the unit.
    fn slice(&self) -> String {
        let of = self.last("Slice").and_then(|slice| slice.strip_suffix(".slice")).unwrap_or("system");
        let own = format!("udpath\\x2d{}", escaped(stem(&self.unit)));
        if of == "-" { own } else { format!("{of}-{own}") }
    }

    /// The cgroup that has those of all instances.
    #[must_use]
    pub fn cgroup(&self) -> String {
        of_slice(&self.slice())
    }

    /// The file of an instance's unit.
    #[must_use]
    pub fn instance(&self, instance: &Instance<'_>) -> String {
        let Instance { number, cpu, command, folder } = *instance;
        let mut text = format!(
            "# Written by udpath, and removed when {unit} stops.\n[Unit]\nDescription=Instance {number} of {unit}\n",
            unit = self.unit
        );
        // Without it the instance would wait for a target that waits for the unit.
        if let Some(value) = self.all("Unit", "DefaultDependencies").last() {
            text += &format!("DefaultDependencies={value}\n");
        }
        // The supervisor decides when it is started again.
        text += "StartLimitIntervalSec=0\n\n[Service]\n";
        for line in self.copied() {
            if let Ok(value) = self.resolved(&line.value) {
                text += &format!("{}={value}\n", line.key);
            }
        }
        let prefix = split(self.last("ExecStart").unwrap_or_default()).0;
        let words: Vec<String> = command.iter().map(|text| word(text)).collect();
        text += &format!("ExecStart={prefix}{}\nCPUAffinity={cpu}\n", words.join(" "));
        // The first instance that stops would remove it from the others; the unit has it as well, and removes it.
        text += &format!("Slice={}.slice\nRuntimeDirectoryPreserve=yes\n", self.slice());
        let read_only = ["ReadOnlyPaths", "ReadOnlyDirectories"].iter().any(|key| self.last(key).is_some());
        if read_only || self.last("ProtectSystem") == Some("strict") {
            text += &format!("ReadWritePaths={}\n", word(&folder.display().to_string()));
        }
        text
    }

    /// The drop-in by which `program`, this one, runs the unit's command in instances: a number and other options.
    #[must_use]
    pub(super) fn drop_in(&self, program: &str, options: &str) -> String {
        let unit = &self.unit;
        let (prefix, command) = split(self.last("ExecStart").unwrap_or_default());
        // systemd expands its variables and specifiers here as it does there, unless `:` forbids the former.
        let verbatim = if prefix.contains(':') { ":" } else { "" };
        // `+`: the supervisor makes a policy and units, as root and outside the sandbox, which the instances keep.
        // KillMode: it ends the instances in order; what is left of it after a kill, ExecStopPost takes back.
        format!(
            "# Written by udpath {}; `udpath multiply {unit} --stop` removes it.\n\
             [Service]\nType=notify\nNotifyAccess=main\nPIDFile=\nRemainAfterExit=no\nWatchdogSec=0\nKillMode=mixed\nKillSignal=SIGTERM\n\
             ExecStart=\nExecStart=+{verbatim}{program} multiply {unit} --unit -n {options} -- {command}\n\
             ExecReload=\nExecStop=\nExecStopPost=+-{program} multiply-guard {unit}\n",
            env!("CARGO_PKG_VERSION"),
        )
    }
}

/// The letters before a command, and the command itself.
fn split(command: &str) -> (&str, &str) {
    let begins = command.find(|letter| !"@-:+!|".contains(letter)).unwrap_or(command.len());
    command.split_at(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original(unit: &str, text: &str) -> Result<Original, String> {
        Original::of(&unit.parse().unwrap(), lines(text))
    }

    #[test]
    fn an_instance_has_the_service_of_its_unit_and_what_must_differ() {
        let text = "[Unit]\nRequires=a.service\n[Service]\nType=notify\nUser=_chrony\nEnvironment=A=%n,%i%%\nSlice=dns.slice\n\
                    CPUAffinity=0-3\nExecStartPre=/bin/check\nExecStart=!/usr/sbin/chronyd $OPTS\nExecReload=/bin/kill $MAINPID\n\
                    Restart=always\nProtectSystem=strict\n[Install]\nWantedBy=multi-user.target\n";
        let original = original("ntp@eth0.service", text).unwrap();
        assert_eq!(
            (original.user(), original.cgroup().as_str()),
            (Some("_chrony"), "/dns.slice/dns-udpath\\x2dntp\\x40eth0.slice")
        );
        let command = ["/usr/sbin/chronyd".to_owned(), "a b".to_owned(), "50%$x".to_owned()];
        let folder = Path::new("/run/udpath/multiply/ntp@eth0.service/2");
        assert_eq!(instance_name("ntp@eth0.service", 2), "udpath-ntp@eth0@2.service");
        assert_eq!(
            original.instance(&Instance { number: 2, cpu: 7, command: &command, folder }),
            "# Written by udpath, and removed when ntp@eth0.service stops.\n\
             [Unit]\nDescription=Instance 2 of ntp@eth0.service\nStartLimitIntervalSec=0\n\n\
             [Service]\nType=notify\nUser=_chrony\nEnvironment=A=ntp@eth0.service,eth0%%\nProtectSystem=strict\n\
             ExecStart=!/usr/sbin/chronyd \"a b\" \"50%%$$x\"\nCPUAffinity=7\n\
             Slice=dns-udpath\\x2dntp\\x40eth0.slice\nRuntimeDirectoryPreserve=yes\n\
             ReadWritePaths=/run/udpath/multiply/ntp@eth0.service/2\n"
        );
    }

    #[test]
    fn the_drop_in_runs_the_command_as_it_was_written() {
        let text = "[Service]\nExecStart=/bin/old\nExecStart=\nExecStart=-:/usr/sbin/radiusd -f $OPTIONS %H\nExecStop=/bin/x\n";
        let text = original("radius.service", text).unwrap().drop_in("/usr/sbin/udpath", "2 --choose cpu");
        let line = "ExecStart=\nExecStart=+:/usr/sbin/udpath multiply radius.service --unit -n 2 --choose cpu -- \
                    /usr/sbin/radiusd -f $OPTIONS %H\n";
        assert!(text.contains(line) && text.contains("\nExecStop=\n"), "{text}");
        assert!(text.contains("ExecStopPost=+-/usr/sbin/udpath multiply-guard radius.service\n"), "{text}");
    }

    #[test]
    fn what_separate_units_cannot_have_is_refused_with_the_reason() {
        let start = "ExecStart=/bin/a";
        for (text, says) in [
            ("Type=forking", "goes to the background (Type=forking)"),
            ("Type=oneshot", "not a server"),
            ("DynamicUser=yes", "another user"),
            ("PrivateNetwork=true", "a network of its own (PrivateNetwork=true)"),
            ("Sockets=a.socket", "opens its sockets"),
            ("RootDirectory=/srv", "a root of its own"),
            ("ExecStart=/bin/b", "2 commands"),
            ("ExecStart=", "0 commands"),
            ("ExecStart=\nExecStart=@/bin/a b", "another name"),
            ("Environment=X=%I", "Environment= has the specifier %I"),
        ] {
            let why = original("a.service", &format!("[Service]\n{start}\n{text}\n")).unwrap_err();
            assert!(
                why.starts_with("a.service cannot be multiplied: ") && why.contains(says),
                "{text}: {why}"
            );
        }
        for text in [
            "",
            "Type=forking\nType=notify",
            "PrivateNetwork=no",
            "DynamicUser=yes\nDynamicUser=",
            "ExecStop=%I",
        ] {
            assert!(original("a.service", &format!("[Service]\n{start}\n{text}\n")).is_ok(), "{text}");
        }
    }
}
