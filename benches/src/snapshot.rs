//! Reading a big machine: 128 CPUs, a NIC with 128 queues, 10,000 UDP sockets.
//!
//! The machine is a folder created for the run, in memory. A separate process reads it, so that its memory is that of
//! the snapshot only; the baseline reads the same files and links without parsing them.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit};

use udpath_host::Snapshot;
use udpath_host::sockets::Socket;
use udpath_host::source::Folder;

use crate::claim::{Bound, Claim, Unit};
use crate::memory::peak;
use crate::results::Results;

#[path = "../../crates/host/tests/machines/mod.rs"]
#[allow(dead_code, reason = "of the machines this uses one")]
mod machines;

const CPUS: u32 = 128;
const QUEUES: u32 = 128;
const SOCKETS: u32 = 10_000;
/// Runs of each kind, alternating; the fastest counts, because other programs can only add to it.
const RUNS: usize = 7;
/// Environment variable with the folder for the reading process.
const FOLDER: &str = "UDPATH_BENCH_MACHINE";
/// Limits: time of the big machine and of this one, milliseconds; memory, MiB; multiple of the baseline.
const BIG: f64 = 500.0;
const HERE: f64 = 50.0;
const MEMORY: f64 = 64.0;
const RATIO: f64 = 2.0;
/// Most milliseconds that the sockets of a busy machine may add.
const CROWD: f64 = 200.0;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    if let Some(folder) = env::var_os(FOLDER) {
        read(Path::new(&folder))?;
        std::process::exit(0);
    }
    let folder = machines::folder();
    machines::big::big(CPUS, QUEUES, SOCKETS).write(folder.path());
    let (mut snapshot, mut files, mut here, mut memory) = (f64::MAX, f64::MAX, f64::MAX, 0.0_f64);
    for _ in 0..RUNS {
        let begin = Instant::now();
        let count = walk(folder.path())?;
        files = files.min(milliseconds(begin));
        let [time, peak] = child(folder.path()).with_context(|| format!("of {count} files"))?;
        (snapshot, memory) = (snapshot.min(time), memory.max(peak));
        here = here.min(live(0)?);
    }
    let open = open_sockets()?;
    let mut crowded = f64::MAX;
    for _ in 0..RUNS {
        crowded = crowded.min(live(open.len())?);
    }
    drop(open);
    for (id, what, value, unit, most) in [
        ("big", "snapshot of 128 CPUs, 128 queues, 10,000 sockets", snapshot, Unit::Milliseconds, BIG),
        ("memory", "memory of it", memory, Unit::MebiBytes, MEMORY),
        ("files", "time of it, by that of reading its files unseen", snapshot / files, Unit::Ratio, RATIO),
        ("here", "snapshot of this machine", here, Unit::Milliseconds, HERE),
        ("crowd", "what 10,000 sockets of one process add to it", crowded - here, Unit::Milliseconds, CROWD),
    ] {
        results.add(&Claim::new(&format!("snapshot.{id}"), what, value, unit, Bound::Below(most)));
    }
    Ok(())
}

/// Time of a snapshot of this machine, milliseconds; it must contain at least `wanted` sockets of this process.
fn live(wanted: usize) -> Result<f64> {
    let begin = Instant::now();
    let snapshot = Snapshot::read(&Folder::live());
    let time = milliseconds(begin);
    let own = std::process::id();
    let mine = |socket: &&Socket| socket.owners.iter().any(|owner| owner.pid == own);
    let found = snapshot.sockets.list.iter().filter(mine).count();
    if found < wanted {
        bail!("{found} of {wanted} sockets were seen");
    }
    Ok(time)
}

/// UDP sockets on ports of the loopback address.
pub(crate) fn open_sockets() -> Result<Vec<UdpSocket>> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised)?;
    let open = |_| UdpSocket::bind("127.0.0.1:0").context("cannot open 10,000 sockets");
    (0..SOCKETS).map(open).collect()
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

/// The reading process: prints milliseconds and peak MiB.
fn read(folder: &Path) -> Result<()> {
    let begin = Instant::now();
    let snapshot = Snapshot::read(&Folder::captured(folder));
    let time = milliseconds(begin);
    let sockets = &snapshot.sockets;
    let whole = snapshot.cpus.online.len() == CPUS as usize
        && snapshot.irqs.len() == QUEUES as usize
        && sockets.list.len() == SOCKETS as usize
        && sockets.list.iter().all(|socket| !socket.owners.is_empty());
    if !whole {
        bail!("the snapshot is not whole: {:?}", snapshot.missing);
    }
    println!("{time} {}", peak()?);
    Ok(())
}

fn child(folder: &Path) -> Result<[f64; 2]> {
    let output = Command::new(env::current_exe()?).arg("snapshot").env(FOLDER, folder).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let told = || format!("the reading process said: {text}{}", String::from_utf8_lossy(&output.stderr));
    numbers.try_into().ok().with_context(told)
}

/// Reads everything below a folder; returns the number of files and links.
fn walk(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        count += 1;
        if kind.is_dir() {
            count += walk(&entry.path())?;
        } else if kind.is_symlink() {
            fs::read_link(entry.path())?;
        } else {
            fs::read(entry.path())?;
        }
    }
    Ok(count)
}
