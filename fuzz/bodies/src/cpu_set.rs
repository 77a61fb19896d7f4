use udpath_steer::CpuSet;

use crate::presentable;

/// CPU sets as lists and as masks: a parsed set is sorted, and both forms round-trip.
pub fn cpu_set(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for parsed in [CpuSet::from_list(text), CpuSet::from_mask(text)] {
        match parsed {
            Ok(set) => holds(&set),
            Err(error) => presentable(&error, text.len()),
        }
    }
}

fn holds(set: &CpuSet) {
    let cpus: Vec<u32> = set.iter().collect();
    assert!(cpus.is_sorted_by(|one, next| one < next), "{cpus:?}");
    assert_eq!((cpus.len(), cpus.is_empty()), (set.len(), set.is_empty()));
    assert_eq!((cpus.first().copied(), cpus.last().copied()), (set.first(), set.last()));
    assert!(cpus.iter().all(|cpu| *cpu <= CpuSet::MAX_CPU && set.contains(*cpu)));
    let list = set.to_string();
    assert_eq!(CpuSet::from_list(&list).as_ref(), Ok(set), "{list}");
    let mask = set.to_mask();
    assert_eq!(CpuSet::from_mask(&mask).as_ref(), Ok(set), "{mask}");
    assert_eq!(cpus.into_iter().collect::<CpuSet>(), *set);
}
