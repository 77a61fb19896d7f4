//! Emulated hardware: several memory nodes, many CPUs, NICs with many queues, booted with a Debian kernel under an
//! emulator. Settings, counters, drivers and topology are real; timings are meaningless.
//!
//! ```text
//!  lab machine `host` (a network namespace)          emulated machine: 20 CPUs in 2 nodes, 16 queues
//!  +----------------------------------------+        +---------------------------------------------+
//!  | vm0 10.0.0.1/24  a tap of 16 queues ===|========|=== eth0 10.0.0.2/24  virtio-net, RSS, node 1 |
//!  | vm1 10.0.1.1/24 =======================|========|=== eth1 10.0.1.2/24  vmxnet3                 |
//!  | vm2 10.0.2.1/24 =======================|========|=== eth2 10.0.2.2/24  e1000e                  |
//!  | qemu                                   |        |    init.sh -> modules -> the caller's command |
//!  +----------------------------------------+        +---------------------------------------------+
//!        stdout, stderr, exit code  <──────── virtio-serial ────────┘
//!        a shared folder            <──────── 9p, at /out ──────────┘
//! ```
//!
//! # What could be left behind
//! Nothing on disk: the initramfs is in memory, the streams are pipes. The emulator runs in a machine of a [`Lab`]
//! and is killed with the thread that started it; taps disappear with the machine's namespace. If this process is
//! killed, the next lab finds and removes that namespace, as for every lab.

mod console;
mod cpio;
mod error;
mod initramfs;
mod kernel;
mod libraries;
mod qemu;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::pipe::PipeFlags;

pub use error::VmError;

use console::Tail;
use kernel::Kernel;
use qemu::{Descriptors, LINKS, PROGRAM};
use udpath_lab::{Lab, LabBuilder, Machine, pass_on};

/// Maximum number of CPUs: with more, q35 needs an interrupt remapper.
pub const MAX_VM_CPUS: u32 = 255;
/// Maximum number of nodes. The kernel supports more; real machines do not have them.
pub const MAX_VM_NODES: u32 = 8;
/// Maximum number of virtio-net queues: that of a tap (`MAX_TAP_QUEUES` of drivers/net/tun.c).
pub const MAX_VM_QUEUES: u32 = 256;
/// Memory of the machine beyond what its files need, MiB. With less than half of it 20 CPUs do not come up; more
/// costs nothing until it is touched.
const MEMORY: u64 = 1024;
/// Memory per byte of the initramfs: the image, its unpacked copy, and the same again because the kernel limits that
/// file system to half of the memory.
const PER_FILE_BYTE: u64 = 3;
/// Name of the lab machine that the emulator runs in.
const HOST: &str = "host";
/// Time limit for the emulator to create its taps, which it does first. Too low fails on a busy machine; too high
/// delays the report of a qemu failure.
const TAPS: Duration = Duration::from_secs(20);
/// Interval between checks whether the emulator has exited or the caller wants to stop. Boots take many seconds,
/// so 50 ms are not noticeable, and a check costs microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Description of an emulated machine. The default resembles a 10 GbE server: 20 CPUs in two nodes, 16 queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSpec {
    /// CPUs, 1 to [`MAX_VM_CPUS`], a multiple of `nodes`.
    pub cpus: u32,
    /// Memory nodes, 1 to [`MAX_VM_NODES`]. The CPUs are assigned in order: node 0 has the first ones.
    pub nodes: u32,
    /// Receive and transmit queues of `eth0`, 1 to [`MAX_VM_QUEUES`].
    pub queues: u32,
    /// Host files and their paths in the machine: `/files` is first in PATH. The libraries of programs are included.
    pub files: Vec<(PathBuf, String)>,
    /// A host directory that the machine mounts as `/out`, writable.
    pub share: Option<PathBuf>,
    /// Modules of the kernel to load, besides the drivers of its devices: it has no modprobe.
    pub modules: &'static [&'static str],
    /// Where a kernel package is unpacked; none for the default of scripts/setup.sh.
    pub kernel: Option<PathBuf>,
    /// Time limit, boot included.
    pub within: Duration,
}

impl Default for VmSpec {
    fn default() -> Self {
        Self {
            cpus: 20,
            nodes: 2,
            queues: 16,
            files: Vec::new(),
            share: None,
            modules: &[],
            kernel: None,
            // A hung machine ends; a busy host may take several times the two minutes of the longest script.
            within: Duration::from_secs(900),
        }
    }
}

impl VmSpec {
    /// Adds a program or another file, as `/files/NAME`.
    #[must_use]
    pub fn file(mut self, path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        self.files.push((path.to_owned(), format!("/files/{name}")));
        self
    }

