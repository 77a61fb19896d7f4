//! Takes the records of a zone's files: entries become lines of one form, `domain` reads those, and what it reads is
//! checked.
//!
//! Lines wait until there are some 64 KiB of them, or another file begins: one reader takes many. After a line that it
//! does not understand a new one begins with the next, so that every fault is found.

use std::path::{Path, PathBuf};

use domain::base::iana::{Class, Rtype};
use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecord, Zonefile};

use crate::misfits::encoding;

use super::super::records::{Record, Records, Unplaced};
use super::super::wire::rtype;
use super::entry::{Said, State};
use super::faults::{Costs, Fault, KEPT};
use super::generate::Template;
use super::text::{Scanner, Token};
use super::{ZoneError, data, hashing, read, types};

/// Most files inside each other by `$INCLUDE`: generated zones have a few. Lower: valid nesting is refused; higher:
/// nothing is gained, and the stack of a thread must hold it. A file that includes itself is refused at once.
const MAX_INCLUDE: usize = 50;
/// A file that is empty, though it is no regular one: what a generator writes where there is nothing to include.
const NOTHING: &str = "/dev/null";
/// Bytes of records read at once. Fewer: more readers are made; more: more memory beside the file.
const LINES: usize = 1 << 16;

/// Loads one zone: records of the files become lines of one form, and `domain` reads those.
pub(super) struct Loader<'a> {
    records: &'a mut Records,
    zone: u16,
    /// The first of the zone's records.
    first: usize,
    soa: Option<Record>,
    /// Lines not read yet, and of each where it begins and the line of the file that it came from.
    lines: Vec<u8>,
    places: Vec<(usize, u32)>,
    /// Of the record that is added.
    owner: Vec<u8>,
    data: Vec<u8>,
    /// By file and line.
    faults: Vec<(u16, Fault)>,
    /// Files that are being read, the zone's own first.
    open: Vec<PathBuf>,
    /// Beyond those, the records left out for them, and the most that one of them costs.
    more_faults: usize,
    more_records: usize,
    unkept: Option<Costs>,
}

impl<'a> Loader<'a> {
    /// For the records of zone number `zone`.
    pub(super) fn new(records: &'a mut Records, zone: u16) -> Self {
        let first = records.list.len();
        Self {
            records,
            zone,
            first,
            soa: None,
            lines: Vec::new(),
            places: Vec::new(),
            owner: Vec::new(),
            data: Vec::new(),
            faults: Vec::new(),
            open: Vec::new(),
            more_faults: 0,
            more_records: 0,
            unkept: None,
        }
    }

    /// Takes all records of a file and of those it includes; returns what holds at its end.
    pub(super) fn scan(&mut self, path: &Path, text: &[u8], mut state: State) -> Result<State, ZoneError> {
        let files = self.records.files.len();
        let file = u16::try_from(files).map_err(|_| ZoneError::TooMany(files))?;
        self.records.files.push(path.to_owned());
        self.open.push(path.to_owned());
        // Everything in it would be a fault.
        let text = match encoding(text) {
            Some(wrong) => {
                self.fault(file, Fault::of_zone(1, wrong));
                &[]
            }
            None => text,
        };
        let mut scanner = Scanner::new(text, 1);
        let mut tokens = Vec::new();
        while let Some(entry) = scanner.next(&mut tokens) {
            let place = match entry {
                Ok(place) => place,
                Err(fault) => {
                    self.fault(file, fault);
                    continue;
                }
            };
            let start = self.lines.len();
            match state.read(place, &tokens, &mut self.lines) {
                Ok(Said::Nothing) => {}
                Ok(Said::Record) => self.places.push((start, place.line)),
                Ok(Said::Generate) => self.generate(file, place.line, &tokens[1..], &mut state)?,
                Ok(Said::Include { file: name, origin }) => {
                    self.flush(file)?;
                    let included = path.parent().unwrap_or(Path::new("")).join(name);
                    match self.included(&included) {
                        Ok(text) => {
                            let inner = self.scan(&included, &text, state.inside(origin))?;
                            state.after(inner);
                        }
                        Err(reason) => self.fault(file, Fault::of_zone(place.line, reason)),
                    }
                }
                Err(fault) => self.fault(file, fault),
            }
            if self.lines.len() > LINES {
                self.flush(file)?;
            }
        }
        self.open.pop();
        self.flush(file)?;
        Ok(state)
    }

