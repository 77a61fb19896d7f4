//! RPS, RFS and XPS: the CPU and the transmit queue that the kernel selects; per-queue files in sysfs.

use super::row::{
    Access, Cost, Extra, Keeps, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind,
};
use super::{Form, Setting};

const WRITERS: &[&str] = &["udev", "cloud agents", "a reload of the driver", "a change of channels"];

/// Entries of a flow table: more than the global table can have (`rps_sock_flow_sysctl` of net/core/sysctl_net_core.c).
const MAX_FLOWS: u64 = 1 << 29;

/// CPUs to which a receive queue's packets are steered.
pub static RPS: Row = Row {
    name: "rps",
    part: PartKind::RxQueue,
    value: ValueKind::Cpus,
    access: Access::File(|setting| queue_file(setting, "rps_cpus"), Form::Mask),
    phase: Phase::Steering,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "rps",
    security: Security::Harmless,
    extra: Extra {
        differs: "the kernel skips isolated CPUs",
        errno: |_, operation, errno| match errno {
            libc::EINVAL if operation == "set" => {
                Some("none of these CPUs can process packets: they are isolated or offline")
            }
            _ => no_such_rx_queue(errno),
        },
        ..Extra::NONE
    },
};

/// Entries of a receive queue's flow table. The kernel rounds up to a power of two.
pub static RFS: Row = Row {
    name: "rfs",
    part: PartKind::RxQueue,
    value: ValueKind::Number("entries", MAX_FLOWS),
    access: Access::File(|setting| queue_file(setting, "rps_flow_cnt"), Form::Number),
    phase: Phase::Steering,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "rfs",
    security: Security::Harmless,
    extra: Extra { keeps: Keeps::PowerOfTwo, errno: |_, _, errno| no_such_rx_queue(errno), ..Extra::NONE },
};

/// CPUs that send on a transmit queue.
pub static XPS: Row = Row {
    name: "xps",
    part: PartKind::TxQueue,
    value: ValueKind::Cpus,
    access: Access::File(|setting| queue_file(setting, "xps_cpus"), Form::Mask),
    phase: Phase::Steering,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Rechosen,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "xps",
    security: Security::Harmless,
    extra: Extra { errno: |_, _, errno| no_such_tx_queue(errno), ..Extra::NONE },
};

/// Receive queues whose flows are sent on a transmit queue.
pub static XPS_RXQS: Row = Row {
    name: "xps-rxqs",
    part: PartKind::TxQueue,
    value: ValueKind::Queues,
    access: Access::File(|setting| queue_file(setting, "xps_rxqs"), Form::Mask),
    phase: Phase::Steering,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Rechosen,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "xps-rxqs",
    security: Security::Harmless,
    extra: Extra { errno: |_, _, errno| no_such_tx_queue(errno), ..Extra::NONE },
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&RPS, &RFS, &XPS, &XPS_RXQS];

fn queue_file(setting: &Setting, file: &str) -> String {
    match setting {
        Setting::Interface(interface, item) => {
            format!("/sys/class/net/{interface}/queues/{}/{file}", item.part_text())
        }
        _ => String::new(),
    }
}

fn no_such_rx_queue(errno: i32) -> Option<&'static str> {
    (errno == libc::ENOENT).then_some("no such interface or queue, or the kernel has no RPS")
}

fn no_such_tx_queue(errno: i32) -> Option<&'static str> {
    (errno == libc::ENOENT).then_some("no such queue, or it is the only one and has no mapping")
}
