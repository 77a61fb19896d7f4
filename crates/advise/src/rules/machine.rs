//! The machine's own settings that cost time: frequency and idle states, isolated CPUs, generic XDP, receive offloads,
//! budgets.

use udpath_host::map::InterfaceMap;
use udpath_steer::CpuSet;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, cpus, number};
use crate::rules::functions::{FAST_CLOCK, SLOW_CLOCK};
use crate::rules::queues::each;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "generic-xdp",
        severity: Severity::Limit,
        look: Look::Map(generic_xdp),
        cause: "the program runs after the kernel has built a socket buffer: the cost that XDP is to save",
        fix: &[
            "attach it in the driver (native mode), if `udpath show --json` lists XDP among the driver's features",
        ],
    },
    Rule {
        id: "budget-exhausted",
        severity: Severity::Limit,
        look: Look::Map(budget),
        cause: "softirqs stopped with packets left, and receive rings overflowed meanwhile",
        fix: &["spread the packets over more queues and CPUs: a larger budget only helps against bursts"],
    },
    Rule {
        id: "large-receive-offload",
        severity: Severity::Note,
        look: Look::Map(lro),
        cause: "it merges packets in a way that cannot be undone, and breaks forwarding and bridging",
        fix: &[],
    },
    Rule {
        id: "isolated-cpus",
        severity: Severity::Note,
        look: Look::Map(isolated),
        cause: "the scheduler keeps threads off these CPUs, so interrupts there disturb what was to run alone, or serve no \
                reader nearby",
        fix: &["send interrupts and RPS to the CPUs where the readers run, and isolate others"],
    },
    Rule {
        id: "smt-off",
        severity: Severity::Note,
        look: Look::Map(smt_off),
        cause: "the stack waits for memory much of the time, which a core's second thread could use",
        fix: &[
            "measure with `echo on > /sys/devices/system/cpu/smt/control` and readers on the new CPUs too (interrupts gain \
             nothing there); undone by `echo off`. Threads of one core can then observe each other through its caches",
        ],
    },
    Rule {
        id: "slow-clock",
        severity: Severity::Note,
        look: Look::Map(slow_clock),
        cause: SLOW_CLOCK,
        fix: &[FAST_CLOCK],
    },
    Rule {
        id: "governor",
        severity: Severity::Note,
        look: Look::Map(governor),
        cause: "the frequency follows the load with a delay: at medium load, packets meet slow CPUs",
        fix: &[
            "set the governor to performance (`cpupower frequency-set -g performance`); undone by setting the old one",
        ],
    },
    Rule {
        id: "deep-idle",
        severity: Severity::Note,
        look: Look::Map(deep_idle),
        cause: "the first packet after a pause waits until the CPU has woken up",
        fix: &[
            "for latency, use tuned's profile network-latency, or disable deep states (`cpupower idle-set -D 10`)",
        ],
    },
];

/// Wake-up latency of an idle state from which on it is seen, microseconds: that of a datagram through the stack.
const DEEP_US: u32 = 50;
/// Share of the interval that every CPU must be busy for more of them to help.
const ALL_BUSY: f64 = 0.9;
/// Packets that one softirq may handle, twice the default.
const BUDGET: u64 = 600;

fn generic_xdp(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let xdp = on.interface(&interface.name)?.xdp?;
        let program = xdp.generic.filter(|_| xdp.driver.is_none())?;
        let evidence = format!("{} runs XDP program {program} in generic mode", interface.name);
        Some(Found::new(evidence).at(Location::Interface(interface.name.clone())))
    })
}

fn budget(on: Observed<'_>) -> Vec<Found> {
    let lost: u64 = on.map.interfaces.iter().map(|interface| interface.missed).sum();
    let squeezed: Vec<(u32, u32)> = on
        .map
        .cpus
        .iter()
        .filter_map(|cpu| Some((cpu.cpu, cpu.softnet?.time_squeeze)))
        .filter(|(_, squeezed)| *squeezed > 0)
        .collect();
    if squeezed.is_empty() || lost == 0 || on.map.seconds.is_none() {
        return Vec::new();
    }
    let all: u64 = squeezed.iter().map(|(_, squeezed)| u64::from(*squeezed)).sum();
    let set: CpuSet = squeezed.iter().map(|(cpu, _)| *cpu).collect();
    let evidence = format!(
        "softirqs on {} ran out of their budget {} times {} while {} packets were lost before the kernel",
        cpus(&set),
        number(all),
        on.when(),
        number(lost)
    );
    let found = Found::new(evidence).at_all(set.iter().map(Location::Cpu)).rate(on.rate(all));
    vec![found.changes("double the budget", vec![format!("sysctl:net.core.netdev_budget={BUDGET}")])]
}

