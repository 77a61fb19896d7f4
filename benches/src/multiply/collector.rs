//! nfcapd, which answers nothing: two instances against one, and instances that come and go.
//!
//! ```text
//!   client: a sending thread on the CPU of each instance ══ veth ══▸ server: nfcapd 1, 2 ─▸ files
//!     └ pauses while a socket's queue is longer than QUEUE ◂── sock_diag
//! ```
//! The sockets' queues close the loop, in place of replies: none overflows, and each instance always has something to
//! read. As with the servers that answer, an instance shares its CPU with the sending of what it gets, so the ratio
//! compares one CPU that does everything with two that do.
//!
//! Each record has a number, as its bytes. Afterwards nfdump counts records and bytes in the files of both instances:
//! both are right only if each record was written once.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use udpath_netlink::SockDiag;
use udpath_rig::{Flows, collected, netflow, nfcapd};

use super::{BLOCKS, CHANGED, Instances, LOAD, WIDTH, changing, kept, scaling, set_count};
use crate::bed::FLOWS;
use crate::race::{pin, quantile, race};
use crate::results::Results;

const PORT: u16 = 9995;
/// Datagrams of one run: some 0.5 s. Fewer: starting the threads counts. More: larger files.
const RUN: u64 = 200_000;
/// Datagrams between two looks at the queues. Fewer: looking costs more than sending. More: longer queues.
const BURST: u64 = 128;
/// Bytes of a queue, by the kernel's accounting, above which nothing is sent: some 600 datagrams. The policy gives each
/// socket 16 times that. Lower: an instance may wait for datagrams. Higher: they fall out of the caches.
const QUEUE: u32 = 512 << 10;
/// Time between two looks while it is longer. Shorter: takes CPU time from the instances. Longer: their queues run
/// empty.
const PAUSE: Duration = Duration::from_micros(200);
/// How long the last datagrams of a run may wait.
const EMPTY: Duration = Duration::from_secs(10);

pub(super) fn measure(results: &mut Results, folder: &Path) -> Result<()> {
    let files = [1, 2].map(|number| folder.join("flows").join(number.to_string()));
    for folder in &files {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    // Compressed: a record of 116 bytes would fill a disk of tens of gigabytes in an hour.
    let flows = folder.join("flows/{n}").display().to_string();
    let command = [nfcapd(), "-y".to_owned(), "-w".to_owned(), flows];
    let state = folder.join("journal-nfcapd").display().to_string();
    let instances = Instances::start(&state, PORT, &command)?;
    let target = instances.bed.server(PORT)?;
    let load = Load { instances: &instances, target, sent: AtomicU64::new(0) };

    let (mut one, mut two) = (Vec::new(), Vec::new());
    let rate = |count: usize, rates: &mut Vec<f64>| -> Result<f64> {
        set_count(count)?;
        let rate = load.closed_loop(count)?;
        rates.push(rate);
        Ok(rate)
    };
    let ratio = race("nfcapd", WIDTH, BLOCKS, || rate(1, &mut one), || rate(2, &mut two))?;
    let (one, two) = (quantile(one, 0.5), quantile(two, 0.5));
    ensure!(load.drops()? == 0, "the sockets have dropped datagrams");
    let before = load.sent.load(Ordering::Relaxed);
    let ((), changes) = changing(|| load.paced(LOAD * one))?;
    let sent = load.sent.load(Ordering::Relaxed);
    instances.end()?;

    let [first, second] = files.each_ref().map(|folder| collected(folder));
    let found = Flows { flows: first.flows + second.flows, bytes: first.bytes + second.bytes };
    let expected = Flows { flows: sent, bytes: sent * (sent + 1) / 2 };
    results.add(&scaling("nfcapd", "nfcapd", &ratio, (one, two), "every record written once"));
    let lost = expected.flows.saturating_sub(found.flows);
    let share = (sent - before).saturating_sub(lost) as f64 / (sent - before) as f64;
    let detail = format!(
        "{} sent, {lost} lost; bytes of all records {} of {}",
        sent - before,
        found.bytes,
        expected.bytes
    );
    results.add(&kept(
        "nfcapd",
        "nfcapd, instances added and removed at 80 % load: written once / sent",
        share,
        &detail,
        changes,
    ));
    ensure!(found == expected || lost > 0, "records were written more than once: {found:?} of {expected:?}");
    Ok(())
}

/// What is sent to the instances.
struct Load<'a> {
    instances: &'a Instances<'a>,
    target: SocketAddr,
    /// Datagrams sent so far, and the number of the last one.
    sent: AtomicU64,
}

