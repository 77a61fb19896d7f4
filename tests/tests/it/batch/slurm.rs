//! The line of the docs for Slurm, run by Debian's Slurm: a controller and one node, both on the client's machine of
//! the lab. Two tasks on that node take the place of one on each of ten.
//!
//! Without munge, which proves who sends a message: only this machine of the lab reaches them.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use udpath_rig::{Run, Running, awaited};

use super::{Bed, SOON, documented};

/// Where `scripts/setup.sh` puts it.
const SLURM: &str = "/var/cache/udpath/slurm";
/// Where its packages put libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Until the node is known to its controller, and until the tasks have run.
const WITHIN: Duration = Duration::from_secs(90);

/// Controller and node in the bed's folder.
struct Slurm {
    daemons: Vec<Running>,
}

impl Slurm {
    fn start(bed: &Bed) -> Self {
        let folder = bed.folder.path();
        let host = rustix::system::uname().nodename().to_str().unwrap().split('.').next().unwrap().to_owned();
        // Its libraries use addresses only of families for which the machine has one that is not of the loopback.
        let address = bed.lab.address_of("client", "server").unwrap().ipv4;
        let here = folder.display();
        let configuration = format!(
            "ClusterName=lab\nSlurmctldHost={host}({address})\nSlurmUser=root\nAuthType=auth/none\nCredType=cred/none\n\
             PluginDir={SLURM}/{LIBRARIES}/slurm-wlm\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SwitchType=switch/none\nMpiDefault=none\nSelectType=select/linear\nReturnToService=2\n\
             StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool\nSlurmctldPidFile={here}/slurmctld.pid\n\
             SlurmdPidFile={here}/slurmd.pid\nNodeName={host} NodeAddr={address} CPUs=1 State=UNKNOWN\n\
             PartitionName=all Nodes={host} Default=YES State=UP\n"
        );
        fs::write(folder.join("slurm.conf"), configuration).unwrap();
        fs::create_dir(folder.join("state")).unwrap();
        fs::create_dir(folder.join("spool")).unwrap();
        let daemon = |name: &str, arguments: &[&str]| {
            let mut command = bed.lab.machine("client").unwrap().command(format!("{SLURM}/usr/sbin/{name}"));
            command.arg("-D").args(arguments).envs(environment(bed)).current_dir(folder);
            Run::of(command, name).within(WITHIN).start_with(|command| bed.lab.spawn(command))
        };
        let controller = daemon("slurmctld-wlm", &["-c"]);
        let step = format!("{SLURM}/usr/sbin/slurmstepd-wlm");
        let node = daemon("slurmd-wlm", &["-N", &host, "-d", &step]);
        Self { daemons: vec![node, controller] }
    }

    /// Asks them to end, and waits for their helpers too.
    fn stop(self) {
        for daemon in self.daemons {
            daemon.signal(Signal::TERM);
            assert_eq!(daemon.finish().code(), Some(0));
        }
    }
}

/// What its programs need to find their libraries and each other.
fn environment(bed: &Bed) -> [(&'static str, String); 2] {
    let libraries = format!("{SLURM}/{LIBRARIES}");
    [
        ("LD_LIBRARY_PATH", format!("{libraries}:{libraries}/slurm-wlm")),
        ("SLURM_CONF", bed.folder.path().join("slurm.conf").display().to_string()),
    ]
}

#[test]
fn the_line_for_slurm_runs() {
    udpath_lab::needs_root!();
    let bed = Bed::new("slurm");
    let here = [
        ("10.0.0.2:7", bed.target.as_str()),
        ("--nodes=10 --ntasks-per-node=1", "--nodes=1 --ntasks-per-node=2 --overcommit"),
        ("--rate 900k -d 30s", "--rate 2k -d 500ms"),
        ("+60 seconds", SOON),
    ];
    let script = documented("Slurm, on ten nodes", &here);
    symlink(format!("{SLURM}/usr/bin/srun"), bed.bin().join("srun")).unwrap();

    let slurm = Slurm::start(&bed);
    awaited("the node to be idle", WITHIN, || {
        let mut sinfo: Command = bed.lab.machine("client").unwrap().command(format!("{SLURM}/usr/bin/sinfo"));
        sinfo.args(["--noheader", "--format=%T"]).envs(environment(&bed));
        let said = sinfo.output().unwrap_or_else(|error| panic!("{SLURM}: {error}; run scripts/setup.sh"));
        (said.stdout == b"idle\n").then_some(())
    });
    let variables: String =
        environment(&bed).iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
    let said = bed.shell(&format!("{variables}{script}"));
    assert!(said.fine().out.contains("2 of 2 segments"), "{}{}", said.out, said.err);
    slurm.stop();
    bed.lab.down().unwrap();
}
