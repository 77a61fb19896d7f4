//! Removes what a capture does not need: data the readers received but did not use.
//!
//! Processes that are not in the snapshot, their open files, unrelated boot parameters and mounts, and everything in
//! configuration files except settings: private data that is left out even without redaction.

use std::collections::BTreeSet;

use super::kept;
use udpath_host::snapshot::Snapshot;
use udpath_host::source::Recording;
use udpath_host::{actors, kernel};

/// Lines of `/proc/PID/status` that are used.
const STATUS: [&str; 3] = ["Uid:", "Cpus_allowed_list:", "Mems_allowed_list:"];

/// Removes everything that `snapshot`, which was read during the recording, does not show.
pub(super) fn trim(recording: Recording, snapshot: &Snapshot) -> Recording {
    let processes = Processes::of(&recording, snapshot);
    let mut trimmed = Recording { answers: recording.answers, ..Recording::default() };
    for (path, text) in recording.texts {
        if !kept::is_kept(&path) {
            continue;
        }
        if let Some(text) = processes.text(&path, text) {
            trimmed.texts.insert(path, text);
        }
    }
    trimmed.index.links =
        recording.index.links.into_iter().filter(|(path, target)| processes.link(path, target)).collect();
    let files: Vec<&String> = trimmed.texts.keys().chain(trimmed.index.links.keys()).collect();
    let is_above = |path: &str| {
        files.iter().any(|file| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
    };
    let wanted = |path: &String| {
        // In configuration folders only the requested files: the others would reveal what else is installed.
        let elsewhere =
            !["/proc", "/sys"].iter().any(|top| path == top || path.starts_with(&format!("{top}/")));
        if elsewhere {
            // An unreadable file is still listed in its folder.
            let unread = recording.index.absent.contains_key(path);
            return actors::is_asked_for(path)
                || unread
                || trimmed.texts.contains_key(path)
                || is_above(path);
        }
        // Only descriptors of the snapshot's sockets.
        let descriptor = pid(path).is_some() && path.contains("/fd/");
        processes.path(path) && (!descriptor || trimmed.index.links.contains_key(path))
    };
    let directories = recording.directories.into_iter().filter(wanted).collect();
    trimmed.directories = directories;
    trimmed.index.absent =
        recording.index.absent.into_iter().filter(|(path, _)| processes.path(path)).collect();
    trimmed
}

/// The processes in the snapshot.
struct Processes {
    shown: BTreeSet<u32>,
    /// Processes whose descriptors only their owners may list: they are reported, because they may have hidden sockets.
    hidden: BTreeSet<u32>,
    /// `socket:[INODE]` of every UDP socket.
    sockets: BTreeSet<String>,
}

impl Processes {
    fn of(recording: &Recording, snapshot: &Snapshot) -> Self {
        let mut shown: BTreeSet<u32> = snapshot.sockets.processes.iter().map(|process| process.pid).collect();
        shown.extend(snapshot.actors.list.iter().filter_map(|actor| actor.pid));
        shown.extend(recording.texts.iter().filter_map(|(path, name)| {
            let telling = path.ends_with("/comm") && kernel::is_telling(name.trim_end());
            pid(path).filter(|_| telling)
        }));
        let hidden = recording.index.absent.iter().filter_map(|(path, why)| {
            let fd = path.ends_with("/fd") && matches!(why, udpath_host::Absence::NotPermitted { .. });
            pid(path).filter(|_| fd)
        });
        let sockets =
            snapshot.sockets.list.iter().map(|socket| format!("socket:[{}]", socket.inode)).collect();
        Self { hidden: hidden.collect(), shown, sockets }
    }

    /// Does the path belong to no process, or to one that is shown or may hide sockets?
    fn path(&self, path: &str) -> bool {
        pid(path).is_none_or(|pid| self.shown.contains(&pid) || self.hidden.contains(&pid))
    }

    fn link(&self, path: &str, target: &str) -> bool {
        self.path(path) && (!path.contains("/fd/") || self.sockets.contains(target))
    }

    /// The part of a file that is used.
    fn text(&self, path: &str, text: String) -> Option<String> {
        if !self.path(path) {
            return None;
        }
        if let Some(of) = pid(path).filter(|of| !self.shown.contains(of)) {
            return path.ends_with(&format!("/{of}/comm")).then(|| "other\n".to_owned());
        }
        Some(match path {
            "/proc/cmdline" => kernel::parameters(&text).join(" ") + "\n",
            "/proc/self/mountinfo" => lines(&text, |line| line.contains(" - cgroup")),
            _ if path.starts_with("/proc/") && path.ends_with("/status") => {
                lines(&text, |line| STATUS.iter().any(|start| line.starts_with(start)))
            }
            _ if path.starts_with("/proc/") || path.starts_with("/sys/") => text,
            _ => return actors::used(path, &text),
        })
    }
}

fn lines(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    text.split_inclusive('\n').filter(|line| wanted(line)).collect()
}

/// The process a file belongs to.
fn pid(path: &str) -> Option<u32> {
    path.strip_prefix("/proc/")?.split('/').next()?.parse().ok()
}
