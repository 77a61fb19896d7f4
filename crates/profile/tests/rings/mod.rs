//! The perf rings of a synthetic machine with many CPUs: in the kernel's format byte for byte, and deterministic.
//!
//! ```text
//! CPUs 0-7    the card's queues: softirqs, after interrupts and on top of the running task
//! all CPUs    a worker each of knotd, on one socket; the rest of the time nothing
//! beside it   short processes: fork on one CPU, exec there, their files mapped on the next one
//! CPU 5       lost some records, CPU 6 was throttled
//! ```
//! [`Machine::ring`] is one CPU's ring over the whole interval; [`Machine::kallsyms`] has the kernel's functions at the
//! addresses in it. The program's files are named only by records: nothing of the test machine is read.

#![allow(dead_code, reason = "each test program uses its own part of this machine")]

pub(crate) mod around;
pub(crate) mod write;

use write::{KERNEL, Ring, Stamp, USER};

/// Start of the interval in the samples' clock, nanoseconds.
pub(crate) const BEGIN: u64 = 5_000_000_000_000;
/// The server's pid, followed by its workers' thread ids; and the addresses of its code and of the C library.
pub(crate) const SERVER: u32 = 812;
const SERVER_CODE: u64 = 0x55d0_c001_0000;
const LIBRARY_CODE: u64 = 0x7f00_1000_0000;
/// CPUs with a NIC queue.
const QUEUES: u32 = 8;
/// Records that CPU 5 lost.
pub(crate) const LOST: u64 = 17;
/// Address of the kernel's functions, and the distance between them.
const KERNEL_CODE: u64 = 0xffff_ffff_8100_0000;
const APART: u64 = 0x1000;
/// The first pid of short processes, and how many start each second.
const SHORT: u32 = 20_000;
const SHORT_EACH_SECOND: u32 = 40;

/// Call chains in the kernel, outermost function first, and how many of a hundred samples have each.
const SOFTIRQ: &[(u32, &str)] = &[
    (
        30,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll ixgbe_clean_rx_irq napi_gro_receive netif_receive_skb_list_internal ip_list_rcv ip_sublist_rcv ip_local_deliver_finish udp_rcv udp_unicast_rcv_skb udp_queue_rcv_one_skb __udp_enqueue_schedule_skb _raw_spin_lock native_queued_spin_lock_slowpath",
    ),
    (
        15,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll ixgbe_clean_rx_irq",
    ),
    (
        12,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll ixgbe_clean_rx_irq napi_gro_receive dev_gro_receive inet_gro_receive udp4_gro_receive",
    ),
    (
        10,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll ixgbe_clean_rx_irq napi_gro_receive netif_receive_skb_list_internal ip_list_rcv ip_sublist_rcv ip_local_deliver_finish udp_rcv __udp4_lib_lookup",
    ),
    (
        9,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll ixgbe_clean_rx_irq napi_gro_receive netif_receive_skb_list_internal ip_list_rcv ip_sublist_rcv ip_local_deliver_finish udp_rcv udp_unicast_rcv_skb udp_queue_rcv_one_skb __udp_enqueue_schedule_skb sock_def_readable __wake_up_sync_key __wake_up_common ep_poll_callback",
    ),
    (
        8,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll ixgbe_clean_rx_irq napi_alloc_skb kmem_cache_alloc_noprof",
    ),
    (
        9,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll ixgbe_clean_rx_irq napi_gro_receive netif_receive_skb_list_internal ip_list_rcv nf_hook_slow nf_conntrack_in",
    ),
    (
        7,
        "asm_common_interrupt common_interrupt __irq_exit_rcu handle_softirqs net_rx_action __napi_poll ixgbe_poll napi_consume_skb",
    ),
];
const SYSCALL: &[(u32, &str)] = &[
    (
        30,
        "entry_SYSCALL_64_after_hwframe do_syscall_64 __x64_sys_recvmmsg do_recvmmsg ___sys_recvmsg sock_recvmsg inet_recvmsg udp_recvmsg __skb_recv_udp _raw_spin_lock_bh native_queued_spin_lock_slowpath",
    ),
    (
        25,
        "entry_SYSCALL_64_after_hwframe do_syscall_64 __x64_sys_sendmmsg __sys_sendmmsg ____sys_sendmsg sock_sendmsg inet_sendmsg udp_sendmsg udp_send_skb ip_send_skb ip_output __dev_queue_xmit dev_hard_start_xmit ixgbe_xmit_frame",
    ),
    (
        15,
        "entry_SYSCALL_64_after_hwframe do_syscall_64 __x64_sys_sendmmsg __sys_sendmmsg ____sys_sendmsg sock_sendmsg inet_sendmsg udp_sendmsg ip_route_output_key_hash fib_table_lookup",
    ),
    (
        15,
        "entry_SYSCALL_64_after_hwframe do_syscall_64 __x64_sys_recvmmsg do_recvmmsg ___sys_recvmsg sock_recvmsg inet_recvmsg udp_recvmsg skb_copy_datagram_iter _copy_to_iter",
    ),
    (
        10,
        "entry_SYSCALL_64_after_hwframe do_syscall_64 __x64_sys_epoll_wait do_epoll_wait schedule __schedule",
    ),
    (
        5,
        "entry_SYSCALL_64_after_hwframe do_syscall_64 __x64_sys_sendmmsg __sys_sendmmsg security_socket_sendmsg",
    ),
];
const IDLE: &[(u32, &str)] = &[
    (90, "cpu_startup_entry do_idle cpuidle_idle_call default_idle"),
    (10, "cpu_startup_entry do_idle schedule_idle __schedule"),
];
/// Innermost functions that no rule knows, like those that compilers generate.
const LEAVES: u64 = 300;

