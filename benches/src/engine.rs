//! The cost of the in-kernel loop.
//!
//! ```text
//!   client: closed_loop  <-- veth -->  server: answer      total: T per transaction
//!   client: answer       <-- veth -->  server: answer      floor: F, two ends that only turn frames round
//! ```
//! Both ends of the floor do the same work, so one end costs F/2, and the engine (its end of the veth and its program)
//! costs T - F/2. Both run only in softirq, so the benchmark counts softirq time of all CPUs.
//!
//! With NTP the engine's requests are prebuilt, and the server's program writes a reply: what that costs more than
//! returning the frame counts against the engine. NTP needs one request; with 65,536, none of them is in the first
//! cache. DNS queries for as many names go to a server that only sets the response bit.

use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use udpath_load::cpu::CpuUse;
use udpath_load::record::Stopwatch;
use udpath_load::template::{InKernel, Prebuilt, Protocol, Template, Written};
use udpath_protocols::ntp::{Header, NtpLoad};
use udpath_rig::Answer;

use crate::bed::{Bed, FLOWS};
use crate::claim::{Bound, Claim, Unit};
use crate::dns;
use crate::results::Results;

/// Port of the server, and of the client in the floor.
const SERVER: u16 = 7777;
const CLIENT: u16 = 5555;
/// Frames in flight, in the floor and in the loop: one NAPI poll's budget (64) on each of two CPUs, and two. The bound
/// is the same for both: with more frames a poll's own cost is spread over more of them, and they take more cache.
const FRAMES: [usize; 2] = [128, 256];
/// Measurements of each kind. The median of the differences counts: one disturbed pair has no influence.
const PAIRS: usize = 9;
/// Nanoseconds of CPU the engine may cost per transaction: with an echo server, and with prebuilt requests.
const MOST: [f64; 4] = [100.0, 130.0, 130.0, 130.0];
/// Payload bytes of an echo.
const ECHO_LEN: usize = 100;
/// Those of the longest DNS query: the header, `h12345.example.org`, type and class.
const DNS_LEN: usize = 12 + 20 + 4;

/// What the loop sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requests {
    Echo,
    Ntp,
    ManyNtp,
    Dns,
}

impl Requests {
    /// Name of the claim, and what it is of.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Echo => ("engine", "kernel engine"),
            Self::Ntp => ("engine.ntp", "kernel engine, prebuilt request (NTP)"),
            Self::ManyNtp => ("engine.prebuilt", "kernel engine, 65,536 prebuilt requests (NTP)"),
            Self::Dns => ("engine.dns", "kernel engine, 65,536 prebuilt requests (DNS)"),
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::Echo => ECHO_LEN,
            Self::Ntp | Self::ManyNtp => Header::LEN,
            Self::Dns => DNS_LEN,
        }
    }

    fn serve(self, bed: &Bed) -> Result<Answer> {
        let server = bed.lab.machine("server")?;
        let interface = server.towards("client")?.name().to_owned();
        let answer = match self {
            Self::Echo => Answer::attach,
            Self::Ntp | Self::ManyNtp => Answer::attach_ntp,
            Self::Dns => Answer::attach_dns,
        };
        Ok(server.run(|| answer(&interface, SERVER))??)
    }
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let bed = Bed::new(false)?;
    for (requests, most) in
        [Requests::Echo, Requests::Ntp, Requests::ManyNtp, Requests::Dns].into_iter().zip(MOST)
    {
        for frames in FRAMES {
            let claim = measure(&bed, requests, frames, most)?;
            results.add(&claim);
        }
    }
    Ok(())
}

fn measure(bed: &Bed, requests: Requests, frames: usize, most: f64) -> Result<Claim> {
    let mut engine = Vec::new();
    let mut total = Vec::new();
    let (name, of) = requests.names();
    for pair in 1..=PAIRS {
        let floor = {
            let _answer = Requests::Echo.serve(bed)?;
            floor(bed, frames, requests.size())?
        };
        let with_engine = {
            let _answer = requests.serve(bed)?;
            with_engine(bed, requests, frames)?
        };
        engine.push(with_engine - floor / 2.0);
        total.push(with_engine);
        eprintln!("  {name}, {frames} frames, pair {pair} of {PAIRS}: {:.0} ns", with_engine - floor / 2.0);
    }
    let (engine, low, high) = spread(&mut engine);
    let (total, ..) = spread(&mut total);
    let what = format!("{of}, CPU per transaction, {frames} frames in flight");
    let claim = Claim::new(&format!("{name}.{frames}"), what, engine, Unit::Nanoseconds, Bound::Below(most));
    Ok(claim.within(low, high).with(format!("both ends {total:.0} ns")))
}