    fn check(&self) -> Result<(), VmError> {
        let Self { cpus, nodes, queues, .. } = *self;
        let wrong = |sentence: String| Err(VmError::Spec(sentence));
        if !(1..=MAX_VM_CPUS).contains(&cpus) {
            return wrong(format!(
                "{cpus} CPUs are not possible in an emulated machine; use 1 to {MAX_VM_CPUS}"
            ));
        }
        if !(1..=MAX_VM_NODES).contains(&nodes) || !cpus.is_multiple_of(nodes) {
            return wrong(format!(
                "{nodes} nodes are not possible with {cpus} CPUs; use 1 to {MAX_VM_NODES}, each with as many CPUs as \
                 the others"
            ));
        }
        if !(1..=MAX_VM_QUEUES).contains(&queues) {
            return wrong(format!(
                "{queues} queues are not possible in an emulated machine; use 1 to {MAX_VM_QUEUES}"
            ));
        }
        // The emulator would report this late, and without the name.
        let Some(folder) = &self.share else { return Ok(()) };
        let failed = |cause| VmError::File { what: "share", path: folder.clone(), cause };
        if !folder.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        Ok(())
    }

    /// Boots it. `command` runs once it is up, from `/files` or busybox's tools; when it exits, the machine powers
    /// off.
    ///
    /// # Errors
    /// The description is invalid, something is not installed, or the emulator does not start.
    pub fn boot(&self, command: &[OsString]) -> Result<Vm, VmError> {
        self.check()?;
        self.boot_by(Instant::now() + self.within, command)
    }

    /// Boots it; it may run until `deadline`.
    fn boot_by(&self, deadline: Instant, command: &[OsString]) -> Result<Vm, VmError> {
        let again = Again { spec: self.clone(), command: command.to_vec() };
        let program = installed(PROGRAM)
            .ok_or(VmError::NotInstalled { program: PROGRAM, package: "qemu-system-x86" })?;
        let kernel = Kernel::find(self.kernel.as_deref().unwrap_or(Path::new(kernel::CACHE)))?;
        let share_modules: &[&str] = if self.share.is_some() { &qemu::SHARE_MODULES } else { &[] };
        let modules = kernel.modules(&[&qemu::MODULES[..], share_modules, self.modules].concat())?;
        let (initramfs, size) = initramfs::build(&initramfs::Contents {
            modules: &modules,
            files: &self.files,
            command,
            shares_folder: self.share.is_some(),
        })?;
        // A multiple of the nodes, so that each gets the same amount.
        let memory = (MEMORY + PER_FILE_BYTE * size.div_ceil(1 << 20)).next_multiple_of(self.nodes.into());

        static MACHINES: AtomicU32 = AtomicU32::new(0);
        let lab = LabBuilder::new(format!("vm{}", MACHINES.fetch_add(1, Ordering::Relaxed)));
        let lab = lab.machine(HOST).up()?;
        let ([console, stdout, stderr, code], write) = pipes(initramfs)?;
        let mut command = lab.machine(HOST)?.command(program);
        command.args(qemu::arguments(self, &kernel.image, memory, &write));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let Descriptors { initramfs, console: c, stdout: o, stderr: e, code: x } = write;
        pass_on(&mut command, vec![initramfs, c, o, e, x]);
        let emulator = Emulator(lab.spawn(command)?);
        let streams = Streams { console, stdout, stderr, code };
        let mut vm = Vm { emulator, streams, deadline, lab, again };
        vm.set_up_taps()?;
        Ok(vm)
    }
}

/// Read ends of the machine's output streams.
struct Streams {
    console: File,
    stdout: File,
    stderr: File,
    code: File,
}

/// A running emulated machine. Dropping it powers it off.
pub struct Vm {
    // Dropped in this order: the emulator, then the lab it runs in.
    emulator: Emulator,
    streams: Streams,
    deadline: Instant,
    lab: Lab,
    again: Again,
}

/// What a second boot needs.
#[derive(Clone)]
struct Again {
    spec: VmSpec,
    command: Vec<OsString>,
}

impl Vm {
    /// The other end of its links, for programs that talk to the machine. Interface `vmK` leads to its `ethK`.
    ///
    /// # Panics
    /// Never: every VM has one.
    #[must_use]
    pub fn host(&self) -> &Machine {
        self.lab.machine(HOST).expect("it is made with this machine")
    }

