//! Driver names of interrupts and counters: for kernels and drivers that do not report over netlink which queue an
//! interrupt or counter belongs to.
//!
//! Each row is from the driver's source file in the kernel (Linux 4.x to 6.x) that builds the name. In a name, `{dev}`
//! is the interface, `{bus}` the device's bus address (`0000:01:00.0`, `virtio2`), `{n}` the queue. A name is matched
//! as a whole, so `eth1` never matches `eth10`.

use crate::client::netdev::Direction;

/// Which queue the number in a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// The receive queue and the transmit queue of that number.
    Both,
    /// The receive queue.
    Rx,
    /// The transmit queue.
    Tx,
    /// The receive queue, and the only transmit queue.
    RxAndOnlyTx,
    /// Transmit queues come first, receive queues from the middle of all such interrupts on.
    Halves,
}

/// How a driver names its queues' interrupts.
#[derive(Debug, Clone, Copy)]
pub struct IrqName {
    /// The drivers that use it.
    pub drivers: &'static [&'static str],
    /// The name.
    pub name: &'static str,
    /// What the number refers to.
    pub serves: Serves,
    /// The number of queue 0; lower ones belong to the device.
    pub first: u32,
}

const fn irq(drivers: &'static [&'static str], name: &'static str, serves: Serves) -> IrqName {
    IrqName { drivers, name, serves, first: 0 }
}

/// Queue 0 has number 1.
const fn from_one(drivers: &'static [&'static str], name: &'static str, serves: Serves) -> IrqName {
    IrqName { first: 1, ..irq(drivers, name, serves) }
}

/// Drivers that name interrupts of a receive and a transmit queue `TxRx`, or, apart, `rx` and `tx`.
const INTELS: &[&str] = &[
    "ixgbe", "ixgbevf", "igb", "igc", "bnxt_en", "hns3", "fm10k", "txgbe", "ngbe", "e1000e", "vmxnet3",
    "tsnep",
];

