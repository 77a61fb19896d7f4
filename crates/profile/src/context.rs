//! What a CPU was doing, and on whose behalf, when a sample was taken; derived from the call chain.
//!
//! ```text
//! innermost  udp_rcv ... net_rx_action, handle_softirqs, do_softirq, __local_bh_enable_ip, ..., udp_sendmsg, ..., do_syscall_64
//!                        └ softirq, though a system call is underneath: the first boundary from inside decides
//! ```
//! The boundaries are those of the kernel's own accounting (kernel/sched/cputime.c), so that the shares can be compared
//! with /proc/stat. A timer's samples never stop inside a hard interrupt's own entry: interrupts are off there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::perf::Mode;
use crate::symbols::Frame;

/// On whose behalf a CPU worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Context {
    /// A hard interrupt.
    HardIrq,
    /// A softirq, wherever it ran: after an interrupt, at the end of a system call, in ksoftirqd.
    Softirq,
    /// A system call.
    Syscall,
    /// Other kernel work: kernel threads (NAPI threads too), page faults.
    Kernel,
    /// A program.
    User,
    /// A virtual machine on this host.
    Guest,
    /// The CPU was idle.
    Idle,
}

impl Context {
    /// All contexts.
    pub const ALL: [Self; 7] =
        [Self::HardIrq, Self::Softirq, Self::Syscall, Self::Kernel, Self::User, Self::Guest, Self::Idle];

    /// The title for display.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::HardIrq => "hard IRQ",
            Self::Softirq => "softirq",
            Self::Syscall => "syscall",
            Self::Kernel => "other kernel",
            Self::User => "user",
            Self::Guest => "guest",
            Self::Idle => "idle",
        }
    }
}

/// Functions that run softirqs.
const SOFTIRQ: [&str; 3] = ["handle_softirqs", "__do_softirq", "call_softirq"];
/// Functions that run hard interrupts, and prefixes of such names.
const HARD_IRQ: [&str; 5] = [
    "handle_irq_event",
    "__handle_irq_event_percpu",
    "handle_irq_event_percpu",
    "do_IRQ",
    "common_interrupt",
];
const HARD_IRQ_BEGINNINGS: [&str; 4] = ["__sysvec_", "sysvec_", "smp_apic_timer_interrupt", "asm_exc_nmi"];
/// System call entry functions, and prefixes of such names.
const SYSCALL: [&str; 6] = [
    "do_syscall_64",
    "system_call_fastpath",
    "system_call",
    "do_int80_emulation",
    "do_fast_syscall_32",
    "tracesys",
];
const SYSCALL_BEGINNINGS: [&str; 2] = ["entry_SYSCALL_", "entry_SYSENTER_"];
/// Functions of an idle CPU.
const IDLE: [&str; 4] = ["do_idle", "cpu_startup_entry", "cpu_idle", "cpu_idle_loop"];

/// Returns a sample's context. `chain` is the kernel's part, innermost first.
#[must_use]
pub fn of<'f>(mode: Mode, chain: impl IntoIterator<Item = Frame<'f>>) -> Context {
    match mode {
        Mode::User => return Context::User,
        Mode::Guest => return Context::Guest,
        Mode::Kernel => (),
    }
    chain.into_iter().find_map(|frame| boundary(frame.function)).unwrap_or(Context::Kernel)
}

/// The part of a named chain (outermost first) that belongs to the context: of an interrupt, from the function where it
/// begins; otherwise all of it.
#[must_use]
pub fn own(context: Context, chain: &[String]) -> &[String] {
    if !matches!(context, Context::HardIrq | Context::Softirq) {
        return chain;
    }
    let begins = chain.iter().rposition(|function| boundary(function) == Some(context));
    begins.map_or(chain, |at| &chain[at..])
}

/// The context that begins in this function.
fn boundary(function: &str) -> Option<Context> {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| function.starts_with(beginning));
    if SOFTIRQ.contains(&function) {
        Some(Context::Softirq)
    } else if HARD_IRQ.contains(&function) || begins(&HARD_IRQ_BEGINNINGS) {
        Some(Context::HardIrq)
    } else if SYSCALL.contains(&function) || begins(&SYSCALL_BEGINNINGS) {
        Some(Context::Syscall)
    } else if IDLE.contains(&function) {
        Some(Context::Idle)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_names(names: &str) -> Context {
        of(Mode::Kernel, names.split_whitespace().map(|function| Frame { function, module: None }))
    }

    #[test]
    fn interrupted_code_is_left_out() {
        let chain: Vec<String> =
            "main [echo] do_syscall_64 udp_sendmsg handle_softirqs net_rx_action udp_rcv"
                .split(' ')
                .map(str::to_owned)
                .collect();
        assert_eq!(own(Context::Softirq, &chain), ["handle_softirqs", "net_rx_action", "udp_rcv"]);
        assert_eq!(own(Context::Syscall, &chain), chain);
        assert_eq!(own(Context::HardIrq, &chain), chain);
    }

    #[test]
    fn the_innermost_boundary_decides() {
        assert_eq!(
            of_names("udp_rcv net_rx_action handle_softirqs do_softirq udp_sendmsg do_syscall_64"),
            Context::Softirq
        );
        assert_eq!(
            of_names("net_rx_action handle_softirqs __irq_exit_rcu common_interrupt asm_common_interrupt"),
            Context::Softirq
        );
        assert_eq!(
            of_names("net_rx_action handle_softirqs run_ksoftirqd smpboot_thread_fn kthread"),
            Context::Softirq
        );
        assert_eq!(
            of_names(
                "ixgbe_msix_clean_rings __handle_irq_event_percpu common_interrupt udp_recvmsg do_syscall_64"
            ),
            Context::HardIrq
        );
        assert_eq!(of_names("irq_exit_rcu sysvec_apic_timer_interrupt do_idle"), Context::HardIrq);
        assert_eq!(of_names("udp_recvmsg do_syscall_64 entry_SYSCALL_64_after_hwframe"), Context::Syscall);
        assert_eq!(of_names("udp_recvmsg system_call_fastpath"), Context::Syscall);
        assert_eq!(of_names("pv_native_safe_halt default_idle do_idle cpu_startup_entry"), Context::Idle);
        assert_eq!(of_names("napi_threaded_poll kthread ret_from_fork"), Context::Kernel);
        assert_eq!(of_names("handle_mm_fault exc_page_fault asm_exc_page_fault"), Context::Kernel);
        assert_eq!(of(Mode::User, []), Context::User);
    }
}
