//! The tutorial: its code is that of the examples, and they run as it says, on every Io. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use udpath_lab::Lab;
use udpath_rig::{Run, TIMEOUT, client_and_server, program};

/// Requests per second: few enough for any machine.
const RATE: &str = "2000";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn example(name: &str) -> PathBuf {
    let example = program().with_file_name("examples").join(name);
    assert!(
        example.is_file(),
        "no {}: run `cargo build -p udpath-protocols --examples` first",
        example.display()
    );
    example
}

#[test]
fn the_code_is_that_of_the_examples() {
    let page = fs::read_to_string(repository().join("docs/tutorial.md")).unwrap();
    let examples = ["squares", "squares_load"].map(|name| {
        let file = repository().join(format!("crates/protocols/examples/{name}.rs"));
        fs::read_to_string(file).unwrap()
    });
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).map(|block| block.split("\n```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 3, "two of the service, one of the load");
    for block in blocks {
        let found = examples.iter().any(|example| example.contains(block));
        assert!(found, "not in an example:\n{block}");
    }
    let service = page.split("```rust\n").nth(1).unwrap().split("\n```").next().unwrap();
    assert!(service.lines().count() <= 30, "a service of {} lines", service.lines().count());
}

/// A load of the service over `io`; returns what both said.
fn served(lab: &Lab, io: &str, address: &str) -> [String; 2] {
    let mut inside = lab.machine("server").unwrap().command(example("squares"));
    inside.args([io, address]);
    let mut input = None;
    let run = Run::of(inside, "squares").within(TIMEOUT * 2);
    let mut server = run.start_with(|mut command: Command| {
        command.stdin(Stdio::piped());
        let mut child = lab.spawn(command)?;
        input = child.stdin.take();
        Ok::<_, udpath_lab::Error>(child)
    });
    let ready = server.says("end the input to stop");
    assert!(io == "auto" || ready.contains(&format!("ready io={io} bind={address};")), "{ready}");
    let mut inside = lab.machine("client").unwrap().command(example("squares_load"));
    inside.args([address, RATE, "0.5"]);
    let load =
        Run::of(inside, "squares_load").within(TIMEOUT).start_with(|command| lab.spawn(command)).finish();
    assert_eq!(load.code(), Some(0), "{io}: {}", load.err);
    drop(input);
    let server = server.finish();
    assert_eq!(server.code(), Some(0), "{io}: {}", server.err);
    [load.out, server.out]
}

#[test]
fn the_service_answers_its_load_on_every_io() {
    udpath_lab::needs_root!();
    let lab = client_and_server("tutorial", 2);
    let address = format!("{}:7000", lab.address_of("server", "client").unwrap().ipv4);
    for io in ["shared", "reuseport", "percpu", "xdp", "auto"] {
        let [load, server] = served(&lab, io, &address);
        // "1998 squares/s: 999 sent, 999 ok, 0 wrong"
        let line =
            load.lines().find(|line| line.contains(" squares/s: ")).unwrap_or_else(|| panic!("{io}: {load}"));
        let numbers: Vec<u64> = line.split([' ', ':', ',']).filter_map(|word| word.parse().ok()).collect();
        let [_rate, sent, ok, wrong] = numbers[..] else { panic!("{io}: {line}") };
        assert!(sent > 500 && ok == sent && wrong == 0, "{io}: {line}");
        let numbers: Vec<u64> = server.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(
            numbers.len() == 2 && numbers[0] == numbers[1] && numbers[0] == sent,
            "{io}: {load} {server}"
        );
    }
    lab.down().unwrap();
}
