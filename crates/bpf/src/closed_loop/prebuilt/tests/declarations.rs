//! What a protocol declares, and the program cannot carry out.

use super::*;

#[test]
fn declarations_that_cannot_work_are_rejected() {
    let table = |requests: Vec<Vec<u8>>, id: Id, reply: ReplyRules| {
        RequestTable::new(requests, id, reply, (1, 1), 0).map(drop).unwrap_err()
    };
    let one = || requests(&[40]);
    assert_eq!(table(vec![], SHORT, REPLY), TableError::Requests(0));
    assert_eq!(table(vec![vec![0; 40]; 65_537], SHORT, REPLY), TableError::Requests(65_537));
    for id in [
        Id { width: 3, ..SHORT },
        Id { width: 1, ..SHORT },
        Id { width: 0, ..SHORT },
        Id { bits: 0, ..SHORT },
        Id { bits: 17, ..SHORT },
        Id { echoed_at: 11, ..SHORT },
        Id { echoed_at: usize::MAX, ..SHORT },
    ] {
        assert_eq!(table(one(), id, REPLY), TableError::Declaration(Declared::Id), "{id:?}");
    }
    let rules: &'static [Rule] = const { &[Rule::when(9, [0; 4], [0; 4], Verdict::Valid)] };
    assert_eq!(
        table(one(), SHORT, ReplyRules { rules: Cow::Borrowed(rules), ..REPLY }),
        TableError::Declaration(Declared::Rule)
    );
    let many: &'static [Rule] = const { &[Rule::when(0, [0; 4], [0; 4], Verdict::Valid); MAX_RULES + 1] };
    assert_eq!(
        table(one(), SHORT, ReplyRules { rules: Cow::Borrowed(many), ..REPLY }),
        TableError::Declaration(Declared::Rule)
    );
    for reply in [ReplyRules { max: 11, ..REPLY }, ReplyRules { max: 65_508, ..REPLY }] {
        assert_eq!(table(one(), SHORT, reply), TableError::Declaration(Declared::ReplyLength));
    }
    for len in [0, 1, MAX_REQUEST_LEN + 1] {
        let error = table(vec![vec![0; len]], SHORT, REPLY);
        assert_eq!(error, TableError::Length { len, least: 2 });
        assert!(error.to_string().contains("expected 2 to 1528"), "{error}");
    }
    assert!(RequestTable::new(one(), Id { at: usize::MAX, ..SHORT }, REPLY, (1, 1), 0).is_err());
    let crowded = RequestTable::new(one(), SHORT, REPLY, (1, 300), 0).map(drop).unwrap_err();
    assert!(crowded.to_string().contains("at most 256 requests in flight"), "{crowded}");
    let unmarked = RequestTable::new(one(), Id::NONE, REPLY, (1, 2), 0).map(drop).unwrap_err();
    assert_eq!(unmarked, TableError::InFlight { bits: 0, most: 1 });
}
