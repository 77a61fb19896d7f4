//! coturn. It has no checker: it is started, says how many threads relay, and is ended.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::*;

const PROGRAM: &str = "/usr/bin/turnserver";
/// It starts within a tenth of a second; on a busy machine that takes longer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// So that nothing of it stays: its ports are the test's.
const REST: &str = "listening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nno-cli\nno-tls\nno-dtls\nsimple-log\n";

/// A file with this line, and what the test needs.
fn written(folder: &Path, text: &str) -> PathBuf {
    let main = folder.join("turnserver.conf");
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let here = folder.display();
    let rest = format!("{REST}listening-port={port}\npidfile={here}/pid\nuserdb={here}/db\n");
    fs::write(&main, format!("{rest}{text}\n")).unwrap();
    main
}

/// The threads that relay; 0 are said to be one, the main thread.
fn started(main: &Path) -> Option<u64> {
    let mut server = Command::new(PROGRAM)
        .arg("-c")
        .arg(main)
        .args(["-l", "stdout"])
        .current_dir(start_of(main))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + TIMEOUT;
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut said = lines.map_while(Result::ok).take_while(|_| Instant::now() < until);
    let number = said.find_map(|line| line.split_once("Total General servers: ")?.1.trim().parse().ok());
    server.kill().unwrap();
    server.wait().unwrap();
    number
}

#[test]
fn what_turnserver_reads_is_what_turnserver_starts() {
    let oracle = Oracle {
        server: "coturn",
        program: PROGRAM,
        generate: |_| unreachable!("each takes a start"),
        values: |_, _| None,
        cases: 0,
    };
    if !oracle.is_installed() {
        return;
    }
    // Lines that are none follow one that counts.
    for text in [
        "relay-threads=4",
        "relay-threads=5\nRelay-Threads=4",
        "relay-threads=5\nRELAY-THREADS 4",
        "relay-threads=5\nrelay-threads: 4",
        "relay-threads=5\n--relay-threads=4",
        "relay-threads=5\n; relay-threads=4",
        "relay-threads=3\nrelay-threads=4",
        "\trelay-threads = = 4 # c",
        "relay-threads=4;",
        "relay-threads=010",
        "relay-threads=5x9",
        "relay-threads= +6",
        "relay-threads=\"4\"",
        "relay-threads=\"4\" # c",
        "relay-threads=\"4#c\"",
        "relay-threads=\"4",
        "relay-threads='4'",
        "relay-threads=x",
        "relay-threads=0x5",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let main = written(folder.path(), text);
        for change in [false, true] {
            let theirs = started(&main).unwrap_or_else(|| panic!("{text}: it does not start"));
            let service = oracle.service(&main);
            let [knob] = &service.knobs()[..] else { panic!("one knob") };
            let ours: u64 = knob.value.as_deref().unwrap().parse().unwrap();
            assert_eq!(ours.max(1), theirs, "{text}");
            if change {
                assert_eq!(ours, 7, "{text}");
                continue;
            }
            let files = service.files(&[service.propose("relay-threads", "7").unwrap()]).unwrap();
            fs::write(&main, &files[0].new).unwrap();
        }
    }
}
