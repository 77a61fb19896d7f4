//! Properties of every parser for any input, and of the kernel's formats for any content: each format is written here
//! by a second, simple implementation and read back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use udpath_steer::CpuSet;

use crate::irqs::PerCpu;
use crate::text::{Malformed, cpu_list, cpu_mask};
use crate::{actors, container, cpus, irqs, kernel, limits, netfilter, sockets, softnet, udp};

/// A parser's error, if it has one.
type Parser = fn(&str) -> Option<Malformed>;

/// Every parser.
const PARSERS: [(&str, Parser); 15] = [
    ("ticks", |text| cpus::ticks(text).err()),
    ("interrupts", |text| irqs::interrupts(text).err()),
    ("softirqs", |text| irqs::softirq_table(text).err()),
    ("softnet", |text| softnet::rows(text).err()),
    ("snmp", |text| udp::snmp(text).err()),
    ("snmp6", |text| udp::snmp6(text).err()),
    ("conntrack", |text| netfilter::conntrack_rows(text).err()),
    ("memberships", |text| limits::memberships(text).err()),
    ("sockets", |text| sockets::table::parse(text).err()),
    ("list", |text| cpu_list(text).err()),
    ("mask", |text| cpu_mask(text).err()),
    ("mounts", |text| {
        let _ = limits::Mounts::parse(text);
        None
    }),
    ("parameters", |text| {
        let _ = (kernel::parameters(text), kernel::boot_time(text));
        None
    }),
    ("container", |text| {
        let _ = container::container(text);
        None
    }),
    ("applied", |text| {
        actors::applied(text);
        actors::network_files(text);
        None
    }),
];

/// Texts from real kernels, to be corrupted.
const TEXTS: [&str; 9] = [
    "           CPU0       CPU1       \n 24:          1          0  IO-APIC   5-edge      ACPI:Ged\nCAL: 1 2   Function call interrupts\nERR: 0\n",
    "cpu  2048077 241582 732875\ncpu0 1006301 129555 358107 758983 5800 0 223161 1700 0 0\nbtime 1795251165\n",
    "1fc1b203 00000000 00a0a221 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001\n",
    "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 1 2 3 4 5 6\n",
    "Udp6InDatagrams                 \t542364\nUdp6NoPorts                     \t12\n",
    "entries  clashres found new\n00000000  00000000 00000000 00000001\n",
    "  sl  local_address\n  511: 0100007F:0035 00000000:0000 07 00000000:00000D00 00:00000000 00000000   101        0 19310 2 0000000000000000 12345\n",
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n0::/system.slice/docker-\\040.scope\n",
    "[Match]\nDriver=x\n[Link]\nRxChannels=8\nSUBSYSTEM==\"net\", ATTR{a}=\"b, c\", RUN+=\"d\" \\\n, GOTO=\"e\"\nnet/core/a.b = 1\n",
];

