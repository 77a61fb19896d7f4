//! What each step of a datagram's path costs: the only figures that the model takes from a machine.
//!
//! A [`Costs`] comes from `udpath capacity --calibrate`: short trials of single operations, and rungs of the ladder in
//! a lab with the profile's cost per datagram and class. Nothing in it comes from a published figure. [`TERMS`] says of
//! each cost what it is and how it is measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the JSON form.
pub const COSTS_SCHEMA: &str = "udpath.costs/1";

/// Costs, where they come from, and how far they reach.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// [`COSTS_SCHEMA`].
    pub schema: String,
    /// The machine that they were measured on, in words.
    pub machine: String,
    /// What they were measured over.
    pub range: Range,
    /// Relative error of the predictions that the calibration itself could check, 0.05 for 5 %.
    pub error: f64,
    /// The costs.
    pub terms: Terms,
}

/// What costs were measured over. A prediction beyond it is an extrapolation.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Most CPUs.
    pub cpus: usize,
    /// Most receive queues.
    pub queues: usize,
    /// Most nodes.
    pub nodes: usize,
    /// Most threads per core.
    pub threads_per_core: usize,
    /// Release of the kernel, as `6.18`.
    pub kernel: String,
    /// The link was a veth pair, whose ends send and receive on the same CPU; not a card.
    pub virtual_link: bool,
}

/// How a cost changes with the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Instructions of one CPU: divided by the speed of its core.
    Work,
    /// A move between CPUs: divided by the speed of the machine's interconnect.
    Move,
    /// A ratio without unit.
    Ratio,
}

/// A cost: its name, and what it is.
#[derive(Debug, Clone, Copy)]
pub struct Term {
    /// The field of [`Terms`], and its name in JSON.
    pub name: &'static str,
    /// How it changes with the machine.
    pub kind: Kind,
    /// What it is the cost of.
    pub meaning: &'static str,
    /// How it is measured.
    pub measured: &'static str,
}

/// Declares each cost once.
macro_rules! terms {
    ($($name:ident: $default:literal, $kind:ident, $meaning:literal, $measured:literal;)*) => {
        /// The costs: nanoseconds, or ratios. [`TERMS`] explains each one.
        #[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Terms {
            $(#[doc = $meaning] pub $name: f64,)*
        }

        /// The costs, in the order of a datagram's path.
        pub const TERMS: &[Term] = &[
            $(Term { name: stringify!($name), kind: Kind::$kind, meaning: $meaning, measured: $measured },)*
        ];

        impl Terms {
            /// Each cost by name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static Term, f64)> {
                TERMS.iter().zip([$(self.$name),*])
            }

            /// Changes each cost.
            pub fn map(&self, mut change: impl FnMut(&'static Term, f64) -> f64) -> Self {
                let mut terms = TERMS.iter();
                let mut next = |value| terms.next().map_or(value, |term| change(term, value));
                Self { $($name: next(self.$name)),* }
            }
        }

        /// Measured on the machine of [`Costs::default`].
        const DEFAULTS: Terms = Terms { $($name: $default),* };
    };
}

