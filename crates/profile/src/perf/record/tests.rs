use super::*;
use proptest::prelude::*;

/// A record in the kernel's layout.
fn record(kind: u32, misc: u32, fields: &[&[u8]]) -> Vec<u8> {
    let body = fields.concat();
    let size = u16::try_from(HEADER + body.len()).unwrap();
    let misc = u16::try_from(misc).unwrap();
    [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), &body].concat()
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn pair(low: u32, high: u32) -> [u8; 8] {
    [low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().unwrap()
}

fn sample_of(chain: &[u64]) -> Vec<u8> {
    let count = words(&[chain.len() as u64]);
    let fields: [&[u8]; 7] =
        [&words(&[7]), &pair(812, 815), &words(&[99]), &pair(3, 0), &words(&[1000]), &count, &words(chain)];
    record(uapi::PERF_RECORD_SAMPLE, uapi::PERF_RECORD_MISC_USER, &fields)
}

#[test]
fn a_sample_with_its_chain() {
    let bytes = sample_of(&[CONTEXT_KERNEL, 0xffff_8000_0000_0001, 2, CONTEXT_USER, 3, -2048_i64 as u64, 4]);
    let (found, rest) = Record::first(&bytes).unwrap();
    let Record::Sample(sample) = found else { panic!("{found:?}") };
    assert!(rest.is_empty());
    assert_eq!((sample.mode, sample.ip, sample.pid, sample.tid), (Mode::User, 7, 812, 815));
    assert_eq!((sample.time, sample.cpu, sample.period), (99, 3, 1000));
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    sample.chain.split(&mut kernel, &mut user);
    assert_eq!((kernel, user), (vec![0xffff_8000_0000_0001, 2], vec![3]));
}

#[test]
fn other_records() {
    let id = [pair(8, 9), 77_u64.to_ne_bytes(), pair(1, 0)].concat();
    let lost = record(uapi::PERF_RECORD_LOST, 0, &[&words(&[1, 17]), &id]);
    assert_eq!(Record::parse(&lost), Ok(Record::Lost(17)));
    let comm = record(uapi::PERF_RECORD_COMM, 0, &[&pair(8, 9), b"knotd\0\0\0", &id]);
    assert_eq!(
        Record::parse(&comm),
        Ok(Record::Comm { pid: 8, tid: 9, name: "knotd", exec: false, time: 77 })
    );
    let exit = record(uapi::PERF_RECORD_EXIT, 0, &[&pair(8, 1), &pair(9, 1), &words(&[5]), &id]);
    assert_eq!(Record::parse(&exit), Ok(Record::Exit { pid: 8, tid: 9 }));
    let mapped = record(
        uapi::PERF_RECORD_MMAP2,
        0,
        &[&pair(8, 9), &words(&[16, 32, 4096, 1, 77, 0, 5]), b"/bin/x\0\0", &id],
    );
    let expected = Mapped { pid: 8, start: 16, len: 32, offset: 4096, inode: 77, path: "/bin/x", time: 77 };
    assert_eq!(Record::parse(&mapped), Ok(Record::Mapped(expected)));
    let newer = record(4242, 0, &[]);
    assert_eq!(Record::parse(&newer), Ok(Record::Other(4242)));
}

#[test]
fn short_records_are_errors() {
    let whole = sample_of(&[1, 2, 3]);
    for end in 0..whole.len() {
        assert!(Record::first(&whole[..end]).is_err(), "{end}");
    }
    // A chain that claims to be longer than its record, with a length in bytes that overflows.
    let mut lying = sample_of(&[1]);
    let at = lying.len() - 16;
    lying[at..at + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
    assert!(matches!(Record::parse(&lying), Err(WrongRecord::Short { kind: uapi::PERF_RECORD_SAMPLE, .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut left = &bytes[..];
        while let Ok((_, rest)) = Record::first(left) {
            prop_assert!(rest.len() < left.len());
            left = rest;
        }
    }

    #[test]
    fn chains_come_back(kernel in proptest::collection::vec(1..CONTEXT_MAX, 0..60), user in proptest::collection::vec(1..CONTEXT_MAX, 0..60)) {
        let chain = [&[CONTEXT_KERNEL][..], &kernel, &[CONTEXT_USER], &user].concat();
        let bytes = sample_of(&chain);
        let Record::Sample(sample) = Record::parse(&bytes).unwrap() else { panic!() };
        let (mut found_kernel, mut found_user) = (Vec::new(), Vec::new());
        sample.chain.split(&mut found_kernel, &mut found_user);
        prop_assert_eq!((found_kernel, found_user), (kernel, user));
    }
}
