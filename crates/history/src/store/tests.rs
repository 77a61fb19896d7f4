//! Round trips, refusals, and two writers.

use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use udpath_advise::comparison::loads;
use udpath_advise::result::Verdict;
use udpath_load::result::LoadResult;

use super::*;
use crate::run::RunError;
use crate::{Listing, Metric};

/// A run of its own at `at`.
fn new(at: u64) -> NewRun {
    let origin = Origin { at, kernel: "6.1".into(), ..Origin::default() };
    let run = Run {
        id: 0,
        kind: "load".into(),
        name: "nsd".into(),
        load: "dns rr".into(),
        origin,
        tps: Some(1e5),
        p99: None,
        cpu: Some(9.5),
    };
    NewRun { run, json: format!("{{\"at\":{at},\"text\":\"\u{e4}\"}}") }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn said(error: StoreError) -> String {
    format!("{error}")
}

#[test]
fn what_was_added_comes_back_in_order() {
    let folder = folder();
    let path = folder.path().join("new/folders/history.db");
    assert!(said(Store::read(&path).unwrap_err()).contains("--record"));
    assert!(!path.parent().unwrap().exists(), "reading creates nothing");
    let mut store = Store::write(&path).unwrap();
    let (late, early) = (store.add(&new(200)).unwrap(), store.add(&new(100)).unwrap());
    let store = Store::read(&path).unwrap();
    let runs = store.runs(0).unwrap();
    assert_eq!(
        runs.iter().map(|run| (run.id, run.origin.at)).collect::<Vec<_>>(),
        [(early, 100), (late, 200)]
    );
    assert_eq!(runs[1], Run { id: late, ..new(200).run });
    assert_eq!(store.runs(150).unwrap().len(), 1);
    assert_eq!(store.ids().unwrap(), [early, late]);
    let exported = store.export(late).unwrap();
    assert_eq!((exported.name.as_str(), exported.result.as_str()), ("nsd", new(200).json.as_str()));
}

#[test]
fn a_result_is_kept_once_and_a_number_is_not_given_again() {
    let folder = folder();
    let path = folder.path().join("h.db");
    let mut store = Store::write(&path).unwrap();
    let id = store.add(&new(1)).unwrap();
    assert!(matches!(store.add(&new(1)), Err(StoreError::Known { id: known }) if known == id));
    // None is removed if one of them is not there.
    assert!(matches!(store.remove(&[id, 99]), Err(StoreError::Unknown { id: 99 })));
    assert_eq!(store.ids().unwrap(), [id]);
    store.remove(&[id]).unwrap();
    assert!(store.add(&new(1)).unwrap() > id);
    assert!(matches!(store.export(id), Err(StoreError::Unknown { .. })));
    assert!(matches!(Store::change(&folder.path().join("none")), Err(StoreError::Nothing { .. })));
}

#[test]
fn other_files_are_refused_by_what_they_are() {
    let folder = folder();
    let path = folder.path().join("h.db");
    let both = |path: &Path| [Store::read(path), Store::write(path)].map(|store| said(store.unwrap_err()));
    for said in both(folder.path()) {
        assert!(said.contains("is not a file"), "{said}");
    }
    fs::write(&path, "this is no database, and long enough to be read as the header of one: ".repeat(20))
        .unwrap();
    for said in both(&path) {
        assert!(said.contains("is damaged"), "{said}");
    }
    fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE cookies (a, b);").unwrap();
    for said in both(&path) {
        assert!(said.contains("of another program"), "{said}");
    }
    drop(other);
    fs::remove_file(&path).unwrap();
    Store::write(&path).unwrap().connection.pragma_update(None, "user_version", 2).unwrap();
    for said in both(&path) {
        assert!(said.contains("of version 2, and this udpath knows version 1"), "{said}");
    }
}

#[test]
fn a_damaged_run_is_named_and_the_others_are_read() {
    let folder = folder();
    let path = folder.path().join("h.db");
    let mut store = Store::write(&path).unwrap();
    let (first, second) = (store.add(&new(1)).unwrap(), store.add(&new(2)).unwrap());
    store.connection.execute("UPDATE run SET result = x'1f8b08' WHERE id = ?1", [first]).unwrap();
    assert!(said(store.export(first).unwrap_err()).contains("run 1 of the history"));
    assert!(store.export(second).is_ok());
    store.connection.execute("UPDATE run SET origin = '{' WHERE id = ?1", [first]).unwrap();
    let text = said(store.runs(0).unwrap_err());
    assert!(text.contains("its origin cannot be read") && text.contains("udpath history remove 1"), "{text}");
    store.remove(&[first]).unwrap();
    assert_eq!(store.runs(0).unwrap().len(), 1);
    store.connection.execute_batch("ALTER TABLE run DROP COLUMN tps").unwrap();
    assert!(said(store.runs(0).unwrap_err()).contains("is damaged"));
}

#[test]
fn a_file_cut_anywhere_is_damaged_or_empty() {
    let folder = folder();
    let path = folder.path().join("h.db");
    let mut store = Store::write(&path).unwrap();
    for at in 0..50 {
        store.add(&new(at)).unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    for share in 0..20 {
        fs::write(&path, &whole[..whole.len() * share / 20]).unwrap();
        let read = Store::read(&path).and_then(|store| {
            let ids = store.ids()?;
            ids.iter().map(|id| store.export(*id)).collect::<Result<Vec<_>, _>>()?;
            store.runs(0)
        });
        let error = read.expect_err("a part of the file");
        assert!(
            matches!(
                error,
                StoreError::Nothing { .. } | StoreError::Damaged { .. } | StoreError::Truncated { .. }
            ),
            "{share}: {error:?}"
        );
    }
}

#[test]
fn writers_at_the_same_time_wait_for_each_other() {
    let folder = folder();
    let path = folder.path().join("h.db");
    thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for at in 0..10 {
                    Store::write(path).unwrap().add(&new(writer * 100 + at)).unwrap();
                }
            });
        }
    });
    assert_eq!(Store::read(&path).unwrap().ids().unwrap().len(), 40);
}

