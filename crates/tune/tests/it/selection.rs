//! A server's own program on its reuseport group is detected before it would be replaced. Requires root.

mod sys;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use udpath_host::process::{Selection, SocketId, find};
use udpath_lab::LabBuilder;
use udpath_tune::plan::{Consent, PlanError};
use udpath_tune::process::{Chosen, chosen};
use udpath_tune::status::{Hold, Status};
use udpath_tune::undo::Undone;
use udpath_tune::{Journal, Live, Machine, Plan, SettingRequest, apply, undo};

const ADDRESS: &str = "127.0.0.1:5353";
const REQUEST: &str = "port:5353:selection=by-cpu";
/// How long datagrams on loopback are waited for. They arrive while they are sent, unless the CPU is busy.
const ARRIVES: Duration = Duration::from_secs(10);
/// The server's output once its sockets are open and once a program is attached.
const READY: &str = "it is done";

/// Two sockets of a group; attaches the programs named on stdin, or adds a socket, and exits at its end.
#[test]
#[ignore = "the server of the other tests, which start it"]
fn server() {
    let mut sockets = vec![member(), member()];
    eprintln!("{READY}");
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "join" => sockets.push(member()),
            program => attach(&sockets[0], program),
        }
        eprintln!("{READY}");
    }
}

fn member() -> OwnedFd {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    bind(&socket, &ADDRESS.parse::<std::net::SocketAddr>().unwrap()).unwrap();
    socket
}

fn attach(socket: &OwnedFd, program: &str) {
    match program {
        // Always the second.
        "classic" => sys::attach_classic(socket, &[((libc::BPF_RET | libc::BPF_K) as u16, 1)]),
        "extended" => sys::attach_extended(socket),
        other => panic!("{other}"),
    }
}