/// Names of queues' interrupts. Of several that match one name, the first counts.
pub const IRQ_NAMES: &[IrqName] = &[
    // ixgbe_main.c, ixgbevf_main.c, igb_main.c, igc_main.c, bnxt.c, hns3_enet.c before 5.2, fm10k_pci.c, txgbe_irq.c,
    // ngbe_main.c
    irq(INTELS, "{dev}-TxRx-{n}", Serves::Both),
    irq(INTELS, "{dev}-rx-{n}", Serves::Rx),
    irq(INTELS, "{dev}-tx-{n}", Serves::Tx),
    // i40e_main.c, iavf_main.c, ice_lib.c: prefixed with the driver's name
    irq(&["i40e"], "i40e-{dev}-TxRx-{n}", Serves::Both),
    irq(&["i40e"], "i40e-{dev}-rx-{n}", Serves::Rx),
    irq(&["i40e"], "i40e-{dev}-tx-{n}", Serves::Tx),
    irq(&["iavf", "i40evf"], "iavf-{dev}-TxRx-{n}", Serves::Both),
    irq(&["iavf", "i40evf"], "i40evf-{dev}-TxRx-{n}", Serves::Both),
    irq(&["ice"], "ice-{dev}-TxRx-{n}", Serves::Both),
    irq(&["ice"], "ice-{dev}-rx-{n}", Serves::Rx),
    irq(&["ice"], "ice-{dev}-tx-{n}", Serves::Tx),
    irq(&["idpf"], "idpf-{dev}-TxRx-{n}", Serves::Both),
    // mlx5/core/pci_irq.c, mlx4/eq.c: named after the PCI device, not the interface. In mlx4 event queue 0 is for
    // events of the device since 4.2; before, its interrupts were `comp`, or in en_cq.c named after the interface.
    irq(&["mlx5_core"], "mlx5_comp{n}@pci:{bus}", Serves::Both),
    from_one(&["mlx4_en", "mlx4_core"], "mlx4-{n}@{bus}", Serves::Both),
    irq(&["mlx4_en", "mlx4_core"], "mlx4-comp-{n}@pci:{bus}", Serves::Both),
    irq(&["mlx4_en", "mlx4_core"], "{dev}-{n}", Serves::Both),
    // virtio_net.c: virtqueues of the virtio device
    irq(&["virtio_net"], "{bus}-input.{n}", Serves::Rx),
    irq(&["virtio_net"], "{bus}-output.{n}", Serves::Tx),
    // ena_netdev.c
    irq(&["ena"], "{dev}-Tx-Rx-{n}", Serves::Both),
    // gve_main.c: notification blocks, before and since 5.19
    irq(&["gve"], "{dev}-ntfy-block.{n}", Serves::Halves),
    irq(&["gve"], "gve-ntfy-blk{n}@pci:{bus}", Serves::Halves),
    // vmxnet3_drv.c
    irq(&["vmxnet3"], "{dev}-rxtx-{n}", Serves::Both),
    // gdma_main.c: number 0 belongs to the device
    from_one(&["mana"], "mana_q{n}@pci:{bus}", Serves::Both),
    // tg3.c: vector 0 is the link's. With several transmit queues all have numbers from 1 on; with one, vector 0 is its
    // as well.
    from_one(&["tg3"], "{dev}-txrx-{n}", Serves::Both),
    from_one(&["tg3"], "{dev}-rx-{n}", Serves::Rx),
    from_one(&["tg3"], "{dev}-tx-{n}", Serves::Tx),
    irq(&["tg3"], "{dev}-tx-{n}", Serves::Tx),
    // tsnep_main.c
    irq(&["tsnep"], "{dev}-txrx-{n}", Serves::Both),
    // be_main.c, bnx2.c
    irq(&["be2net"], "{dev}-q{n}", Serves::Both),
    irq(&["bnx2"], "{dev}-{n}", Serves::Both),
    // qlcnic_main.c, the last one before 3.10
    irq(&["qlcnic"], "{dev}-tx-0-rx-{n}", Serves::RxAndOnlyTx),
    irq(&["qlcnic"], "{dev}-rx-{n}", Serves::Rx),
    irq(&["qlcnic"], "{dev}-tx-{n}", Serves::Tx),
    irq(&["qlcnic"], "{dev}[{n}]", Serves::Both),
    // bnx2x_main.c, qede_main.c, cxgb4_main.c, nfp_net_common.c, hns3_enet.c, sfc/efx_common.c
    irq(&["bnx2x", "qede"], "{dev}-fp-{n}", Serves::Both),
    irq(&["cxgb4"], "{dev}-Rx{n}", Serves::Rx),
    irq(&["nfp"], "{dev}-rxtx-{n}", Serves::Both),
    irq(&["hns3"], "hns3-{bus}-TxRx-{n}", Serves::Both),
    irq(&["sfc"], "{dev}-{n}", Serves::Both),
];

/// Drivers whose queues have no interrupts in the kernel: hypervisor channels take their place.
pub const WITHOUT_IRQS: &[&str] = &["hv_netvsc", "xen_netfront"];

/// Drivers that, from Linux 5.3 to 6.0, reported a second half of receive queues for AF_XDP alone (mlx5, en.h
/// `mlx5e_params.xsk`, `num_rx_queues`).
pub const DOUBLED_RX_QUEUES: &[&str] = &["mlx5_core"];

/// The queue of the interrupt `name` of a driver's device, and what it serves. `dev` and `bus`: as for [`number`].
#[must_use]
pub fn queue_of(driver: &str, name: &str, dev: Option<&str>, bus: Option<&str>) -> Option<(Serves, u32)> {
    let mut rows = IRQ_NAMES.iter().filter(|row| row.drivers.contains(&driver));
    rows.find_map(|row| Some((row.serves, number(row.name, name, dev, bus)?.checked_sub(row.first)?)))
}