/// NTP with as many requests as the engine takes. They differ in what the engine replaces, which costs the same.
struct Many(NtpLoad);

impl Protocol for Many {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn min_size(&self) -> usize {
        self.0.min_size()
    }

    fn in_kernel(&self) -> Option<InKernel> {
        self.0.in_kernel().map(|requests| match requests {
            InKernel::Prebuilt(one) => {
                InKernel::Prebuilt(Prebuilt { requests: Written::InTurn(65_536), ..one })
            }
            InKernel::Echo => InKernel::Echo,
        })
    }

    fn template(&self) -> Box<dyn Template> {
        self.0.template()
    }
}

/// CPU nanoseconds per transaction with the engine at one end.
fn with_engine(bed: &Bed, requests: Requests, frames: usize) -> Result<f64> {
    let (target, inflight) = (bed.server(SERVER)?, frames as u32 / FLOWS);
    let ntp = NtpLoad::new(u64::from(std::process::id()));
    let result = match requests {
        Requests::Echo => bed.loop_with(target, inflight)?,
        Requests::Ntp => bed.loop_of((&ntp, Header::LEN), target, inflight)?,
        Requests::ManyNtp => bed.loop_of((&Many(ntp), Header::LEN), target, inflight)?,
        Requests::Dns => {
            let load = dns::load(&[("name", "h{}.example.org"), ("names", "65536")])?;
            ensure!(load.min_size() == DNS_LEN, "the longest query has {} bytes", load.min_size());
            bed.loop_of((&load, DNS_LEN), target, inflight)?
        }
    };
    let counts = &result.counts;
    ensure!(counts.corrupt + counts.refused + counts.wrong_flow == 0, "wrong replies: {counts:?}");
    Ok(softirq_seconds(&result.cpus) / (result.tps * result.seconds) * 1e9)
}

fn softirq_seconds(cpus: &[CpuUse]) -> f64 {
    cpus.iter().map(|cpu| cpu.soft * cpu.seconds).sum()
}

/// CPU nanoseconds per round when both ends only return frames, of `size` payload bytes.
fn floor(bed: &Bed, frames: usize, size: usize) -> Result<f64> {
    let client = bed.lab.machine("client")?;
    let interface = client.towards("server")?.name().to_owned();
    let target = bed.server(SERVER)?;
    client.run(|| -> Result<f64> {
        let _answer = Answer::attach(&interface, CLIENT)?;
        for cpu in 0..2 {
            // Half of the frames from each CPU, like the loop starts its flows.
            let mut only = rustix::thread::CpuSet::new();
            only.set(cpu);
            rustix::thread::sched_setaffinity(None, &only)?;
            let socket = UdpSocket::bind(("0.0.0.0", CLIENT))?;
            for _ in 0..frames / 2 {
                socket.send_to(&vec![0; size], target)?;
            }
        }
        thread::sleep(Duration::from_millis(100));
        let counter = format!("/sys/class/net/{interface}/statistics/rx_packets");
        let count = || -> Result<u64> {
            fs::read_to_string(&counter)?.trim().parse().with_context(|| format!("{counter} is no number"))
        };
        let watch = Stopwatch::start();
        let before = count()?;
        thread::sleep(Duration::from_millis(500));
        let rounds = count()? - before;
        let (_, cpus) = watch.stop();
        Ok(softirq_seconds(&cpus) / rounds as f64 * 1e9)
    })?
}

/// The median, and the range without the lowest and the highest value.
fn spread(measured: &mut [f64]) -> (f64, f64, f64) {
    measured.sort_by(f64::total_cmp);
    (measured[PAIRS / 2], measured[1], measured[PAIRS - 2])
}
