use super::*;

fn irq(number: u32, chip: &str, name: &str, counts: &[(u32, u32)]) -> Irq {
    let counts = counts.iter().copied().collect();
    Irq { number, chip: chip.into(), name: name.into(), counts, ..Irq::default() }
}

/// This machine's, 6.18: the controller names the device.
#[test]
fn the_table_of_a_new_kernel() {
    let text = "           CPU0       CPU1       
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 38:          0      12892 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:       8841          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
LOC:   30251715   31657699   Local timer interrupts
CAL:    4934137    4933156   Function call interrupts
ERR:          0
MIS:          0
";
    let found = interrupts(text).unwrap();
    assert_eq!(
        found.irqs,
        [
            irq(24, "IO-APIC", "ACPI:Ged", &[(0, 1)]),
            irq(38, "PCI-MSIX-0000:00:03.0", "virtio2-input.0", &[(1, 12_892)]),
            irq(39, "PCI-MSIX-0000:00:03.0", "virtio2-output.0", &[(0, 8_841)]),
        ]
    );
    let call = &found.processor[1];
    assert_eq!((call.name.as_str(), call.what.as_str()), ("CAL", "Function call interrupts"));
    assert_eq!(call.counts, PerCpu::from([(0, 4_934_137), (1, 4_933_156)]));
    assert_eq!(found.processor[2].counts, PerCpu::new());
}

#[test]
fn controllers_and_names_of_other_kernels() {
    for (rest, chip, name) in [
        // ixgbe, RHEL 7 (3.10) and 4.6: with and without a number.
        ("PCI-MSI-edge      ens1f0-TxRx-0", "PCI-MSI-edge", "ens1f0-TxRx-0"),
        ("IR-PCI-MSI 1572866-edge      ens1f0-TxRx-2", "IR-PCI-MSI", "ens1f0-TxRx-2"),
        // arm64, 5.15: the trigger is a separate word.
        ("GICv3  27 Level     arch_timer", "GICv3", "arch_timer"),
        ("ITS-MSI 524289 Edge      ena-mgmnt@pci:0000:00:05.0", "ITS-MSI", "ena-mgmnt@pci:0000:00:05.0"),
        // Azure, 5.15: a controller name of several words.
        (
            "Hyper-V PCIe MSI 4194304-edge      mlx5_async0@pci:4b8c:00:02.0",
            "Hyper-V PCIe MSI",
            "mlx5_async0@pci:4b8c:00:02.0",
        ),
        // Xen, 4.19.
        ("xen-dyn    -event     eth0-q0-rx", "xen-dyn", "eth0-q0-rx"),
        // Shared, and one without a handler.
        ("IO-APIC   16-fasteoi   ehci_hcd:usb1, i801_smbus", "IO-APIC", "ehci_hcd:usb1, i801_smbus"),
        ("PCI-MSI 524288-edge", "PCI-MSI", ""),
    ] {
        assert_eq!(chip_and_name(rest), (chip.into(), name.into()), "{rest}");
    }
}

#[test]
fn columns_are_the_online_cpus() {
    let text = "      CPU0  CPU2  CPU10\n 9: 1 2 3 IO-APIC 9-fasteoi acpi\n";
    assert_eq!(interrupts(text).unwrap().irqs[0].counts, PerCpu::from([(0, 1), (2, 2), (10, 3)]));
}

#[test]
fn a_line_that_does_not_fit_its_header_is_an_error() {
    let less = interrupts("  CPU0 CPU1\n 9: 1 IO-APIC 9-fasteoi acpi\n").unwrap_err();
    assert!(less.to_string().starts_with("line 2: not a count for each CPU of the header"), "{less}");
    let more = interrupts("  CPU0\n 9: 1 2 IO-APIC 9-fasteoi acpi\n").unwrap_err();
    assert!(more.to_string().starts_with("line 2: more counts than CPUs"), "{more}");
    assert!(interrupts("").is_err());
    assert!(interrupts("CPU0 CPUx\n").is_err());
}

#[test]
fn softirqs_of_possible_cpus() {
    // This machine's, 6.18.
    let text = "                    CPU0       CPU1       
          HI:          0          0
      NET_RX:  629635669  597628888
         RCU:    2175463    2643217
";
    let table = softirq_table(text).unwrap();
    assert_eq!(table.len(), 3);
    assert_eq!(table[1].name, "NET_RX");
    assert_eq!(table[1].counts, PerCpu::from([(0, 629_635_669), (1, 597_628_888)]));
    assert_eq!(table[0].counts, PerCpu::new());
    assert!(softirq_table("CPU0\nNET_RX: 1 2\n").is_err());
}

#[test]
fn counters_wrap_and_cpus_come_and_go() {
    let then = PerCpu::from([(0, u32::MAX - 1), (1, 7), (2, 100)]);
    let now = PerCpu::from([(0, 3), (1, 7), (3, 5)]);
    assert_eq!(since(&now, &then), PerCpu::from([(0, 5), (3, 5)]));
}
