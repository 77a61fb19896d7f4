//! What a socket policy costs: nothing per datagram, and a program's run per bind.
//!
//! ```text
//! without   no program at any hook                    one thread, pinned: send to itself over loopback, receive
//! with      policy of this cgroup and port in force   the same
//! ```
//! Both kinds of trials have new sockets with the same receive buffer: without a policy the program itself asks for it.
//! CPU time of the thread, which on loopback includes the softirq of each datagram. The programs are pinned in a BPF
//! file system of their own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};
use rustix::net::{AddressFamily, SocketType, bind, socket};
use udpath_advise::result::Ratio;
use udpath_bpf::{Policies, Policy, PolicyOption, PolicyTarget, programs_at};
use udpath_rig::{Bpffs, Cgroup};

use crate::claim::{Bound, Claim, Unit};
use crate::race::{cpu_time, median, pin, race};
use crate::results::Results;

/// Datagrams of one trial. Fewer: the clock and the start of a trial matter. More: only longer.
const DATAGRAMS: u32 = 200_000;
/// Binds of one trial, likewise.
const BINDS: u32 = 20_000;
/// Most blocks of four trials, and the half-width that suffices: the interval is then well below the widest.
const BLOCKS: usize = 60;
const HALF_WIDTH: f64 = 0.002;
/// What the figure of a datagram must be below, nanoseconds, besides its interval's containing 0: half of a per cent of
/// its cost.
const ADDED_BELOW: f64 = 5.0;
/// The widest interval of the cost of a datagram that still says something, as a share of that cost.
const WIDTH_BELOW: f64 = 0.01;
/// Half-width of the cost of a bind.
const BIND_HALF_WIDTH: f64 = 0.01;
/// The receive buffer of all sockets, as `SO_RCVBUF` returns it: below twice the kernel's usual net.core.rmem_max.
const BUFFER: u32 = 300_000;

/// How long the kernel may take to detach what was pinned. Shorter: a busy machine fails. Longer: another program at
/// the hooks, which the figures would include, is reported late.
const DETACHED_WITHIN: Duration = Duration::from_secs(5);

/// The policies of one trial, gone with the file system that they are pinned in.
struct InForce {
    _policies: Policies,
    _bpffs: Bpffs,
}

/// Whose binds the policy is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// This program's, at its port.
    This,
    /// Another program's, whose cgroup has the same parent.
    Another,
}

impl InForce {
    fn new(of: Of, port: NonZeroU16) -> Result<Self> {
        let bpffs = Bpffs::new().context("cannot mount a BPF file system")?;
        let mut policies = Policies::install(&bpffs.path(), &Cgroup::root())?;
        let own = own_cgroup()?;
        let cgroup = match of {
            Of::This => own,
            Of::Another => format!("{}/another.service", own.trim_end_matches('/')),
        };
        let mut policy = Policy::default();
        policy.set(PolicyOption::ReceiveBuffer, Some(BUFFER));
        policies.set(&PolicyTarget { cgroup, port: Some(port) }, &policy)?;
        Ok(Self { _policies: policies, _bpffs: bpffs })
    }
}

/// Waits until no program is at the hooks: the kernel detaches those of the last trial a moment after their file system
/// is gone.
fn none_in_force() -> Result<()> {
    let deadline = Instant::now() + DETACHED_WITHIN;
    while !programs_at(&Cgroup::root())?.is_empty() {
        if Instant::now() > deadline {
            bail!(
                "another program is attached to {}: bpftool cgroup show names it",
                Cgroup::root().display()
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// This process's cgroup of version 2.
fn own_cgroup() -> Result<String> {
    let memberships = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
    let own = memberships.lines().find_map(|line| line.strip_prefix("0::"));
    own.map(str::to_owned).context("this process is in no cgroup of version 2")
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    pin(0)?;
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let port = NonZeroU16::new(free).context("the kernel chose port 0")?;

    let mut costs = Vec::new();
    let what = "a datagram, with a policy in force / without";
    let without = || {
        none_in_force()?;
        let cost = per_datagram(port, true)?;
        costs.push(cost);
        Ok(cost)
    };
    let with = || {
        let _in_force = InForce::new(Of::This, port)?;
        per_datagram(port, false)
    };
    let ratio = race(what, HALF_WIDTH, BLOCKS, without, with)?;
    let cost = median(costs);
    results.add(
        &added(
            "policy.datagram",
            "what a policy in force adds to a datagram",
            &ratio,
            cost,
            Bound::Below(ADDED_BELOW),
        )
        .only_if(ratio.low <= 1.0 && 1.0 <= ratio.high, || "the interval excludes 0".to_owned())
        .only_if(ratio.high - ratio.low < WIDTH_BELOW, || {
            format!("the interval is wider than {} % of a datagram", WIDTH_BELOW * 100.0)
        }),
    );

    for (id, of, words) in [
        ("policy.bind", Of::This, "what a policy adds to a bind of its own program"),
        ("policy.bind_of_another", Of::Another, "what a policy adds to a bind of another program"),
    ] {
        let mut costs = Vec::new();
        let without = || {
            none_in_force()?;
            let cost = per_bind(port)?;
            costs.push(cost);
            Ok(cost)
        };
        let with = || {
            let _in_force = InForce::new(of, port)?;
            per_bind(port)
        };
        let ratio = race(words, BIND_HALF_WIDTH, BLOCKS, without, with)?;
        results.add(&added(id, words, &ratio, median(costs), Bound::Shown));
    }
    Ok(())
}

/// A claim of the nanoseconds that are added to something that costs `cost`.
fn added(id: &str, what: &str, ratio: &Ratio, cost: f64, bound: Bound) -> Claim {
    let part = |ratio: f64| (ratio - 1.0) * cost;
    Claim::new(id, what, part(ratio.ratio), Unit::Nanoseconds, bound)
        .within(part(ratio.low), part(ratio.high))
        .with(format!("to {cost:.0} ns"))
}

/// CPU time of sending a datagram over loopback and receiving it, nanoseconds. `asks`: the program asks for its buffer,
/// since no policy is there to set it.
fn per_datagram(port: NonZeroU16, asks: bool) -> Result<f64> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    if asks {
        set_socket_recv_buffer_size(&socket, BUFFER as usize / 2)?;
    }
    let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.get());
    bind(&socket, &own)?;
    let buffer = socket_recv_buffer_size(&socket)?;
    ensure!(buffer == BUFFER as usize, "the socket has a receive buffer of {buffer}, not {BUFFER}");
    let socket = UdpSocket::from(socket);
    let mut datagram = [0; 64];
    let began = cpu_time();
    for _ in 0..DATAGRAMS {
        socket.send_to(&datagram, own)?;
        socket.recv_from(&mut datagram)?;
    }
    Ok((cpu_time() - began).as_nanos() as f64 / f64::from(DATAGRAMS))
}

/// CPU time of creating a socket, binding it and closing it, nanoseconds.
fn per_bind(port: NonZeroU16) -> Result<f64> {
    let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.get());
    let began = cpu_time();
    for _ in 0..BINDS {
        bind(socket(AddressFamily::INET, SocketType::DGRAM, None)?, &own)?;
    }
    Ok((cpu_time() - began).as_nanos() as f64 / f64::from(BINDS))
}