/// Clock sources that are devices of the board; the others are counters of the CPU or of the hypervisor.
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

fn slow_clock(on: Observed<'_>) -> Vec<Found> {
    let source = on.snapshot.kernel.clock_source.as_deref();
    let slow = source.filter(|source| SLOW_CLOCKS.contains(source));
    let found = slow.map(|source| Found::new(format!("the clock source is {source}")).at(Location::Machine));
    found.into_iter().collect()
}

fn lro(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let features = &on.interface(&interface.name)?.features.as_ref()?.value;
        let on_now = features.get("rx-lro").is_some_and(|feature| feature.active);
        let evidence = format!("{} merges TCP packets in hardware (LRO)", interface.name);
        on_now.then(|| {
            Found::new(evidence)
                .at(Location::Interface(interface.name.clone()))
                .changes("turn it off", vec![format!("{}:feature/rx-lro=off", interface.name)])
        })
    })
}

fn isolated(on: Observed<'_>) -> Vec<Found> {
    let isolated = on.snapshot.cpus.isolated.union(&on.snapshot.cpus.nohz_full);
    if isolated.is_empty() {
        return Vec::new();
    }
    let targets = |interface: &InterfaceMap| -> CpuSet {
        let of = |set: &CpuSet| set.iter().filter(|cpu| isolated.contains(*cpu)).collect::<Vec<_>>();
        interface.queues.iter().flat_map(|queue| [of(&queue.cpus), of(&queue.rps)].concat()).collect()
    };
    each(on, |interface| {
        let hit = targets(interface);
        let evidence = format!("{} sends interrupts or RPS to isolated {}", interface.name, cpus(&hit));
        (!hit.is_empty()).then(|| Found::new(evidence).at(Location::Interface(interface.name.clone())))
    })
}

fn smt_off(on: Observed<'_>) -> Vec<Found> {
    let off = on.snapshot.cpus.smt.as_ref().is_some_and(|smt| smt.control == "off" && !smt.active);
    let mut busy =
        on.map.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.time.map(|time| 1.0 - time.idle));
    let all_busy = busy.clone().count() > 0 && busy.all(|busy| busy.is_some_and(|busy| busy >= ALL_BUSY));
    let evidence =
        format!("all {} CPUs are busy, and simultaneous multithreading is off", on.map.cpus_online);
    (off && all_busy).then(|| Found::new(evidence).at(Location::Machine)).into_iter().collect()
}

fn governor(on: Observed<'_>) -> Vec<Found> {
    let policies = on.snapshot.cpus.frequencies.iter();
    let slow = policies.filter_map(|policy| {
        let governor = policy.governor.as_deref().filter(|governor| *governor != "performance")?;
        // The hardware's own control: the governor only names its preference.
        let prefers = policy.preference.as_deref().is_some_and(|preference| preference == "performance");
        let evidence = format!("the frequency of {} is governed by {governor}", cpus(&policy.cpus));
        (!prefers).then(|| Found::new(evidence).at(Location::Machine))
    });
    slow.take(1).collect()
}