/// The number in a name that matches `template`. `dev` and `bus`: the values of `{dev}` and `{bus}`; `None` matches
/// anything, for interrupts already known to belong to the device, because a renamed interface keeps its old name in
/// its interrupts.
#[must_use]
pub fn number(template: &str, name: &str, dev: Option<&str>, bus: Option<&str>) -> Option<u32> {
    let (head, tail) = template.split_once("{n}")?;
    let from_head = ends(head, name, dev, bus)?;
    let digits = from_head.find(|c: char| !c.is_ascii_digit()).unwrap_or(from_head.len());
    let (number, rest) = from_head.split_at(digits);
    let rest = ends(tail, rest, dev, bus)?;
    if rest.is_empty() { number.parse().ok() } else { None }
}

/// The rest of `name` after `template`, if it starts with it.
fn ends<'a>(template: &str, name: &'a str, dev: Option<&str>, bus: Option<&str>) -> Option<&'a str> {
    for (place, value) in [("{dev}", dev), ("{bus}", bus)] {
        let Some((before, after)) = template.split_once(place) else { continue };
        let rest = name.strip_prefix(before)?;
        return match value {
            Some(value) => rest.strip_prefix(value)?.strip_prefix(after),
            // Any non-empty text; what follows is matched from the end, because the text may contain it too.
            None if after.is_empty() => (!rest.is_empty()).then_some(""),
            None => rest.rfind(after).filter(|at| *at > 0).map(|at| &rest[at + after.len()..]),
        };
    }
    name.strip_prefix(template)
}

/// A driver's name for a queue counter.
#[derive(Debug, Clone, Copy)]
pub struct QueueCounter {
    /// The drivers that use it.
    pub drivers: &'static [&'static str],
    /// The counter's name.
    pub name: &'static str,
    /// Receive or transmit.
    pub direction: Direction,
    /// Its name here: `packets`, `bytes`, `drops`.
    pub counter: &'static str,
}

const fn rx(drivers: &'static [&'static str], name: &'static str, counter: &'static str) -> QueueCounter {
    QueueCounter { drivers, name, direction: Direction::Rx, counter }
}

const fn tx(drivers: &'static [&'static str], name: &'static str, counter: &'static str) -> QueueCounter {
    QueueCounter { drivers, name, direction: Direction::Tx, counter }
}

/// Drivers that use `rx_queue_N_packets`: the ethtool files of each.
const SPELT_OUT: &[&str] =
    &["ixgbe", "ixgbevf", "igb", "igc", "ice", "virtio_net", "hv_netvsc", "veth", "ifb"];
/// Drivers that use `rxN_packets`.
const SHORT: &[&str] = &["mlx5_core", "mlx4_en", "virtio_net"];

