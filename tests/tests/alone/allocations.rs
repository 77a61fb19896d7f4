//! The packet path allocates nothing: every built-in service over every Io, under load, in this process, whose
//! allocator counts.
//!
//! ```text
//! udpath load (another process) ══ veth ══▸ Server in this process: its workers' calls of malloc are counted once
//!                                           every table and buffer has been used, and must be none
//! ```
//! Other tests of this program wait for their turn meanwhile and allocate nothing.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use udpath_protocols::{Options, ProtocolEntry, find, with_server};
use udpath_rig::{Run, TIMEOUT, client_and_server, json, program};
use udpath_serve::{Config, Io, IoChoice, Server};

pub(crate) mod sys;

/// Time for every table and buffer to be used, and time that is counted.
const SETTLE: Duration = Duration::from_millis(300);
const COUNTED: Duration = Duration::from_millis(500);
/// Requests per second: enough for some ten thousand in the counted time, few enough for a busy machine.
const RATE: u32 = 20_000;
/// Datagrams that must have been served in the counted time. Fewer: nothing is shown. More: a starved machine fails.
const LEAST: u64 = 1_000;

/// What a service is started and loaded with.
struct Case {
    service: &'static ProtocolEntry,
    serve: Vec<(&'static str, String)>,
    load: Vec<String>,
}

impl Case {
    fn new(name: &str) -> Self {
        let service = find(name).expect("a service of that name");
        Self { service, serve: Vec::new(), load: Vec::new() }
    }

    fn serve(mut self, option: &'static str, value: &str) -> Self {
        self.serve.push((option, value.to_owned()));
        self
    }

    fn load(mut self, arguments: &[&str]) -> Self {
        self.load.extend(arguments.iter().map(ToString::to_string));
        self
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        for (name, value) in &self.serve {
            let spec = self.service.serve_options.iter().find(|spec| spec.name == *name);
            options.push(spec.unwrap_or_else(|| panic!("{} has no --{name}", self.service.name)), value);
        }
        options
    }
}

/// Every service that `udpath serve` has, with files of its own in `folder`.
fn cases(folder: &Path) -> Vec<Case> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let zone = write(
        "example.zone",
        "$ORIGIN example.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 300\n@ NS ns\nns A 192.0.2.1\n\
         www A 192.0.2.2\n* TXT \"any\"\nmail MX 10 www\nalias CNAME www\n",
    );
    let queries = write(
        "queries",
        "www.example A\nmail.example MX\nalias.example A\nno.www.example A\nx.example TXT\n",
    );
    let users = write("users", "alice Cleartext-Password := \"secret\"\n\tReply-Message := \"hello\"\n");
    let clients = write("clients", "0.0.0.0/0 testing123\n");
    let cases = vec![
        Case::new("echo"),
        Case::new("sink"),
        Case::new("ntp"),
        // Without its limit, which would refuse what one client asks.
        Case::new("dns")
            .serve("zone", &zone)
            .serve("responses-per-second", "off")
            .load(&["--queries", &queries]),
        Case::new("radius").serve("users", &users).serve("clients", &clients).load(&["--users", &users]),
    ];
    let served: Vec<_> = with_server().map(|service| service.name).collect();
    assert_eq!(
        cases.iter().map(|case| case.service.name).collect::<Vec<_>>(),
        served,
        "every service has a case"
    );
    cases
}

/// Datagrams that a server has received so far.
fn served(server: &Server) -> u64 {
    server.status().total.received
}

/// The threads of this process that are called as a server's workers are.
fn workers() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| fs::read(thread.path().join("comm")).ok());
    names.filter(|name| sys::is_workers(name.trim_ascii_end())).count()
}

#[test]
fn what_a_worker_allocates_is_counted() {
    let _turn = udpath_rig::alone();
    let calls = |name: &str| {
        let allocates = || drop(std::hint::black_box(vec![0_u8; 100]));
        let thread = std::thread::Builder::new().name(name.to_owned());
        sys::counted(|| thread.spawn(allocates).unwrap().join().unwrap())
    };
    assert!(calls("echo-0") > 0);
    assert_eq!(calls("another"), 0);
}

#[test]
fn no_service_allocates_for_a_datagram_over_any_io() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    let lab = client_and_server("allocations", 2);
    let to = lab.address_of("server", "client").unwrap().ipv4;
    for case in cases(folder.path()) {
        for io in Io::ALL {
            let name = format!("{} over {io}", case.service.name);
            let config =
                Config { io: IoChoice::Only(io), ..Config::new(vec!["0.0.0.0:7000".parse().unwrap()]) };
            let start = case.service.start.expect("it has a server");
            let server = lab.machine("server").unwrap().run(|| start(&config, false, &case.options()));
            let server = server.unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));

            let mut inside = lab.machine("client").unwrap().command(program());
            inside.args(["load", case.service.name, &format!("{to}:7000"), "--json", "--flows", "128"]);
            inside.args(["--rate", &RATE.to_string(), "-d", "1500ms"]).args(&case.load);
            let mut load =
                Run::of(inside, "load").within(TIMEOUT * 2).start_with(|command| lab.spawn(command));
            sleep(SETTLE);
            let before = served(&server);
            let until = Instant::now() + TIMEOUT;
            while served(&server) == before {
                if load.has_ended() || Instant::now() > until {
                    let ended = load.finish();
                    panic!("{name}: nothing arrives: {}{}", ended.out, ended.err);
                }
                sleep(Duration::from_millis(10));
            }
            sleep(SETTLE);
            let before = served(&server);
            assert!(workers() > 0, "{name}: no thread has a worker's name");
            let allocations = sys::counted(|| sleep(COUNTED));
            let datagrams = served(&server) - before;
            let ended = load.finish();
            assert_eq!(json(ended.out.as_bytes())["schema"], "udpath.load/1", "{name}: {}", ended.err);
            server.stop().unwrap();
            assert!(datagrams >= LEAST, "{name}: only {datagrams} datagrams in {COUNTED:?}: {}", ended.err);
            assert_eq!(allocations, 0, "{name}: allocations for {datagrams} datagrams");
        }
    }
}
