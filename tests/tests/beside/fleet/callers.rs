//! Callers that compete or die, agents that are ended, and words of agents.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use udpath_host::visible;
use udpath_rig::judged;

use super::*;

/// How long an agent takes to end at SIGTERM (docs/commands/agent.md).
const PROMISED_END: Duration = Duration::from_secs(3);

/// A load that one agent carries out for this long.
fn long<'a>(time: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--agents", "1", "--rate", "50", "-d", time, "--lead", "500ms"], more].concat()
}

#[test]
fn a_second_caller_is_refused_and_the_first_keeps_its_agent() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-two", &[]);
    bed.make_results();
    let mut agent = bed.agent("a00");
    let first = bed.load(&long("10s", &[]));
    agent.says("segment ");
    let second = bed.load(&long("300ms", &["--gather", "1s"])).finish();
    assert_eq!(second.code(), Some(3), "{}", second.err);
    assert!(second.err.contains("a00 refused: it has been busy for"), "{}", second.err);
    assert!(second.err.contains(&format!("another caller, echo to {}", bed.target)), "{}", second.err);
    let ended = first.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert_is_sum(&json(&ended), &bed.kept());
    assert!(agent.says("refused a load").contains("refused a load: it has been busy"));
}

#[test]
fn an_agent_is_free_again_soon_after_its_caller_was_killed() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-killed", &[]);
    bed.make_results();
    let mut agent = bed.agent("a00");
    let caller = bed.load(&long("55s", &[]));
    agent.says("segment ");
    caller.signal(Signal::KILL);
    let _ = caller.finish();
    let next = bed.load(&long("300ms", &["--gather", "30s"])).finish();
    assert_eq!(next.code(), Some(0), "{}", next.err);
    let said = agent.says("the caller has the result");
    assert!(said.contains("the caller is silent"), "{said}");
    // The load of the dead was ended, and its result kept.
    let seconds = bed.kept_all().iter().map(|kept| kept["seconds"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!((0.5..40.0).contains(&seconds), "{seconds}");
}

/// While it works for a caller that is dead, while its server does not answer, and before it has a connection.
#[test]
fn sigterm_ends_an_agent_soon_whatever_it_does() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-term", &[]);
    bed.make_results();
    let ends = |agent: Running, what: &str| {
        let asked = std::time::Instant::now();
        // Two in a row are one request.
        agent.signal(Signal::TERM);
        agent.signal(Signal::HUP);
        let ended = agent.finish();
        assert_eq!(ended.code(), Some(0), "{what}: {}", ended.err);
        assert!(!ended.err.contains("at once"), "{what}: {}", ended.err);
        assert!(asked.elapsed() < PROMISED_END, "{what}: {:?} {}", asked.elapsed(), ended.err);
    };
    let nats = bed.nats.as_ref().unwrap();
    judged("the end of an agent", || {
        nats.signal(Signal::CONT);
        let mut agent = bed.agent("a00");
        let caller = bed.load(&long("55s", &["--timeout", "5s"]));
        agent.says("segment ");
        caller.signal(Signal::KILL);
        let _ = caller.finish();
        ends(agent, "at work for a dead caller");

        let mut agent = bed.agent("a01");
        let caller = bed.load(&long("55s", &[]));
        agent.says("segment ");
        nats.signal(Signal::STOP);
        ends(agent, "at work with a server that does not answer");
        drop(caller);
        let arguments = bed.agent_arguments("a02");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let agent = started(&bed.lab, "client", program(), &arguments);
        std::thread::sleep(Duration::from_millis(500));
        ends(agent, "before it is connected");
    });
    nats.signal(Signal::CONT);
}

