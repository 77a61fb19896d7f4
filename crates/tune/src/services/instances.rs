//! Several instances of a known server on one port: what must differ between them, and a configuration for each.
//!
//! ```text
//!  chronyd -x -d -f /etc/chrony/server.conf          Instances::of_command: its profile allows it
//!     └─▸ prepare(2, FOLDER)
//!          ├─ FOLDER/server.conf                     a copy; what must differ is replaced or added
//!          └─▸ chronyd -x -d -f FOLDER/server.conf
//!  freeradius -f -d /etc/freeradius/3.0
//!          ├─ FOLDER/3.0/radiusd.conf                the copy; the folder's other entries are links to the originals
//!          └─▸ freeradius -f -d FOLDER/3.0
//! ```
//! The original files are only read. What includes lead to is read where it is.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use udpath_files::{own, replace};

use super::ServiceError;
use super::arguments::Arguments;
use super::config::Config;
use super::profile::{InstancesProfile, Probe, Profile};
use super::reader::Reader;

/// What is replaced in a command line for each instance (`udpath_multiply`).
const PLACEHOLDERS: [&str; 3] = ["{n}", "{cpu}", "{folder}"];
/// The accounts of this machine.
const ACCOUNTS: &str = "/etc/passwd";
/// Longest list of accounts that is read, bytes: some 100 per account. Lower: accounts of a large machine are not
/// found. Higher: more memory.
const MAX_ACCOUNTS: u64 = 16 << 20;

/// A known server whose instances can share a port, and its command line.
#[derive(Debug)]
pub struct Instances {
    profile: &'static Profile,
    /// Its main configuration file, absolute.
    config_path: PathBuf,
    config: Config,
    command: Vec<String>,
}

impl Instances {
    /// The server that a command line starts; `None` if it is not known, and then nothing but the command line itself
    /// can differ.
    ///
    /// # Errors
    /// There must be one instance only, with the reason; or its configuration cannot be read.
    pub fn of_command(command: &[String]) -> Result<Option<Self>, ServiceError> {
        Self::of(command, &|| Reader::own(Path::new("/")))
    }

    /// The same, where the configuration is read by this reader.
    pub(super) fn of(
        command: &[String],
        reader: &dyn Fn() -> io::Result<Reader>,
    ) -> Result<Option<Self>, ServiceError> {
        let name = command.first().map_or("", |program| program.rsplit('/').next().unwrap_or_default());
        let Some(profile) = Profile::of(name) else { return Ok(None) };
        let rules = &profile.instances;
        if let Some(why) = &rules.shared_state {
            return Err(single(profile, String::new(), why.clone()));
        }
        if let Some(lacks) = rules.requires.iter().find(|required| !required.is_in(command)) {
            let why = format!("start it with {}: {}", lacks.one_of.join(" or "), lacks.why);
            return Err(single(profile, String::new(), why));
        }
        if let Some(has) = rules.forbids.iter().find(|forbidden| forbidden.is_in(command)) {
            let why = format!("start it without {}: {}", has.one_of.join(" or "), has.why);
            return Err(single(profile, String::new(), why));
        }
        let arguments = Arguments::read(&command.join("\0"), &profile.switches);
        let same = |value: &str| !PLACEHOLDERS.iter().any(|placeholder| value.contains(placeholder));
        if let Some(shared) = rules.differs.iter().find(|one| arguments.any(&one.options).is_some_and(same)) {
            let why = format!("{}; let it differ, as in {}", shared.why, shared.example);
            return Err(single(profile, format!(" with the same {}", shared.options.join(" or ")), why));
        }
        let named = profile.config_named(&arguments);
        let config_path = PathBuf::from(named.as_ref().unwrap_or(&profile.config));
        let unreadable = |cause| ServiceError::Unreadable {
            path: config_path.display().to_string(),
            user: geteuid().as_raw(),
            cause,
        };
        let config_path = std::path::absolute(&config_path).map_err(&unreadable)?;
        let config = match profile.config_options.is_empty() {
            true => Config::of_text("", profile.format, ""),
            false => {
                // It is started where this process is.
                let reader = reader().and_then(|reader| Ok(reader.started_in(std::env::current_dir()?)));
                let reader = reader.map_err(unreadable)?;
                Config::read(&reader, &config_path.display().to_string(), profile.format, None)?
            }
        };
        let found = Self { profile, config_path, config, command: command.to_vec() };
        found.check_lines(rules)?;
        Ok(Some(found))
    }

    /// No line that only one process can have, and nothing in an included file that must differ.
    fn check_lines(&self, rules: &InstancesProfile) -> Result<(), ServiceError> {
        let place = |file: usize, line: usize| {
            format!(" ({}, line {line})", self.config.files.get(file).map_or("", |file| &file.path))
        };
        for excluded in &rules.excludes {
            let wanted =
                |value: &str| excluded.values.is_empty() || excluded.values.iter().any(|one| one == value);
            let lines = self.config.find(&excluded.section, &excluded.key);
            if let Some(line) = lines.iter().find(|line| wanted(&line.directive.value)) {
                return Err(single(
                    self.profile,
                    place(line.file, line.directive.line),
                    excluded.why.clone(),
                ));
            }
        }
        for key in rules.set.keys() {
            if let Some(line) = self.config.find("", key).iter().find(|line| line.file > 0) {
                let why =
                    format!("{key} must differ between instances; move it to {}", self.config_path.display());
                return Err(single(self.profile, place(line.file, line.directive.line), why));
            }
        }
        Ok(())
    }

