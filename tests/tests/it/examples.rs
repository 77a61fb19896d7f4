//! The examples of the library crates run as they say: the datapath's answers the load's, over a lab's link. Needs
//! root.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use udpath_lab::{LabBuilder, LinkSpec, Offloads};
use udpath_rig::{Run, TIMEOUT, program};

fn example(package: &str, name: &str) -> PathBuf {
    let example = program().with_file_name("examples").join(name);
    assert!(example.is_file(), "no {}: run `cargo build -p {package} --examples` first", example.display());
    example
}

fn numbers(text: &str) -> Vec<u64> {
    text.split([' ', ',', '\n']).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_datapath_answers_the_load() {
    udpath_lab::needs_root!();
    // A veth that leaves checksums to a card that it does not have would hand them over unfinished.
    let offloads = Offloads { tx_checksum: false, tso: false, ..Offloads::default() };
    let link = LinkSpec { offloads, ..LinkSpec::with_queues(1) };
    let lab = LabBuilder::new("examples").machine("client").machine("server").link("client", "server", &link);
    let lab = lab.up().unwrap();
    let address = format!("{}:7000", lab.address_of("server", "client").unwrap().ipv4);
    let mut inside = lab.machine("server").unwrap().command(example("udpath-stack", "stack_echo"));
    inside.args(["eth0", &address]);
    let mut input = None;
    let mut server = Run::of(inside, "stack_echo").within(TIMEOUT * 2).start_with(|mut command: Command| {
        command.stdin(Stdio::piped());
        let mut child = lab.spawn(command)?;
        input = child.stdin.take();
        Ok::<_, udpath_lab::Error>(child)
    });
    server.says("end the input to stop");
    let mut inside = lab.machine("client").unwrap().command(example("udpath-load", "load_echo"));
    inside.args([&address, "2000", "0.5"]);
    let load = Run::of(inside, "load_echo").within(TIMEOUT).start_with(|command| lab.spawn(command)).finish();
    assert_eq!(load.code(), Some(0), "{}", load.err);
    drop(input);
    let server = server.finish();
    assert_eq!(server.code(), Some(0), "{}", server.err);
    let line = load.out.lines().find(|line| line.contains(" sent, ")).unwrap();
    let [sent, ok, lost] = numbers(line)[..] else { panic!("{line}") };
    assert!(sent > 500 && ok == sent && lost == 0, "{line}");
    assert_eq!(numbers(&server.out), [sent], "{}", server.out);
    lab.down().unwrap();
}

#[test]
fn the_queue_of_a_flow_is_that_of_its_hash() {
    let mut command = Command::new(example("udpath-steer", "which_queue"));
    command.args(["66.9.149.187", "161.142.100.80:1766", "4"]);
    let ended = Run::of(command, "which_queue").finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let lines: Vec<_> = ended.out.lines().collect();
    assert_eq!(lines.len(), 8, "{}", ended.out);
    for line in lines {
        let hash = line.split("hash 0x").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        let hash = u32::from_str_radix(hash, 16).unwrap();
        // 128 entries, given out in turn.
        assert!(line.ends_with(&format!("queue {}", hash % 128 % 4)), "{line}");
    }
}
