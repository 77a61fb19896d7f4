//! Live traffic: what clients send anyway, and what it costs this machine.
//!
//! ```text
//!  counters ──────── a trial ──────── counters
//!  UDP: delivered, dropped · CPU time: the server's threads, softirqs and interrupts
//!  a sample of the server's datagrams: from the stack to the reader
//!
//!  figure = datagrams delivered / seconds of CPU time: what one CPU could carry
//! ```
//! Nothing is sent. The rate is the clients', so a trial is comparable only with one at a similar rate: after a jump it
//! is repeated. A change under which the machine drops more than before, or under which datagrams take longer, is
//! refused, whatever it saves ([`SideEffects`]).

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use udpath_files::kernel;
use udpath_host::udp::{self, UdpCounters};
use udpath_load::cpu::{CpuTimes, CpuUse};
use udpath_load::result::Latency;
use udpath_profile::trace::Times;

/// Largest change of the rate from one trial to the next, as a share of the larger one. Smaller: ordinary traffic is
/// never comparable. Larger: the cost of a datagram, which falls as the rate grows, passes for a gain.
const JUMP: f64 = 0.25;
/// How much more of the datagrams than as found may be dropped, as a share. Smaller: one burst refuses a change.
/// Larger: what saves CPU time by losing datagrams passes for a gain.
const MORE_LOSS: f64 = 0.001;
/// Dropped datagrams that are too few to judge.
const FEW: u64 = 16;
/// How much longer than as found datagrams may take, by their 90th percentile: as a share, and by nanoseconds on top.
/// Smaller: noise of a shared machine refuses changes. Larger: what saves CPU time by letting datagrams wait passes for
/// a gain. Not the 99th percentile: of the some thousand datagrams that are followed it moves by half from trial to
/// trial.
const MORE_DELAY: (f64, f64) = (0.25, 20_000.0);
/// Trials after which delays are judged. Fewer: one disturbed trial refuses a change. More: clients wait longer.
const DELAY_TRIALS: u32 = 4;

/// Counters at one moment, of the caller's network namespace.
#[derive(Debug)]
pub(crate) struct LiveCounters {
    at: Instant,
    udp: UdpCounters,
    cpus: CpuTimes,
    /// Nanoseconds that the server's threads ran.
    ran: BTreeMap<u32, u64>,
    /// How long the server's datagrams took, where that is measured.
    delays: Option<Times>,
}

impl LiveCounters {
    /// As the kernel has them now; `pids` are the server's processes.
    pub(crate) fn read(pids: &[u32], delays: Option<Times>) -> io::Result<Self> {
        Ok(Self { at: Instant::now(), udp: udp_counters()?, cpus: CpuTimes::now()?, ran: ran(pids), delays })
    }

    /// What happened since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Seen {
        let udp = self.udp.since(&earlier.udp);
        let cpus = self.cpus.since(&earlier.cpus, TICKS);
        let softirqs: f64 = cpus.iter().map(|cpu| (cpu.soft + cpu.irq) * cpu.seconds).sum();
        let ran = ran_since(&self.ran, &earlier.ran) as f64 / 1e9;
        Seen {
            seconds: self.at.duration_since(earlier.at).as_secs_f64(),
            delivered: udp.in_datagrams,
            dropped: udp.rcvbuf_errors.saturating_add(udp.mem_errors.unwrap_or(0)),
            cpu: ran + softirqs,
            cpus,
            delays: self.delays.as_ref().zip(earlier.delays.as_ref()).map(|(now, then)| now.since(then)),
        }
    }
}

/// Clock ticks per second of /proc/stat (`USER_HZ`, the same on every architecture that Linux has UDP servers on).
const TICKS: f64 = 100.0;

/// IPv4 and IPv6 together.
fn udp_counters() -> io::Result<UdpCounters> {
    let wrong = |error: udpath_host::Malformed| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let v4 = udp::snmp(&kernel::text("/proc/thread-self/net/snmp")?).map_err(wrong)?;
    // A kernel without IPv6 has none.
    let v6 = kernel::text("/proc/thread-self/net/snmp6").ok().and_then(|text| udp::snmp6(&text).ok());
    let v6 = v6.unwrap_or_default();
    Ok(UdpCounters {
        in_datagrams: v4.in_datagrams + v6.in_datagrams,
        rcvbuf_errors: v4.rcvbuf_errors + v6.rcvbuf_errors,
        mem_errors: v4.mem_errors.zip(v6.mem_errors).map(|(one, other)| one + other).or(v4.mem_errors),
        ..v4
    })
}

