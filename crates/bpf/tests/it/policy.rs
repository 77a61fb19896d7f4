//! Policies, with unmodified programs in cgroups that the test makes. Needs root.

use std::io::{BufRead, BufReader};
use std::num::NonZeroU16;
use std::process::{Child, Stdio};

use udpath_bpf::{Policies, Policy, PolicyOption, PolicyTarget, programs_at};
use udpath_rig::{Bpffs, Cgroup};

/// Binds and connects as its arguments say, prints the options after each, and waits.
const PROGRAM: &str = r#"
import socket, struct, sys, time
s = socket.socket(socket.AF_INET6 if "6" in sys.argv else socket.AF_INET, socket.SOCK_DGRAM)
def show():
    options = (socket.SO_RCVBUF, socket.SO_SNDBUF, socket.SO_REUSEPORT, socket.SO_PRIORITY, 36)
    print(*[s.getsockopt(socket.SOL_SOCKET, option) for option in options], flush=True)
local = "::1" if "6" in sys.argv else "127.0.0.1"
for word in sys.argv[1:]:
    if word.startswith("bind="):
        try:
            s.bind((local, int(word[5:])))
        except OSError as error:
            print(error, flush=True)
            sys.exit()
    elif word == "connect":
        s.connect((local, 9))
    elif word == "small":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10000)
    elif word == "cookie":
        print(struct.unpack("Q", s.getsockopt(socket.SOL_SOCKET, 57, 8))[0], flush=True)
        continue
    elif word == "6":
        continue
    show()
time.sleep(600)
"#;

/// The program, running in a cgroup, and what it prints.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(cgroup: &Cgroup, child: &str, arguments: &[&str]) -> Self {
        let mut command = cgroup.command(child, "python3");
        let mut child = command.args(["-c", PROGRAM]).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("the program goes on").unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn policy(options: &[(PolicyOption, u32)]) -> Policy {
    let mut policy = Policy::default();
    for (option, value) in options {
        policy.set(*option, Some(*value));
    }
    policy
}

fn target(cgroup: &str, port: u16) -> PolicyTarget {
    PolicyTarget { cgroup: cgroup.to_owned(), port: NonZeroU16::new(port) }
}

/// A free port of this machine.
fn free_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const BUFFER: u32 = 200_000;

#[test]
fn an_unmodified_program_gets_the_options_at_bind_and_again_after_a_restart() {
    udpath_lab::needs_root!();
    let (bpffs, cgroup) = (Bpffs::new().unwrap(), Cgroup::new());
    let port = free_port();
    let bind = format!("bind={port}");
    cgroup.make("srv.service");
    let first = Running::start(&cgroup, "srv.service", &[&bind]).line();
    assert!(!first.starts_with("200000 "), "so without a policy: {first}");

    let mut policies = Policies::install(&bpffs.path(), &Cgroup::root()).unwrap();
    let options = policy(&[
        (PolicyOption::ReceiveBuffer, BUFFER),
        (PolicyOption::SendBuffer, BUFFER / 2),
        (PolicyOption::Reuseport, 1),
        (PolicyOption::Priority, 6),
        (PolicyOption::Mark, 77),
    ]);
    policies.set(&target(&cgroup.name("srv.service"), 0), &options).unwrap();
    for version in ["4", "6"] {
        for _restart in 0..2 {
            // As systemd does at each start.
            cgroup.make("srv.service");
            let mut one =
                Running::start(&cgroup, "srv.service", &[version, &bind][usize::from(version == "4")..]);
            assert_eq!(one.line(), "200000 100000 1 6 77");
            let mut two =
                Running::start(&cgroup, "srv.service", &[version, &bind][usize::from(version == "4")..]);
            assert_eq!(two.line(), "200000 100000 1 6 77", "shares the port");
        }
    }
    // Programs of other cgroups are left alone, also one of a similar name and one above.
    for other in ["srv.servic", "srv.service2"] {
        cgroup.make(other);
        assert_eq!(Running::start(&cgroup, other, &[&bind]).line(), first, "{other}");
    }
    // One below is not.
    cgroup.make("srv.service");
    cgroup.make("srv.service/worker");
    assert_eq!(Running::start(&cgroup, "srv.service/worker", &[&bind]).line(), "200000 100000 1 6 77");

    let list = policies.list().unwrap();
    assert_eq!(list, [(target(&cgroup.name("srv.service"), 0), options)]);
    policies.set(&list[0].0, &Policy::default()).unwrap();
    assert_eq!(policies.list().unwrap(), []);
    assert_eq!(Running::start(&cgroup, "srv.service/worker", &[&bind]).line(), first);
    cgroup.remove("srv.service/worker");
}