/// Any text, or a real one with some of its characters replaced.
fn texts() -> impl Strategy<Value = String> {
    let damaged = (
        prop::sample::select(&TEXTS[..]),
        prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 0..6),
    )
        .prop_map(|(text, changes)| {
            let mut all: Vec<char> = text.chars().collect();
            for (at, new) in changes {
                let at = at.index(all.len());
                all[at] = new;
            }
            all.into_iter().collect()
        });
    prop_oneof![any::<String>(), "[ -~\n]{0,200}", damaged]
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic_and_errors_fit_a_terminal(text in texts()) {
        for (name, parse) in PARSERS {
            if let Some(error) = parse(&text) {
                let told = error.to_string();
                prop_assert!(!told.chars().any(char::is_control), "{}: {:?}", name, told);
                prop_assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{}: {}", name, told);
                prop_assert!(error.text.chars().count() <= 80, "{}: {}", name, told);
            }
        }
    }

    #[test]
    fn sets_in_both_forms(bits in prop::collection::vec(any::<bool>(), 1..300)) {
        let set: CpuSet = (0..).zip(&bits).filter(|(_, bit)| **bit).map(|(cpu, _)| cpu).collect();
        prop_assert_eq!(cpu_list(&plain_list(&bits)), Ok(set.clone()));
        prop_assert_eq!(cpu_mask(&plain_mask(&bits)), Ok(set));
    }

    #[test]
    fn interrupts_are_read_as_they_are_printed(table in table(0_u32..5_000)) {
        let Table { cpus, rows } = &table;
        let mut text = header(cpus);
        for (number, counts) in rows {
            let _ = write!(text, "{number:>4}:");
            counts.iter().for_each(|count| { let _ = write!(text, " {count:>10}"); });
            let _ = writeln!(text, "  IR-PCI-MSI {}-edge      eth{number}-TxRx-{number}", number * 7);
        }
        let found = irqs::interrupts(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(found.irqs.len(), rows.len());
        for (irq, (number, counts)) in found.irqs.iter().zip(rows) {
            prop_assert_eq!((irq.number, irq.chip.as_str()), (*number, "IR-PCI-MSI"));
            prop_assert_eq!(&irq.name, &format!("eth{number}-TxRx-{number}"));
            prop_assert_eq!(&irq.counts, &per_cpu(cpus, counts));
        }
    }

    #[test]
    fn softirqs_are_read_as_they_are_printed(table in table(0_u32..10)) {
        let Table { cpus, rows } = &table;
        let mut text = header(cpus);
        for (number, counts) in rows {
            let _ = write!(text, "{:>12}:", format!("KIND_{number}"));
            counts.iter().for_each(|count| { let _ = write!(text, " {count:>10}"); });
            text.push('\n');
        }
        let found = irqs::softirq_table(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
        for (softirq, (number, counts)) in found.iter().zip(rows) {
            prop_assert_eq!(&softirq.name, &format!("KIND_{number}"));
            prop_assert_eq!(&softirq.counts, &per_cpu(cpus, counts));
        }
        prop_assert_eq!(found.len(), rows.len());
    }

    #[test]
    fn softnet_is_read_in_each_of_its_layouts(
        columns in prop::sample::select(vec![9_usize, 10, 11, 13, 15]),
        rows in prop::collection::vec(prop::array::uniform15(any::<u32>()), 1..40),
    ) {
        let mut text = String::new();
        for row in &rows {
            let words: Vec<String> = row[..columns].iter().map(|word| format!("{word:08x}")).collect();
            text += &(words.join(" ") + "\n");
        }
        let found = softnet::rows(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let column = |row: &[u32; 15], number: usize, from: usize| (columns >= from).then(|| row[number - 1]);
        prop_assert_eq!(found.len(), rows.len());
        for (read, row) in found.iter().zip(&rows) {
            let counts = read.counts;
            prop_assert_eq!((counts.processed, counts.dropped, counts.time_squeeze), (row[0], row[1], row[2]));
            prop_assert_eq!((counts.received_rps, counts.flow_limit), (column(row, 10, 10), column(row, 11, 11)));
            prop_assert_eq!((counts.backlog, read.cpu), (column(row, 12, 13), column(row, 13, 13)));
            prop_assert_eq!(counts.waiting, column(row, 14, 15));
        }
    }

    #[test]
    fn counters_that_wrap_give_what_was_added(before: u32, added: u32) {
        let row = |processed| softnet::SoftnetCpu { processed, ..Default::default() };
        prop_assert_eq!(row(before.wrapping_add(added)).since(&row(before)).processed, added);
        let since = irqs::since(
            &PerCpu::from([(3, before.wrapping_add(added))]),
            &PerCpu::from([(3, before)]),
        );
        prop_assert_eq!(since.get(&3).copied().unwrap_or(0), added);
    }

    #[test]
    fn sockets_are_read_as_they_are_printed(v6: bool, local: u128, peer: u128, ports: (u16, u16), rest: [u32; 5]) {
        let [uid, inode, receive, send, drops] = rest;
        let address = |bits: u128| if v6 {
            IpAddr::V6(Ipv6Addr::from(bits))
        } else {
            IpAddr::V4(Ipv4Addr::from(bits as u32))
        };
        let text = format!(
            "header\n {}: {}:{:04X} {}:{:04X} 01 {send:08X}:{receive:08X} 00:00000000 00000000 {uid:5} {:8} {inode} 2 {:016x} {drops}\n",
            4711, words(address(local)), ports.0, words(address(peer)), ports.1, 0, 0,
        );
        let found = sockets::table::parse(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(found[0].local, SocketAddr::new(address(local), ports.0));
        prop_assert_eq!(found[0].peer, Some(SocketAddr::new(address(peer), ports.1)));
        let read = [found[0].uid, found[0].inode, found[0].receive_queue, found[0].send_queue, found[0].drops];
        prop_assert_eq!(read, rest);
    }
}

/// A table of counts: its CPUs, and rows by number.
#[derive(Debug, Clone)]
struct Table {
    cpus: Vec<u32>,
    rows: BTreeMap<u32, Vec<u32>>,
}

fn table(numbers: impl Strategy<Value = u32> + Clone) -> impl Strategy<Value = Table> {
    prop::collection::btree_set(0_u32..600, 1..40).prop_flat_map(move |cpus| {
        let counts = prop::collection::vec(prop_oneof![Just(0), any::<u32>()], cpus.len());
        let rows = prop::collection::btree_map(numbers.clone(), counts, 0..12);
        rows.prop_map(move |rows| Table { cpus: cpus.iter().copied().collect(), rows })
    })
}

fn header(cpus: &[u32]) -> String {
    let mut text = String::from("     ");
    cpus.iter().for_each(|cpu| {
        let _ = write!(text, "      CPU{cpu:<8}");
    });
    text + "\n"
}

fn per_cpu(cpus: &[u32], counts: &[u32]) -> PerCpu {
    cpus.iter().copied().zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect()
}

/// `0-3,8`, bit by bit.
fn plain_list(bits: &[bool]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (cpu, _) in bits.iter().enumerate().filter(|(_, bit)| **bit) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",") + "\n"
}

/// `1,0000000f`, digit by digit.
fn plain_mask(bits: &[bool]) -> String {
    let digits = bits.chunks(4).map(|four| {
        let digit = (0..).zip(four).map(|(at, bit)| u32::from(*bit) << at).sum();
        char::from_digit(digit, 16).unwrap()
    });
    let mut text = String::new();
    for (at, digit) in digits.enumerate() {
        if at > 0 && at % 8 == 0 {
            text.insert(0, ',');
        }
        text.insert(0, digit);
    }
    text + "\n"
}

/// An address as `/proc/net/udp` prints it on this machine: four-byte words, each as a number in host byte order.
fn words(address: IpAddr) -> String {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let word = |four: &[u8]| {
        let value = if cfg!(target_endian = "little") {
            four.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte))
        } else {
            four.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte))
        };
        format!("{value:08X}")
    };
    bytes.chunks(4).map(word).collect()
}
