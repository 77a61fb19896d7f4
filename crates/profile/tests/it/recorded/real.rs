//! A real machine: its recording, reduced to what its profile needs, is stored and reads as it did.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use udpath_profile::Profile;
use udpath_profile::classes::Rules;
use udpath_profile::perf::{Clock, Event, Mapped, Record, records};
use udpath_profile::recorder::Recording;
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;

use super::{places, sound};
use crate::rings::around;

/// Samples per second and CPU of a real machine: few, because they are stored.
const RATE: u32 = 97;

/// A profile of bytes and the functions that they need.
fn real(bytes: &[u8], kallsyms: &str) -> Profile {
    let time =
        |record: Record<'_>| if let Record::Sample(sample) = record { Some(sample.time) } else { None };
    let mut times = Vec::new();
    records(bytes, |record| times.extend(time(record)));
    let (begin, end) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    let samples = Samples::new(Kernel::parse(kallsyms), *begin, 1_000_000_000);
    let seconds = (end - begin) as f64 / 1e9;
    let mut recording = Recording { seconds, ..Recording::new(samples, Clock::CpuClock, RATE) };
    let malformed = records(bytes, |record| recording.take(0, &record));
    recording.malformed += malformed;
    let nothing = around::nothing();
    Profile::new(&recording, Rules::built_in(), &nothing, &nothing)
}

/// The part of the kernel's function list that occurs in the samples' chains.
fn needed(bytes: &[u8], kallsyms: &str) -> String {
    let address = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let kinds = |line: &&str| matches!(line.split_whitespace().nth(1), Some("t" | "T" | "w" | "W"));
    let mut all: Vec<(u64, &str)> =
        kallsyms.lines().filter(kinds).filter_map(|line| Some((address(line)?, line))).collect();
    // A stable sort: names of one address keep their order.
    all.sort_by_key(|(address, _)| *address);
    let mut lines = BTreeMap::new();
    records(bytes, |record| {
        let Record::Sample(sample) = record else { return };
        let (mut kernel, mut user) = (Vec::new(), Vec::new());
        sample.chain.split(&mut kernel, &mut user);
        for address in kernel {
            let at = all.partition_point(|(begin, _)| *begin <= address);
            if let Some((begin, _)) = at.checked_sub(1).map(|at| all[at]) {
                let first = all.partition_point(|(address, _)| *address < begin);
                lines.insert(begin, all[first].1);
            }
        }
    });
    lines.into_values().map(|line| format!("{line}\n")).collect()
}

/// A summary of the profile in a few lines.
fn summary(profile: &Profile) -> String {
    let mut text = format!("{} samples, {:?}\n", profile.samples.taken, profile.contexts);
    for share in &profile.classes {
        text += &format!("{} {}\n", share.of.name(), share.ns);
    }
    // Merged over processes: programs without names would otherwise fill the lines.
    let mut stacks = BTreeMap::new();
    for stack in &profile.stacks {
        *stacks.entry((stack.context, stack.frames.join(";"))).or_insert(0) += stack.samples;
    }
    let mut stacks: Vec<_> = stacks.into_iter().collect();
    stacks.sort_by_key(|(_, samples)| Reverse(*samples));
    for ((context, frames), samples) in stacks.iter().take(5) {
        text += &format!("{samples} {context:?}: {frames}\n");
    }
    text
}

/// A short recording of this machine from its own kernel. `tests/rings/real` comes from the files kept below target.
/// Needs root.
#[test]
fn what_this_kernel_writes_is_understood() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let mut event = Event::cpus(&cpus.trim().parse().unwrap(), RATE).unwrap();
    event.start().unwrap();
    let mut program = Command::new("true").spawn().unwrap();
    let (began, socket) = (Instant::now(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = socket.local_addr().unwrap();
    while began.elapsed() < Duration::from_millis(700) {
        socket.send_to(&[7; 100], to).unwrap();
        socket.recv(&mut [0; 100]).unwrap();
    }
    assert!(program.wait().unwrap().success());
    event.stop().unwrap();
    let mut bytes = Vec::new();
    event.drain_bytes(|_, ring| bytes.extend_from_slice(ring));
    // Whole records, without those of programs that started during the recording.
    let mut kept = Vec::new();
    let mut execs = 0;
    for place in places(&bytes) {
        let record = &bytes[place];
        let whose = match Record::parse(record).unwrap() {
            Record::Comm { pid, exec, .. } => {
                execs += u32::from(exec && pid == program.id());
                Some(pid)
            }
            Record::Mapped(Mapped { pid, .. }) | Record::Fork { pid, .. } | Record::Exit { pid, .. } => {
                Some(pid)
            }
            _ => None,
        };
        if whose.is_none_or(|pid| pid == program.id()) {
            kept.extend_from_slice(record);
        }
    }
    assert_eq!(execs, 1, "the program that was started");
    let functions = fs::read_to_string("/proc/kallsyms").unwrap();
    let few = needed(&kept, &functions);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rings");
    fs::create_dir_all(&folder).unwrap();
    let profile = real(&kept, &few);
    for (name, content) in
        [("ring", kept.as_slice()), ("kallsyms", few.as_bytes()), ("expected", summary(&profile).as_bytes())]
    {
        fs::write(folder.join(name), content).unwrap();
    }
    sound(&profile);
    assert_eq!((profile.samples.malformed, profile.samples.nameless), (0, 0));
    assert!(profile.samples.taken > 30, "{} samples", profile.samples.taken);
    let own = profile.processes.iter().find(|process| process.pid == std::process::id());
    assert!(own.is_some_and(|own| own.ns > 0), "{:?}", profile.processes);
    let sends = profile.stacks.iter().any(|stack| stack.frames.iter().any(|frame| frame == "udp_sendmsg"));
    assert!(sends, "{:?}", profile.stacks);
    // The reduced function list gives the same result as the full one.
    assert_eq!(real(&kept, &functions), profile);
}

/// From a virtual machine with two CPUs: see `tests/rings/real/README.md`.
#[test]
fn a_recording_of_a_real_machine_reads_as_ever() {
    let _turn = udpath_rig::together();
    let profile = real(include_bytes!("../../rings/real/ring"), include_str!("../../rings/real/kallsyms"));
    sound(&profile);
    assert_eq!(summary(&profile), include_str!("../../rings/real/expected"));
}
