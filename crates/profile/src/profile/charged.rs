//! Which CPU time is charged to a service's datagrams.
//!
//! ```text
//!                      of the service   of others
//! user, system calls       yes               no      a compiler beside it is not what a datagram costs
//! kernel threads                             no      nor is what the kernel does for itself
//! softirq, hard IRQ        yes              yes      of no process: no sample shows whose packet it was
//! NAPI threads             yes              yes      softirqs that moved
//! ```
//! Without a focus, all time is charged.

use std::collections::BTreeMap;

use super::result::{Profile, Share, Stack};
use crate::context::Context;

/// Present in every chain of a thread that polls devices, or a CPU's backlog, instead of a softirq (5.12 and later).
const NAPI_THREAD: [&str; 2] = ["napi_threaded_poll", "napi_threaded_poll_loop"];

impl Profile {
    /// Is a stack's time charged to the datagrams? Time of programs outside the focus is not. A stack without a pid, as
    /// from an older file, is.
    #[must_use]
    pub fn charges(&self, stack: &Stack) -> bool {
        let wanted = &self.facts.focus.pids;
        let shared = match stack.context {
            Context::Softirq | Context::HardIrq | Context::Idle => true,
            Context::Kernel => stack.frames.iter().any(|frame| NAPI_THREAD.contains(&frame.as_str())),
            Context::User | Context::Syscall | Context::Guest => false,
        };
        wanted.is_empty() || shared || stack.pid.is_none_or(|pid| wanted.contains(&pid))
    }

    /// Sets the time that others spent, for each class and lock.
    pub(super) fn charge(&mut self) {
        let (mut classes, mut locks) = (BTreeMap::new(), BTreeMap::new());
        for stack in self.stacks.iter().filter(|stack| !self.charges(stack)) {
            *classes.entry(stack.class).or_default() += stack.ns;
            if let Some(lock) = &stack.lock {
                *locks.entry(lock.clone()).or_default() += stack.ns;
            }
        }
        set(&mut self.classes, &classes);
        set(&mut self.locks, &locks);
    }
}

fn set<T: Ord>(shares: &mut [Share<T>], others: &BTreeMap<T, u64>) {
    for share in shares {
        share.others = others.get(&share.of).copied().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built::of;
    use crate::classes::Class;
    use crate::facts::Focus;

    /// A name server (812), a compiler (9), kernel threads (40) and softirqs, over five seconds on two CPUs.
    fn beside_a_compiler() -> Profile {
        use Context::{Kernel, Softirq, Syscall, User};
        let mut profile = of(&[
            (Softirq, Class::UdpReceive, None, None, "handle_softirqs net_rx_action udp_rcv", 1_000),
            (Kernel, Class::NapiGro, None, Some("napi/eth0-1"), "kthread napi_threaded_poll veth_poll", 400),
            (
                Kernel,
                Class::Memory,
                None,
                Some("kdamond.0"),
                "kthread kdamond_fn damon_pa_check_accesses",
                200,
            ),
            (Syscall, Class::SocketRead, None, Some("knotd"), "do_syscall_64 udp_recvmsg", 600),
            (User, Class::User, None, Some("knotd"), "query@", 500),
            (User, Class::User, None, Some("rustc"), "typeck", 3_000),
            (Kernel, Class::Memory, None, Some("rustc"), "asm_exc_page_fault handle_mm_fault", 700),
            (
                Syscall,
                Class::Lock,
                Some("futex"),
                Some("rustc"),
                "do_syscall_64 futex_wait _raw_spin_lock",
                300,
            ),
        ]);
        for stack in &mut profile.stacks {
            stack.pid = stack.process.as_deref().map(|name| match name {
                "knotd" => 812,
                "rustc" => 9,
                _ => 40,
            });
        }
        profile
    }

    #[test]
    fn a_compiler_is_not_charged_to_the_datagrams() {
        let all = beside_a_compiler();
        assert_eq!((all.charged(), all.others()), (6_700_000_000, 0));
        let profile = all.about(Focus { port: None, pids: vec![812] });
        // With 2,000,000 datagrams: softirqs and the NAPI thread are charged, the page fault is the compiler's, and the
        // kernel's memory management is its own.
        assert_eq!((profile.charged(), profile.others()), (2_500_000_000, 4_200_000_000));
        assert_eq!(profile.per_datagram(profile.charged()), Some(1250.0));
        let of = |class: Class| profile.classes.iter().find(|share| share.of == class).unwrap();
        assert_eq!((of(Class::User).ns, of(Class::User).charged()), (3_500_000_000, 500_000_000));
        assert_eq!((of(Class::Memory).charged(), of(Class::NapiGro).charged()), (0, 400_000_000));
        assert_eq!((profile.locks[0].of.as_str(), profile.locks[0].charged()), ("futex", 0));
        // Shares are still of all busy time.
        assert_eq!(of(Class::User).share, 3.5 / 6.7);
    }

    #[test]
    fn others_survive_a_file_and_older_files_have_none() {
        let profile = beside_a_compiler().about(Focus { port: None, pids: vec![812] });
        let text = serde_json::to_string(&profile).unwrap();
        let again: Profile = serde_json::from_str(&text).unwrap();
        assert_eq!((again.others(), &again.stacks), (4_200_000_000, &profile.stacks));
        assert_eq!(again.locks[0].others, profile.locks[0].others);
        // A file from before stacks had pids.
        let mut before = beside_a_compiler();
        before.stacks.iter_mut().for_each(|stack| stack.pid = None);
        assert_eq!(before.about(Focus { port: None, pids: vec![812] }).others(), 0);
    }
}
