//! Hosts that Ansible manages: each a network namespace with an sshd, a user who may become root, and a journal of its
//! own.
//!
//! ```text
//!  controller ──── eth0  host-1: sshd, udpath
//!  (ansible)  ──── eth0  host-2: sshd, udpath      target.sh
//!             ──── ...
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_rig::{Said, TIMEOUT, awaited, program};

/// Longest run of Ansible or of a program beside it.
pub(super) const LONG: Duration = Duration::from_secs(240);

/// The hosts, and a controller with the collection installed.
pub(super) struct Fleet {
    pub(super) lab: Lab,
    pub(super) folder: tempfile::TempDir,
    _sshds: Vec<Child>,
}

/// What a module returned, by host.
pub(super) type Results = BTreeMap<String, Value>;

impl Fleet {
    /// Hosts `host-1` to `host-N`; `programs` replaces the udpath of some.
    pub(super) fn new(name: &str, hosts: usize, programs: &BTreeMap<usize, PathBuf>) -> Self {
        let builder = LabBuilder::new(name).machine("controller").machines("host", hosts);
        let lab = builder.mesh("controller", "host", &LinkSpec::with_queues(2)).up().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for key in ["key", "host"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(key));
            Said::from(keygen.output().unwrap()).fine();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/beside/ansible/target.sh");
        let start = |number: usize| {
            let mut command = lab.machine(&host(number)).unwrap().command(&script);
            let log = fs::File::create(folder.path().join(format!("{}.log", host(number)))).unwrap();
            command.arg(folder.path()).arg(programs.get(&number).cloned().unwrap_or_else(program));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            lab.spawn(command).unwrap()
        };
        let sshds = (1..=hosts).map(start).collect();
        let fleet = Self { lab, folder, _sshds: sshds };
        for number in 1..=hosts {
            fleet.wait_for_sshd(&host(number));
        }
        fleet.configure(hosts);
        fleet
    }

    fn wait_for_sshd(&self, name: &str) {
        let address = SocketAddr::from((self.lab.address_of(name, "controller").unwrap().ipv4, 22));
        let log = self.folder.path().join(format!("{name}.log"));
        awaited(&format!("the sshd of {name}, see {}", log.display()), TIMEOUT, || {
            let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok().map(drop);
            self.lab.machine("controller").unwrap().run(connect).unwrap()
        });
    }

    /// Writes the inventory and the configuration, and installs the collection as users do.
    fn configure(&self, hosts: usize) {
        let mut inventory = String::new();
        for number in 1..=hosts {
            let address = self.lab.address_of(&host(number), "controller").unwrap().ipv4;
            let _ = writeln!(inventory, "{} ansible_host={address}", host(number));
        }
        self.write("inventory", &inventory);
        let key = self.folder.path().join("key");
        // In the large fleets some hosts are cut off: Ansible must give them up before they revert (30 s). In the
        // others no host is, but on a busy machine sudo may answer late.
        let timeout = if hosts < 3 { 120 } else { 15 };
        let config = format!(
            "[defaults]\ninventory = inventory\ncollections_path = collections\nremote_user = admin\nprivate_key_file = {}\n\
             host_key_checking = false\nforks = 20\ntimeout = {timeout}\ninterpreter_python = /usr/bin/python3\nretry_files_enabled = false\n\
             [connection]\npipelining = true\n\
             [ssh_connection]\ncontrol_path_dir = {}\nssh_args = -C -o ControlMaster=auto -o ControlPersist=10s \
             -o UserKnownHostsFile=/dev/null\n",
            key.display(),
            self.folder.path().join("cp").display()
        );
        self.write("ansible.cfg", &config);
        let collection = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/ansible");
        let collection = collection.to_str().unwrap();
        self.run("ansible-galaxy", &["collection", "build", "--output-path", "built", collection]).fine();
        let built = format!("built/udpath-udpath-{}.tar.gz", env!("CARGO_PKG_VERSION"));
        self.run("ansible-galaxy", &["collection", "install", "-p", "collections", &built]).fine();
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Runs a program of Ansible's on the controller.
    pub(super) fn run(&self, what: &str, arguments: &[&str]) -> Said {
        let mut command = self.lab.machine("controller").unwrap().command("timeout");
        command.arg(LONG.as_secs().to_string()).arg(what).args(arguments);
        self.ended(command)
    }

    /// Runs a command in the folder, with Ansible's configuration, until it ends.
    pub(super) fn ended(&self, mut command: Command) -> Said {
        // Without a terminal; HOME for what Ansible caches.
        command.env("HOME", self.folder.path()).env("ANSIBLE_NOCOLOR", "1").env("LC_ALL", "C.UTF-8");
        command.env("ANSIBLE_CONFIG", self.folder.path().join("ansible.cfg"));
        Said::from(command.current_dir(self.folder.path()).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a module of the collection as root on `hosts`; returns each host's result, with `failed` and `skipped`.
    pub(super) fn module(&self, hosts: &str, name: &str, arguments: &Value, more: &[&str]) -> Results {
        let tree = tempfile::tempdir_in(self.folder.path()).unwrap();
        let module = format!("udpath.udpath.{name}");
        let arguments = if *arguments == json!({}) { String::new() } else { arguments.to_string() };
        let fixed = ["--become", "-m", &module, "-a", &arguments, "--tree", tree.path().to_str().unwrap()];
        let said = self.run("ansible", &[&[hosts], &fixed[..], more].concat());
        // `host-1 | FAILED! => {`
        let heads = said.out.lines().filter_map(|line| line.split_once(" | "));
        let results: Results = heads
            .filter(|(host, _)| host.starts_with("host-"))
            .map(|(host, head)| {
                let file = fs::read(tree.path().join(host)).unwrap_or_else(|_| b"{}".to_vec());
                let mut result: Value = serde_json::from_slice(&file).unwrap();
                result["failed"] = json!(head.starts_with("FAILED!") || head.starts_with("UNREACHABLE!"));
                result["skipped"] = json!(head.starts_with("SKIPPED"));
                (host.to_owned(), result)
            })
            .collect();
        assert!(!results.is_empty(), "{}{}", said.out, said.err);
        results
    }

    /// The same on one host.
    pub(super) fn module_on(&self, host: &str, name: &str, arguments: &Value, more: &[&str]) -> Value {
        self.module(host, name, arguments, more).remove(host).unwrap()
    }

    /// What a host's udpath says of its applies.
    pub(super) fn status(&self, host: &str) -> Value {
        self.module_on(host, "facts", &json!({}), &[])["ansible_facts"]["udpath"]["status"].take()
    }

    /// The content of a file of a host's /sys.
    pub(super) fn sys(&self, host: &str, path: &str) -> String {
        let path = Path::new("/sys").join(path);
        let read = || fs::read_to_string(&path).unwrap();
        self.lab.machine(host).unwrap().run(read).unwrap().trim().to_owned()
    }
}

/// The name of a host.
pub(super) fn host(number: usize) -> String {
    format!("host-{number}")
}
