//! Machines to test on, as captured folders.
//!
//! A machine is described by the few things in which it differs from others: CPUs, nodes, kernel, interfaces, sockets.
//! [`Machine::write`] generates the files of procfs and sysfs and the kernel's answers from them, in the format of that
//! kernel; then it copies the contents of `fixtures/made-up/NAME` over them: texts from a real machine of this kind.
//! The sources are listed in `fixtures/made-up/NAME/NOTES.md`.
//!
//! ```text
//!  list.rs       the machines
//!  big.rs        one of any size
//!  processors.rs proc/stat, cpuinfo, sys/devices/system/{cpu,node}
//!  network.rs    sys/class/net, udpath/*.json
//!  counters.rs   proc/interrupts, irq, softirqs, net/*, sys/net
//!  processes.rs  proc/PID, net/udp
//! ```
#![allow(unreachable_pub, reason = "the benchmark of the snapshot includes this module too")]

pub mod big;
mod counters;
pub mod list;
mod network;
mod processes;
mod processors;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use udpath_steer::CpuSet;

/// A machine.
pub struct Machine {
    /// Its name, and that of its folder of real texts.
    pub name: &'static str,
    /// The kernel's release.
    pub release: &'static str,
    /// Number of CPUs.
    pub cpus: u32,
    /// Those that are offline.
    pub offline: CpuSet,
    /// CPUs of each node; empty for a kernel without NUMA.
    pub nodes: Vec<CpuSet>,
    /// Threads per core: 1 or 2. The second thread of CPU n is CPU n + half of all.
    pub threads: u32,
    /// Vendor and product from DMI.
    pub platform: (&'static str, &'static str),
    /// The processor's model name.
    pub model: &'static str,
    /// Its interfaces, without the loopback.
    pub interfaces: Vec<Interface>,
    /// Its processes with UDP sockets.
    pub servers: Vec<Server>,
    /// Whether it is seen from within a network namespace: the host's settings are hidden.
    pub namespace: bool,
}

/// A network interface.
#[derive(Default)]
pub struct Interface {
    pub name: &'static str,
    /// Its index; the loopback is 1.
    pub index: u32,
    /// As rtnetlink names it; `None` for a device.
    pub kind: Option<&'static str>,
    /// Driver, bus address, node. `None` for a software device.
    pub device: Option<Device>,
    /// Number of queues.
    pub rx: u32,
    pub tx: u32,
    /// Its interrupts.
    pub irqs: Vec<Irq>,
    /// RPS masks of receive queues, as written.
    pub rps: Vec<(u32, &'static str)>,
    /// The interface it is enslaved to, and the one below it, by index.
    pub master: Option<u32>,
    pub below: Option<u32>,
    pub vlan: Option<u16>,
    /// The kernel's answers: question name and answer.
    pub answers: Vec<(&'static str, Value)>,
}

/// The device of an interface.
pub struct Device {
    pub driver: &'static str,
    /// `0000:81:00.0`, or `virtio2`, whose interrupts are those of the PCI device above it.
    pub bus: &'static str,
    pub node: i32,
}

/// An interrupt.
pub struct Irq {
    pub number: u32,
    pub name: String,
    pub affinity: CpuSet,
    pub hint: Option<CpuSet>,
    pub count: u32,
}

/// A process with UDP sockets.
pub struct Server {
    pub pid: u32,
    pub name: &'static str,
    pub executable: &'static str,
    pub group: String,
    pub uid: u32,
    pub threads: u32,
    /// Range of its sockets' inodes, all on one port: a reuseport group if there are several.
    pub inodes: std::ops::Range<u32>,
    pub port: u16,
    pub drops: u32,
}

/// A folder for a machine, removed on drop; in memory if possible: it contains thousands of small files.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Machine {
    /// Writes it to an empty folder.
    pub fn write(&self, folder: &Path) {
        let tree = Tree { root: folder.to_owned() };
        tree.file("proc/sys/kernel/osrelease", self.release);
        tree.file("sys/class/dmi/id/sys_vendor", self.platform.0);
        tree.file("sys/class/dmi/id/product_name", self.platform.1);
        processors::write(self, &tree);
        network::write(self, &tree);
        counters::write(self, &tree);
        processes::write(self, &tree);
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/made-up").join(self.name);
        for part in ["proc", "sys", "udpath"] {
            tree.copy(&real.join(part), Path::new(part));
        }
    }

    /// Online CPUs.
    pub fn online(&self) -> CpuSet {
        CpuSet::first_n(self.cpus).difference(&self.offline)
    }

    /// Major and minor number of the kernel.
    pub fn version(&self) -> (u32, u32) {
        let mut numbers = self.release.split(['.', '-']).map(|part| part.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// A mask in this machine's format.
    pub fn mask(&self, set: &CpuSet) -> String {
        set.to_mask_of(self.cpus)
    }
}

/// A folder being filled. Only ever below a folder owned by the test.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Creates a file with one text; a newline is appended, as the kernel does.
    pub(crate) fn file(&self, path: impl AsRef<Path>, text: impl AsRef<str>) {
        let text = text.as_ref();
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        let path = self.made(path);
        fs::write(path, format!("{text}{end}")).unwrap();
    }

    /// A symbolic link.
    pub(crate) fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        symlink(target, self.made(path)).unwrap();
    }

    /// An answer of the kernel. `from`: in the form of a serialised provenance.
    pub(crate) fn answer(&self, question: &str, value: &Value, from: &Value) {
        let text = json!({ "value": value, "from": from }).to_string();
        self.file(format!("udpath/{question}.json"), text);
    }

    /// Copies a folder, if it exists, to `to` in this tree.
    fn copy(&self, from: &Path, to: &Path) {
        let Ok(entries) = fs::read_dir(from) else { return };
        for entry in entries {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                self.copy(&entry.path(), &to);
            } else {
                fs::copy(entry.path(), self.made(&to)).unwrap();
            }
        }
    }

    /// A path in the tree, after creating its parent.
    fn made(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}
