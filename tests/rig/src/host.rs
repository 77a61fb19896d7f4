//! Host state that a run must leave unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use crate::{POLL_INTERVAL, TIMEOUT};

/// The state of the machine at one moment, as far as a run could change it.
#[derive(Debug)]
pub struct Host {
    interfaces: BTreeSet<String>,
    programs: BTreeSet<u32>,
}

impl Host {
    /// Reads the current state, in the calling thread's network namespace.
    ///
    /// # Panics
    /// The BPF programs cannot be listed: run as root.
    #[must_use]
    pub fn now() -> Self {
        Self { interfaces: interfaces(), programs: programs() }
    }

    /// Waits until everything new since then that belongs, or may belong, to the processes `pids` is gone. All of
    /// them have exited.
    ///
    /// # Panics
    /// Something is left behind.
    pub fn is_as_before(&self, pids: &[u32]) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = self.left_by(pids);
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind: {}", left.join(", "));
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn left_by(&self, pids: &[u32]) -> Vec<String> {
        let mut left = named(pids);
        let added = interfaces().into_iter().filter(|name| !self.interfaces.contains(name));
        left.extend(added.map(|name| format!("interface {name}")));
        let gone = self.interfaces.iter().filter(|name| !interfaces().contains(*name));
        left.extend(gone.map(|name| format!("interface {name} is gone")));
        let new: Vec<u32> = programs().difference(&self.programs).copied().collect();
        if !new.is_empty() {
            // Another user's program is held by one of their processes. The run's processes have exited, and
            // only they held theirs.
            let held = held_programs();
            left.extend(new.iter().filter(|id| !held.contains(id)).map(|id| format!("BPF program {id}")));
        }
        left
    }
}

/// Namespaces and records whose names contain one of `pids`.
#[must_use]
pub fn named(pids: &[u32]) -> Vec<String> {
    let is_ours = |name: &str, prefix: &str| {
        let digits: String =
            name.strip_prefix(prefix).unwrap_or("").chars().take_while(char::is_ascii_digit).collect();
        digits.parse().is_ok_and(|pid| pids.contains(&pid))
    };
    let mut found = Vec::new();
    for (folder, prefix) in [("/run/netns", "udpath-"), ("/run/udpath/lab", "")] {
        // Either directory may be missing.
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.extend(names.filter(|name| is_ours(name, prefix)).map(|name| {
            let path: PathBuf = [folder, &name].iter().collect();
            path.display().to_string()
        }));
    }
    found
}

fn interfaces() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").expect("sysfs is mounted");
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Ids of the loaded BPF programs. A program that is unloaded while they are listed yields an error, and is skipped.
fn programs() -> BTreeSet<u32> {
    assert!(rustix::process::geteuid().is_root(), "BPF programs cannot be listed: run as root");
    aya::programs::loaded_programs().flatten().map(|program| program.id()).collect()
}

/// Ids of the programs that a living process holds, directly or through a link.
fn held_programs() -> BTreeSet<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let folders = processes.flatten().map(|process| process.path().join("fdinfo"));
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flat_map(Iterator::flatten);
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts
        .flat_map(|text| {
            let ids = text.lines().filter_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
            ids.collect::<Vec<u32>>()
        })
        .collect()
}