/// The parameters of the recording.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) cpus: u32,
    pub(crate) seconds: u32,
    /// Samples a second of each CPU.
    pub(crate) rate: u32,
    /// Percentage of samples in the server's system calls; half as many are in its own code.
    pub(crate) calls: u64,
    /// Approximate number of variants of each chain: offsets within functions, leaves, and callers in the program.
    pub(crate) variety: u64,
}

impl Machine {
    /// 128 CPUs for two seconds, at a rate that gives a small graph.
    pub(crate) const SMALL: Self = Self { cpus: 128, seconds: 2, rate: 40, calls: 4, variety: 1 };
    /// Five seconds at three times the default rate, busy throughout: 638,080 samples.
    pub(crate) const FULL: Self = Self { cpus: 128, seconds: 5, rate: 997, calls: 40, variety: 1000 };

    /// The kernel's functions.
    pub(crate) fn kallsyms() -> String {
        let names = names();
        let leaves = (0..LEAVES).map(|leaf| format!("leaf_{leaf}"));
        let all = names.iter().map(|name| (*name).to_owned()).chain(leaves);
        let line = |(at, name): (usize, String)| {
            let module = if name.starts_with("ixgbe_") { "\t[ixgbe]" } else { "" };
            format!("{:016x} t {name}{module}\n", KERNEL_CODE + at as u64 * APART)
        };
        all.enumerate().map(line).collect()
    }

    /// Every record of one CPU.
    pub(crate) fn ring(&self, cpu: u32) -> Ring {
        let mut random = Random(u64::from(cpu) * 0x9e37_79b9 + 1);
        let (names, mut ring) = (names(), Ring::default());
        self.beginning(&mut ring, cpu);
        let each = 1_000_000_000 / u64::from(self.rate);
        let mut short = self.short_processes(cpu).into_iter().peekable();
        for number in 0..u64::from(self.seconds * self.rate) {
            let time = BEGIN + number * each + each / 2 + random.below(each / 4);
            while let Some((_, record)) = short.next_if(|(when, _)| *when <= time) {
                ring.0.extend_from_slice(&record.0);
            }
            self.sample(&mut ring, cpu, time, each, &names, &mut random);
            let at = Stamp { pid: SERVER, tid: worker(cpu), time, cpu };
            match (cpu, number) {
                (5, 10) => ring.lost(at, LOST),
                (6, 10) => ring.throttle(at),
                (6, 12) => ring.unthrottle(at),
                _ => (),
            }
        }
        short.for_each(|(_, record)| ring.0.extend_from_slice(&record.0));
        ring
    }

    /// The server's names and files: on CPU 3, whose ring is not the first to be read.
    fn beginning(&self, ring: &mut Ring, cpu: u32) {
        if cpu != 3 {
            return;
        }
        let at = |tid, time| Stamp { pid: SERVER, tid, time: BEGIN + time, cpu };
        ring.comm(at(SERVER, 1), "knotd", true);
        ring.mapped(at(SERVER, 2), SERVER_CODE, 0x8_0000, 0x1_0000, "/usr/sbin/knotd");
        ring.mapped(at(SERVER, 3), LIBRARY_CODE, 0x10_0000, 0x2_8000, "/usr/lib/libc.so.6");
        for worker in 0..self.cpus {
            ring.comm(at(SERVER + 1 + worker, 4), &format!("udp-{worker}"), false);
        }
    }

