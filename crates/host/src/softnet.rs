//! The receive path of each CPU, `/proc/net/softnet_stat`: packets, drops, exhausted budgets, steering.
//!
//! The file has no header; what a column means depends on how many there are:
//!
//! | columns | from | adds |
//! |---|---|---|
//! | 9 | 2.6 | 1 processed, 2 dropped, 3 squeezed; the rest is 0 |
//! | 10 | 2.6.35 | 10 received by RPS |
//! | 11 | 3.11 | 11 flow limit |
//! | 13 | 5.10 | 12 backlog, 13 number of the CPU |
//! | 15 | 6.4 | 14 backlog that waits, 15 backlog taken over |
//!
//! An offline CPU has no row. Since 5.10 a row names its CPU; before, rows are those of the online CPUs, in order.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::text::{Malformed, cpu_list, noted, parsed};
use crate::{Absence, Missing, Source};

/// The rows of `/proc/net/softnet_stat`, by CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Softnet {
    /// A row for each CPU that was online.
    pub cpus: BTreeMap<u32, SoftnetCpu>,
}

/// One CPU's counters, 32 bits wide as in the kernel: they wrap. Shared by all network namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SoftnetCpu {
    /// Packets processed here; with RPS, also those that this CPU passed on.
    pub processed: u32,
    /// Packets dropped because this CPU's backlog was full (`net.core.netdev_max_backlog`), or by a flow limit.
    pub dropped: u32,
    /// Number of times the softirq stopped with work left (`net.core.netdev_budget`, `netdev_budget_usecs`).
    pub time_squeeze: u32,
    /// Inter-processor interrupts that steered packets here. From 2.6.35 on.
    pub received_rps: Option<u32>,
    /// Packets that this CPU's flow limit dropped, which are also in `dropped` of the CPU that they were for. From 3.11
    /// on.
    pub flow_limit: Option<u32>,
    /// Packets currently in the backlog. From 5.10 on.
    pub backlog: Option<u32>,
    /// The part of the backlog that the CPU has not taken over yet. From 6.4 on.
    pub waiting: Option<u32>,
}

impl SoftnetCpu {
    /// The increase since an earlier snapshot of the same boot, wraps included. The backlog is the current one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both =
            |now: Option<u32>, then: Option<u32>| now.zip(then).map(|(now, then)| now.wrapping_sub(then));
        Self {
            processed: self.processed.wrapping_sub(earlier.processed),
            dropped: self.dropped.wrapping_sub(earlier.dropped),
            time_squeeze: self.time_squeeze.wrapping_sub(earlier.time_squeeze),
            received_rps: both(self.received_rps, earlier.received_rps),
            flow_limit: both(self.flow_limit, earlier.flow_limit),
            backlog: self.backlog,
            waiting: self.waiting,
        }
    }
}

impl Softnet {
    /// The increase per CPU since an earlier snapshot of the same boot. A CPU missing from the earlier snapshot is left
    /// out: its increase is unknown.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let both = |(cpu, now): (&u32, &SoftnetCpu)| Some((*cpu, now.since(earlier.cpus.get(cpu)?)));
        Self { cpus: self.cpus.iter().filter_map(both).collect() }
    }
}

const SOFTNET: &str = "/proc/net/softnet_stat";
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Columns of the first layout, and of the one that names the CPU.
const FIRST: usize = 9;
const NAMED: usize = 13;

/// Reads the file.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Softnet {
    let read = || {
        let rows = parsed(source, SOFTNET, rows)?;
        let online = parsed(source, ONLINE, cpu_list);
        by_cpu(rows, online).map_err(Absence::NotUnderstood)
    };
    noted(missing, "receive path of each CPU", SOFTNET, read()).unwrap_or_default()
}

/// One row; its CPU if the row names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// From the row.
    pub cpu: Option<u32>,
    /// Its counters.
    pub counts: SoftnetCpu,
}

/// The rows of the file, in any of its layouts. Columns that a later kernel may add are ignored.
///
/// # Errors
/// A row that is shorter than the first layout, has a different length than the one before it, or contains an invalid
/// number.
pub fn rows(text: &str) -> Result<Vec<Row>, Malformed> {
    let mut rows = Vec::new();
    let mut width = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |why: &str| Malformed::new(index, line, why);
        let words = line.split_ascii_whitespace().map(|word| u32::from_str_radix(word, 16));
        let words: Vec<u32> =
            words.collect::<Result<_, _>>().map_err(|_| wrong("not hexadecimal numbers"))?;
        if words.len() < FIRST || width.is_some_and(|width| width != words.len()) {
            return Err(wrong("an unknown number of columns"));
        }
        width = Some(words.len());
        let column = |number: usize| words.get(number - 1).copied();
        // Twelve columns were never released; without the thirteenth the twelfth cannot be identified as the backlog.
        let named = words.len() >= NAMED;
        rows.push(Row {
            cpu: column(NAMED),
            counts: SoftnetCpu {
                processed: words[0],
                dropped: words[1],
                time_squeeze: words[2],
                received_rps: column(10),
                flow_limit: column(11),
                backlog: column(12).filter(|_| named),
                waiting: column(14),
            },
        });
    }
    Ok(rows)
}

