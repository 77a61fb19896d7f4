//! Debian's authoritative DNS servers in a lab's machine.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use udpath_lab::Lab;

use crate::{TIMEOUT, awaited};

/// A DNS server's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsProgram {
    /// Knot DNS.
    Knotd,
    /// NLnet Labs' NSD.
    Nsd,
}

impl DnsProgram {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Knotd, Self::Nsd];

    /// The program's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Knotd => "knotd",
            Self::Nsd => "nsd",
        }
    }
}

/// What a server serves, and where.
#[derive(Debug, Clone, Copy)]
pub struct DnsSpec<'a> {
    /// The program.
    pub program: DnsProgram,
    /// The machine that it runs on.
    pub machine: &'a str,
    /// The machine that queries it until it answers.
    pub asker: &'a str,
    /// Each zone's name, without the final dot, and its text in the format of master files. It is ready when it answers
    /// for the first.
    pub zones: &'a [(&'a str, &'a str)],
    /// Workers for UDP: threads, or processes.
    pub workers: usize,
    /// The CPUs that it may use, as taskset's list.
    pub cpus: Option<&'a str>,
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct DnsServer {
    child: Child,
    addresses: [SocketAddr; 2],
    _folder: TempDir,
}

/// Not 53, so that the packages' own services do not matter.
const PORT: u16 = 5300;

impl DnsServer {
    /// Starts it and waits until it answers for its zone.
    ///
    /// # Panics
    /// It cannot be started, or does not answer in time.
    #[must_use]
    pub fn start(lab: &Lab, spec: &DnsSpec<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let address = lab.address_of(spec.machine, spec.asker).expect("the machines are linked");
        let addresses =
            [IpAddr::V4(address.ipv4), IpAddr::V6(address.ipv6)].map(|ip| SocketAddr::new(ip, PORT));
        let conf = folder.path().join("conf");
        for (origin, text) in spec.zones {
            fs::write(folder.path().join(format!("{origin}.zone")), text).expect("the zone can be written");
        }
        fs::write(&conf, configuration(spec, folder.path(), addresses)).expect("so can the configuration");
        let mut command = command(lab, spec);
        if spec.program == DnsProgram::Nsd {
            // In the foreground.
            command.arg("-d");
        }
        command.arg("-c").arg(&conf).current_dir(folder.path());
        let log = fs::File::create(folder.path().join("log")).expect("so can a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let name = spec.program.name();
        let child = lab
            .spawn(command)
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}; scripts/setup.sh installs it"));
        let server = Self { child, addresses, _folder: folder };
        for address in addresses {
            awaited(&format!("{name} to answer at {address}"), TIMEOUT * 2, || {
                let machine = lab.machine(spec.asker).ok()?;
                machine.run(|| answers(address, spec.zones[0].0)).ok().filter(|answers| *answers)
            });
        }
        server
    }

    /// Its address in IPv4.
    #[must_use]
    pub fn ipv4(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Its addresses in both families.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 2] {
        self.addresses
    }

    /// Its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        // TERM, so that NSD ends its workers.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(lab: &Lab, spec: &DnsSpec<'_>) -> Command {
    let machine = lab.machine(spec.machine).expect("the lab has the machine");
    let Some(cpus) = spec.cpus else { return machine.command(spec.program.name()) };
    let mut command = machine.command("taskset");
    command.args(["-c", cpus, spec.program.name()]);
    command
}

fn configuration(spec: &DnsSpec<'_>, folder: &Path, addresses: [SocketAddr; 2]) -> String {
    let (here, workers) = (folder.display(), spec.workers);
    let mut text = String::from("server:\n");
    for address in addresses {
        let (ip, port) = (address.ip(), address.port());
        let written = match spec.program {
            DnsProgram::Knotd => writeln!(text, "    listen: {ip}@{port}"),
            DnsProgram::Nsd => writeln!(text, "    ip-address: {ip}@{port}"),
        };
        written.expect("a string takes all");
    }
    let zones = |one: &dyn Fn(&str) -> String| -> String {
        spec.zones.iter().map(|(origin, _)| one(origin)).collect()
    };
    text + &match spec.program {
        DnsProgram::Knotd => format!(
            "    rundir: {here}\n    udp-workers: {workers}\n    tcp-workers: 1\n    background-workers: 1\n\
             database:\n    storage: {here}\nlog:\n  - target: stderr\n    any: info\n\
             zone:\n{}",
            zones(&|origin| format!("  - domain: {origin}\n    storage: {here}\n    file: {origin}.zone\n"))
        ),
        // Without the limit per client that the package has built in, which a generator exceeds at once.
        DnsProgram::Nsd => format!(
            "    server-count: {workers}\n    reuseport: yes\n    rrl-ratelimit: 0\n    username: \"\"\n    chroot: \"\"\n    \
             zonesdir: {here}\n    database: \"\"\n    pidfile: {here}/pid\n    xfrdfile: {here}/xfrd\n    \
             zonelistfile: {here}/list\n    xfrdir: {here}\n\
             remote-control:\n    control-enable: no\n{}",
            zones(&|origin| format!("zone:\n    name: {origin}\n    zonefile: {origin}.zone\n"))
        ),
    }
}

/// Whether the server has loaded the zone: it answers a query for its SOA without an error.
fn answers(server: SocketAddr, origin: &str) -> bool {
    let mut query = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in origin.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 6, 0, 1]);
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asked = UdpSocket::bind(any).and_then(|socket| {
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        socket.connect(server)?;
        socket.send(&query)?;
        let mut reply = [0; 512];
        let len = socket.recv(&mut reply)?;
        Ok(len > query.len() && reply[2] & 0x80 != 0 && reply[3] & 0x0f == 0)
    });
    // Refused while no socket is open.
    asked.unwrap_or(false)
}