    /// Records of short processes on this CPU, with their times: the shell forks and execs on one CPU, and continues on
    /// the one before it, whose ring is read first.
    fn short_processes(&self, cpu: u32) -> Vec<(u64, Ring)> {
        let mut records = Vec::new();
        for number in 0..SHORT_EACH_SECOND * self.seconds {
            let pid = SHORT + number;
            let begin = BEGIN + u64::from(number) * 1_000_000_000 / u64::from(SHORT_EACH_SECOND) + 1_000_000;
            let (first, second) = ((1 + number * 7) % self.cpus, (number * 7) % self.cpus);
            let mut add = |on: u32, after: u64, write: &dyn Fn(&mut Ring, Stamp)| {
                if on == cpu {
                    let at = Stamp { pid, tid: pid, time: begin + after, cpu };
                    let mut ring = Ring::default();
                    write(&mut ring, at);
                    records.push((at.time, ring));
                }
            };
            add(first, 0, &|ring, at| ring.fork(at, SERVER));
            add(first, 10_000, &|ring, at| ring.comm(at, "logger", true));
            add(second, 20_000, &|ring, at| ring.mapped(at, SERVER_CODE, 0x1000, 0, "/usr/bin/logger"));
            add(second, 900_000, &|ring, at| {
                ring.sample(USER, at, 1_000_000, &[], &[SERVER_CODE + 0x10]);
            });
            add(second, 950_000, &|ring, at| ring.exit(at, SERVER));
        }
        records.sort_by_key(|(time, _)| *time);
        records
    }

    fn sample(&self, ring: &mut Ring, cpu: u32, time: u64, period: u64, names: &[&str], random: &mut Random) {
        let at = Stamp { pid: SERVER, tid: worker(cpu), time, cpu };
        let idle = Stamp { pid: 0, tid: 0, ..at };
        let of_a_hundred = random.below(100);
        let soft = if cpu < QUEUES { 85 } else { 1 };
        let (kernel, user, whose) = if of_a_hundred < soft {
            // On top of the worker, or of the idle task.
            let interrupted = random.below(2) == 0;
            (
                SOFTIRQ,
                if interrupted { self.user(random) } else { Vec::new() },
                if interrupted { at } else { idle },
            )
        } else if of_a_hundred < soft + self.calls {
            (SYSCALL, self.user(random), at)
        } else if of_a_hundred < soft + self.calls + self.calls / 2 {
            ring.sample(USER, at, period, &[], &self.user(random));
            return;
        } else {
            (IDLE, Vec::new(), idle)
        };
        let way = chosen(kernel, random);
        // Few offsets within a function are common, many are rare.
        let place = random.skewed(self.variety);
        let mut chain: Vec<u64> = way
            .split(' ')
            .rev()
            .enumerate()
            .map(|(depth, name)| address(names, name) + 0x10 + (place >> depth.min(8)) % 64 * 8)
            .collect();
        if self.variety > 1 && place.is_multiple_of(3) {
            chain.insert(0, KERNEL_CODE + (names.len() as u64 + place % LEAVES) * APART + 4);
        }
        ring.sample(KERNEL, whose, period, &chain, &user);
    }

    /// Addresses in the program, innermost first.
    fn user(&self, random: &mut Random) -> Vec<u64> {
        let place = random.skewed(self.variety.min(20));
        let within = (0..3 + place % 5).map(|depth| SERVER_CODE + 0x100 + (place >> depth) * 0x40);
        [LIBRARY_CODE + 0x20 + place % 4 * 8].into_iter().chain(within).collect()
    }
}

fn worker(cpu: u32) -> u32 {
    SERVER + 1 + cpu
}

/// Function names of all chains, each once, in a fixed order.
fn names() -> Vec<&'static str> {
    let ways = [SOFTIRQ, SYSCALL, IDLE].into_iter().flatten();
    let mut names: Vec<&str> = ways.flat_map(|(_, way)| way.split(' ')).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn address(names: &[&str], name: &str) -> u64 {
    KERNEL_CODE + names.binary_search(&name).expect("a name of a way") as u64 * APART
}

fn chosen(ways: &[(u32, &'static str)], random: &mut Random) -> &'static str {
    let mut left = random.below(100);
    for (weight, way) in ways {
        match left.checked_sub(u64::from(*weight)) {
            None => return way,
            Some(rest) => left = rest,
        }
    }
    ways[0].1
}

/// Xorshift, by Marsaglia.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most.max(1)
    }

    /// Small numbers more often than large ones.
    fn skewed(&mut self, most: u64) -> u64 {
        let (a, b, c) = (self.below(most), self.below(most), self.below(most));
        a.min(b).min(c)
    }
}