    /// The server, by the name of its profile.
    #[must_use]
    pub fn server(&self) -> &'static str {
        &self.profile.name
    }

    /// The ports that it serves: that of its arguments or its configuration, else the usual ones.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let arguments = Arguments::read(&self.command.join("\0"), &self.profile.switches);
        let lines = self.config.find("", "port");
        let line = lines.last().map(|line| line.directive.value.as_str());
        let set = arguments.any(&self.profile.port_options).or(line).and_then(|port| port.parse().ok());
        set.map_or_else(|| self.profile.ports.clone(), |port| vec![port])
    }

    /// How to find out that an instance serves.
    #[must_use]
    pub const fn probe(&self) -> Probe {
        self.profile.probe
    }

    /// Why all datagrams of a flow must reach the same instance, if they must.
    #[must_use]
    pub fn flow_state(&self) -> Option<&'static str> {
        self.profile.instances.flow_state.as_deref()
    }

    /// Writes the configuration of instance `number` into `folder`, which exists, and returns its command line.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn prepare(&self, number: usize, folder: &Path) -> Result<Vec<String>, ServiceError> {
        let rules = &self.profile.instances;
        if self.profile.config_options.is_empty() {
            return Ok(self.command.clone());
        }
        let shown = folder.display().to_string();
        let own = |text: &str| text.replace("{folder}", &shown).replace("{n}", &number.to_string());
        let written = self.write(folder, &self.text(rules, &own));
        let given = written.map_err(|cause| ServiceError::System {
            operation: format!("write a configuration of {} into {shown}", self.profile.name),
            cause,
        })?;
        let given = given.display().to_string();
        let mut command = self.command.clone();
        set_option(&mut command, &self.profile.config_options, &given);
        for [option, value] in &rules.options {
            set_option(&mut command, std::slice::from_ref(option), &own(value));
        }
        Ok(command)
    }

    /// The main file with what must differ.
    fn text(&self, rules: &InstancesProfile, own: &dyn Fn(&str) -> String) -> String {
        let Some(main) = self.config.files.first() else { return String::new() };
        let (mut text, mut first) = (main.text.clone(), String::new());
        let mut replaced = Vec::new();
        for (key, value) in &rules.set {
            let lines = self.config.find("", key);
            if lines.is_empty() {
                first += &format!("{key} = {}\n", own(value));
            }
            let of = |line: &super::config::Found<'_>| {
                (
                    line.directive.span.clone(),
                    main.format.replaced(&main.text[line.directive.span.clone()], &own(value)),
                )
            };
            replaced.extend(lines.iter().filter(|line| line.file == 0).map(of));
        }
        // From the end, so that the earlier offsets stay valid.
        replaced.sort_by_key(|(span, _)| span.start);
        for (span, value) in replaced.into_iter().rev() {
            text.replace_range(span, &value);
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let last: String = rules.append.iter().map(|line| own(line) + "\n").collect();
        first + &text + &last
    }

    /// Writes the main file, and links to what is beside it if the server is given a folder. Returns what the server is
    /// given.
    fn write(&self, folder: &Path, text: &str) -> io::Result<PathBuf> {
        let name = self.config_path.file_name().unwrap_or_default();
        let original = self.config_path.parent().unwrap_or(Path::new("/"));
        let (given, file) = match &self.profile.config_file {
            None => (folder.join(name), folder.join(name)),
            Some(_) => {
                let copy = folder.join(original.file_name().unwrap_or_default());
                fs::create_dir(&copy)?;
                for other in udpath_files::names(original, udpath_files::MAX_NAMES)? {
                    if other != name {
                        symlink(original.join(&other), copy.join(&other))?;
                    }
                }
                (copy.clone(), copy.join(name))
            }
        };
        let about = fs::metadata(&self.config_path)?;
        // It may have secrets, and the folder may belong to the server's user from an earlier start.
        replace::owned(&file, text.as_bytes(), about.mode() & 0o7777, (about.uid(), about.gid()))?;
        if let Some((user, group)) = self.profile.instances.user.as_deref().and_then(account) {
            own::give(folder, user, group)?;
        }
        Ok(given)
    }

    /// With this text as its only configuration file.
    #[cfg(test)]
    fn of_text(profile: &'static Profile, command: &[&str], text: &str) -> Self {
        let service = super::Service::of_text(profile, text);
        Self {
            profile,
            config_path: service.config_path.into(),
            config: service.config,
            command: command.iter().map(ToString::to_string).collect(),
        }
    }
}

impl super::profile::Required {
    fn is_in(&self, command: &[String]) -> bool {
        command.iter().skip(1).any(|word| self.one_of.contains(word))
    }
}

fn single(profile: &Profile, where_: String, why: String) -> ServiceError {
    ServiceError::Single { server: profile.name.clone(), where_, why }
}

/// Replaces the value of the last of these options, in whichever form it stands, or adds the first of them.
fn set_option(command: &mut Vec<String>, names: &[String], value: &str) {
    let mut found = None;
    for (at, word) in command.iter().enumerate().skip(1) {
        for name in names {
            let attached = word.strip_prefix(name.as_str()).filter(|rest| !rest.is_empty());
            match attached {
                None if word == name && at + 1 < command.len() => found = Some((at + 1, value.to_owned())),
                Some(rest) if name.starts_with("--") && rest.starts_with('=') => {
                    found = Some((at, format!("{name}={value}")));
                }
                Some(_) if !name.starts_with("--") => found = Some((at, format!("{name}{value}"))),
                _ => {}
            }
        }
    }
    match (found, names.first()) {
        (Some((at, word)), _) => command[at] = word,
        (None, Some(name)) => {
            // Before words that are not options.
            command.splice(1..1, [name.clone(), value.to_owned()]);
        }
        (None, None) => {}
    }
}

/// User and group of an account of this machine.
#[must_use]
pub fn account(name: &str) -> Option<(u32, u32)> {
    let list = udpath_files::text(ACCOUNTS, MAX_ACCOUNTS).ok()?;
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests;
