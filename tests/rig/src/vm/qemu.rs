//! The emulator's command line for a machine.
//!
//! ```text
//! root bus (node -1) ── eth1 vmxnet3, eth2 e1000e, virtio-serial, virtio-9p
//! bus of the last node ── eth0 virtio-net, N queues, RSS        each ethK is the tap vmK in the machine `host`
//! ```

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::VmSpec;

/// The emulator.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";
/// Drivers for the devices of [`arguments`] and of a server. Most are built into no kernel; Linux 6.1 of Debian has
/// even the one of virtio's PCI devices as a module.
pub(super) const MODULES: [&str; 8] =
    ["virtio_pci", "virtio_console", "virtio_net", "vmxnet3", "e1000e", "sch_fq", "veth", "8021q"];
/// Drivers of the shared folder.
pub(super) const SHARE_MODULES: [&str; 2] = ["9pnet_virtio", "9p"];
/// The kernel's command line.
///
/// - `panic=-1`: a panic reboots the machine at once, and `-no-reboot` turns that into the
///   emulator's exit.
/// - `loglevel=6`: notices, so that a failed boot shows how far it got; more costs time.
/// - `mitigations=off nokaslr no_timer_check`: slow under an emulator, and there is nothing to protect here.
/// - `tsc=reliable`: the CPUs' counter is a clock source beside those of the board, which Linux else gives up on a
///   machine of several sockets.
/// - `lpj`: loops per jiffy, for short delays. Setting it spares each CPU a calibration of 0.1 s.
const PARAMETERS: &str =
    "console=ttyS0 loglevel=6 panic=-1 mitigations=off nokaslr no_timer_check lpj=4000000 tsc=reliable";
/// Runs all CPUs in turn on one host thread. With a thread each (`thread=multi`), qemu before 8.1 translates code
/// while another CPU writes to it, and keeps the stale translation: a kernel that switches a static key then hits its
/// temporary breakpoint ("Oops: int3", in one of fifteen boots with traffic). Debian 12 has 7.2; "accel/tcg: Always
/// lock pages before translation" fixes it. One thread also takes half the host's CPU time.
const ACCELERATOR: &str = "tcg,thread=single";
/// Number of interfaces, each with a tap.
pub(super) const LINKS: u8 = 3;
/// Models of the other interfaces; the first is virtio-net.
const OTHERS: [&str; 2] = ["vmxnet3", "e1000e"];
/// First bus number below the last node's host bridge. Any number above the root bus's; that has a dozen devices.
const FAR_BUS: u32 = 64;

/// Descriptors that the emulator writes to, and that of the initramfs.
pub(super) struct Descriptors {
    pub(super) initramfs: OwnedFd,
    pub(super) console: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) code: OwnedFd,
}

/// Name of the tap of `eth{link}`.
pub(super) fn tap(link: u8) -> String {
    format!("vm{link}")
}

/// The command line. `memory`: MiB.
pub(super) fn arguments(spec: &VmSpec, image: &Path, memory: u64, fds: &Descriptors) -> Vec<OsString> {
    let mut line = Line::default();
    // No default devices, so that the machine is the same everywhere. KVM is not used: it may be nested and hang,
    // and timings are meaningless here anyway.
    line.words(&["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"]);
    line.words(&["-accel", ACCELERATOR, "-machine", "q35", "-cpu", "max"]);
    let VmSpec { cpus, nodes, queues, .. } = *spec;
    let per_node = cpus / nodes;
    line.option("-smp", format!("{cpus},sockets={nodes},cores={per_node},threads=1"));
    line.option("-m", format!("{memory}M"));
    for node in 0..nodes {
        let (first, last) = (node * per_node, (node + 1) * per_node - 1);
        let size = memory / u64::from(nodes);
        line.option("-object", format!("memory-backend-ram,id=memory{node},size={size}M"));
        line.option("-numa", format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}"));
    }
    line.option("-kernel", escaped(image));
    line.option("-initrd", format!("/dev/fd/{}", fds.initramfs.as_raw_fd()));
    line.option("-append", PARAMETERS);

    line.option("-chardev", file("console", &fds.console));
    line.words(&["-serial", "chardev:console", "-device", "virtio-serial-pci"]);
    for (number, (name, fd)) in
        (1..).zip([("stdout", &fds.stdout), ("stderr", &fds.stderr), ("code", &fds.code)])
    {
        line.option("-chardev", file(name, fd));
        line.option("-device", format!("virtserialport,chardev={name},name={name},nr={number}"));
    }
    if let Some(folder) = &spec.share {
        let mut share = OsString::from("local,id=out,security_model=none,path=");
        share.push(escaped(folder));
        line.option("-fsdev", share);
        line.words(&["-device", "virtio-9p-pci,fsdev=out,mount_tag=out"]);
    }

    let bus = if nodes > 1 {
        let node = nodes - 1;
        line.option("-device", format!("pxb-pcie,id=far,bus_nr={FAR_BUS},numa_node={node},bus=pcie.0"));
        line.words(&["-device", "pcie-root-port,id=far0,bus=far,chassis=1"]);
        "far0"
    } else {
        "pcie.0"
    };
    line.option("-netdev", format!("{},queues={queues}", netdev(0)));
    // One vector per queue and direction, one for the control queue, one for configuration changes.
    let vectors = 2 * queues + 2;
    line.option(
        "-device",
        format!("virtio-net-pci,bus={bus},{},mq=on,rss=on,hash=on,vectors={vectors}", nic(0)),
    );
    for (link, model) in (1..).zip(OTHERS) {
        line.option("-netdev", netdev(link));
        line.option("-device", format!("{model},bus=pcie.0,{}", nic(link)));
    }
    line.0
}

fn netdev(link: u8) -> String {
    format!("tap,id=net{link},ifname={},script=no,downscript=no", tap(link))
}

fn nic(link: u8) -> String {
    format!("netdev=net{link},mac=02:75:64:76:6d:{link:02x}")
}

fn file(name: &str, fd: &OwnedFd) -> String {
    format!("file,id={name},path=/dev/fd/{}", fd.as_raw_fd())
}

/// In qemu's option lists a comma is doubled.
fn escaped(path: &Path) -> OsString {
    let mut bytes = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        bytes.extend(std::iter::repeat_n(byte, if byte == b',' { 2 } else { 1 }));
    }
    OsString::from_vec(bytes)
}

#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn words(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.extend([name.into(), value.into()]);
    }
}