/// The server, killed on drop.
struct Server {
    child: Child,
    orders: Option<ChildStdin>,
    said: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn start(mut command: Command) -> Self {
        command.args(["--exact", "selection::server", "--ignored", "--nocapture"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (orders, said) = (child.stdin.take(), BufReader::new(child.stderr.take().unwrap()));
        let mut server = Self { child, orders, said };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let mut line = String::new();
        while !line.contains(READY) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the server has ended");
        }
    }

    fn attach(&mut self, program: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{program}").unwrap();
        self.wait();
    }

    /// Sends datagrams of one flow; how many bytes each of the server's sockets has in addition.
    fn queued(&self, datagrams: usize) -> Vec<u32> {
        let queued = || -> Vec<u32> {
            find(self.child.id()).unwrap().sockets.iter().map(|socket| socket.queued).collect()
        };
        let (before, flow) = (queued(), UdpSocket::bind("127.0.0.1:0").unwrap());
        for _ in 0..datagrams {
            assert_eq!(flow.send_to(b"datagram", ADDRESS).unwrap(), 8);
        }
        let end = Instant::now() + ARRIVES;
        loop {
            let now: Vec<u32> = queued().iter().zip(&before).map(|(now, before)| now - before).collect();
            let each = now.iter().sum::<u32>() / datagrams as u32;
            // The kernel charges several hundred bytes for each.
            if each >= 256 || Instant::now() > end {
                return now;
            }
        }
    }

    fn sockets(&self) -> Vec<SocketId> {
        find(self.child.id()).unwrap().sockets.iter().map(|socket| socket.id).collect()
    }

    fn chosen(&self) -> Chosen {
        let found: SocketId = find(self.child.id()).unwrap().sockets[1].id;
        chosen(found)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        let mut rest = String::new();
        let _ = self.said.read_to_string(&mut rest);
        let ended = self.child.wait();
        if !std::thread::panicking() {
            assert!(ended.unwrap().success(), "{rest}");
        }
    }
}

fn plan(allow: &[&str]) -> Result<Plan, PlanError> {
    plan_of(REQUEST, allow)
}

fn plan_of(request: &str, allow: &[&str]) -> Result<Plan, PlanError> {
    let insecure = allow.iter().map(ToString::to_string).collect();
    let requests = vec![SettingRequest::parse(request, "test").unwrap()];
    Plan::resolve(&Live::new(), requests, &Consent { insecure, ..Consent::default() })
}

fn applied_and_undone(plan: &Plan, journal: &Path, server: &Server) -> Undone {
    let lock = || Journal::at(journal).lock().unwrap();
    apply(&Live::new(), &lock(), plan, None, |_| Ok(())).unwrap();
    assert_eq!(server.chosen(), Chosen::By(Selection::ByCpu));
    undo(&Live::new(), &lock(), None, "test", false).unwrap()
}

/// With a server in a separate network namespace.
fn in_a_lab(name: &str, work: impl FnOnce(&mut Server) + Send) {
    let lab = LabBuilder::new(name).machine("server").up().unwrap();
    let machine = lab.machine("server").unwrap();
    let mut server = Server::start(machine.command(std::env::current_exe().unwrap()));
    machine.run(|| work(&mut server)).unwrap();
    drop(server);
    lab.down().unwrap();
}

/// The program counts the sockets of its time: for a group that has changed it is another value, applied again and
/// restored.
#[test]
fn by_cpu_of_another_number_of_sockets_is_not_in_place() {
    udpath_lab::needs_root!();
    in_a_lab("by-cpu-modulo", |server| {
        let folder = tempfile::tempdir().unwrap();
        let lock = || Journal::at(folder.path()).lock().unwrap();
        apply(&Live::new(), &lock(), &plan(&[]).unwrap(), None, |_| Ok(())).unwrap();
        assert!(plan(&[]).unwrap().is_empty());
        writeln!(server.orders.as_mut().unwrap(), "join").unwrap();
        server.wait();
        assert_eq!(server.chosen(), Chosen::By(Selection::ByCpuModulo(2)));
        let again = plan(&[]).unwrap();
        assert_eq!(again.changes.len(), 1, "{again:?}");
        applied_and_undone(&again, folder.path(), server);
        assert_eq!(server.chosen(), Chosen::By(Selection::ByCpuModulo(2)));
    });
}

#[test]
fn a_group_without_a_program_is_changed_read_back_and_undone() {
    udpath_lab::needs_root!();
    let journal = tempfile::tempdir().unwrap();
    in_a_lab("t-sel-none", |server| {
        assert_eq!(server.chosen(), Chosen::By(Selection::ByFlow));
        let plan = plan(&[]).unwrap();
        assert!(plan.diff().contains("by-flow -> by-cpu"), "{}", plan.diff());
        let undone = applied_and_undone(&plan, journal.path(), server);
        assert_eq!((undone.left.as_slice(), undone.untold.len(), undone.complete), (&[][..], 0, true));
        assert_eq!(server.chosen(), Chosen::By(Selection::ByFlow));
    });
}

#[test]
fn a_servers_program_is_replaced_only_if_allowed_and_undo_reports_it_lost() {
    udpath_lab::needs_root!();
    for (name, program, what) in [
        ("t-sel-cbpf", "classic", "classic BPF program (1 instruction)"),
        ("t-sel-ebpf", "extended", "eBPF program (id "),
    ] {
        let journal = tempfile::tempdir().unwrap();
        in_a_lab(name, |server| {
            server.attach(program);
            let refused = plan(&[]).unwrap_err();
            let told = refused.to_string();
            assert!(refused.is_usage() && told.contains(what), "{told}");
            let how = "--allow port:5353:selection";
            assert!(told.contains("undo cannot restore") && told.contains(how), "{told}");
            // Looking has changed nothing.
            assert!(matches!(server.chosen(), Chosen::Program(found) if found.contains(what)));
            let plan = plan(&["port:5353:selection"]).unwrap();
            assert!(plan.diff().contains(what) && plan.diff().contains("cannot restore"), "{}", plan.diff());
            let undone = applied_and_undone(&plan, journal.path(), server);
            assert_eq!(undone.left.len(), 1, "{:?}", undone.left);
            let why = &undone.left[0].why;
            assert!(why.contains(what) && why.contains("may differ from before"), "{why}");
            assert_eq!(server.chosen(), Chosen::By(Selection::ByFlow));
        });
    }
}

#[test]
fn a_program_that_came_after_the_plan_is_not_replaced() {
    udpath_lab::needs_root!();
    let journal = tempfile::tempdir().unwrap();
    in_a_lab("t-sel-late", |server| {
        let plan = plan(&[]).unwrap();
        server.attach("extended");
        let lock = Journal::at(journal.path()).lock().unwrap();
        let refused = apply(&Live::new(), &lock, &plan, None, |_| Ok(())).unwrap_err().to_string();
        assert!(refused.contains("which was not there when the plan was made"), "{refused}");
        assert!(matches!(server.chosen(), Chosen::Program(_)));
    });
}

/// Of one flow: all datagrams on one socket, or as many on each.
fn one_flow_is_spread(server: &Server) -> bool {
    let queued = server.queued(40);
    assert!(queued.iter().any(|bytes| *bytes > 0), "{queued:?}");
    let part = queued.iter().sum::<u32>() / queued.len() as u32;
    // A datagram more or less on each CPU.
    queued.iter().all(|bytes| bytes.abs_diff(part) <= part / 5)
}

#[test]
fn datagrams_are_spread_by_rule_and_undo_restores_what_selected_before() {
    udpath_lab::needs_root!();
    let journal = tempfile::tempdir().unwrap();
    in_a_lab("t-sel-rule", |server| {
        let lock = || Journal::at(journal.path()).lock().unwrap();
        let set = |value: &str| {
            let plan = plan_of(&format!("port:5353:selection={value}"), &[]).unwrap();
            apply(&Live::new(), &lock(), &plan, None, |_| Ok(())).unwrap();
            plan.diff()
        };
        let undo_last = || undo(&Live::new(), &lock(), None, "test", false).unwrap();
        assert!(!one_flow_is_spread(server));
        let field = Selection::Field { offset: 0, length: 4 };
        let steps = [
            ("round-robin", Selection::RoundRobin),
            ("least-loaded", Selection::LeastLoaded),
            ("field:0+4", field),
            ("by-cpu", Selection::ByCpu),
            ("least-loaded", Selection::LeastLoaded),
        ];
        for (value, selection) in steps {
            let diff = set(value);
            assert_eq!(server.chosen(), Chosen::By(selection), "{diff}");
            let says = match selection {
                Selection::ByCpu => "moves flows;",
                Selection::Field { .. } => "keeps the order of datagrams with the same field",
                _ => "gives up the order of datagrams within a flow",
            };
            assert!(diff.contains(says) && diff.contains(&format!("-> {value}")), "{diff}");
        }
        for (value, selection) in steps.into_iter().rev() {
            assert_eq!(server.chosen(), Chosen::By(selection), "{value}");
            match selection {
                Selection::RoundRobin => assert!(one_flow_is_spread(server), "{value}"),
                // All datagrams have the same one.
                Selection::Field { .. } => assert!(!one_flow_is_spread(server), "{value}"),
                // By what is queued already, and by the CPU of this thread.
                _ => {}
            }
            let undone = undo_last();
            assert_eq!((undone.left.as_slice(), undone.complete), (&[][..], true), "{value}");
        }
        assert_eq!(server.chosen(), Chosen::By(Selection::ByFlow));
        assert!(!one_flow_is_spread(server));
    });
}

#[test]
fn a_socket_that_joins_later_is_reported_and_included_by_another_apply() {
    udpath_lab::needs_root!();
    let journal = tempfile::tempdir().unwrap();
    in_a_lab("t-sel-join", |server| {
        let lock = || Journal::at(journal.path()).lock().unwrap();
        let plan = || plan_of("port:5353:selection=round-robin", &[]).unwrap();
        let first = plan();
        apply(&Live::new(), &lock(), &first, None, |_| Ok(())).unwrap();
        let broken = || Live::new().broken(&first.changes[0].setting, &first.changes[0].to);
        assert_eq!(broken(), None);
        assert!(plan().is_empty());

        let bound = server.sockets();
        server.attach("join");
        // They are listed by inode, which is no order of time: each CPU has numbers of its own.
        let newest = server.sockets().iter().position(|id| !bound.contains(id)).unwrap();
        let mut queued = server.queued(40);
        assert_eq!(queued.remove(newest), 0, "{queued:?}");
        assert!(queued.iter().all(|bytes| *bytes > 0), "{queued:?}");
        let says =
            "1 of 3 sockets of the group get no datagrams: they were bound after it was set; apply it again";
        assert_eq!(broken().as_deref(), Some(says));
        let status = Status::of(&Live::new(), &Journal::at(journal.path())).unwrap();
        let drifted: Vec<_> = status.drifted().map(|held| (held.state, held.note.as_deref())).collect();
        assert_eq!(drifted, [(Hold::Drifted, Some(says))]);
        let again = plan();
        assert!(again.diff().contains("round-robin -> round-robin"), "{}", again.diff());
        apply(&Live::new(), &lock(), &again, None, |_| Ok(())).unwrap();
        assert_eq!(broken(), None);
        let queued = server.queued(39);
        assert!(queued.iter().all(|bytes| *bytes > 0), "{queued:?}");
        assert!(undo(&Live::new(), &lock(), None, "test", false).unwrap().complete);
    });
}