/// Rows by CPU.
fn by_cpu(rows: Vec<Row>, online: Result<CpuSet, Absence>) -> Result<Softnet, String> {
    let named: Option<BTreeMap<_, _>> = rows.iter().map(|row| Some((row.cpu?, row.counts))).collect();
    if let Some(cpus) = named {
        return Ok(Softnet { cpus });
    }
    let count = rows.len();
    match online {
        Ok(online) if online.len() == count => {
            Ok(Softnet { cpus: online.iter().zip(rows).map(|(cpu, row)| (cpu, row.counts)).collect() })
        }
        Ok(online) => Err(format!("{SOFTNET} has {count} rows without names for the online CPUs {online}")),
        Err(why) => Err(format!("{SOFTNET} does not name its CPUs, and those online are not known: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, online: &str) -> Result<Softnet, String> {
        by_cpu(rows(text).unwrap(), Ok(online.parse().unwrap()))
    }

    /// This machine's, 6.18.
    const NEW: &str = "1fc1b203 00000000 00a0a221 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
1e9db27d 00000000 00a09341 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000003 00000005 00000001 00000002
";

    #[test]
    fn rows_that_name_their_cpu() {
        let softnet = read(NEW, "0-1").unwrap();
        assert_eq!(softnet.cpus.keys().copied().collect::<Vec<_>>(), [0, 5]);
        let five = softnet.cpus[&5];
        assert_eq!((five.processed, five.time_squeeze), (0x1e9d_b27d, 0x00a0_9341));
        assert_eq!((five.backlog, five.waiting, five.received_rps), (Some(3), Some(1), Some(0)));
    }

    #[test]
    fn older_layouts() {
        let row =
            |columns: usize| (1..=columns).map(|n| format!("{n:08x}")).collect::<Vec<_>>().join(" ") + "\n";
        for (columns, rps, limit, backlog) in [
            (9, None, None, None),
            (10, Some(10), None, None),
            (11, Some(10), Some(11), None),
            (12, Some(10), Some(11), None),
        ] {
            let softnet = read(&row(columns).repeat(2), "1,7").unwrap();
            let counts = softnet.cpus[&7];
            assert_eq!((counts.processed, counts.dropped, counts.time_squeeze), (1, 2, 3));
            assert_eq!((counts.received_rps, counts.flow_limit, counts.backlog), (rps, limit, backlog));
        }
        let counts = read(&row(13), "0-3").unwrap().cpus[&13];
        assert_eq!((counts.backlog, counts.waiting), (Some(12), None));
    }

    #[test]
    fn rows_without_names_need_as_many_cpus() {
        let row = format!("{}\n", ["00000001"; 11].join(" "));
        let told = read(&row, "0-1").unwrap_err();
        assert_eq!(told, "/proc/net/softnet_stat has 1 rows without names for the online CPUs 0-1");
        let told = by_cpu(rows(&row).unwrap(), Err(Absence::NotCaptured)).unwrap_err();
        assert!(told.ends_with("not in the capture"), "{told}");
    }

    #[test]
    fn garbled_rows_are_errors() {
        assert!(rows("00000001 00000002\n").is_err());
        assert!(rows(&["zz"; 9].join(" ")).is_err());
        assert!(rows(&format!("{}\n{}\n", ["1"; 11].join(" "), ["1"; 10].join(" "))).is_err());
    }

    #[test]
    fn counters_wrap_and_cpus_come_and_go() {
        let counts = |processed, limit| SoftnetCpu {
            processed,
            flow_limit: limit,
            backlog: Some(9),
            ..SoftnetCpu::default()
        };
        let then = Softnet {
            cpus: [(0, counts(u32::MAX, Some(1))), (1, counts(5, None)), (2, counts(1, None))].into(),
        };
        let now =
            Softnet { cpus: [(0, counts(4, Some(1))), (1, counts(5, Some(3))), (3, counts(7, None))].into() };
        let since = now.since(&then);
        assert_eq!(since.cpus.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert_eq!((since.cpus[&0].processed, since.cpus[&0].flow_limit), (5, Some(0)));
        assert_eq!(
            (since.cpus[&1].processed, since.cpus[&1].flow_limit, since.cpus[&1].backlog),
            (0, None, Some(9))
        );
    }
}
