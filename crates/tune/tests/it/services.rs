//! Unmodified servers of Debian in a lab: recognised, configured for the CPUs there are, and put back byte for byte. A
//! configuration that the server's checker refuses is not written; a server that does not come back is rolled back.
//! Requires root.

mod real;

use std::error::Error;
use std::fs;

use udpath_lab::needs_root;
use udpath_tune::apply::Applied;
use udpath_tune::journal::Lock;
use udpath_tune::services::{Knob, Origin, Outcome, Prepared, Request, ServiceError, Shown, on_port};
use udpath_tune::{Journal, Live, Plan, apply, undo};

use real::{Kind, Real};

/// What was read of a knob.
fn knob<'a>(knobs: &'a [Knob], name: &str) -> &'a Knob {
    knobs.iter().find(|knob| knob.name == name).unwrap_or_else(|| panic!("no {name} in {knobs:?}"))
}

/// Plans the requests; without any, all proposals.
fn prepared(real: &Real, requests: &[&str]) -> Prepared {
    let port = real.port();
    let texts = requests.iter().map(|knob| format!("service:{port}:{knob}"));
    let mut requests: Vec<Request> = texts.map(|text| Request::parse(&text).unwrap().unwrap()).collect();
    if requests.is_empty() {
        requests.push(Request::all(&port.to_string()).unwrap());
    }
    Prepared::of(&requests, Some(&real.restart())).unwrap().remove(0)
}

/// Checks and applies, as `udpath apply` does.
fn write(lock: &Lock, prepared: &Prepared) -> Result<Applied, Box<dyn Error>> {
    prepared.check()?;
    let plan = Plan { changes: prepared.changes(), already: Vec::new() };
    Ok(apply(&Live::new(), lock, &plan, None, |_| Ok(()))?)
}

/// From the server's defaults to two threads or larger buffers, and back.
fn changed_and_back(real: &Real, requests: &[&str]) {
    let kind = real.kind();
    real.inside(|| {
        let before = real.tree();
        let service = on_port(real.port()).unwrap().remove(0);
        assert_eq!((service.profile.name.as_str(), service.pid), (kind.name(), real.pid()));
        assert_eq!(service.address.map(|address| address.port()), Some(real.port()));
        assert!(service.unread().is_empty(), "{:?}", service.unread());
        for (name, value, line) in kind.knobs() {
            let service = service.knobs();
            let found = knob(&service, name);
            assert_eq!(found.value.as_deref(), *value, "{name}");
            assert_eq!(matches!(found.origin, Origin::File(..)), *line, "{found:?}");
        }
        let plain = real.shape();
        let journal = tempfile::tempdir().unwrap();
        let lock = Journal::at(journal.path()).lock().unwrap();
        let wanted = prepared(real, requests);
        assert!(!wanted.files.is_empty(), "{wanted:?}");
        let was = wanted.shape();
        let early = wanted.shown(was.as_ref());
        let in_effect = |one: &&Shown| matches!(one.outcome, Outcome::InEffect(_));
        assert_eq!(early.iter().filter(in_effect).count(), 0, "nothing has been changed yet: {early:?}");
        let applied = write(&lock, &wanted).unwrap();
        assert_ne!(real.tree(), before);
        let pid = real.pid();
        assert_ne!(pid, service.pid, "it was restarted");
        let tuned = real.shape();
        assert_eq!(tuned, kind.tuned(&plain), "before: {plain:?}");
        let shown = wanted.shown(was.as_ref());
        assert!(!shown.iter().any(|one| matches!(one.outcome, Outcome::NotInEffect(_))), "{shown:?}");
        let seen = shown.iter().filter(in_effect).count();
        assert_eq!((shown.len(), seen), (wanted.proposals.len(), kind.shown()), "{shown:?}");
        assert!(prepared(real, requests).files.is_empty(), "asked for again, nothing is left to do");
        let undone = undo(&Live::new(), &lock, Some(applied.id), "asked for", false).unwrap();
        assert!(undone.complete && undone.left.is_empty() && undone.untold.is_empty(), "{undone:?}");
        assert_eq!(real.tree(), before);
        assert_ne!(real.pid(), pid);
        assert_eq!(real.shape(), plain);
    });
}

#[test]
fn nsd_gets_a_process_and_a_socket_for_each_cpu() {
    needs_root!();
    changed_and_back(
        &Real::start(Kind::Nsd),
        &["server-count=2", "reuseport=yes", "receive-buffer-size=262144", "send-buffer-size=131072"],
    );
}

/// Their files are this machine's, though they no longer see them there.
#[test]
fn servers_that_change_their_root_are_read_and_changed_where_they_read_their_files() {
    needs_root!();
    for (kind, requests) in [
        (
            Kind::Nsd,
            &["server-count=2", "reuseport=yes", "receive-buffer-size=262144", "send-buffer-size=131072"][..],
        ),
        (Kind::Unbound, &["num-threads=2", "so-rcvbuf=262144", "so-sndbuf=131072"]),
        (Kind::Freeradius, &["recv_buff=131072"]),
    ] {
        let real = Real::start_with_chroot(kind);
        let root = fs::read_link(format!("/proc/{}/root", real.pid())).unwrap();
        assert_ne!(root, std::path::Path::new("/"), "{kind:?}");
        changed_and_back(&real, requests);
    }
}

#[test]
fn knot_gets_fewer_workers() {
    needs_root!();
    changed_and_back(&Real::start(Kind::Knot), &["udp-workers=3"]);
}