    /// The machine's address on link `link`, 0 to 2.
    #[must_use]
    pub fn address(link: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, link, 2)
    }

    /// Waits for the command to exit, forwards its output, and returns its exit code (128 plus the signal number if a
    /// signal ended it). Nothing of the machine is left afterwards.
    ///
    /// If the kernel panics before its first process, the machine is booted a second time: nothing of the caller's has
    /// run then, and the emulator is the likely cause (under load, qemu 7.2 has a double fault in one of some hundred
    /// boots).
    ///
    /// # Errors
    /// The kernel panicked, the time limit expired, `stop` was set, the emulator failed, or the output could not be
    /// forwarded (the machine is powered off then).
    pub fn finish(
        self,
        out: &mut (dyn Write + Send),
        err: &mut (dyn Write + Send),
        stop: &AtomicBool,
    ) -> Result<u8, VmError> {
        let (deadline, Again { spec, command }) = (self.deadline, self.again.clone());
        match self.end(out, err, stop) {
            Err(VmError::NotBooted { .. }) => spec.boot_by(deadline, &command)?.end(out, err, stop),
            ended => ended,
        }
    }

    /// [`finish`](Self::finish) of one boot.
    fn end(
        self,
        out: &mut (dyn Write + Send),
        err: &mut (dyn Write + Send),
        stop: &AtomicBool,
    ) -> Result<u8, VmError> {
        let Self { mut emulator, streams, deadline, lab, again } = self;
        let Streams { console, stdout, stderr, mut code } = streams;
        let words = emulator.0.stderr.take();
        let broken = AtomicBool::new(false);
        let (cut, ended, tail, said, handed_on) = std::thread::scope(|scope| {
            let console = scope.spawn(|| Tail::read(console));
            let words = scope.spawn(|| words.map_or_else(Tail::default, Tail::read));
            let code = scope.spawn(move || {
                let mut text = String::new();
                code.read_to_string(&mut text).map(|_| text).unwrap_or_default()
            });
            let (broken, stop) = (&broken, stop);
            let out = scope.spawn(move || hand_on(stdout, out, broken));
            let err = scope.spawn(move || hand_on(stderr, err, broken));
            let cut = wait(&mut emulator, deadline, || {
                stop.load(Ordering::Relaxed) || broken.load(Ordering::Relaxed)
            });
            let ended = joined(code);
            let handed_on = joined(out).and(joined(err));
            (cut, ended, joined(console), joined(words), handed_on)
        });
        lab.down()?;
        handed_on.map_err(VmError::Output)?;
        if let Ok(code) = ended.trim().parse() {
            return Ok(code);
        }
        let lines = tail.text();
        Err(match cut {
            Cut::Stopped => VmError::Stopped,
            Cut::Deadline => VmError::Deadline { seconds: again.spec.within.as_secs(), lines },
            Cut::No { .. } if tail.panicked() && !tail.started() => VmError::NotBooted { lines },
            Cut::No { .. } if tail.panicked() => VmError::Panicked { lines },
            Cut::No { failed: true } => VmError::Emulator { words: said.sentence() },
            Cut::No { failed: false } => VmError::WentOff { lines },
        })
    }

    /// Waits until the emulator has created its taps, and assigns their addresses.
    fn set_up_taps(&mut self) -> Result<(), VmError> {
        let deadline = Instant::now() + TAPS;
        for link in 0..LINKS {
            let tap = qemu::tap(link);
            while !self.host().adopt(&tap, IpAddr::V4(Ipv4Addr::new(10, 0, link, 1)))? {
                let ended = matches!(self.emulator.0.try_wait(), Ok(Some(_)) | Err(_));
                if ended || Instant::now() > deadline {
                    self.emulator.switch_off();
                    let words = self.emulator.0.stderr.take().map_or_else(Tail::default, Tail::read);
                    return Err(VmError::Emulator { words: words.sentence() });
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }
}

/// The emulator's process; ended when dropped.
struct Emulator(Child);

impl Emulator {
    fn switch_off(&mut self) {
        // Both fail only if it has exited and been reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.switch_off();
    }
}

/// How the emulator ended.
enum Cut {
    /// Not cut: the machine powered off, or the emulator failed.
    No {
        failed: bool,
    },
    Deadline,
    Stopped,
}

/// Waits until the emulator exits, or kills it.
fn wait(emulator: &mut Emulator, deadline: Instant, stop: impl Fn() -> bool) -> Cut {
    let cut = loop {
        match emulator.0.try_wait() {
            Ok(None) if stop() => break Cut::Stopped,
            Ok(None) if Instant::now() >= deadline => break Cut::Deadline,
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
            // This cannot fail: it is our child and only this code reaps it.
            ended => break Cut::No { failed: !matches!(ended, Ok(Some(status)) if status.success()) },
        }
    };
    emulator.switch_off();
    cut
}

/// Copies output as it arrives, until the machine is off. On failure the machine must be powered off.
fn hand_on(mut from: File, to: &mut (dyn Write + Send), broken: &AtomicBool) -> io::Result<()> {
    let copied = io::copy(&mut from, to).and_then(|_| to.flush());
    if copied.is_err() {
        broken.store(true, Ordering::Relaxed);
    }
    copied
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn pipes(initramfs: OwnedFd) -> Result<([File; 4], Descriptors), VmError> {
    let pipe = || {
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map(|(read, write)| (File::from(read), write))
            .map_err(|cause| VmError::System { what: "make a pipe", cause: cause.into() })
    };
    let [(console_read, console), (stdout_read, stdout), (stderr_read, stderr), (code_read, code)] =
        [pipe()?, pipe()?, pipe()?, pipe()?];
    let write = Descriptors { initramfs, console, stdout, stderr, code };
    Ok(([console_read, stdout_read, stderr_read, code_read], write))
}

/// Path of a program: in PATH, or in the administrators' directories.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(usual);
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
}
