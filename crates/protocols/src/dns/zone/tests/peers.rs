//! The zones of other servers' own test suites: what BIND and NSD both load is loaded here, and has the same records.
//!
//! ```text
//!  UDPATH_PEERS=FOLDER ─▸ files with an SOA record ─▸ named-checkzone and nsd-checkzone accept it ─▸ loaded here, and compared with
//!  (scripts/peers.sh)                                 for one of the origins that its name tells     named-compilezone's records
//! ```
//! The suites are fetched, and never part of this repository. `make soak` prints the counts.

use std::process::{Command, Output};

use udpath_rig::campaign;

use super::*;

/// Name of the variable with the folder of the suites.
const FOLDER: &str = "UDPATH_PEERS";
/// Longest file that is taken, bytes: the longest of the three suites that is a zone has a tenth of it.
const MAX_LEN: u64 = 8 << 20;
/// How many of what both load are loaded here.
const LOADED: f64 = 0.99;

/// The outcome for a zone that both load.
#[derive(Debug, PartialEq)]
enum Outcome {
    Same { signed: bool },
    Refused(String),
    Differs(String),
}

#[test]
fn zones_that_bind_and_nsd_load_are_loaded_with_the_same_records() {
    // The soak says so where they could not be fetched.
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (mut files, mut outcomes) = (0, Vec::new());
    for path in zones(Path::new(&folder)) {
        files += 1;
        if let Some(origin) = origins(&path).into_iter().find(|origin| both_load(&path, origin)) {
            outcomes.push((format!("{} as {origin}", path.display()), outcome(&path, &origin)));
        }
    }
    let is_wrong = |outcome: &Outcome| matches!(outcome, Outcome::Refused(_) | Outcome::Differs(_));
    let wrong: Vec<String> = (outcomes.iter().filter(|(_, outcome)| is_wrong(outcome)))
        .map(|(zone, outcome)| format!("{zone}: {outcome:?}"))
        .collect();
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, one)| wanted(one)).count();
    let refused = count(|one| matches!(one, Outcome::Refused(_)));
    let differ = count(|one| matches!(one, Outcome::Differs(_)));
    let all = outcomes.len();
    let signed =
        outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Same { signed: true })).count();
    campaign::record(
        "zones of the suites of BIND, Knot and NSD",
        &format!(
            "{files} files, {all} load in BIND and NSD, {signed} of them signed; of these {refused} are refused, {differ} differ"
        ),
    );
    assert!(all > 100, "{all} of {files} files: is {} a folder of suites?", folder.display());
    assert_eq!(differ, 0, "{wrong:#?}");
    assert!((all - refused) as f64 >= LOADED * all as f64, "{refused} of {all} are refused: {wrong:#?}");
}

/// Files that have an SOA record, in the order of their names.
fn zones(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() && entry.metadata().unwrap().len() <= MAX_LEN && has_soa(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn has_soa(path: &Path) -> bool {
    let text = std::fs::read(path).unwrap();
    text.split(u8::is_ascii_whitespace).any(|word| word.eq_ignore_ascii_case(b"SOA"))
}

/// What a file's zone may be called: as the file, without what says that it is one, and what the suites call most of
/// theirs.
fn origins(path: &Path) -> Vec<String> {
    let name = path.file_name().unwrap().to_string_lossy().to_ascii_lowercase();
    let mut origins = vec![name.clone()];
    for end in [".in", ".signed", ".db", ".zone", ".zone.in", ".db.in", ".zone.signed", ".db.signed"] {
        origins.extend(name.strip_suffix(end).map(str::to_owned));
    }
    for begin in ["db.", "zone.", "zone-"] {
        origins.extend(name.strip_prefix(begin).map(str::to_owned));
    }
    origins.extend(["example.com", "example", "example.net", "test", "."].map(str::to_owned));
    origins.retain(|origin| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        origin == "." || (!origin.starts_with('.') && !origin.is_empty() && origin.bytes().all(plain))
    });
    origins
}

/// Runs a checker in the folder of the file, from which the suites' includes are.
fn checked(program: &str, options: &[&str], path: &Path, origin: &str) -> Output {
    let (folder, file) = (path.parent().unwrap(), path.file_name().unwrap());
    let command = Command::new(program).args(options).arg(origin).arg(file).current_dir(folder).output();
    command.unwrap_or_else(|why| panic!("{program}: {why}; scripts/setup.sh installs it"))
}

fn both_load(path: &Path, origin: &str) -> bool {
    let bind = checked("named-checkzone", &["-q", "-i", "none"], path, origin);
    bind.status.success() && checked("nsd-checkzone", &[], path, origin).status.success()
}

fn outcome(path: &Path, origin: &str) -> Outcome {
    let option = PathBuf::from(format!("{origin}={}", path.display()));
    match load(&[option]) {
        // Without a record that is left out; signatures that are missing are said, and nothing more.
        Ok((records, faults)) if faults.left_out().is_none() => {
            let (own, bind) =
                (shown(&records), of_bind(path.parent().unwrap(), path.to_str().unwrap(), origin));
            let only = |these: &[String], those: &[String]| -> Vec<String> {
                these.iter().filter(|record| !those.contains(record)).take(3).cloned().collect()
            };
            match own == bind {
                true => {
                    Outcome::Same { signed: records.list.iter().any(|record| record.rtype == rtype::RRSIG) }
                }
                false => Outcome::Differs(format!(
                    "only here {:?}, only BIND {:?}",
                    only(&own, &bind),
                    only(&bind, &own)
                )),
            }
        }
        Ok((_, faults)) => Outcome::Refused(faults.to_string()),
        Err(why) => Outcome::Refused(why.to_string()),
    }
}