/// Nodes of most clouds have names with dots; the server has TLS, and users with the permissions of the docs.
#[test]
fn a_fleet_works_with_tls_credentials_and_names_of_nodes() {
    udpath_lab::needs_root!();
    let node = "ip-10-0-0-1.eu-west-1.compute.internal";
    let bed = Bed::secured("fleet-tls", |nats| vec!["-c".to_owned(), nats.file("nats.conf")]);
    bed.make_results();
    let nats = bed.secured.as_ref().unwrap();
    let (ca, agents, callers) = (nats.file("ca.pem"), nats.file("agent.creds"), nats.file("caller.creds"));
    let arguments = bed.agent_arguments(node);
    let agent = |more: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        started(&bed.lab, "client", program(), &arguments)
    };
    for more in [&["--creds", &agents][..], &["--tls-ca", &ca]] {
        let ended = agent(more).finish();
        assert_eq!(ended.code(), Some(3), "{more:?}: {}", ended.err);
    }
    let mut agent = agent(&["--tls-ca", &ca, "--creds", &agents]);
    agent.says(&format!("{node}: ready for loads"));
    let load = ["--agents", "1", "--rate", "100", "-d", "500ms", "--lead", "500ms", "--gather", "10s"];
    // An agent's user may not call.
    let access = ["--tls-ca", &ca, "--creds", &agents];
    let stranger = bed.load(&[&load[..], &access, &["--gather", "1s"]].concat());
    assert_ne!(stranger.finish().code(), Some(0));
    let access = ["--tls-ca", &ca, "--creds", &callers];
    let ended = bed.load(&[&load[..], &access].concat()).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let sum = json(&ended);
    assert_eq!(sum["segments"]["rows"][0]["name"], node);
    let kept = bed.kept_all();
    assert_eq!((kept.len(), &kept[0]["counts"]), (1, &sum["counts"]));
    assert!(number(&sum["counts"]["sent"]) > 10, "{sum}");
    agent.says("the caller has the result");
}

/// An agent that is not ours: its words hold what a terminal obeys.
#[test]
fn words_of_agents_are_shown_and_not_obeyed() {
    udpath_lab::needs_root!();
    const BAD: &str = "no\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\r\nudpath: all is well";
    let bed = Bed::new("fleet-words", &[]);
    let address = bed.server.trim_start_matches("nats://").to_owned();
    let connect = || {
        // Here, in the lab's machine.
        let stream = TcpStream::connect(address).unwrap();
        let mut to = stream.try_clone().unwrap();
        to.write_all(b"CONNECT {\"verbose\":false}\r\nSUB udpath.default.agents 1\r\nPING\r\n").unwrap();
        (BufReader::new(stream), to)
    };
    let (mut from, mut to) = bed.lab.machine("client").unwrap().run(connect).unwrap();
    let mut line = String::new();
    while line.trim() != "PONG" {
        line.clear();
        assert!(from.read_line(&mut line).unwrap() > 0);
    }
    let load = bed.load(&["--agents", "1", "--rate", "10", "-d", "300ms", "--gather", "3s"]);
    let run = loop {
        line.clear();
        assert!(from.read_line(&mut line).unwrap() > 0);
        if let Some(message) = line.strip_prefix('{').map(|_| serde_json::from_str::<Value>(&line).unwrap()) {
            break message["Announce"]["run"].as_str().unwrap().to_owned();
        }
    };
    let said =
        serde_json::json!({ "version": 2, "agent": "liar", "instance": 1, "said": { "Refused": BAD } });
    let said = said.to_string();
    write!(to, "PUB udpath.default.run.{run} {}\r\n{said}\r\n", said.len()).unwrap();
    let ended = load.finish();
    assert_eq!(ended.code(), Some(3), "{}", ended.err);
    assert!(ended.err.contains("agent liar refused: no\\u001b[2J"), "{}", ended.err);
    assert!(!ended.err.chars().any(|c| c != '\n' && visible::drives(c)), "{:?}", ended.err);
    assert!(ended.err.lines().all(|line| !line.starts_with("udpath: all is well")), "{}", ended.err);
}
