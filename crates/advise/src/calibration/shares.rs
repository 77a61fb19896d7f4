//! A profile's classes of CPU time as costs of the model: which share of a transaction each term is.

use udpath_profile::Profile;
use udpath_profile::classes::Class;
use udpath_profile::context::Context;

/// Functions of a veth's end that runs the load's program: packets that arrive as skbs become frames, and frames are
/// sent back. The server's end has none of them (`drivers/net/veth.c`).
const LAB: [&str; 4] = ["veth_xdp_rcv_skb", "veth_convert_skb_to_xdp_buff", "veth_xdp_tx", "veth_xdp_flush"];

/// Functions of softirqs and NAPI whose own time is that of a poll, not of its packets (`kernel/softirq.c`,
/// `net/core/dev.c`).
const POLLING: [&str; 15] = [
    "____napi_schedule",
    "__do_softirq",
    "__local_bh_enable_ip",
    "__napi_poll",
    "__napi_schedule",
    "__raise_softirq_irqoff",
    "do_softirq",
    "do_softirq.part.0",
    "handle_softirqs",
    "napi_complete_done",
    "napi_schedule_prep",
    "net_rps_action_and_irq_enable",
    "net_rx_action",
    "veth_poll",
    "veth_xdp_rcv.constprop.0",
];

/// Shares of the CPU time of a transaction, together 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Shares {
    pub(super) poll: f64,
    pub(super) device_receive: f64,
    pub(super) protocol_receive: f64,
    pub(super) enqueue: f64,
    /// Reading and copying, without the call.
    pub(super) read: f64,
    pub(super) send: f64,
    pub(super) device_send: f64,
    pub(super) service: f64,
    pub(super) generate: f64,
    /// Calls, both of a transaction.
    pub(super) calls: f64,
    /// Everything that says nothing about the path: it is spread over the others.
    pub(super) other: f64,
}

impl Shares {
    /// The shares of a profile.
    pub(super) fn of(profile: &Profile) -> Self {
        let mut shares = Self::default();
        for stack in profile.stacks.iter().filter(|stack| profile.charges(stack)) {
            *shares.place(stack.context, stack.class, &stack.frames) += stack.ns as f64;
        }
        let all = shares.sum();
        let known = (all - shares.other).max(1.0);
        shares.other = 0.0;
        shares.scaled(1.0 / known)
    }

    /// The share that a stack belongs to.
    fn place(&mut self, context: Context, class: Class, frames: &[String]) -> &mut f64 {
        use Class::{
            Copy, Ip, Lock, NapiGro, Netfilter, NicDriver, Qdisc, Routing, Skb, SocketEnqueue, SocketLookup,
            SocketRead, Transmit, UdpReceive, UdpSend, XdpBpf,
        };
        let in_lab = |frame: &String| LAB.iter().any(|lab| frame.starts_with(lab));
        if matches!(context, Context::Softirq) && frames.iter().any(in_lab) {
            return &mut self.generate;
        }
        let at = frames.last().map_or("", String::as_str);
        if POLLING.contains(&at) {
            return &mut self.poll;
        }
        match (context, class) {
            (Context::Softirq | Context::HardIrq, Ip | UdpReceive | SocketLookup | Routing | Netfilter) => {
                &mut self.protocol_receive
            }
            (Context::Softirq | Context::HardIrq, SocketEnqueue | Lock) => &mut self.enqueue,
            // The load's own program, and nothing else, runs BPF here.
            (Context::Softirq | Context::HardIrq, XdpBpf) => &mut self.generate,
            (Context::Softirq | Context::HardIrq, NicDriver | NapiGro | Skb) => &mut self.device_receive,
            (Context::Softirq | Context::HardIrq, _) => &mut self.device_receive,
            (Context::User, _) => &mut self.service,
            (Context::Syscall, UdpSend | Routing) => &mut self.send,
            (Context::Syscall, Transmit | Qdisc | NicDriver) => &mut self.device_send,
            (Context::Syscall, SocketRead | Copy) => &mut self.read,
            (Context::Syscall, Class::Syscall | Class::Mitigations | Class::Security) => &mut self.calls,
            // Memory, locks and the rest belong to the call that they were in.
            (Context::Syscall, _)
                if frames.iter().any(|frame| frame.contains("sendto") || frame.contains("sendm")) =>
            {
                &mut self.send
            }
            (Context::Syscall, _) if frames.iter().any(|frame| frame.contains("recv")) => &mut self.read,
            (Context::Syscall, _) => &mut self.calls,
            (Context::Kernel | Context::Guest | Context::Idle, _) => &mut self.other,
        }
    }

    fn sum(&self) -> f64 {
        let receiving =
            self.poll + self.device_receive + self.protocol_receive + self.enqueue + self.generate;
        let sending = self.send + self.device_send;
        receiving + sending + self.read + self.service + self.calls + self.other
    }

    fn scaled(&self, by: f64) -> Self {
        Self {
            poll: self.poll * by,
            device_receive: self.device_receive * by,
            protocol_receive: self.protocol_receive * by,
            enqueue: self.enqueue * by,
            read: self.read * by,
            send: self.send * by,
            device_send: self.device_send * by,
            service: self.service * by,
            generate: self.generate * by,
            calls: self.calls * by,
            other: self.other * by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_belongs_to_the_call_that_it_was_in() {
        let mut shares = Shares::default();
        let frames = |name: &str| vec!["do_syscall_64".to_owned(), name.to_owned()];
        *shares.place(Context::Syscall, Class::Memory, &frames("__x64_sys_sendto")) += 1.0;
        *shares.place(Context::Syscall, Class::Memory, &frames("__x64_sys_recvfrom")) += 2.0;
        *shares.place(Context::Syscall, Class::Memory, &frames("__x64_sys_futex")) += 4.0;
        *shares.place(Context::Softirq, Class::XdpBpf, &[]) += 8.0;
        *shares.place(Context::Softirq, Class::Ip, &[]) += 16.0;
        assert_eq!(
            shares,
            Shares {
                send: 1.0,
                read: 2.0,
                calls: 4.0,
                generate: 8.0,
                protocol_receive: 16.0,
                ..Shares::default()
            }
        );
        assert_eq!(shares.sum(), 31.0);
    }
}