    /// The text of a file to be included.
    fn included(&self, path: &Path) -> Result<Vec<u8>, String> {
        let shown = path.display();
        if path == Path::new(NOTHING) {
            return Ok(Vec::new());
        }
        if self.open.iter().any(|open| is_same(open, path)) {
            return Err(format!(
                "$INCLUDE of {shown}: the file is being read already, and would include itself: remove the line"
            ));
        }
        if self.open.len() > MAX_INCLUDE {
            return Err(format!(
                "$INCLUDE of {shown}: more than {MAX_INCLUDE} files inside each other: write some as one"
            ));
        }
        if self.records.files.len() >= usize::from(u16::MAX) {
            return Err(format!("$INCLUDE of {shown}: more than 65,535 files: write some as one"));
        }
        read(path).map_err(|error| format!("$INCLUDE: {error}"))
    }

    /// The records of a `$GENERATE`.
    fn generate(
        &mut self,
        file: u16,
        line: u32,
        tokens: &[Token<'_>],
        state: &mut State,
    ) -> Result<(), ZoneError> {
        let template = match Template::new(tokens) {
            Ok(template) => template,
            Err(reason) => {
                // How many records are missing cannot be said.
                self.fault(file, Fault::of_zone(line, reason));
                return Ok(());
            }
        };
        let mut wrong = None::<Fault>;
        for number in template.numbers() {
            let text = template.text(number);
            let mut tokens = Vec::new();
            let start = self.lines.len();
            let read = match Scanner::new(&text, line).next(&mut tokens) {
                Some(Ok(place)) => state.generated(place, &tokens, &mut self.lines),
                Some(Err(fault)) => Err(fault),
                None => Err(Fault::of_record(line, "a record without an owner")),
            };
            match (read, &mut wrong) {
                (Ok(()), _) => self.places.push((start, line)),
                // Most often all are wrong in the same way: said once, and all are counted.
                (Err(fault), Some(first)) => first.and(fault),
                (Err(fault), none) => *none = Some(fault),
            }
            if self.lines.len() > LINES {
                self.flush(file)?;
            }
        }
        if let Some(fault) = wrong {
            self.fault(file, fault);
        }
        Ok(())
    }

    /// Has the lines read, and takes their records.
    fn flush(&mut self, file: u16) -> Result<(), ZoneError> {
        let (lines, places) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.places));
        let mut next = 0;
        while let Some((start, _)) = places.get(next) {
            let mut zonefile = Zonefile::with_capacity(lines.len() - start);
            zonefile.extend_from_slice(&lines[*start..]);
            zonefile.set_default_class(Class::IN);
            // One entry for each line; after an error the reader begins again with the next.
            loop {
                let line = places.get(next).map_or(0, |(_, line)| *line);
                match zonefile.next_entry() {
                    Ok(Some(Entry::Record(record))) => self.add(&record, file, line)?,
                    Ok(Some(Entry::Include { .. })) => {}
                    Ok(None) => break,
                    Err(error) => {
                        let start = places.get(next).map_or(0, |(start, _)| *start);
                        let reason = reason(&error.to_string(), &lines[start..]);
                        self.fault(file, Fault::of_record(line, reason));
                        next += 1;
                        break;
                    }
                }
                next += 1;
            }
        }
        (self.lines, self.places) = (lines, places);
        self.lines.clear();
        self.places.clear();
        Ok(())
    }

    fn fault(&mut self, file: u16, fault: Fault) {
        if self.faults.len() < KEPT {
            self.faults.push((file, fault));
        } else {
            self.more_faults += 1;
            self.more_records += fault.records;
            self.unkept = self.unkept.max(Some(fault.costs));
        }
    }

    fn add(&mut self, record: &ScannedRecord, file: u16, line: u32) -> Result<(), ZoneError> {
        let rtype = record.rtype().to_int();
        self.owner.clear();
        self.data.clear();
        // Appending to a vector cannot fail.
        let _ = record.owner().compose_canonical(&mut self.owner);
        let _ = record.data().compose_rdata(&mut self.data);
        if rtype == 0 || rtype == rtype::OPT || (rtype::FIRST_META..=rtype::ANY).contains(&rtype) {
            let reason = format!("{} is a type of queries, not of records: remove it", record.rtype());
            self.fault(file, Fault::of_record(line, reason));
            return Ok(());
        }
        if let Err(reason) = data::check(record.rtype(), &self.data) {
            self.fault(file, Fault::of_record(line, reason));
            return Ok(());
        }
        if let Some(first) = self.soa.filter(|_| rtype == rtype::SOA) {
            // The same record is one record, however often it is written (RFC 2181, 5).
            if self.records.is_same_soa(&first, &self.owner, &self.data) {
                return Ok(());
            }
            let reason = format!(
                "a second SOA record; the first is of {} on line {}: a zone has one",
                self.records.name(&first),
                first.line
            );
            self.fault(file, Fault::of_record(line, reason));
            return Ok(());
        }
        let numbers = Unplaced { ttl: record.ttl().as_secs(), line, rtype, zone: self.zone, file };
        let added = self.records.push(&self.owner, &self.data, numbers)?;
        if rtype == rtype::SOA {
            self.soa = Some(added);
        }
        Ok(())
    }

    /// What was found: records that do not belong to the zone are left out.
    pub(super) fn finish(mut self) -> Found {
        if let Some(soa) = &self.soa {
            let records = &mut *self.records;
            let strays = records.list[self.first..].iter().filter(|record| !records.is_below(record, soa));
            let reasons: Vec<(u16, Fault)> = strays
                .map(|stray| {
                    let (name, zone) = (records.name(stray), records.name(soa));
                    let reason = format!("{name} does not belong to the zone {zone}: remove it");
                    (stray.file, Fault::of_record(stray.line, reason))
                })
                .collect();
            if !reasons.is_empty() {
                let mut list = std::mem::take(&mut records.list);
                let mut at = 0;
                list.retain(|record| {
                    at += 1;
                    at <= self.first || records.is_below(record, soa)
                });
                records.list = list;
            }
            for (file, fault) in reasons {
                self.fault(file, fault);
            }
        }
        if let Some((file, fault)) = hashing::fault(self.records, &self.records.list[self.first..]) {
            self.fault(file, fault);
        }
        self.faults.sort_by_key(|(file, fault)| (*file, fault.line));
        Found {
            soa: self.soa,
            costs: self.faults.iter().map(|(_, fault)| fault.costs).max().max(self.unkept),
            faults: self.faults,
            more: self.more_faults,
            more_records: self.more_records,
        }
    }
}