#[test]
fn unbound_gets_threads_and_a_larger_buffer() {
    needs_root!();
    changed_and_back(&Real::start(Kind::Unbound), &["num-threads=2", "so-rcvbuf=262144", "so-sndbuf=131072"]);
}

#[test]
fn bind_gets_a_smaller_buffer() {
    needs_root!();
    changed_and_back(
        &Real::start(Kind::Bind),
        &["udp-receive-buffer=131072", "udp-send-buffer=131072", "reuseport=no"],
    );
}

#[test]
fn chrony_stops_recording_clients() {
    needs_root!();
    changed_and_back(&Real::start(Kind::Chrony), &[]);
}

#[test]
fn freeradius_gets_a_smaller_buffer() {
    needs_root!();
    changed_and_back(&Real::start(Kind::Freeradius), &["recv_buff=131072"]);
}

#[test]
fn rsyslog_gets_threads() {
    needs_root!();
    changed_and_back(&Real::start(Kind::Rsyslog), &["threads=2", "batchSize=128", "rcvbufSize=131072"]);
}

#[test]
fn coturn_gets_relay_threads() {
    needs_root!();
    changed_and_back(&Real::start(Kind::Coturn), &["relay-threads=3"]);
}

#[test]
fn a_checker_that_refuses_stops_everything() {
    needs_root!();
    let real = Real::start(Kind::Knot);
    real.inside(|| {
        let (before, pid) = (real.tree(), real.pid());
        let journal = tempfile::tempdir().unwrap();
        let lock = Journal::at(journal.path()).lock().unwrap();
        // More than Knot allows.
        let wanted = prepared(&real, &["udp-workers=1000000"]);
        let refused = write(&lock, &wanted).unwrap_err();
        match refused.downcast_ref() {
            Some(ServiceError::Refused { checker, said, user: 0 }) => {
                assert_eq!(*checker, "knotc");
                assert!(said.contains("udp-workers"), "{said}");
            }
            _ => panic!("{refused:?}"),
        }
        assert_eq!((real.tree(), real.pid()), (before, pid));
        assert!(lock.journal().entries().unwrap().is_empty());
    });
}

#[test]
fn a_server_that_does_not_come_back_is_rolled_back() {
    needs_root!();
    let real = Real::start(Kind::Nsd);
    real.inside(|| {
        let (before, plain) = (real.tree(), real.shape());
        let journal = tempfile::tempdir().unwrap();
        let lock = Journal::at(journal.path()).lock().unwrap();
        // Stops the server, and starts it again only with the old configuration.
        real.refuse_with("udpath.conf");
        let wanted = prepared(&real, &["server-count=2"]);
        let said = write(&lock, &wanted).unwrap_err().to_string();
        assert!(
            said.contains("not with this configuration") && said.contains("undone and verified"),
            "{said}"
        );
        real.accept();
        assert_eq!((real.tree(), real.shape()), (before, plain));
        assert!(undo(&Live::new(), &lock, None, "asked for", false).is_err(), "nothing is left to undo");
    });
}

#[test]
fn a_server_with_files_of_its_own_is_read_there_and_not_changed() {
    needs_root!();
    let real = Real::start_in_a_container(Kind::Nsd);
    real.inside(|| {
        let before = real.tree();
        let service = on_port(real.port()).unwrap().remove(0);
        assert_eq!(knob(&service.knobs(), "server-count").value.as_deref(), Some("2"));
        let journal = tempfile::tempdir().unwrap();
        let lock = Journal::at(journal.path()).lock().unwrap();
        let said = write(&lock, &prepared(&real, &["server-count=3"])).unwrap_err().to_string();
        assert!(said.contains("a container"), "{said}");
        assert_eq!(real.tree(), before);
    });
}

/// `named -t`: its files are in the folder, and its checker changes its root as the server does.
#[test]
fn a_server_whose_root_is_a_folder_is_checked_and_changed_there() {
    needs_root!();
    let real = Real::start_in_a_folder();
    real.inside(|| {
        let (before, pid) = (real.tree(), real.pid());
        let journal = tempfile::tempdir().unwrap();
        let lock = Journal::at(journal.path()).lock().unwrap();
        let wanted = prepared(&real, &["udp-receive-buffer=4194304"]);
        write(&lock, &wanted).unwrap();
        assert_ne!(real.pid(), pid);
        let service = on_port(real.port()).unwrap().remove(0);
        assert_eq!(knob(&service.knobs(), "udp-receive-buffer").value.as_deref(), Some("4194304"));
        let undone = undo(&Live::new(), &lock, None, "asked for", false).unwrap();
        assert!(undone.complete && undone.left.is_empty(), "{undone:?}");
        assert_eq!(real.tree(), before);
    });
}

#[test]
fn what_another_program_changed_is_left_alone() {
    needs_root!();
    let real = Real::start(Kind::Nsd);
    real.inside(|| {
        let journal = tempfile::tempdir().unwrap();
        let lock = Journal::at(journal.path()).lock().unwrap();
        let wanted = prepared(&real, &["server-count=2"]);
        write(&lock, &wanted).unwrap();
        let path = wanted.changes()[0].setting.to_string();
        let path = path.strip_prefix("config:").unwrap();
        let edited = format!("{}# mine\n", fs::read_to_string(path).unwrap());
        fs::write(path, &edited).unwrap();
        let pid = real.pid();
        let undone = undo(&Live::new(), &lock, None, "asked for", false).unwrap();
        assert_eq!(undone.left.len(), 2, "{undone:?}");
        assert_eq!(
            (fs::read_to_string(path).unwrap(), real.pid()),
            (edited, pid),
            "neither changed nor restarted"
        );
    });
}
