//! Callers and agents over a bus that loses and repeats messages, with callers that die and agents that do not exist.
//! The loads are real, to an echo server on the loopback.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::result::LoadResult;
use udpath_load::{Engine, Progress};
use udpath_protocols::{Options, PROTOCOLS};

use crate::agent::{self, Config, Event, LEASE, Worker};
use crate::caller::{self, Call, Error, Outcome};
use crate::link::{self, Channel, Incoming};
use crate::message::{self, FromAgent, Order, Said, ToAgent, VERSION};
use crate::{Access, Limits, agent_subject, clock, subject};

const FLEET: &str = "faults";
/// Longest wait of a test for something that happens by itself.
const LONG: Duration = Duration::from_secs(120);

/// What becomes of each message.
#[derive(Debug, Clone, Copy)]
struct Faults {
    /// How many of ten are lost.
    lost: u64,
    /// How often each of the others arrives.
    copies: usize,
}

const NONE: Faults = Faults { lost: 0, copies: 1 };

type Ears = Vec<(String, Sender<Incoming>)>;

#[derive(Clone)]
struct Bus {
    ears: Arc<Mutex<Ears>>,
    random: Arc<AtomicU64>,
    faults: Faults,
}

/// One side's place on a bus.
struct Port {
    bus: Bus,
    incoming: Receiver<Incoming>,
}

impl Bus {
    fn new(faults: Faults) -> Self {
        Self { ears: Arc::default(), random: Arc::new(AtomicU64::new(1)), faults }
    }

    fn port(&self, subjects: &[String]) -> Port {
        let (sender, incoming) = channel();
        let ears = subjects.iter().map(|subject| (subject.clone(), sender.clone()));
        self.ears.lock().unwrap().extend(ears);
        Port { bus: self.clone(), incoming }
    }

    /// 0 to 9, from Knuth's generator.
    fn die(&self) -> u64 {
        let next = |seed: u64| Some(seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap() >> 33
    }
}

impl Channel for Port {
    fn send(&self, subject: &str, payload: Vec<u8>) {
        for (_, ear) in self.bus.ears.lock().unwrap().iter().filter(|(wanted, _)| wanted == subject) {
            if self.bus.die() % 10 >= self.bus.faults.lost {
                for _ in 0..self.bus.faults.copies {
                    let _ = ear.send(Incoming { at: clock::now(), payload: payload.clone() });
                }
            }
        }
    }

    fn next(&self, within: Duration) -> Option<Incoming> {
        match self.incoming.recv_timeout(within) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(within);
                None
            }
        }
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn close(&mut self, _within: Duration) {}
}

/// Carries out echo loads; one that is stubborn does not end when it is asked to.
struct Echo {
    stubborn: bool,
}

impl Worker for Echo {
    fn check(&self, _order: &Order) -> Result<usize, String> {
        Ok(0)
    }

    fn run(
        &self,
        order: &Order,
        progress: &mut dyn FnMut(&Progress),
        stop: &AtomicBool,
    ) -> Result<LoadResult, String> {
        if self.stubborn {
            thread::sleep(LONG);
        }
        let entry = PROTOCOLS.iter().find(|entry| entry.name == "echo").unwrap();
        let protocol = (entry.load)(1, &Options::default()).map_err(|error| error.to_string())?;
        udpath_load::run(&order.plan, Engine::Socket, &*protocol, progress, stop)
            .map_err(|error| error.to_string())
    }
}

/// An agent, and its log.
struct Running {
    stop: Arc<AtomicBool>,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn agent(bus: &Bus, name: &str) -> Self {
        Self::of(bus, name, false)
    }

    fn of(bus: &Bus, name: &str, stubborn: bool) -> Self {
        let port = bus.port(&[subject(FLEET, "agents"), agent_subject(FLEET, name)]);
        let limits = Limits {
            targets: vec!["127.0.0.1".parse().unwrap()],
            rate: Some(1000.0),
            bits: None,
            time: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
            flows: 16,
            memory: 64 << 20,
            options: Vec::new(),
        };
        let config = Config { access: Access::default(), fleet: FLEET.into(), name: name.into(), limits };
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, events) = channel();
        let its_stop = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut log = |event| drop(sender.send(event));
            agent::serve_over(port, &config, Arc::new(Echo { stubborn }), &its_stop, &mut log);
        });
        Self { stop, events, thread: Some(thread) }
    }

    fn wait_for(&self, wanted: impl Fn(&Event) -> bool) {
        let until = Instant::now() + LONG;
        while let Ok(event) = self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if wanted(&event) {
                return;
            }
        }
        panic!("the agent did not report that");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An echo server that lives as long as the test's process.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], peer);
        }
    });
    address
}

