//! A server's own program on its reuseport group is detected before it would be replaced. Requires root.

mod sys;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use udpath_host::process::{Selection, SocketId, find};
use udpath_lab::LabBuilder;
use udpath_tune::plan::{Consent, PlanError};
use udpath_tune::process::{Chosen, chosen};
use udpath_tune::undo::Undone;
use udpath_tune::{Journal, Live, Plan, SettingRequest, apply, undo};

const REQUEST: &str = "port:5353:selection=by-cpu";
/// The server's output once its sockets are open and once a program is attached.
const READY: &str = "it is done";

/// Two sockets of a group; attaches the programs named on stdin, and exits at its end.
#[test]
#[ignore = "the server of the other tests, which start it"]
fn server() {
    let sockets = [0, 1].map(|_| {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &"127.0.0.1:5353".parse::<std::net::SocketAddr>().unwrap()).unwrap();
        socket
    });
    eprintln!("{READY}");
    for line in std::io::stdin().lines() {
        attach(&sockets[0], &line.unwrap());
        eprintln!("{READY}");
    }
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
    let insecure = allow.iter().map(ToString::to_string).collect();
    let requests = vec![SettingRequest::parse(REQUEST, "test").unwrap()];
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