/// Names of queues' counters.
pub const QUEUE_COUNTERS: &[QueueCounter] = &[
    rx(SPELT_OUT, "rx_queue_{n}_packets", "packets"),
    rx(SPELT_OUT, "rx_queue_{n}_bytes", "bytes"),
    rx(SPELT_OUT, "rx_queue_{n}_drops", "drops"),
    tx(SPELT_OUT, "tx_queue_{n}_packets", "packets"),
    tx(SPELT_OUT, "tx_queue_{n}_bytes", "bytes"),
    rx(&["veth"], "rx_queue_{n}_xdp_packets", "xdp-packets"),
    rx(&["veth"], "rx_queue_{n}_xdp_drops", "xdp-drops"),
    rx(SHORT, "rx{n}_packets", "packets"),
    rx(SHORT, "rx{n}_bytes", "bytes"),
    rx(&["virtio_net"], "rx{n}_drops", "drops"),
    rx(&["mlx5_core"], "rx{n}_wqe_err", "drops"),
    rx(&["mlx4_en"], "rx{n}_dropped", "drops"),
    tx(SHORT, "tx{n}_packets", "packets"),
    tx(SHORT, "tx{n}_bytes", "bytes"),
    tx(&["mlx5_core"], "tx{n}_dropped", "drops"),
    rx(&["i40e", "iavf"], "rx-{n}.packets", "packets"),
    rx(&["i40e", "iavf"], "rx-{n}.bytes", "bytes"),
    tx(&["i40e", "iavf"], "tx-{n}.packets", "packets"),
    tx(&["i40e", "iavf"], "tx-{n}.bytes", "bytes"),
    // i40e before 4.20 and ice before 5.1 placed the dot differently.
    rx(&["i40e", "ice"], "rx-{n}.rx_packets", "packets"),
    tx(&["i40e", "ice"], "tx-{n}.tx_packets", "packets"),
    rx(&["ena"], "queue_{n}_rx_cnt", "packets"),
    rx(&["ena"], "queue_{n}_rx_bytes", "bytes"),
    rx(&["ena"], "queue_{n}_rx_page_alloc_fail", "alloc-fail"),
    tx(&["ena"], "queue_{n}_tx_cnt", "packets"),
    tx(&["ena"], "queue_{n}_tx_bytes", "bytes"),
    rx(&["gve"], "rx_packets[{n}]", "packets"),
    rx(&["gve"], "rx_bytes[{n}]", "bytes"),
    rx(&["gve"], "rx_dropped_pkt[{n}]", "drops"),
    tx(&["gve"], "tx_packets[{n}]", "packets"),
    tx(&["gve"], "tx_bytes[{n}]", "bytes"),
    rx(&["mana"], "rx_{n}_packets", "packets"),
    rx(&["mana"], "rx_{n}_bytes", "bytes"),
    tx(&["mana"], "tx_{n}_packets", "packets"),
    tx(&["mana"], "tx_{n}_bytes", "bytes"),
    rx(&["bnxt_en"], "[{n}]: rx_ucast_packets", "packets"),
    rx(&["bnxt_en"], "[{n}]: rx_ucast_bytes", "bytes"),
    rx(&["bnxt_en"], "[{n}]: rx_discards", "drops"),
    tx(&["bnxt_en"], "[{n}]: tx_ucast_packets", "packets"),
    tx(&["bnxt_en"], "[{n}]: tx_ucast_bytes", "bytes"),
    // Built from the queue's line and the counter's: kernel/ioctl.rs.
    rx(&["vmxnet3"], "Rx Queue {n}: ucast pkts rx", "packets"),
    rx(&["vmxnet3"], "Rx Queue {n}: ucast bytes rx", "bytes"),
    rx(&["vmxnet3"], "Rx Queue {n}: drv dropped rx total", "drops"),
    rx(&["vmxnet3"], "Rx Queue {n}: pkts rx OOB", "hw-drop-overruns"),
    tx(&["vmxnet3"], "Tx Queue {n}: ucast pkts tx", "packets"),
    tx(&["vmxnet3"], "Tx Queue {n}: ucast bytes tx", "bytes"),
    tx(&["vmxnet3"], "Tx Queue {n}: drv dropped tx total", "drops"),
    rx(&["bnx2x"], "[{n}]: rx_ucast_packets", "packets"),
    rx(&["qede"], "{n}: rcv_pkts", "packets"),
    rx(&["hns3"], "rxq{n}_packets", "packets"),
    rx(&["hns3"], "rxq{n}_bytes", "bytes"),
    tx(&["hns3"], "txq{n}_packets", "packets"),
    tx(&["hns3"], "txq{n}_bytes", "bytes"),
];

