//! The name servers: one worker each on CPU 1, with the same zone.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use udpath_lab::Lab;

use crate::bed::{Running, lines_of, udpath};
use crate::versus::{SERVER_CPU, UDPATH, address};

/// Port of DNS.
const PORT: u16 = 53;
/// Longest time until a server answers.
const START: Duration = Duration::from_secs(120);
/// Name of the zone's file.
const FILE: &str = "example.org.zone";

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Udpath,
    Knot,
    Nsd,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Udpath, Self::Knot, Self::Nsd];

    /// Its machine in the lab.
    pub(super) fn machine(self) -> &'static str {
        match self {
            Self::Udpath => UDPATH,
            Self::Knot => "knot",
            Self::Nsd => "nsd",
        }
    }
}

/// The address of the server on `machine`.
pub(super) fn target(lab: &Lab, machine: &str) -> Result<SocketAddr> {
    address(lab, machine, PORT)
}

/// Writes the zone `example.org` with this many names `h0`, an address each; returns its file.
pub(crate) fn write_zone(folder: &Path, names: u32) -> Result<PathBuf> {
    let mut text =
        "$ORIGIN example.org.\n$TTL 300\n@ SOA ns admin 1 2 3 4 60\n@ NS ns\nns A 192.0.2.53\n".to_owned();
    for number in 0..names {
        let [_, b, c, d] = number.to_be_bytes();
        writeln!(text, "h{number} A 10.{b}.{c}.{d}")?;
    }
    let file = folder.join(FILE);
    fs::write(&file, text).context("cannot write the zone")?;
    Ok(file)
}

/// A running server.
pub(super) struct Served(Running);

impl Served {
    /// Starts a server and waits until it answers for the zone. `xdp`: past the kernel's stack.
    pub(super) fn start(lab: &Lab, kind: Kind, folder: &Path, xdp: bool) -> Result<Self> {
        let address = target(lab, kind.machine())?;
        let own = folder.join(format!("{}-{xdp}", kind.machine()));
        let _ = fs::remove_dir_all(&own);
        fs::create_dir(&own).context("cannot create a folder for a server")?;
        let words = match kind {
            Kind::Udpath => udpath_words(folder, address, xdp)?,
            Kind::Knot => {
                fs::write(own.join("knot.conf"), knot_conf(folder, &own, address.ip(), xdp))?;
                ["knotd", "-c", &own.join("knot.conf").display().to_string()].map(String::from).into()
            }
            Kind::Nsd => {
                fs::write(own.join("nsd.conf"), nsd_conf(folder, &own, address.ip()))?;
                ["nsd", "-d", "-c", &own.join("nsd.conf").display().to_string()].map(String::from).into()
            }
        };
        let mut command = lab.machine(kind.machine())?.command("taskset");
        command.args(["-c", SERVER_CPU]).args(&words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = lab.spawn(command).with_context(|| format!("cannot start {}", words[0]))?;
        let lines = lines_of(&mut child);
        let server = Self(Running::new(child));
        let mut said = Vec::new();
        let deadline = Instant::now() + START;
        while !answers(lab, address)? {
            said.extend(lines.try_iter());
            if Instant::now() > deadline {
                bail!("{} does not answer: {}", words[0], said.join("\n"));
            }
        }
        std::thread::spawn(move || lines.into_iter().for_each(drop));
        server.pin()?;
        Ok(server)
    }

    /// Memory of all its processes in bytes, with shared pages counted once (PSS).
    pub(super) fn memory(&self) -> Result<f64> {
        let mut kib = 0.0;
        for pid in self.processes()? {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
                .with_context(|| format!("cannot read the memory of process {pid}"))?;
            let pss = text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB"));
            kib += pss.and_then(|pss| pss.trim().parse::<f64>().ok()).context("no Pss in smaps_rollup")?;
        }
        Ok(kib * 1024.0)
    }

    /// Moves all threads to the servers' CPU: knotd pins each of its own accord, the first to CPU 0.
    fn pin(&self) -> Result<()> {
        let mut set = CpuSet::new();
        set.set(SERVER_CPU.parse()?);
        for pid in self.processes()? {
            for task in fs::read_dir(format!("/proc/{pid}/task"))? {
                let task = task?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
                sched_setaffinity(task, &set).context("cannot pin a server's thread")?;
            }
        }
        Ok(())
    }

    /// The process and those it started.
    fn processes(&self) -> Result<Vec<u32>> {
        let mut all = vec![self.0.pid()];
        let mut next = 0;
        while let Some(pid) = all.get(next).copied() {
            next += 1;
            for task in fs::read_dir(format!("/proc/{pid}/task"))? {
                let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
                all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            }
        }
        Ok(all)
    }
}

/// Whether a query for the zone's SOA record is answered with authority, asked once.
fn answers(lab: &Lab, server: SocketAddr) -> Result<bool> {
    let query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x06\0\x01";
    lab.machine("client")?.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        socket.connect(server)?;
        let mut reply = [0; 512];
        // Refused until its socket is open.
        let asked = socket.send(query).and_then(|_| socket.recv(&mut reply));
        if asked.is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(asked.is_ok_and(|len| len > 12) && reply[2] & 4 != 0 && reply[3] & 0xf == 0 && reply[7] == 1)
    })?
}

fn udpath_words(folder: &Path, address: SocketAddr, xdp: bool) -> Result<Vec<String>> {
    let zone = folder.join(FILE).display().to_string();
    let io = if xdp { "xdp" } else { "shared" };
    let fixed = ["--workers", "1", "--cpus", SERVER_CPU, "--io", io, "--zone", &zone];
    let mut words = vec![udpath()?, "serve".into(), "dns".into()];
    words.extend(fixed.map(String::from));
    // As the others, which have rrl off.
    words.extend(["--responses-per-second", "off", "--bind"].map(String::from));
    words.push(address.to_string());
    Ok(words)
}

/// knotd: with one queue, its XDP listener has one thread.
fn knot_conf(folder: &Path, own: &Path, address: IpAddr, xdp: bool) -> String {
    let (folder, own) = (folder.display(), own.display());
    let listen = if xdp { "xdp:\n  listen: eth0@53\n  udp: on\n" } else { "" };
    format!(
        "server:\n  listen: {address}@53\n  rundir: {own}\n  user: root:root\n  udp-workers: 1\n  tcp-workers: 1\n  \
         background-workers: 1\n{listen}database:\n  storage: {own}\ncontrol:\n  listen: {own}/knot.sock\nlog:\n  - target: stderr\n    any: warning\n\
         zone:\n  - domain: example.org\n    file: {folder}/{FILE}\n    zonefile-sync: -1\n    journal-content: none\n"
    )
}

fn nsd_conf(folder: &Path, own: &Path, address: IpAddr) -> String {
    let (folder, own) = (folder.display(), own.display());
    format!(
        "server:\n  ip-address: {address}\n  port: 53\n  server-count: 1\n  username: root\n  chroot: \"\"\n  zonesdir: {folder}\n  \
         database: \"\"\n  pidfile: {own}/nsd.pid\n  xfrdfile: {own}/xfrd.state\n  xfrdir: {own}\n  zonelistfile: {own}/zone.list\n  \
         rrl-ratelimit: 0\nremote-control:\n  control-enable: no\nzone:\n  name: example.org\n  zonefile: {FILE}\n"
    )
}
