//! What a second snapshot of a machine reads, and what it contains.

use std::cell::RefCell;
use std::net::UdpSocket;

use udpath_host::interfaces::Link;
use udpath_host::source::{Answer, Folder, Question};
use udpath_host::{Absence, Fact, Snapshot, Source, Watch};

use crate::machines::{self, list};

/// A source that records the questions, and reports more links than exist.
#[derive(Debug)]
struct Asked<'a> {
    source: &'a dyn Source,
    paths: RefCell<Vec<String>>,
    more: RefCell<Vec<Link>>,
}

impl<'a> Asked<'a> {
    fn new(source: &'a dyn Source) -> Self {
        Self { source, paths: RefCell::default(), more: RefCell::default() }
    }

    /// The questions since the last call.
    fn paths(&self) -> Vec<String> {
        self.paths.take()
    }
}

impl Source for Asked<'_> {
    fn text(&self, path: &str) -> Result<String, Absence> {
        self.paths.borrow_mut().push(path.into());
        self.source.text(path)
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Absence> {
        self.paths.borrow_mut().push(directory.into());
        self.source.names(directory)
    }

    fn target(&self, link: &str) -> Result<String, Absence> {
        self.paths.borrow_mut().push(link.into());
        self.source.target(link)
    }

    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence> {
        self.paths.borrow_mut().push(question.file());
        let mut answer = self.source.ask(question);
        if let Ok(Fact { value: Answer::Links(links), .. }) = &mut answer {
            links.extend(self.more.borrow().iter().cloned());
        }
        answer
    }
}

/// On an idle machine both kinds of snapshot are equal.
#[test]
fn a_second_snapshot_is_equal_and_reads_less() {
    for machine in list::all() {
        let folder = machines::folder();
        machine.write(folder.path());
        let captured = Folder::captured(folder.path());
        let source = Asked::new(&captured);
        let mut watch = Watch::default();
        let first = watch.look(&source).clone();
        assert_eq!(first, Snapshot::read(&captured), "{}", machine.name);
        let whole = source.paths().len();
        assert_eq!(*watch.look(&source), first, "{}", machine.name);
        let again = source.paths();
        assert!(again.len() * 2 < whole, "{}: {} of {whole}: {again:?}", machine.name, again.len());
        assert!(!again.iter().any(|path| path.contains("cpuinfo")), "{}", machine.name);
        assert_eq!(watch.earlier(), Some(&first));
    }
}

#[test]
fn counters_and_new_sockets_are_those_of_now() {
    let _turn = udpath_rig::together();
    let live = Folder::live();
    let source = Asked::new(&live);
    let mut watch = Watch::default();
    watch.look(&source);
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let local = receiver.local_addr().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        sender.send_to(b"x", local).unwrap();
    }
    source.paths();
    let now = watch.look(&source).clone();
    assert!(!source.paths().iter().any(|path| path.contains("cpuinfo")), "everything was read again");
    let then = watch.earlier().unwrap();
    let sent = |snapshot: &Snapshot| snapshot.udp.v4.unwrap().out_datagrams;
    assert!(sent(&now) >= sent(then) + 100);
    let received = |snapshot: &Snapshot| {
        snapshot.interfaces.iter().find(|interface| interface.name == "lo").unwrap().statistics["rx_packets"]
    };
    assert!(received(&now) >= received(then) + 100);
    let socket = now.sockets.list.iter().find(|socket| socket.local == local).expect("the new socket");
    assert!(socket.receive_queue > 0);
    assert!(socket.owners.iter().any(|owner| owner.pid == std::process::id()), "{socket:?}");
    assert!(now.sockets.process(std::process::id()).is_some());
    // The owner stays known, and a closed socket is gone.
    drop(sender);
    let later = watch.look(&source);
    let socket = later.sockets.list.iter().find(|socket| socket.local == local).unwrap();
    assert!(socket.owners.iter().any(|owner| owner.pid == std::process::id()));
}

#[test]
fn reconfiguration_is_reread() {
    let live = Folder::live();
    let source = Asked::new(&live);
    let mut watch = Watch::default();
    let reads_all = |watch: &mut Watch| {
        source.paths();
        watch.look(&source);
        source.paths().iter().any(|path| path.contains("cpuinfo"))
    };
    assert!(reads_all(&mut watch));
    assert!(!reads_all(&mut watch));
    source.more.borrow_mut().push(Link { index: 4_000_000, name: "new0".into(), ..Link::default() });
    assert!(reads_all(&mut watch), "a link that came");
    assert!(!reads_all(&mut watch));
    source.more.borrow_mut()[0].up = true;
    assert!(reads_all(&mut watch), "a link that was set up");
    source.more.borrow_mut().clear();
    assert!(reads_all(&mut watch), "a link that went");
    watch.expire();
    assert!(reads_all(&mut watch), "it was asked for");
}

/// The counters in the kernel's answer equal the files of the same names.
#[test]
fn counters_of_links_are_those_of_their_files() {
    let live = Folder::live();
    let source: &dyn Source = &live;
    let links = source.links().unwrap().value;
    let lo = links.iter().find(|link| link.loopback).unwrap();
    let names = live.names("/sys/class/net/lo/statistics").unwrap();
    assert!(names.iter().all(|name| lo.statistics.contains_key(name)), "{names:?}");
    for (name, count) in &lo.statistics {
        let file: u64 =
            udpath_host::source::number(&live, &format!("/sys/class/net/lo/statistics/{name}")).unwrap();
        // Traffic continues between the two reads.
        assert!(file >= *count && file - count < 1_000_000_000, "{name}: {count}, then {file}");
    }
}