terms! {
    poll: 145.0, Work,
        "Scheduling, starting and ending a poll of a queue or backlog, however many packets it finds",
        "profile of the rung reuseport: the functions of softirqs and NAPI themselves; a veth polls for each packet";
    device_receive: 180.0, Work,
        "Driver, NAPI and GRO of a received packet, with its skb",
        "profile of the rung reuseport: device classes in softirq context";
    protocol_receive: 136.0, Work,
        "IP and UDP of a received datagram, and the lookup of its socket",
        "profile of the rung reuseport: protocol classes in softirq context";
    enqueue: 62.0, Work,
        "Appending a datagram to a socket's queue, without its locks and lines",
        "profile of the rung reuseport: class socket-enqueue";
    discard: 43.0, Work,
        "Freeing a datagram that a full queue refuses, on the CPU that allocated it",
        "micro-trial: a socket of the smallest buffer is flooded, with and without a reader";
    call: 71.0, Work,
        "Entry to a system call, exit from it, and what each call does once",
        "rung batched against reuseport, two calls per datagram";
    read: 162.0, Work,
        "Taking a datagram from a queue, copying and freeing it, without locks and lines",
        "profile of the rung reuseport: reading classes in system calls";
    service: 103.0, Work,
        "The service's own work on a request, in user space",
        "profile of the rung reuseport: user context";
    send: 358.0, Work,
        "UDP and IP of a reply, with its skb and route",
        "profile of the rung reuseport: sending classes in system calls";
    device_send: 58.0, Work,
        "Queueing discipline and driver of a sent packet",
        "profile of the rung reuseport: transmit classes in system calls";
    sent: 56.0, Work,
        "Completion of a sent packet: freeing it in the NAPI poll of its queue",
        "profile: half of the skb class of the sending side";
    interrupt: 590.0, Work,
        "A hard interrupt and the start of its softirq",
        "as eight calls: it saves more than a call, is acknowledged to the device, and starts a softirq";
    steer: 68.0, Work,
        "RPS: the choice of a CPU and the append to its backlog",
        "rung rps+reuseport against reuseport: class rps-backlog";
    ipi: 148.0, Work,
        "Sending an interrupt to another CPU, on hardware",
        "as two calls: a serialising write of a register";
    ipi_delay: 620.0, Move,
        "From sending an interrupt to another CPU until its handler runs, on hardware",
        "as ten lines: public figures for Xeons are 0.5 to 1 us";
    virtual_ipi: 6700.0, Work,
        "The same in a virtual machine, beyond that on hardware: sending leaves the guest",
        "micro-trial: waking a thread of another, sleeping CPU against one of the same";
    virtual_ipi_delay: 12000.0, Work,
        "The same in a virtual machine, beyond that on hardware, of a CPU that sleeps: the host has to run it again",
        "micro-trial: as virtual_ipi, until the thread runs";
    wake: 185.0, Work,
        "Waking a thread, on the waking CPU",
        "micro-trial: two threads of one CPU pass a token; a third of what a call does not explain";
    switch: 375.0, Work,
        "From one thread to another, with going to sleep",
        "micro-trial: as wake, the other two thirds";
    lock: 6.0, Work,
        "Taking and releasing a lock that nobody else wants",
        "micro-trial: one thread, a FIFO lock";
    handover: 221.0, Move,
        "A contended lock from the CPU that releases it to the next in its queue",
        "micro-trial: two threads on two CPUs, a FIFO lock";
    line: 62.0, Move,
        "A cache line that another CPU of the node has written",
        "micro-trial: two threads on two CPUs write one line in turn, half a round trip";
    remote: 2.2, Ratio,
        "A line from a CPU of another node, against one of the same node",
        "public: core-to-core latencies of two-socket Xeons, 44 to 51 ns within and 100 to 130 ns between sockets";
    siblings: 1.25, Ratio,
        "Two busy threads of a core, against one alone",
        "public: kernel work gains a quarter from a second thread (Intel's own figure for servers: 15 to 30 %)";
    tcp_receive: 171.0, Work,
        "TCP's part of receiving a segment beyond UDP's, with the acknowledgement it carries",
        "micro-trial: round trips of a byte over loopback, TCP against UDP, half of the difference";
    tcp_send: 171.0, Work,
        "TCP's part of sending a segment beyond UDP's",
        "micro-trial: as tcp_receive";
    copy_cached: 12.0, Work,
        "Copying a KiB that is in the shared cache, as a card with direct cache access leaves it",
        "micro-trial: copies from a buffer that fits into the L2 cache";
    copy_memory: 64.0, Work,
        "Copying a KiB from memory",
        "micro-trial: copies from a buffer of many times the caches";
    generate: 256.0, Work,
        "The lab's own work for a transaction: the load's program, and the veth pair",
        "profile of the rung reuseport: BPF, and the end of the veth pair that runs it";
}

