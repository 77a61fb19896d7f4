//! Programs behind tun and tap interfaces: what the kernel sends there waits until a program reads it.
//!
//! ```text
//! /proc/PID/fd/N       -> /dev/net/tun       found by the pass over all processes
//! /proc/PID/fdinfo/N   iff: tun0             its interface, by its name in the namespace of the device
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Source;
use crate::processes::Scan;
use crate::text::{field, of_process};

/// A program that has a tun or tap interface open.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Tun {
    /// The interface.
    pub interface: String,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub program: String,
}

/// Those of the pass, by interface and process; one with several queues once.
pub(crate) fn read(source: &dyn Source, scan: &Scan) -> Vec<Tun> {
    let one = |(pid, fd): &(u32, u32)| {
        let text = of_process(source, &format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
        let program = scan.seen.iter().find(|seen| seen.pid == *pid)?.name.clone();
        Some(Tun { interface: field(&text, "iff")?.trim().to_owned(), pid: *pid, program })
    };
    let mut found: Vec<Tun> = scan.tuns.iter().filter_map(one).collect();
    found.sort_by(|a, b| (&a.interface, a.pid).cmp(&(&b.interface, b.pid)));
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::processes::{TUN_DEVICE, scan};
    use crate::source::Folder;

    #[test]
    fn programs_are_found_by_what_they_have_open() {
        let folder = tempfile::tempdir().unwrap();
        for (pid, name, fd, interface) in [
            (7, "openvpn", 3, "tun0"),
            (7, "openvpn", 4, "tun0"),
            (9, "qemu", 11, "tap1"),
            (11, "closed", 5, ""),
        ] {
            let process = folder.path().join(format!("proc/{pid}"));
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::create_dir_all(process.join("fdinfo")).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
            let _ = symlink(format!("/usr/bin/{name}"), process.join("exe"));
            symlink(TUN_DEVICE, process.join(format!("fd/{fd}"))).unwrap();
            // A device that is not yet attached to an interface has no such line.
            let line = if interface.is_empty() { String::new() } else { format!("iff:\t{interface}\n") };
            fs::write(process.join(format!("fdinfo/{fd}")), format!("pos:\t0\nflags:\t0104002\n{line}"))
                .unwrap();
        }
        let source = Folder::captured(folder.path());
        let found = read(&source, &scan(&source, &HashMap::from([(1, 0)])).unwrap());
        let shown: Vec<_> = found.iter().map(|tun| (&*tun.interface, tun.pid, &*tun.program)).collect();
        assert_eq!(shown, [("tap1", 9, "qemu"), ("tun0", 7, "openvpn")]);
    }
}