/// Nanoseconds that each thread of these processes ran.
fn ran(pids: &[u32]) -> BTreeMap<u32, u64> {
    let of_thread = |pid: u32, tid: u32| -> Option<u64> {
        let text = kernel::text(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let threads = |pid: &u32| {
        let (pid, threads) = (*pid, kernel::numbers(format!("/proc/{pid}/task")).unwrap_or_default());
        threads.into_iter().filter_map(move |tid| Some((tid, of_thread(pid, tid)?)))
    };
    pids.iter().flat_map(threads).collect()
}

/// Nanoseconds that the threads of `now` ran since `before`. What one ran that has ended since is not known: without it
/// the sum is too small by that, but not by what it had run before.
fn ran_since(now: &BTreeMap<u32, u64>, before: &BTreeMap<u32, u64>) -> u64 {
    // A number that begins anew is another thread's.
    now.iter().map(|(tid, ran)| ran.checked_sub(*before.get(tid).unwrap_or(&0)).unwrap_or(*ran)).sum()
}

/// A trial of live traffic.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its length.
    pub(crate) seconds: f64,
    /// Datagrams that reached a socket's reader.
    pub(crate) delivered: u64,
    /// Datagrams that a full socket, or the memory of all of them, had no room for.
    pub(crate) dropped: u64,
    /// Seconds of CPU time of the server's threads, softirqs and interrupts.
    pub(crate) cpu: f64,
    pub(crate) cpus: Vec<CpuUse>,
    /// Of a sample of the datagrams: from entering the stack to the reader. None where it cannot be measured.
    pub(crate) delays: Option<Times>,
}

impl Seen {
    /// Datagrams delivered per second of CPU time.
    pub(crate) fn per_cpu_second(&self) -> f64 {
        if self.cpu > 0.0 { self.delivered as f64 / self.cpu } else { 0.0 }
    }

    /// How long datagrams took, as the latency of a rung.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let delays = self.delays.as_ref()?;
        let lengths = delays.lengths.iter();
        let buckets: Vec<_> = lengths.map(|length| (length.below_ns - 1, length.count)).collect();
        let shortest = buckets.first()?.0;
        Latency::from_buckets(buckets, shortest, delays.longest_ns, delays.mean_ns())
    }

    /// Datagrams that arrived per second.
    fn rate(&self) -> f64 {
        (self.delivered + self.dropped) as f64 / self.seconds.max(1e-9)
    }

    /// Why it cannot be compared with the trial before; `None` if it can.
    pub(crate) fn jumped(&self, before: &Self) -> Option<String> {
        let (now, then) = (self.rate(), before.rate());
        ((now - then).abs() > JUMP * now.max(then))
            .then(|| format!("the traffic went from {then:.0} to {now:.0} datagrams/s between two trials"))
    }
}

/// What a set of changes does to clients, over all its trials.
#[derive(Debug, Clone, Default)]
pub(crate) struct SideEffects {
    trials: u32,
    delivered: u64,
    dropped: u64,
    delays: Times,
}

impl SideEffects {
    pub(crate) fn add(&mut self, seen: &Seen) {
        self.trials += 1;
        self.delivered += seen.delivered;
        self.dropped += seen.dropped;
        if let Some(delays) = &seen.delays {
            self.delays.add(delays);
        }
    }

    fn loss(&self) -> f64 {
        self.dropped as f64 / (self.delivered + self.dropped).max(1) as f64
    }

    /// The 90th percentile of the datagrams' times, nanoseconds; none before there are enough trials.
    fn delay(&self) -> Option<f64> {
        let delay = self.delays.quantile_ns(0.9).filter(|_| self.trials >= DELAY_TRIALS);
        delay.map(|ns| ns as f64)
    }

    /// Why a change is refused; `None` if it drops no more than `found`, and no datagram takes longer.
    pub(crate) fn refuses(&self, found: &Self) -> Option<String> {
        if self.dropped > FEW && self.loss() > found.loss() + MORE_LOSS {
            let per_cent = |of: &Self| of.loss() * 100.0;
            return Some(format!(
                "it drops {:.2} % of the datagrams, {:.2} % as found",
                per_cent(self),
                per_cent(found)
            ));
        }
        let (now, then) = (self.delay()?, found.delay()?);
        (now > then * (1.0 + MORE_DELAY.0) + MORE_DELAY.1).then(|| {
            let us = |ns: f64| ns / 1e3;
            format!(
                "one datagram in ten takes more than {:.0} us from the stack to its reader, {:.0} us as found",
                us(now),
                us(then)
            )
        })
    }
}