fn load(agents: u32, duration: Duration) -> Call {
    let mut plan = Plan::new(echo());
    plan.arrivals = Arrivals::Open { rate: 200.0, process: Process::Constant };
    (plan.flows, plan.duration) = (4, duration);
    let order = Order { protocol: "echo".into(), engine: "socket".into(), options: Vec::new(), plan };
    Call {
        access: Access::default(),
        fleet: FLEET.into(),
        order,
        agents: Some(agents),
        gather: Duration::from_secs(60),
        lead: Duration::from_secs(3),
    }
}

fn call(bus: &Bus, run: &str, call: &Call) -> Result<Outcome, Error> {
    let port = bus.port(&[subject(FLEET, &format!("run.{run}"))]);
    caller::call_over(&port, run.into(), call, &mut |_| {}, &AtomicBool::new(false))
}

/// A call in a thread, for tests in which it might never end.
fn called(bus: &Bus, run: &'static str, wanted: Call) -> Receiver<Result<Outcome, Error>> {
    let ((sender, receiver), bus) = (channel(), bus.clone());
    thread::spawn(move || drop(sender.send(call(&bus, run, &wanted))));
    receiver
}

fn announce(port: &Port, run: &str, version: u32) {
    let order = Box::new(load(1, Duration::from_secs(1)).order);
    link::send(port, &subject(FLEET, "agents"), &ToAgent::Announce { run: run.into(), version, order });
}

/// The next message that is `wanted`.
fn said<T>(port: &Port, wanted: impl Fn(FromAgent) -> Option<T>) -> T {
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        let message = port.next(Duration::from_millis(20));
        let message = message.map(|message| serde_json::from_slice(&message.payload).unwrap());
        if let Some(found) = message.and_then(&wanted) {
            return found;
        }
    }
    panic!("no such message came");
}

fn refusal(message: FromAgent) -> Option<String> {
    match message.said {
        Said::Refused(why) => Some(why),
        _ => None,
    }
}

#[test]
fn messages_that_are_lost_cost_no_agent_and_no_result() {
    let bus = Bus::new(Faults { lost: 3, copies: 1 });
    let agents = ["a", "node.b"].map(|name| Running::agent(&bus, name));
    let outcome = call(&bus, "lost", &load(2, Duration::from_secs(1))).unwrap();
    assert_eq!((outcome.lost.len(), outcome.result.counts.sent), (0, 200));
    drop(agents);
}

#[test]
fn messages_that_come_twice_begin_nothing_twice() {
    let bus = Bus::new(Faults { lost: 0, copies: 3 });
    let agent = Running::agent(&bus, "a");
    let outcome = call(&bus, "twice", &load(1, Duration::from_secs(1))).unwrap();
    assert_eq!(outcome.result.counts.sent, 200);
    agent.wait_for(|event| *event == Event::Delivered);
    // All of it again, after the end.
    announce(&bus.port(&[]), "twice", VERSION);
    agent.stop.store(true, Ordering::Relaxed);
    while let Ok(event) = agent.events.recv_timeout(LONG) {
        assert!(!matches!(event, Event::Started(..)), "{event:?}");
    }
}

#[test]
fn a_second_caller_is_refused_with_a_word_and_the_first_keeps_its_agents() {
    let bus = Bus::new(NONE);
    let agent = Running::agent(&bus, "a");
    let first = called(&bus, "first", load(1, Duration::from_secs(8)));
    agent.wait_for(|event| matches!(event, Event::Started(..)));
    let second = Call { gather: Duration::from_secs(2), ..load(1, Duration::from_secs(1)) };
    let refused = call(&bus, "second", &second).unwrap_err().to_string();
    assert!(refused.contains("a refused: it has been busy for"), "{refused}");
    assert!(refused.contains("with load first of another caller, echo to 127.0.0.1:"), "{refused}");
    assert_eq!(first.recv_timeout(LONG).unwrap().unwrap().result.counts.sent, 1600);
    // Free again.
    assert_eq!(call(&bus, "third", &load(1, Duration::from_secs(1))).unwrap().result.counts.sent, 200);
}

