//! `CpuSet` against a second implementation that is too simple to be wrong: an ordered set of numbers, and texts made
//! digit by digit.

use std::collections::BTreeSet;

use proptest::collection::btree_set;
use proptest::prelude::*;
use udpath_steer::{CpuSet, CpuSetError, xps};

/// The list form, by asking for every number in turn.
fn naive_list(cpus: &BTreeSet<u32>) -> String {
    let mut parts = Vec::new();
    for &low in cpus.iter().filter(|&&cpu| cpu == 0 || !cpus.contains(&(cpu - 1))) {
        let high = (low..).take_while(|cpu| cpus.contains(cpu)).last().unwrap();
        parts.push(if low == high { low.to_string() } else { format!("{low}-{high}") });
    }
    parts.join(",")
}

/// The mask form of a machine with `width` CPUs: one digit per four CPUs, a comma before every eighth from the right.
fn naive_mask(cpus: &BTreeSet<u32>, width: u32) -> String {
    let digits = width.div_ceil(4);
    let mut text = String::new();
    for digit in (0..digits).rev() {
        let value: u32 = (0..4).filter(|bit| cpus.contains(&(digit * 4 + bit))).map(|bit| 1 << bit).sum();
        text.push(char::from_digit(value, 16).unwrap());
        if digit != 0 && digit % 8 == 0 {
            text.push(',');
        }
    }
    text
}

fn set(cpus: &BTreeSet<u32>) -> CpuSet {
    cpus.iter().copied().collect()
}

fn some_cpus() -> impl Strategy<Value = BTreeSet<u32>> {
    // Dense and sparse, short and long: runs matter as much as gaps.
    prop_oneof![
        btree_set(0_u32..20, 0..20),
        btree_set(0_u32..300, 0..120),
        btree_set(0_u32..=CpuSet::MAX_CPU, 0..6)
    ]
}

proptest! {
    #[test]
    fn list_and_mask_agree_with_the_simple_forms(cpus in some_cpus(), spare in 0_u32..100) {
        let set = set(&cpus);
        let width = cpus.last().map_or(1, |last| last + 1) + spare;
        prop_assert_eq!(set.to_string(), naive_list(&cpus));
        prop_assert_eq!(set.to_mask_of(width), naive_mask(&cpus, width));
        prop_assert_eq!(CpuSet::from_list(&naive_list(&cpus)).unwrap(), set.clone());
        prop_assert_eq!(CpuSet::from_mask(&naive_mask(&cpus, width)).unwrap(), set.clone());
        prop_assert_eq!(CpuSet::from_mask(&set.to_mask()).unwrap(), set.clone());
        let json = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(&json, &format!("\"{}\"", naive_list(&cpus)));
        prop_assert_eq!(serde_json::from_str::<CpuSet>(&json).unwrap(), set);
    }

    #[test]
    fn it_is_a_set(a in some_cpus(), b in some_cpus(), probe in 0_u32..300) {
        let (x, y) = (set(&a), set(&b));
        prop_assert_eq!(x.iter().collect::<Vec<_>>(), a.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.first(), a.first().copied());
        prop_assert_eq!(x.last(), a.last().copied());
        prop_assert_eq!(x.contains(probe), a.contains(&probe));
        prop_assert_eq!(x.union(&y), set(&(&a | &b)));
        prop_assert_eq!(x.intersection(&y), set(&(&a & &b)));
        prop_assert_eq!(x.difference(&y), set(&(&a - &b)));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        let (mut x, mut a) = (x, a);
        prop_assert_eq!(x.insert(probe), a.insert(probe));
        prop_assert_eq!(&x, &set(&a));
        prop_assert_eq!(x.remove(probe), a.remove(&probe));
        prop_assert_eq!(&x, &set(&a));
    }

    #[test]
    fn strides_take_the_first_of_every_group(low in 0_u32..50, more in 0_u32..50, of in 1_u32..10, take in 1_u32..10) {
        let high = low + more;
        let by_hand = |take: u32| -> BTreeSet<u32> {
            (0..).map(|group| low + group * of).take_while(|&start| start <= high)
                .flat_map(|start| (start..start + take).filter(|&cpu| cpu <= high)).collect()
        };
        prop_assert_eq!(CpuSet::from_list(&format!("{low}-{high}:{of}")).unwrap(), set(&by_hand(1)));
        let grouped = CpuSet::from_list(&format!("{low}-{high}:{take}/{of}"));
        if take <= of {
            prop_assert_eq!(grouped.unwrap(), set(&by_hand(take)));
        } else {
            let stride_error = matches!(grouped, Err(CpuSetError::Stride { .. }));
            prop_assert!(stride_error);
        }
    }

    #[test]
    fn no_text_panics_and_what_is_read_is_read_back(text in "[0-9a-fx,:/ -]{0,12}|\\PC{0,12}") {
        if let Ok(set) = CpuSet::from_list(&text) {
            prop_assert_eq!(CpuSet::from_list(&set.to_string()).unwrap(), set);
        }
        if let Ok(set) = CpuSet::from_mask(&text) {
            prop_assert_eq!(CpuSet::from_mask(&set.to_mask()).unwrap(), set);
        }
    }

    #[test]
    fn every_cpu_sends_on_one_queue_and_queues_are_even(cpus in some_cpus(), queues in 1_u32..70) {
        let map = xps::spread(&set(&cpus), queues);
        prop_assert_eq!(map.len(), queues as usize);
        let mut seen: Vec<u32> = map.iter().flat_map(CpuSet::iter).collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, cpus.iter().copied().collect::<Vec<_>>());
        let sizes: Vec<usize> = map.iter().map(CpuSet::len).collect();
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
    }
}