/// The queue and counter that `name` refers to, for a driver.
#[must_use]
pub fn queue_counter(driver: &str, name: &str) -> Option<(Direction, u32, &'static str)> {
    let mut rows = QUEUE_COUNTERS.iter().filter(|row| row.drivers.contains(&driver));
    rows.find_map(|row| Some((row.direction, number(row.name, name, None, None)?, row.counter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(driver: &str, name: &str, dev: &str, bus: &str) -> Option<(Serves, u32)> {
        queue_of(driver, name, Some(dev), Some(bus))
    }

    /// Names as found in /proc/interrupts of machines with these drivers.
    #[test]
    fn interrupts_are_known_by_their_names() {
        let rows = [
            ("ixgbe", "ens1f0-TxRx-15", "ens1f0", "0000:81:00.0", Some((Serves::Both, 15))),
            ("ixgbe", "ens1f0", "ens1f0", "0000:81:00.0", None),
            ("i40e", "i40e-eth2-TxRx-3", "eth2", "0000:3b:00.1", Some((Serves::Both, 3))),
            ("i40e", "i40e-0000:3b:00.1:fdir-TxRx-0", "eth2", "0000:3b:00.1", None),
            ("ice", "ice-ens801f0-TxRx-63", "ens801f0", "0000:af:00.0", Some((Serves::Both, 63))),
            ("mlx5_core", "mlx5_comp11@pci:0000:01:00.0", "eth0", "0000:01:00.0", Some((Serves::Both, 11))),
            ("mlx5_core", "mlx5_comp11@pci:0000:01:00.1", "eth0", "0000:01:00.0", None),
            ("mlx5_core", "mlx5_async@pci:0000:01:00.0", "eth0", "0000:01:00.0", None),
            ("virtio_net", "virtio2-input.0", "eth0", "virtio2", Some((Serves::Rx, 0))),
            ("virtio_net", "virtio2-output.7", "eth0", "virtio2", Some((Serves::Tx, 7))),
            ("virtio_net", "virtio22-input.0", "eth0", "virtio2", None),
            ("virtio_net", "virtio2-config", "eth0", "virtio2", None),
            ("ena", "eth0-Tx-Rx-2", "eth0", "0000:00:05.0", Some((Serves::Both, 2))),
            ("ena", "ena-mgmnt@pci:0000:00:05.0", "eth0", "0000:00:05.0", None),
            ("gve", "gve-ntfy-blk5@pci:0000:00:04.0", "eth0", "0000:00:04.0", Some((Serves::Halves, 5))),
            ("mana", "mana_q1@pci:7870:00:00.0", "eth1", "7870:00:00.0", Some((Serves::Both, 0))),
            ("mana", "mana_q0@pci:7870:00:00.0", "eth1", "7870:00:00.0", None),
            ("tg3", "eth0-tx-0", "eth0", "0000:02:00.0", Some((Serves::Tx, 0))),
            ("tg3", "eth0-rx-1", "eth0", "0000:02:00.0", Some((Serves::Rx, 0))),
            ("tg3", "eth0-rx-4", "eth0", "0000:02:00.0", Some((Serves::Rx, 3))),
            ("tg3", "eth0-txrx-1", "eth0", "0000:02:00.0", Some((Serves::Both, 0))),
            ("tg3", "eth0-tx-2", "eth0", "0000:02:00.0", Some((Serves::Tx, 1))),
            ("tg3", "eth0-0", "eth0", "0000:02:00.0", None),
            ("be2net", "eth4-q0", "eth4", "0000:04:00.0", Some((Serves::Both, 0))),
            ("be2net", "eth4-q15", "eth4", "0000:04:00.0", Some((Serves::Both, 15))),
            ("bnx2", "em1-3", "em1", "0000:01:00.0", Some((Serves::Both, 3))),
            ("bnx2", "em1", "em1", "0000:01:00.0", None),
            ("mlx4_en", "mlx4-1@0000:03:00.0", "eth2", "0000:03:00.0", Some((Serves::Both, 0))),
            ("mlx4_en", "mlx4-16@0000:03:00.0", "eth2", "0000:03:00.0", Some((Serves::Both, 15))),
            ("mlx4_en", "mlx4-async@pci:0000:03:00.0", "eth2", "0000:03:00.0", None),
            ("mlx4_en", "mlx4-comp-0@pci:0000:03:00.0", "eth2", "0000:03:00.0", Some((Serves::Both, 0))),
            ("mlx4_en", "eth2-7", "eth2", "0000:03:00.0", Some((Serves::Both, 7))),
            ("qlcnic", "eth5-rx-2", "eth5", "0000:05:00.0", Some((Serves::Rx, 2))),
            ("qlcnic", "eth5-tx-0", "eth5", "0000:05:00.0", Some((Serves::Tx, 0))),
            ("qlcnic", "eth5-tx-0-rx-3", "eth5", "0000:05:00.0", Some((Serves::RxAndOnlyTx, 3))),
            ("qlcnic", "eth5[1]", "eth5", "0000:05:00.0", Some((Serves::Both, 1))),
            ("qlcnic", "qlcnic", "eth5", "0000:05:00.0", None),
            ("fm10k", "eth6-TxRx-9", "eth6", "0000:06:00.0", Some((Serves::Both, 9))),
            ("tsnep", "eth7-txrx-1", "eth7", "0000:07:00.0", Some((Serves::Both, 1))),
            ("e1000e", "eth1-rx-0", "eth1", "0000:00:19.0", Some((Serves::Rx, 0))),
            ("vmxnet3", "eth0-rxtx-4", "eth0", "0000:0b:00.0", Some((Serves::Both, 4))),
        ];
        for (driver, name, dev, bus, wanted) in rows {
            assert_eq!(serves(driver, name, dev, bus), wanted, "{driver} {name}");
        }
    }

    #[test]
    fn interfaces_with_a_common_prefix_are_distinguished() {
        let template = "{dev}-TxRx-{n}";
        assert_eq!(number(template, "eth10-TxRx-0", Some("eth1"), None), None);
        assert_eq!(number(template, "eth1-TxRx-10", Some("eth1"), None), Some(10));
        assert_eq!(number(template, "eth1-TxRx-", Some("eth1"), None), None);
        assert_eq!(number(template, "eth1-TxRx-99999999999", Some("eth1"), None), None);
        // A renamed interface: any name matches, but it must not be empty.
        assert_eq!(number(template, "eth0-TxRx-3", None, None), Some(3));
        assert_eq!(number(template, "-TxRx-3", None, None), None);
        assert_eq!(number("mlx5_comp{n}@pci:{bus}", "mlx5_comp3@pci:0000:01:00.0", None, None), Some(3));
    }

    #[test]
    fn counters_are_known_by_their_names() {
        let rows = [
            ("ixgbe", "rx_queue_63_packets", Some((Direction::Rx, 63, "packets"))),
            ("mlx5_core", "rx11_packets", Some((Direction::Rx, 11, "packets"))),
            ("mlx5_core", "rx_packets", None),
            ("mlx5_core", "tx3_dropped", Some((Direction::Tx, 3, "drops"))),
            ("i40e", "rx-7.bytes", Some((Direction::Rx, 7, "bytes"))),
            ("ena", "queue_2_rx_cnt", Some((Direction::Rx, 2, "packets"))),
            ("gve", "tx_packets[3]", Some((Direction::Tx, 3, "packets"))),
            ("bnxt_en", "[5]: rx_discards", Some((Direction::Rx, 5, "drops"))),
            ("vmxnet3", "Rx Queue 3: ucast pkts rx", Some((Direction::Rx, 3, "packets"))),
            ("virtio_net", "rx0_drops", Some((Direction::Rx, 0, "drops"))),
            ("nobody", "rx_queue_0_packets", None),
        ];
        for (driver, name, wanted) in rows {
            assert_eq!(queue_counter(driver, name), wanted, "{driver} {name}");
        }
    }
}