/// A caller that dies after the offer, and one that dies in the middle of the load.
#[test]
fn an_agent_is_free_again_a_few_beats_after_its_caller_died() {
    let bus = Bus::new(NONE);
    let agent = Running::agent(&bus, "a");
    let port = bus.port(&[subject(FLEET, "run.dead")]);
    announce(&port, "dead", VERSION);
    let instance = said(&port, |message| matches!(message.said, Said::Offer).then_some(message.instance));
    agent.wait_for(|event| *event == Event::CallerLost);

    let port = bus.port(&[subject(FLEET, "run.dying")]);
    let mut order = load(1, Duration::from_secs(55)).order;
    order.plan.flows = 1;
    let (run, order) = ("dying".to_owned(), Box::new(order));
    link::send(
        &port,
        &subject(FLEET, "agents"),
        &ToAgent::Announce { run: run.clone(), version: VERSION, order },
    );
    let segment = udpath_load::plan::Segment::WHOLE;
    let prepare = ToAgent::Prepare { run, instance, segment, start: clock::now() + 500_000_000, ahead: 0 };
    link::send(&port, &agent_subject(FLEET, "a"), &prepare);
    said(&port, |message| matches!(message.said, Said::Prepared).then_some(()));
    let begun = Instant::now();
    agent.wait_for(|event| *event == Event::CallerLost);
    assert!(begun.elapsed() >= LEASE, "a caller that is only slow keeps its agents");
    // Not at the load's own end.
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    assert_eq!(call(&bus, "next", &load(1, Duration::from_secs(1))).unwrap().result.counts.sent, 200);
}

#[test]
fn offers_of_agents_that_do_not_exist_stall_no_caller() {
    let bus = Bus::new(NONE);
    let agent = Running::agent(&bus, "true");
    let done =
        called(&bus, "flood", Call { gather: Duration::from_secs(20), ..load(1, Duration::from_secs(1)) });
    let liar = bus.port(&[]);
    for number in 0..20_000u64 {
        let agent = format!("false-{number}");
        for said in [Said::Offer, Said::Clock { asked: number, received: number, answered: number }] {
            let message = FromAgent { version: VERSION, agent: agent.clone(), instance: number, said };
            link::send(&liar, &subject(FLEET, "run.flood"), &message);
        }
    }
    let outcome = done.recv_timeout(LONG).expect("the caller waits for agents that do not exist").unwrap();
    assert_eq!((outcome.lost.len(), outcome.result.counts.sent), (0, 200));
    drop(agent);
}

#[test]
fn programs_of_other_versions_are_refused_with_a_word() {
    let bus = Bus::new(NONE);
    let agent = Running::agent(&bus, "a");
    let port = bus.port(&[subject(FLEET, "run.old")]);
    announce(&port, "old", 1);
    let why = said(&port, refusal);
    assert_eq!(why, message::mismatch(1));
    assert!(why.contains("version 1") && why.contains("install the same udpath"), "{why}");
    drop(agent);
    // An agent of the first version.
    let old = bus.port(&[subject(FLEET, "agents")]);
    let done =
        called(&bus, "new", Call { gather: Duration::from_secs(2), ..load(1, Duration::from_secs(1)) });
    assert!(old.next(LONG).is_some());
    old.send(&subject(FLEET, "run.new"), br#"{"agent":"old","instance":7,"said":"Offer"}"#.to_vec());
    let why = done.recv_timeout(LONG).unwrap().unwrap_err().to_string();
    assert!(why.contains("old refused: it speaks version 1"), "{why}");
}

#[test]
fn an_agent_ends_soon_whatever_its_load_does() {
    let bus = Bus::new(NONE);
    let mut agent = Running::of(&bus, "a", true);
    let done = called(&bus, "stubborn", load(1, Duration::from_secs(30)));
    agent.wait_for(|event| matches!(event, Event::Started(..)));
    let asked = Instant::now();
    agent.stop.store(true, Ordering::Relaxed);
    agent.thread.take().unwrap().join().unwrap();
    assert!(asked.elapsed() < LONG / 2, "it waited for its load: {:?}", asked.elapsed());
    let why = done.recv_timeout(LONG).unwrap().unwrap_err().to_string();
    assert!(why.contains("it was ended before the last replies had come"), "{why}");
}
