//! What must fail once privileges are given up, tried in a process of its own: this test, run again.

use std::env;
use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::{Pid, geteuid, setpriority_process, test_kill_process};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, capabilities};

use super::*;

/// Set in the process that gives up: the folder it may write in.
const INSIDE: &str = "UDPATH_TEST_CONFINED";

#[test]
fn what_must_fail_fails_and_a_server_works() {
    if let Some(folder) = env::var_os(INSIDE) {
        return inside(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let test = "confine::tests::what_must_fail_fails_and_a_server_works";
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env(INSIDE, folder.path());
    let ended = again.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("result")).unwrap(), "kept");
}

fn inside(folder: &Path) {
    let was_root = geteuid().is_root();
    let before = std::thread::spawn(|| std::thread::park_timeout(std::time::Duration::from_secs(30)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let terminal = fs::File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    let own_space = fs::File::open("/proc/self/ns/uts").unwrap();
    let choice = Choice::of(None).unwrap();
    let needs = Needs { writes: &[folder], ..Needs::SERVER };
    before_threads(&choice, &needs).unwrap();
    give_up(&choice, &needs).unwrap();

    // Also in a thread that was there before.
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(set), ["0000000000000000"], "{set}");
        }
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), (vec!["1".to_owned()], vec!["2".to_owned()]));
        if was_root {
            assert!(
                !field("Uid:").contains(&"0".to_owned()) && !field("Gid:").contains(&"0".to_owned()),
                "{status}"
            );
            assert!(field("Groups:").is_empty(), "{status}");
        }
    }
    assert!(capabilities(None).unwrap().permitted.is_empty());

    // Files.
    fs::write(folder.join("result"), "kept").unwrap();
    assert!(fs::read_to_string("/etc/passwd").is_ok());
    fs::write(env::temp_dir().join("udpath-confined"), "x").unwrap_err();
    fs::read("/etc/shadow").unwrap_err();
    Command::new("/proc/self/exe").arg("--list").spawn().unwrap_err();
    // The kernel's objects.
    rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).unwrap_err();
    let net = rustix::net::socket(rustix::net::AddressFamily::PACKET, rustix::net::SocketType::RAW, None);
    net.unwrap_err();
    rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&own_space),
        Some(LinkNameSpaceType::HostNameAndNISDomainName),
    )
    .unwrap_err();
    rustix::mount::mount(c"none", c"/tmp", c"tmpfs", rustix::mount::MountFlags::empty(), None).unwrap_err();
    rustix::system::sethostname(b"confined").unwrap_err();
    assert_eq!(sys::unshare(UnshareFlags::NEWUSER).unwrap_err().raw_os_error(), Some(libc::ENOSYS));
    // A shell's terminal, which it may have inherited: its size, but no typing.
    for typing in [libc::TIOCSTI, libc::TIOCLINUX] {
        let refused = sys::ask_terminal(terminal.as_fd(), typing).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOSYS), "{typing:#x}");
    }
    sys::ask_terminal(terminal.as_fd(), libc::TIOCGWINSZ).unwrap();
    let own = Some(rustix::process::getpid());
    assert_eq!(setpriority_process(own, 19), Err(rustix::io::Errno::NOSYS), "only of the calling thread");
    if was_root {
        // Any signal but SIGCONT, which may be sent within a session (kill(2)), and init may be of this one.
        assert_eq!(test_kill_process(Pid::INIT), Err(rustix::io::Errno::PERM));
    }
    // Linux 6.7.
    TcpStream::connect(listener.local_addr().unwrap()).unwrap_err();

    // What a server does.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 8]).unwrap().0, 1);
    std::thread::spawn(|| setpriority_process(None, 19)).join().unwrap().unwrap();
    before.thread().unpark();
    before.join().unwrap();
}