fn deep_idle(on: Observed<'_>) -> Vec<Found> {
    let deep = on.snapshot.cpus.idle.iter().filter_map(|policy| {
        let states = policy.states.iter().filter(|state| !state.disabled && state.latency_us >= DEEP_US);
        let deepest = states.max_by_key(|state| state.latency_us)?;
        let evidence = format!(
            "{} may sleep in {}, which takes {} us to leave",
            cpus(&policy.cpus),
            deepest.name,
            number(deepest.latency_us.into())
        );
        Some(Found::new(evidence).at(Location::Machine))
    });
    deep.take(1).collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::cpus::{FrequencyPolicy, IdlePolicy, IdleState, Smt};
    use udpath_host::interfaces::{Feature, Features, Xdp};
    use udpath_host::map::Shares;
    use udpath_host::softnet::SoftnetCpu;

    use crate::rules::testing::{Host, fact, only, set, settings};

    #[test]
    fn xdp_after_the_socket_buffer() {
        let mut host = Host::with_queues(1);
        host.snapshot.interfaces[0].xdp = Some(Xdp { generic: Some(9), ..Xdp::default() });
        assert_eq!(only(&host, "generic-xdp").evidence, "eth0 runs XDP program 9 in generic mode");
        host.snapshot.interfaces[0].xdp = Some(Xdp { driver: Some(9), ..Xdp::default() });
        assert_eq!(host.found("generic-xdp"), []);
    }

    #[test]
    fn a_clock_that_is_a_device() {
        let mut host = Host::with_queues(1);
        for slow in ["hpet", "acpi_pm"] {
            host.snapshot.kernel.clock_source = Some(slow.into());
            assert_eq!(only(&host, "slow-clock").evidence, format!("the clock source is {slow}"));
        }
        for fast in ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"] {
            host.snapshot.kernel.clock_source = Some(fast.into());
            assert_eq!(host.found("slow-clock"), [], "{fast}");
        }
    }

    #[test]
    fn merging_in_hardware() {
        let mut host = Host::with_queues(1);
        let lro = |active| {
            Features::from([("rx-lro".into(), Feature { active, wanted: active, changeable: true })])
        };
        host.snapshot.interfaces[0].features = Some(fact(lro(true)));
        assert_eq!(settings(&only(&host, "large-receive-offload")), ["eth0:feature/rx-lro=off"]);
        host.snapshot.interfaces[0].features = Some(fact(lro(false)));
        assert_eq!(host.found("large-receive-offload"), []);
    }

    #[test]
    fn softirqs_that_stop_with_packets_left() {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(1.0);
        host.map.cpus[1].softnet = Some(SoftnetCpu { time_squeeze: 12, ..SoftnetCpu::default() });
        assert_eq!(host.found("budget-exhausted"), [], "nothing is lost");
        host.map.interfaces[0].missed = 30;
        let finding = only(&host, "budget-exhausted");
        assert!(
            finding.evidence.starts_with("softirqs on CPU 1 ran out of their budget 12 times"),
            "{}",
            finding.evidence
        );
    }

    #[test]
    fn interrupts_on_isolated_cpus() {
        let mut host = Host::with_queues(2);
        host.map.interfaces[0].queues[1].cpus = set("1");
        assert_eq!(host.found("isolated-cpus"), []);
        host.snapshot.cpus.isolated = set("1");
        assert_eq!(only(&host, "isolated-cpus").evidence, "eth0 sends interrupts or RPS to isolated CPU 1");
    }

    #[test]
    fn cores_with_one_thread_each_that_are_all_busy() {
        let mut host = Host::with_queues(1);
        let busy = |idle| Some(Shares { idle, ..Shares::default() });
        host.map.cpus.iter_mut().for_each(|cpu| cpu.time = busy(0.02));
        assert_eq!(host.found("smt-off"), [], "nothing known");
        let smt = |control: &str| Some(Smt { control: control.into(), active: false });
        host.snapshot.cpus.smt = smt("off");
        assert_eq!(
            only(&host, "smt-off").evidence,
            "all 2 CPUs are busy, and simultaneous multithreading is off"
        );
        host.map.cpus[1].time = busy(0.5);
        assert_eq!(host.found("smt-off"), [], "CPUs are left");
        host.map.cpus[1].time = busy(0.0);
        host.snapshot.cpus.smt = smt("notsupported");
        assert_eq!(host.found("smt-off"), []);
    }

    #[test]
    fn frequencies_and_idle_states() {
        let mut host = Host::with_queues(1);
        let policy = |governor: &str| FrequencyPolicy {
            cpus: set("0-1"),
            driver: None,
            governor: Some(governor.into()),
            preference: None,
            limit_khz: None,
            max_khz: None,
        };
        host.snapshot.cpus.frequencies = vec![policy("schedutil")];
        assert_eq!(only(&host, "governor").evidence, "the frequency of CPUs 0-1 is governed by schedutil");
        host.snapshot.cpus.frequencies = vec![policy("performance")];
        assert_eq!(host.found("governor"), []);
        let state = |latency_us| IdleState { name: "C6".into(), latency_us, disabled: false };
        host.snapshot.cpus.idle = vec![IdlePolicy { cpus: set("0-1"), states: vec![state(2), state(133)] }];
        assert_eq!(
            only(&host, "deep-idle").evidence,
            "CPUs 0-1 may sleep in C6, which takes 133 us to leave"
        );
        host.snapshot.cpus.idle = vec![IdlePolicy { cpus: set("0-1"), states: vec![state(2)] }];
        assert_eq!(host.found("deep-idle"), []);
    }
}