/// Root may write anywhere, so that the file system has to refuse.
#[test]
fn a_place_that_cannot_be_written_is_named() {
    let home = folder();
    let mut store = Store::write(&home.path().join("full.db")).unwrap();
    // A page more than it has.
    let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let large = NewRun { json: (0..20_000).map(|n| format!("{n:x}")).collect(), ..new(1) };
    assert!(said(store.add(&large).unwrap_err()).contains("no space is left on the disk"));
    let denied = Store::write(Path::new("/proc/history/h.db")).unwrap_err();
    assert!(said(denied).contains("cannot create the folder"));
    let denied = Store::write(Path::new("/proc/h.db")).unwrap_err();
    assert!(said(denied).contains("cannot be opened or changed"));
    let path = home.path().join("h.db");
    Store::write(&path).unwrap().add(&new(1)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(Store::read(&path).unwrap().runs(0).unwrap().len(), 1);
}

#[test]
fn names_are_short_lines() {
    let load = |name: &str| NewRun::of_load(&parsed(FIRST), name, Some(Origin::default()));
    assert!(load("nsd, tuned").is_ok() && load("").is_ok());
    for bad in ["a\nb", "\u{1b}[2J", &"x".repeat(65)] {
        assert!(matches!(load(bad), Err(RunError::Name { .. })), "{bad:?}");
    }
    assert_eq!(
        NewRun::of_load(&LoadResult { origin: None, ..parsed(FIRST) }, "", None),
        Err(RunError::NoOrigin)
    );
}

const FIRST: &str = include_str!("../../tests/fixtures/first.json");
const SECOND: &str = include_str!("../../tests/fixtures/second.json");

fn parsed(text: &str) -> LoadResult {
    serde_json::from_str(text).unwrap()
}

/// Two runs of one load on one machine.
#[test]
fn real_results_are_a_series_and_come_back_as_they_were() {
    let folder = folder();
    let mut store = Store::write(&folder.path().join("h.db")).unwrap();
    for text in [FIRST, SECOND] {
        let run = NewRun::of_load(&parsed(text), "", None).unwrap().with_text(text.trim_end().to_owned());
        let id = store.add(&run).unwrap();
        assert!(store.export(id).unwrap().result == text.trim_end(), "run {id} differs");
    }
    let listing = Listing::new(store.runs(0).unwrap(), Metric::Tps);
    let [series] = &listing.series[..] else { panic!("{listing:?}") };
    let tps: Vec<_> = series.runs.iter().map(|run| run.tps.unwrap()).collect();
    assert_eq!(tps, [parsed(FIRST).tps, parsed(SECOND).tps]);
    assert!(series.runs.iter().all(|run| run.p99 > Some(1e6) && run.cpu > Some(1e4)), "{:?}", series.runs);
    assert_eq!(series.machine.len(), 16);
    let compared = loads(&parsed(FIRST), &parsed(SECOND));
    assert_eq!((compared.verdict, compared.unlike, compared.differs), (Verdict::NotShown, vec![], vec![]));
}