#[test]
fn policies_stay_when_the_value_is_dropped_and_end_with_uninstall() {
    udpath_lab::needs_root!();
    let (bpffs, cgroup) = (Bpffs::new().unwrap(), Cgroup::new());
    cgroup.make("a");
    let whose = target(&cgroup.name("a"), 0);
    assert!(Policies::open(&bpffs.path()).unwrap().is_none());
    let mut policies = Policies::install(&bpffs.path(), &Cgroup::root()).unwrap();
    policies.set(&whose, &policy(&[(PolicyOption::Priority, 5)])).unwrap();
    drop(policies);

    let port = format!("bind={}", free_port());
    let priority = |line: String| line.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(priority(Running::start(&cgroup, "a", &[&port]).line()), "5");
    let policies = Policies::open(&bpffs.path()).unwrap().unwrap();
    assert_eq!(policies.get(&whose).unwrap().get(PolicyOption::Priority), Some(5));
    assert_eq!(policies.missing().unwrap(), [""; 0]);
    let programs = programs_at(&cgroup.path("a")).unwrap();
    for hook in ["bind4", "bind6", "connect4", "connect6", "sock_create"] {
        assert!(programs.iter().any(|program| program.hook == hook && program.name == hook), "{programs:?}");
    }

    // A link that somebody has removed is noticed, and replaced.
    std::fs::remove_file(bpffs.path().join("udpath/policy/bind4")).unwrap();
    assert_eq!(policies.missing().unwrap(), ["bind4"]);
    let policies = Policies::install(&bpffs.path(), &Cgroup::root()).unwrap();
    assert_eq!((policies.missing().unwrap(), policies.list().unwrap().len()), (vec![], 1));
    assert_eq!(priority(Running::start(&cgroup, "a", &[&port]).line()), "5");

    // Cut short at any map, an installation is none, and the next one starts anew.
    drop(policies);
    for map in ["nodes", "policies", "outcomes"] {
        std::fs::remove_file(bpffs.path().join("udpath/policy").join(map)).unwrap();
        assert!(Policies::open(&bpffs.path()).unwrap().is_none(), "{map}");
        let mut policies = Policies::install(&bpffs.path(), &Cgroup::root()).unwrap();
        assert_eq!(policies.list().unwrap(), [], "{map}");
        policies.set(&whose, &policy(&[(PolicyOption::Priority, 4)])).unwrap();
        assert_eq!(priority(Running::start(&cgroup, "a", &[&port]).line()), "4", "{map}");
    }

    Policies::uninstall(&bpffs.path()).unwrap();
    Policies::uninstall(&bpffs.path()).expect("there may be nothing");
    assert!(!bpffs.path().join("udpath").exists());
    assert_eq!(priority(Running::start(&cgroup, "a", &[&port]).line()), "0");
}

#[test]
fn of_two_policies_the_deeper_cgroup_and_then_the_port_wins_option_by_option() {
    udpath_lab::needs_root!();
    let (bpffs, cgroup) = (Bpffs::new().unwrap(), Cgroup::new());
    cgroup.make("out");
    cgroup.make("out/in");
    let (port, other) = (free_port(), free_port());
    let mut policies = Policies::install(&bpffs.path(), &Cgroup::root()).unwrap();
    let (out, inside) = (cgroup.name("out"), cgroup.name("out/in"));
    use PolicyOption::{Mark, Priority, ReceiveBuffer};
    policies.set(&target(&out, port), &policy(&[(Priority, 1), (ReceiveBuffer, BUFFER)])).unwrap();
    policies.set(&target(&inside, 0), &policy(&[(Priority, 2), (Mark, 2)])).unwrap();
    policies.set(&target(&inside, port), &policy(&[(Mark, 3)])).unwrap();
    let look = |port: u16| {
        let line = Running::start(&cgroup, "out/in", &[&format!("bind={port}")]).line();
        let values: Vec<u32> = line.split(' ').map(|value| value.parse().unwrap()).collect();
        (values[0] == BUFFER, values[3], values[4])
    };
    assert_eq!(look(port), (true, 2, 3));
    assert_eq!(look(other), (false, 2, 2));
    cgroup.remove("out/in");
}

#[test]
fn what_the_program_sets_after_its_bind_stays_and_the_record_has_what_it_was_set_to() {
    udpath_lab::needs_root!();
    let (bpffs, cgroup) = (Bpffs::new().unwrap(), Cgroup::new());
    cgroup.make("a");
    let mut policies = Policies::install(&bpffs.path(), &Cgroup::root()).unwrap();
    let mut early = Running::start(&cgroup, "a", &["bind=0", "cookie"]);
    early.line();
    let options = policy(&[(PolicyOption::ReceiveBuffer, BUFFER), (PolicyOption::Reuseport, 1)]);
    policies.set(&target(&cgroup.name("a"), 0), &options).unwrap();
    let buffer = |line: String| line.split(' ').next().unwrap().to_owned();
    // Set before the bind: the policy wins. After it: the program, also if it connects then.
    let bind = format!("bind={}", free_port());
    let mut one = Running::start(&cgroup, "a", &["small", &bind, "small", "connect", "cookie"]);
    let seen: Vec<String> = (0..4).map(|_| buffer(one.line())).collect();
    assert_eq!(seen, ["20000", "200000", "20000", "20000"]);
    let outcome = policies.outcome(one.line().parse().unwrap()).unwrap().expect("a record of its bind");
    assert_eq!(
        (outcome.get(PolicyOption::ReceiveBuffer), outcome.get(PolicyOption::Mark)),
        (Some(BUFFER), None)
    );
    assert!(PolicyOption::ALL.iter().all(|option| !outcome.was_refused(*option)));
    assert_eq!(policies.outcome(early.line().parse().unwrap()).unwrap(), None);
    // Never bound, and bound to any port: no SO_REUSEPORT, which could make it share a port by chance.
    for way in ["connect", "bind=0"] {
        let line = Running::start(&cgroup, "a", &[way]).line();
        let values: Vec<&str> = line.split(' ').collect();
        assert_eq!((values[0], values[2]), ("200000", "0"), "{way}");
    }
}

#[test]
fn the_kernel_clamps_a_buffer_to_its_limit() {
    udpath_lab::needs_root!();
    let (bpffs, cgroup) = (Bpffs::new().unwrap(), Cgroup::new());
    cgroup.make("a");
    let limit: u32 = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let mut policies = Policies::install(&bpffs.path(), &Cgroup::root()).unwrap();
    let options = policy(&[(PolicyOption::ReceiveBuffer, i32::MAX as u32 - 1)]);
    policies.set(&target(&cgroup.name("a"), 0), &options).unwrap();
    let line = Running::start(&cgroup, "a", &[&format!("bind={}", free_port())]).line();
    assert_eq!(line.split(' ').next().unwrap(), (2 * limit).to_string());
}
