//! A machine with a multi-queue veth, and a check of its state that shares no code with the crate under test.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use udpath_lab::{Lab, LabBuilder, LinkSpec};

/// Sysctls of the namespace that these plans change.
const SYSCTLS: [&str; 3] =
    ["net/ipv4/ip_default_ttl", "net/ipv4/conf/eth0/rp_filter", "net/ipv4/udp_rmem_min"];

/// A lab with machines `here` and `there`.
pub(crate) fn lab(name: &str, queues: u32) -> Lab {
    let builder = LabBuilder::new(name).machine("here").machine("there");
    builder.link("here", "there", &LinkSpec::with_queues(queues)).up().unwrap()
}

/// Everything of `eth0` that these plans may change, as shown by the kernel's files and other programs.
pub(crate) fn look(lab: &Lab) -> String {
    let machine = lab.machine("here").unwrap();
    let mut text = machine
        .run(|| {
            let mut text = String::new();
            let mut show = |path: String| {
                let value = fs::read_to_string(&path).unwrap_or_else(|error| error.to_string());
                let _ = writeln!(text, "{path} {}", value.trim());
            };
            let mut queues: Vec<String> = fs::read_dir("/sys/class/net/eth0/queues")
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            queues.sort();
            for queue in queues {
                let files: &[&str] = if queue.starts_with("rx") {
                    &["rps_cpus", "rps_flow_cnt"]
                } else {
                    &["xps_cpus", "xps_rxqs"]
                };
                files.iter().for_each(|file| show(format!("/sys/class/net/eth0/queues/{queue}/{file}")));
            }
            for file in ["threaded", "napi_defer_hard_irqs", "gro_flush_timeout"] {
                show(format!("/sys/class/net/eth0/{file}"));
            }
            SYSCTLS.iter().for_each(|name| show(format!("/proc/sys/{name}")));
            text
        })
        .unwrap();
    for program in
        [&["ethtool", "-k", "eth0"][..], &["ethtool", "-l", "eth0"], &["tc", "qdisc", "show", "dev", "eth0"]]
    {
        let mut command: Command = machine.command(program[0]);
        let output = command.args(&program[1..]).output().unwrap();
        assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8(output.stdout).unwrap();
        text.extend(shown.lines().map(|line| format!("{}\n", unnumbered(line))));
    }
    text
}

/// A qdisc without the handle that the kernel assigned.
fn unnumbered(line: &str) -> String {
    let number = |word: &&str| {
        line.starts_with("qdisc")
            && word.len() > 4
            && word.split_once(':').is_some_and(|(major, _)| major.len() == 4)
    };
    line.split(' ').filter(|word| !number(word)).collect::<Vec<_>>().join(" ")
}