#[test]
fn the_kernels_own_examples() {
    // Documentation/admin-guide/kernel-parameters.rst, "cpu lists", and bitmap_parselist's tests.
    let list = |text: &str| CpuSet::from_list(text).unwrap().iter().collect::<Vec<_>>();
    assert_eq!(list("1,2,10-20,100-2000:2/25")[..6], [1, 2, 10, 11, 12, 13]);
    assert!(list("100-2000:2/25").starts_with(&[100, 101, 125, 126, 150]));
    assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
    assert_eq!(list("0-6:2"), [0, 2, 4, 6]);
    assert_eq!(list(""), [0_u32; 0]);
    assert_eq!(list("\n"), [0_u32; 0]);
    let mask = |text: &str| CpuSet::from_mask(text).unwrap().to_string();
    assert_eq!(mask("00000000,00000000,00000000,00000003\n"), "0-1");
    assert_eq!(mask("1,0"), "32");
    assert_eq!(mask("0xff"), "0-7");
    assert_eq!(mask("0"), "");
    assert_eq!(CpuSet::new().to_mask(), "0");
    assert_eq!(CpuSet::first_n(33).to_mask(), "1,ffffffff");
    assert_eq!(CpuSet::first_n(1).to_mask_of(40), "00,00000001");
    assert_eq!(format!("{:>5}|", CpuSet::first_n(2)), "  0-1|");
}

#[test]
fn errors_name_the_part_and_what_would_be_right() {
    let list = |text: &str| CpuSet::from_list(text).unwrap_err().to_string();
    assert_eq!(list("0,,2"), "missing CPU before character 3; write CPUs as 0-3,8");
    assert_eq!(
        list("0-3,x"),
        "\"x\" is not a CPU number or range (character 5); write CPUs as 0-3,8 or 0-6:2"
    );
    assert_eq!(list("3-1"), "range \"3-1\" (character 1) runs backwards; write the lower CPU first");
    assert_eq!(list("99999999999"), "CPU 99999999999 (character 1) is too high: the highest is 65535");
    for bad in ["-1", "+1", "1-", "0-3:", "0-3:0", "0-3:0/2", "0-3:3/2", "1:2", "0 1", "0-1-2", "0x1"] {
        assert!(CpuSet::from_list(bad).is_err(), "{bad} was taken");
    }
    let mask = |text: &str| CpuSet::from_mask(text).unwrap_err();
    assert!(matches!(mask("123456789"), CpuSetError::GroupTooLong { .. }));
    for bad in ["", "g", "1,", ",1", "+1", "0x"] {
        assert!(matches!(mask(bad), CpuSetError::NotAMask { .. }), "{bad} was taken");
    }
    // Where: the character of the whole text, white space and characters of several bytes included.
    let at = |error: CpuSetError| match error {
        CpuSetError::Empty { at }
        | CpuSetError::NotANumber { at, .. }
        | CpuSetError::TooHigh { at, .. }
        | CpuSetError::Backwards { at, .. }
        | CpuSetError::Stride { at, .. }
        | CpuSetError::NotAMask { at }
        | CpuSetError::GroupTooLong { at, .. } => at,
        other => panic!("{other}"),
    };
    for (bad, character) in [
        ("0-3,8-x", 7),
        (" 1, y", 5),
        ("0,9-8", 3),
        ("0,", 3),
        ("0-7:0", 1),
        ("1,99999", 3),
        ("é,x", 1),
        ("0-1:z", 5),
    ] {
        assert_eq!(at(CpuSet::from_list(bad).unwrap_err()), character, "{bad}");
    }
    for (bad, character) in [("ff,0g", 5), ("0xfg", 4), ("1,", 3), (" 123456789,0", 2), ("", 1)] {
        assert_eq!(at(mask(bad)), character, "{bad}");
    }
    let far = format!("1{}", ",0".repeat(2048));
    assert!(matches!(mask(&far), CpuSetError::TooHigh { .. }));
    assert!(
        serde_json::from_str::<CpuSet>("\"0-\"").unwrap_err().to_string().contains("is not a CPU number")
    );
}
