use udpath_load::cpu::CpuTimes;

/// Two texts of `/proc/stat`, separated by a zero byte: the shares of the time between them are valid and add up to 1.
pub fn cpu_times(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (then, now) = text.split_once('\0').unwrap_or(("", text));
    let used = CpuTimes::parse(now).since(&CpuTimes::parse(then), 100.0);
    assert!(used.len() <= now.lines().count());
    for cpu in used {
        let shares = [cpu.usr, cpu.sys, cpu.soft, cpu.irq, cpu.steal, cpu.idle];
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{cpu:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{cpu:?}");
        assert!(cpu.seconds.is_finite() && cpu.seconds >= 0.0, "{cpu:?}");
        assert!((0.0..=cpu.seconds).contains(&cpu.busy_seconds()), "{cpu:?}");
    }
}
