//! What other users' processes, control groups and files do to a root's run of udpath: nothing. Servers are copies of
//! perl, named as the server that they pretend to be, and run as user nobody. Needs root.

mod groups;

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use udpath_lab::{Lab, needs_root};
use udpath_rig::{Ended, client_and_server, program};

use crate::inside::start;

/// The port of the pretended servers.
const PORT: &str = "5399";
/// Address space that udpath may use. A run takes some 300 MiB, most of it reserved by threads.
const MEMORY: &str = "--as=2147483648";
/// Binds a socket at the first argument, and says so.
const BIND: &str = "use Socket; my ($ip, $port) = splice @ARGV, 0, 2; socket(S, PF_INET, SOCK_DGRAM, 0) and \
                    bind(S, pack_sockaddr_in($port, inet_aton($ip))) or die $!;";
/// Says that it is ready, and runs until its input ends.
const WAIT: &str = "print 'x'; close STDOUT; <STDIN>";
/// Makes 64 GiB of empty memory the command line (`struct prctl_mm_map` of linux/prctl.h), for which no privilege is
/// needed.
const HUGE: &str = r#"
open(F, '<', '/proc/self/stat'); my $line = <F>; $line =~ s/^.*\) //; my @s = split / /, $line;
open(F, '<', '/proc/self/maps'); my $brk; while (<F>) { $brk = hex $1 if /^[0-9a-f]+-([0-9a-f]+).*\[heap\]/ }
my ($size, @of) = (64 << 30, map { $s[$_ - 3] } 26, 27, 45, 46, 47);
my $at = syscall(9, 0, $size, 1, 0x4022, -1, 0);
my $map = pack('Q11QLL', @of, $brk // $of[4], $s[25], $at, $at + $size, $s[47], $s[48], 0, 0, 0xffffffff);
syscall(157, 35, 14, $map, length $map, 0) == 0 or die $!;
"#;
/// In a user namespace, everybody may change their root.
const CHROOT: &str = "syscall(272, 0x10000000) == 0 and chroot(shift @ARGV) and chdir '/' or die $!;";

/// A server of user nobody. It ends with this, or with the test.
struct Pretended {
    lab: Lab,
    folder: TempDir,
    process: Child,
}

impl Pretended {
    /// An nsd that runs these lines; its arguments after the address are the folder, which is its root-to-be, and
    /// `-c config`. `files`: what is in the folder.
    fn nsd(name: &str, lines: &str, files: &[(&str, &str)], config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        udpath_rig::copy_program(Path::new("/usr/bin/perl"), &folder.path().join("nsd"));
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let lab = client_and_server(name, 1);
        let mut command = lab.machine("server").unwrap().command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(folder.path().join("nsd")).arg("-e").arg(format!("{BIND}{lines}{WAIT}"));
        command.args(["127.0.0.1", PORT]).arg(folder.path()).args(["-c", config]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = lab.spawn(command).unwrap();
        let mut said = String::new();
        process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "x");
        Self { lab, folder, process }
    }

    /// Runs udpath beside it, with little memory, until it ends or the test's patience does.
    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = self.lab.machine("server").unwrap().command("prlimit");
        command.arg(MEMORY).arg(program()).args(arguments);
        start(&self.lab, command, &arguments.join(" ")).finish()
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn fifo(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_command_line_of_64_gib_is_read_up_to_a_limit() {
    needs_root!();
    let server = Pretended::nsd("untrusted-line", HUGE, &[], "/etc/nsd/nsd.conf");
    let line = fs::File::open(format!("/proc/{}/cmdline", server.process.id())).unwrap();
    let mut begins = Vec::new();
    line.take(1 << 20).read_to_end(&mut begins).unwrap();
    assert_eq!(begins.len(), 1 << 20, "it is huge");
    let show = server.run(&["show", "--json"]);
    assert!(show.code() == Some(0) && show.out.contains(PORT), "{}", show.err);
    assert_eq!(server.run(&["export", "--once"]).code(), Some(0));
    let plan = server.run(&["plan", "--service", PORT]);
    assert!(plan.code() == Some(3) && plan.err.contains("command line is longer than"), "{}", plan.err);
    let pid = server.process.id().to_string();
    let address = format!("127.0.0.1:{PORT}");
    let boost = server.run(&["boost", "--pid", &pid, "--budget", "2s", "--load", "dns", &address]);
    assert!(
        boost.code() == Some(3) && boost.err.contains("answered nothing"),
        "{:?} {}",
        boost.code(),
        boost.err
    );
}

#[test]
fn a_list_of_packages_that_never_ends_is_not_waited_for() {
    needs_root!();
    let config = [("etc/nsd/nsd.conf", "server:\n")];
    let server = Pretended::nsd("untrusted-list", CHROOT, &config, "/etc/nsd/nsd.conf");
    let status = server.folder.path().join("var/lib/dpkg/status");
    fifo(&status);
    for arguments in [&["show"][..], &["export", "--once"], &["plan", "--service", PORT]] {
        let ended = server.run(arguments);
        assert!(matches!(ended.code(), Some(0 | 3)), "{arguments:?}: {:?} {}", ended.code(), ended.err);
    }
    fs::remove_file(&status).unwrap();
    fs::File::create(&status).unwrap().set_len(64 << 30).unwrap();
    let plan = server.run(&["plan", "--service", PORT]);
    assert!(matches!(plan.code(), Some(0 | 3)), "{:?} {}", plan.code(), plan.err);
}

#[test]
fn a_configuration_that_the_server_does_not_have_is_not_read_here() {
    needs_root!();
    let host = tempfile::tempdir().unwrap();
    let config = host.path().join("nsd.conf");
    fs::write(&config, "server:\n    server-count: 7\n").unwrap();
    let path = config.display().to_string();
    let server = Pretended::nsd("untrusted-file", CHROOT, &[("etc/x", "")], &path);
    for request in [&["--service", PORT][..], &["--set", "service:5399:server-count=2"]] {
        let plan = server.run(&[&["plan"], request].concat());
        assert_eq!(plan.code(), Some(3), "{}{}", plan.out, plan.err);
        assert!(!plan.out.contains("server-count") && plan.err.contains("cannot read"), "{}", plan.err);
    }
    assert!(server.run(&["show"]).code() == Some(0));
    assert_eq!(fs::read_to_string(&config).unwrap(), "server:\n    server-count: 7\n");
}

#[test]
fn names_that_are_not_text_hide_no_process() {
    needs_root!();
    // A name of a process may be any bytes.
    let lines =
        "$0 = \"\\xff\\xfe\\x1b[31m\"; open(F, '>', '/proc/self/comm'); print F \"\\xff\\xfe\"; close F;";
    let server = Pretended::nsd("untrusted-name", lines, &[], "/etc/nsd/nsd.conf");
    let show = server.run(&["show", "--json"]);
    assert!(show.code() == Some(0), "{}", show.err);
    assert!(show.out.contains(&format!("\"pid\":{},", server.process.id())), "{}", show.out);
    let plan = server.run(&["plan", "--set", &format!("port:{PORT}:receive-buffer=50000")]);
    assert!(plan.code() == Some(0) && plan.out.contains("socket:"), "{}{}", plan.out, plan.err);
}

#[test]
fn another_program_on_the_port_does_not_hide_the_server() {
    needs_root!();
    let config = [("etc/nsd/nsd.conf", "server:\n")];
    let server = Pretended::nsd("untrusted-port", CHROOT, &config, "/etc/nsd/nsd.conf");
    let mut resolved = server.lab.machine("server").unwrap().command("perl");
    resolved.args(["-e", &format!("{BIND}{WAIT}"), "127.0.0.53", PORT]);
    resolved.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut resolved = server.lab.spawn(resolved).unwrap();
    resolved.stdout.take().unwrap().read_to_string(&mut String::new()).unwrap();
    let plan = server.run(&["plan", "--service", PORT]);
    assert!(plan.code() == Some(0) && plan.out.contains("server-count"), "{}{}", plan.out, plan.err);
    assert!(plan.out.contains("left alone: 127.0.0.53:5399 belongs to perl"), "{}", plan.out);
    let of = |pid: u32| format!("socket:{pid}/");
    let one = server.run(&["plan", "--set", "port:127.0.0.53:5399:receive-buffer=50000"]);
    assert!(
        one.out.contains(&of(resolved.id())) && !one.out.contains(&of(server.process.id())),
        "{}",
        one.out
    );
    let none = server.run(&["plan", "--set", "port:127.0.0.2:5399:receive-buffer=50000"]);
    assert!(none.err.contains("no UDP socket is bound to 127.0.0.2:5399"), "{}", none.err);
    drop(resolved.stdin.take());
    resolved.wait().unwrap();
}

/// Runs a script of a test in namespaces of its own: its mounts and control groups are not this machine's.
fn script(lines: &str, arguments: &[&Path]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", lines, "sh"]).args(arguments);
    command
}
