//! A machine that is not there: several memory nodes, many CPUs, NICs with many queues, booted from a Debian kernel under
//! an emulator. Settings, counters, drivers and topology in it are real; timings mean nothing.
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
//!        a folder of the caller's   <──────── 9p, at /out ──────────┘
//! ```
//!
//! # What could be left behind
//! Nothing on disk: the initramfs is memory, the streams are pipes. The emulator lives in a machine of a [`Lab`] and is
//! killed with the thread that started it; taps go with the machine's namespace, and that is found and removed like
//! every lab's, by the next one if this process is killed.

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

/// Most CPUs: with more, q35 wants an interrupt remapper.
pub const MAX_VM_CPUS: u32 = 255;
/// Most nodes. The kernel would take more; nobody has them.
pub const MAX_VM_NODES: u32 = 8;
/// Most queues of the virtio-net: those of a tap (`MAX_TAP_QUEUES` of drivers/net/tun.c).
pub const MAX_VM_QUEUES: u32 = 256;
/// Memory of the machine beside what its files need, MiB. With less than half of it 20 CPUs do not come up; more costs
/// nothing until it is touched.
const MEMORY: u64 = 1024;
/// Memory per byte of the initramfs: itself, unpacked, and as much again because the kernel gives that file system half
/// of what there is.
const PER_FILE_BYTE: u64 = 3;
/// Name of the lab machine that the emulator runs in.
const HOST: &str = "host";
/// How long the emulator may take to make its taps. It does so before anything else; too low fails on a busy machine,
/// too high tells late what qemu could not do.
const TAPS: Duration = Duration::from_secs(20);
/// Pause between two looks at the emulator: whether it ended, whether the caller wants it to end. Boots take many
/// seconds, so a twentieth of one is not noticed, and looking costs microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What an emulated machine shall be. The default is the machine of a 10 GbE server: 20 CPUs in two nodes, 16 queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSpec {
    /// CPUs, 1 to [`MAX_VM_CPUS`], a multiple of `nodes`.
    pub cpus: u32,
    /// Memory nodes, 1 to [`MAX_VM_NODES`]. The CPUs are dealt out in order: node 0 has the first ones.
    pub nodes: u32,
    /// Receive and transmit queues of `eth0`, 1 to [`MAX_VM_QUEUES`].
    pub queues: u32,
    /// Files of this machine, and where they are in the other: `/files` is first in PATH. The libraries of programs come
    /// along.
    pub files: Vec<(PathBuf, String)>,
    /// A folder of this machine that is `/out` there, to be written to.
    pub share: Option<PathBuf>,
    /// Where a kernel package is unpacked; none for where scripts/setup.sh does it.
    pub kernel: Option<PathBuf>,
    /// How long it may run, boot included.
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
            kernel: None,
            within: Duration::from_secs(300),
        }
    }
}

impl VmSpec {
    /// Takes a program or another file along, as `/files/NAME`.
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
        // The emulator would find out late, and without the name.
        let Some(folder) = &self.share else { return Ok(()) };
        let failed = |cause| VmError::File { what: "share", path: folder.clone(), cause };
        if !folder.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        Ok(())
    }

    /// Boots it. `command` runs once it is up, from `/files` or busybox's tools; when it ends the machine goes off.
    ///
    /// # Errors
    /// The description makes no machine, something is not installed, or the emulator does not start.
    pub fn boot(&self, command: &[OsString]) -> Result<Vm, VmError> {
        self.check()?;
        let deadline = Instant::now() + self.within;
        let program = installed(PROGRAM)
            .ok_or(VmError::NotInstalled { program: PROGRAM, package: "qemu-system-x86" })?;
        let kernel = Kernel::find(self.kernel.as_deref().unwrap_or(Path::new(kernel::CACHE)))?;
        let share_modules: &[&str] = if self.share.is_some() { &qemu::SHARE_MODULES } else { &[] };
        let modules = kernel.modules(&[&qemu::MODULES[..], share_modules].concat())?;
        let (initramfs, size) = initramfs::build(&initramfs::Contents {
            modules: &modules,
            files: &self.files,
            command,
            shares_folder: self.share.is_some(),
        })?;
        // A multiple of the nodes: each gets the same.
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
        let mut vm = Vm { emulator, streams, within: self.within, deadline, lab };
        vm.set_up_taps()?;
        Ok(vm)
    }
}

/// Reading ends of what comes out of the machine.
struct Streams {
    console: File,
    stdout: File,
    stderr: File,
    code: File,
}

/// An emulated machine, running. Dropping it switches it off.
pub struct Vm {
    // Dropped in this order: the emulator, then what it runs in.
    emulator: Emulator,
    streams: Streams,
    within: Duration,
    deadline: Instant,
    lab: Lab,
}

impl Vm {
    /// The other side of its links: run programs there that talk to it. Interface `vmK` leads to its `ethK`.
    ///
    /// # Panics
    /// Never: every one has it.
    #[must_use]
    pub fn host(&self) -> &Machine {
        self.lab.machine(HOST).expect("it is made with this machine")
    }

    /// The machine's address on link `link`, 0 to 2.
    #[must_use]
    pub fn address(link: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, link, 2)
    }

    /// Waits for the command's end, hands on what it writes, and gives its exit code (128 and the signal's number if a
    /// signal ended it). Nothing of the machine is left afterwards.
    ///
    /// # Errors
    /// The kernel panicked, the time ran out, `stop` was set, or the emulator gave up. What is written cannot be handed
    /// on: the machine is switched off then.
    pub fn finish(
        self,
        out: &mut (dyn Write + Send),
        err: &mut (dyn Write + Send),
        stop: &AtomicBool,
    ) -> Result<u8, VmError> {
        let Self { mut emulator, streams, within, deadline, lab } = self;
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
            Cut::Deadline => VmError::Deadline { seconds: within.as_secs(), lines },
            Cut::No { .. } if tail.panicked() => VmError::Panicked { lines },
            Cut::No { failed: true } => VmError::Emulator { words: said.sentence() },
            Cut::No { failed: false } => VmError::WentOff { lines },
        })
    }

    /// Waits until the emulator has made its taps, and gives them their addresses.
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
        // Both fail only when it has ended and is reaped.
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
    /// By itself: the machine went off, or it failed.
    No {
        failed: bool,
    },
    Deadline,
    Stopped,
}

/// Until the emulator has ended, by itself or by force.
fn wait(emulator: &mut Emulator, deadline: Instant, stop: impl Fn() -> bool) -> Cut {
    let cut = loop {
        match emulator.0.try_wait() {
            Ok(None) if stop() => break Cut::Stopped,
            Ok(None) if Instant::now() >= deadline => break Cut::Deadline,
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
            // It cannot be an error: it is our child and nobody else reaps it.
            ended => break Cut::No { failed: !matches!(ended, Ok(Some(status)) if status.success()) },
        }
    };
    emulator.switch_off();
    cut
}

/// Copies as it comes, until the machine is off. After a failure the machine is to be switched off.
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

/// Where a program is: in PATH, or where administrators' programs are.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(usual);
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
}