/// Waits for a trial's length, or until `stop`.
pub(crate) fn wait(length: Duration, stop: &std::sync::atomic::AtomicBool) {
    /// How soon a stop is noticed.
    const POLL: Duration = Duration::from_millis(20);
    let until = Instant::now() + length;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(POLL));
    }
}

#[cfg(test)]
mod tests {
    use udpath_profile::trace::Length;

    use super::*;

    fn seen(delivered: u64, dropped: u64, cpu: f64) -> Seen {
        Seen { seconds: 2.0, delivered, dropped, cpu, cpus: Vec::new(), delays: None }
    }

    #[test]
    fn the_figure_is_datagrams_per_second_of_cpu_time() {
        assert_eq!(seen(1_000, 0, 0.5).per_cpu_second(), 2_000.0);
        assert_eq!(seen(0, 0, 0.0).per_cpu_second(), 0.0);
    }

    #[test]
    fn a_jump_of_the_rate_makes_trials_incomparable() {
        assert_eq!(seen(1_000, 0, 1.0).jumped(&seen(800, 0, 1.0)), None);
        assert_eq!(seen(800, 200, 1.0).jumped(&seen(1_000, 0, 1.0)), None, "what was dropped has arrived");
        assert_eq!(
            seen(1_000, 0, 1.0).jumped(&seen(700, 0, 1.0)).unwrap(),
            "the traffic went from 350 to 500 datagrams/s between two trials"
        );
    }

    #[test]
    fn what_saves_time_by_losing_datagrams_is_refused() {
        let of = |delivered, dropped| {
            let mut effects = SideEffects::default();
            effects.add(&seen(delivered, dropped, 1.0));
            effects
        };
        let found = &of(100_000, 100);
        assert_eq!(of(100_000, 150).refuses(found), None);
        assert_eq!(of(1_000, 10).refuses(found), None, "too few to judge");
        assert_eq!(
            of(95_000, 5_000).refuses(found).unwrap(),
            "it drops 5.00 % of the datagrams, 0.10 % as found"
        );
    }

    #[test]
    fn what_saves_time_by_letting_datagrams_wait_is_refused() {
        let of = |trials: u32, us: u64| {
            let lengths =
                vec![Length { below_ns: 1_000, count: 80 }, Length { below_ns: us * 1_000, count: 20 }];
            let delays = Times { count: 100, ns: us * 20_000, longest_ns: us * 1_000, lengths };
            let mut effects = SideEffects::default();
            (0..trials)
                .for_each(|_| effects.add(&Seen { delays: Some(delays.clone()), ..seen(1_000, 0, 1.0) }));
            effects
        };
        let found = &of(4, 100);
        assert_eq!(of(4, 140).refuses(found), None, "noise");
        assert_eq!(of(3, 900).refuses(found), None, "too few trials");
        assert_eq!(
            of(4, 900).refuses(found).unwrap(),
            "one datagram in ten takes more than 900 us from the stack to its reader, 100 us as found"
        );
        assert_eq!(of(4, 900).refuses(&SideEffects::default()), None, "not measured as found");
    }

    #[test]
    fn a_thread_that_has_ended_takes_nothing_from_the_others() {
        let of = |threads: &[(u32, u64)]| threads.iter().copied().collect::<BTreeMap<u32, u64>>();
        let before = of(&[(1, 100), (2, 9_000), (3, 50)]);
        // 2 has ended, 3 is another thread's number now, 4 is new.
        assert_eq!(ran_since(&of(&[(1, 160), (3, 7), (4, 5)]), &before), 60 + 7 + 5);
        assert_eq!(ran_since(&before, &before), 0);
    }

    #[test]
    fn the_kernels_counters_are_read() {
        let before = LiveCounters::read(&[std::process::id()], None).unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        // Longer than a tick of the clock, at which the kernel counts a thread's time.
        while before.at.elapsed() < Duration::from_millis(100) {
            socket.send_to(&[7], to).unwrap();
            socket.recv(&mut [0; 8]).unwrap();
        }
        let seen = LiveCounters::read(&[std::process::id()], None).unwrap().since(&before);
        assert!(seen.delivered >= 100 && seen.cpu > 0.0 && seen.seconds > 0.0, "{seen:?}");
    }
}