impl Load<'_> {
    /// Datagrams a second that `count` instances have written.
    fn closed_loop(&self, count: usize) -> Result<f64> {
        let begin = Instant::now();
        thread::scope(|scope| {
            let senders: Vec<_> = (0..count)
                .map(|cpu| scope.spawn(move || self.send_while_short(cpu, RUN / count as u64)))
                .collect();
            senders.into_iter().try_for_each(|sender| sender.join().ok().context("a sender panicked")?)
        })?;
        let mut sockets = self.sockets()?;
        while longest(&mut sockets)? > 0 {
            ensure!(begin.elapsed() < EMPTY, "the queues were not read within {EMPTY:?}");
            thread::sleep(PAUSE);
        }
        Ok(RUN as f64 / begin.elapsed().as_secs_f64())
    }

    /// Sends from one CPU while the queues are short.
    fn send_while_short(&self, cpu: usize, datagrams: u64) -> Result<()> {
        let mut sockets = self.sockets()?;
        self.with_flows(|flows| {
            pin(cpu)?;
            for _ in 0..datagrams / BURST {
                self.burst(flows, BURST)?;
                while longest(&mut sockets)? > QUEUE {
                    thread::sleep(PAUSE);
                }
            }
            self.burst(flows, datagrams % BURST)
        })
    }

    /// Sends so many a second, whatever the queues.
    fn paced(&self, rate: f64) -> Result<()> {
        self.with_flows(|flows| {
            let begin = Instant::now();
            let mut sent = 0;
            while begin.elapsed() < CHANGED {
                let due = (begin.elapsed().as_secs_f64() * rate) as u64 - sent;
                self.burst(flows, due.min(BURST))?;
                sent += due.min(BURST);
                if due < BURST {
                    thread::sleep(PAUSE);
                }
            }
            Ok(())
        })
    }

    /// With sockets of as many flows as the other loads have.
    fn with_flows(&self, work: impl FnOnce(&[UdpSocket]) -> Result<()> + Send) -> Result<()> {
        self.instances.bed.lab.machine("client")?.run(|| {
            let open = |_| {
                let flow = UdpSocket::bind("0.0.0.0:0")?;
                flow.connect(self.target)?;
                Ok(flow)
            };
            let flows: std::io::Result<Vec<UdpSocket>> = (0..FLOWS).map(open).collect();
            work(&flows.context("cannot open a flow's socket")?)
        })?
    }

    fn burst(&self, flows: &[UdpSocket], datagrams: u64) -> Result<()> {
        for _ in 0..datagrams {
            let number = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
            let flow = &flows[number as usize % flows.len()];
            flow.send(&netflow(u32::try_from(number)?)).context("cannot send")?;
        }
        Ok(())
    }

    /// The sockets of the server's machine.
    fn sockets(&self) -> Result<SockDiag> {
        Ok(self.instances.bed.lab.machine("server")?.run(SockDiag::open)??)
    }

    /// What they have dropped.
    fn drops(&self) -> Result<u32> {
        Ok(self.sockets()?.udp_sockets(|socket| socket.drops)?.into_iter().sum())
    }
}

/// Bytes of the longest queue.
fn longest(sockets: &mut SockDiag) -> Result<u32> {
    Ok(sockets.udp_sockets(|socket| socket.receive_queue)?.into_iter().max().unwrap_or(0))
}