impl Default for Costs {
    /// Costs of a virtual machine with two Sapphire Rapids CPUs and Linux 6.18, to a tenth or two: for orders of rungs
    /// where nothing was calibrated.
    fn default() -> Self {
        Self {
            schema: COSTS_SCHEMA.to_owned(),
            machine: "built-in: 2 virtual CPUs (Sapphire Rapids), Linux 6.18".to_owned(),
            range: Range {
                cpus: 2,
                queues: 2,
                nodes: 1,
                threads_per_core: 1,
                kernel: "6.18".to_owned(),
                virtual_link: true,
            },
            error: 0.15,
            terms: DEFAULTS,
        }
    }
}

/// Why costs cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum CostsError {
    /// Another version, or something else.
    #[error("schema {0:?}: expected {COSTS_SCHEMA:?}; write a new file with `udpath capacity --calibrate`")]
    Schema(String),
    /// A cost out of range.
    #[error("{name} is {value}: expected {low} to {high}{unit}")]
    Value {
        /// The cost.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Lowest.
        low: f64,
        /// Highest.
        high: f64,
        /// Its unit, with a space.
        unit: &'static str,
    },
    /// The relative error.
    #[error("error is {0}: expected 0 to 1")]
    Error(f64),
}

/// Longest single cost, nanoseconds: far above that of any operation of any machine that runs Linux, and low enough
/// that no sum of them overflows simulated time.
const MAX_COST: f64 = 1e6;
/// Highest ratio. A line from another node takes at most several times as long as one of the same node.
const HIGHEST_RATIO: f64 = 20.0;

impl Costs {
    /// Checks that the costs can be used.
    ///
    /// # Errors
    /// The first that cannot, and what is valid.
    pub fn check(&self) -> Result<(), CostsError> {
        if self.schema != COSTS_SCHEMA {
            return Err(CostsError::Schema(self.schema.clone()));
        }
        for (term, value) in self.terms.iter() {
            let (low, high, unit) = match term.kind {
                Kind::Ratio => (1.0, HIGHEST_RATIO, ""),
                Kind::Work | Kind::Move => (0.0, MAX_COST, " ns"),
            };
            if !(low..=high).contains(&value) {
                return Err(CostsError::Value { name: term.name, value, low, high, unit });
            }
        }
        match (0.0..=1.0).contains(&self.error) {
            true => Ok(()),
            false => Err(CostsError::Error(self.error)),
        }
    }

    /// These costs on a machine whose cores and interconnect are so many times as fast.
    #[must_use]
    pub(crate) fn scaled(&self, speed: f64, interconnect: f64) -> Terms {
        self.terms.map(|term, value| match term.kind {
            Kind::Work => value / speed,
            Kind::Move => value / interconnect,
            Kind::Ratio => value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_survive_json_and_are_checked() {
        let costs = Costs::default();
        assert_eq!(costs.check(), Ok(()));
        let text = serde_json::to_string(&costs).unwrap();
        assert_eq!(serde_json::from_str::<Costs>(&text).unwrap(), costs);
        let wrong = |change: fn(&mut Costs)| {
            let mut costs = Costs::default();
            change(&mut costs);
            costs.check().unwrap_err().to_string()
        };
        assert_eq!(wrong(|costs| costs.terms.line = -1.0), "line is -1: expected 0 to 1000000 ns");
        assert_eq!(wrong(|costs| costs.terms.remote = 0.5), "remote is 0.5: expected 1 to 20");
        assert_eq!(wrong(|costs| costs.terms.wake = f64::NAN), "wake is NaN: expected 0 to 1000000 ns");
        assert_eq!(wrong(|costs| costs.error = 2.0), "error is 2: expected 0 to 1");
        assert!(wrong(|costs| costs.schema = "udpath.boost/2".into()).contains("udpath.costs/1"));
    }

    #[test]
    fn speed_divides_work_and_the_interconnect_moves() {
        let costs = Costs::default();
        let scaled = costs.scaled(2.0, 4.0);
        assert_eq!(scaled.send, costs.terms.send / 2.0);
        assert_eq!(scaled.line, costs.terms.line / 4.0);
        assert_eq!(scaled.remote, costs.terms.remote);
    }
}
