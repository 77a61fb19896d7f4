//! Short trials of single operations, on this machine: what CPUs cost each other, and what a call and a wake-up cost.
//!
//! ```text
//!   sharing.rs   a line that two CPUs write in turn; a FIFO lock, alone and contended
//!   threads.rs   a call; a token between two threads of one CPU, and of two
//!   memory.rs    copies from the cache and from memory
//!   loopback.rs  round trips of a byte over loopback, UDP and TCP; a datagram that a full socket refuses
//! ```
//! Each figure is the lower quartile of [`ROUNDS`] rounds: whatever else runs on the machine only adds time, so the
//! quickest rounds are the nearest to the operation, and the very quickest may be an accident of the clock. Everything
//! is in this process and on loopback, and is gone when the trial ends.

mod loopback;
mod memory;
mod sharing;
mod threads;

use std::io;

use udpath_steer::CpuSet;

/// Rounds of each trial. Fewer: one pause by another program decides. More: calibration takes longer than a second.
const ROUNDS: usize = 15;

/// A wake-up's share of a wake-up and a switch on one CPU. They cannot be told apart from outside, because the woken
/// thread may run before the waking call returns; by a profile, `try_to_wake_up` takes a third of what it and
/// `schedule` take.
const WAKE_SHARE: f64 = 0.33;

/// What the trials measured, nanoseconds. `None`: it needs two CPUs, and there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Micro {
    /// A system call that does nothing.
    pub(crate) call: f64,
    /// Waking a thread of the same CPU, without the call.
    pub(crate) wake: f64,
    /// From one thread of a CPU to another.
    pub(crate) switch: f64,
    pub(crate) lock: f64,
    pub(crate) copy_cached: f64,
    pub(crate) copy_memory: f64,
    /// TCP's part of a round trip beyond UDP's, half of it: of a segment received, or sent.
    pub(crate) tcp: f64,
    /// A datagram to a socket with room, less one to a full socket: what enqueueing costs beyond discarding.
    pub(crate) enqueue_over_discard: f64,
    pub(crate) between: Option<Between>,
}

/// Between two CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Between {
    pub(crate) line: f64,
    pub(crate) handover: f64,
    /// What waking a thread of a sleeping CPU takes longer than waking one of the same: the interrupt's sending.
    pub(crate) ipi: f64,
    /// From then until that CPU runs the thread, without the switch.
    pub(crate) ipi_delay: f64,
}

impl Micro {
    /// Measures on the first two of these CPUs.
    pub(crate) fn measure(cpus: &CpuSet) -> io::Result<Self> {
        let mut cpus = cpus.iter();
        let first = cpus.next().ok_or_else(|| io::Error::other("no CPU is allowed"))?;
        let call = threads::call(first)?;
        // A post and a wait, half of it each.
        let quiet = threads::quiet(first)?;
        let both = (threads::token([first, first])?.way - quiet).max(0.0);
        let (wake, switch) = (WAKE_SHARE * both, (1.0 - WAKE_SHARE) * both);
        let between = cpus
            .next()
            .map(|second| -> io::Result<Between> {
                let pair = [first, second];
                let far = threads::token(pair)?;
                let ipi = (far.post - quiet / 2.0 - wake).max(0.0);
                let ipi_delay = (far.way - quiet - wake - switch - ipi).max(0.0);
                Ok(Between { line: sharing::line(pair)?, handover: sharing::handover(pair)?, ipi, ipi_delay })
            })
            .transpose()?;
        Ok(Self {
            call,
            wake,
            switch,
            lock: sharing::lock(first)?,
            copy_cached: memory::cached(first)?,
            copy_memory: memory::memory(first)?,
            tcp: loopback::tcp_over_udp(first)?,
            enqueue_over_discard: loopback::enqueue_over_discard(first)?,
            between,
        })
    }
}

/// The lower quartile of [`ROUNDS`] rounds.
fn quickest(mut round: impl FnMut() -> io::Result<f64>) -> io::Result<f64> {
    let mut rounds = (0..ROUNDS).map(|_| round()).collect::<io::Result<Vec<f64>>>()?;
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 4])
}

/// Does `work` on one CPU.
fn on<T>(cpu: u32, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    udpath_lab::confined(&[cpu].into_iter().collect(), work)?
}

/// Does `first` and `second` at the same time, each on its CPU; what the first returns.
fn both<T: Send>(
    [one, other]: [u32; 2],
    first: impl FnOnce() -> io::Result<T> + Send,
    second: impl FnOnce() -> io::Result<()> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let second = scope.spawn(move || on(other, second));
        let done = on(one, first);
        second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_measures_something() {
        let micro = Micro::measure(&udpath_lab::online_cpus().unwrap()).unwrap();
        for (name, value) in [
            ("call", micro.call),
            ("switch", micro.switch),
            ("lock", micro.lock),
            ("copy_cached", micro.copy_cached),
            ("copy_memory", micro.copy_memory),
        ] {
            assert!(value.is_finite() && value > 0.0, "{name} {value}");
        }
        assert!([micro.wake, micro.tcp, micro.enqueue_over_discard].iter().all(|value| value.is_finite()));
        if let Some(between) = micro.between {
            assert!(between.line > 0.0 && between.handover > 0.0, "{between:?}");
        }
    }

    #[test]
    fn the_lower_quartile_ignores_slow_rounds() {
        let mut at = 0;
        let figure = quickest(|| {
            at += 1;
            Ok(if at % 2 == 0 { 1e9 } else { f64::from(at) })
        });
        assert_eq!(figure.unwrap(), 7.0);
    }
}