/// Whether two paths name one file.
fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// What a zone's files have.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) soa: Option<Record>,
    /// With their files, in order.
    pub(super) faults: Vec<(u16, Fault)>,
    /// Faults beyond those.
    pub(super) more: usize,
    /// Records left out for those.
    pub(super) more_records: usize,
    /// The most that a fault costs.
    pub(super) costs: Option<Costs>,
}

/// What an error of `domain`, which it writes as `line:column: reason`, says, with what would be right where it does
/// not say that. `line` begins with the line.
fn reason(error: &str, line: &[u8]) -> String {
    let reason = error.splitn(3, ':').last().unwrap_or(error).trim();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let rtype = line.split(|byte| *byte == b' ').nth(3).map(String::from_utf8_lossy).unwrap_or_default();
    let generic = rtype.parse::<Rtype>().ok().filter(|rtype| !data::has_text(*rtype));
    match generic {
        Some(number) => {
            format!(
                "type {} is read in the generic form only: write `TYPE{} \\# LENGTH HEX`",
                types::name(number),
                number.to_int()
            )
        }
        None => format!("{rtype}: {}", plainer(reason)),
    }
}

/// What some of `domain`'s reasons mean for a file, and what would be right.
fn plainer(reason: &str) -> &str {
    match reason {
        "bad charstr" => "a text of more than 255 bytes, or a wrong escape: divide it, each part in quotes",
        "trailing tokens" => "more words than its data have: remove them",
        _ => reason,
    }
}
