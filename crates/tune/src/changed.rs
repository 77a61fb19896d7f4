//! What differs between two texts of a file, and no more of them: a configuration has secrets beside what udpath
//! changes.
//!
//! ```text
//!  old, new ─▸ pieces ── shown     the changed lines, and of these only the key and value that change; the rest is an ellipsis
//!                    └── spliced   a shell command that replaces just these bytes, if the file is still the old one
//! ```

use std::fmt::Write as _;
use std::ops::Range;

use sha2::{Digest, Sha256};
use similar::DiffOp;
use similar::algorithms::{Capture, Replace, myers};
use udpath_host::shell::quoted;

/// Stands for what is not shown of a line.
const ELLIPSIS: &str = "…";

/// A place where the texts differ.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    /// Bytes of the old text.
    at: Range<usize>,
    /// What is there in the new one.
    text: String,
    /// Lines of the old text, from 0, and what is shown of them.
    removed: (usize, Vec<String>),
    /// The same of the new one.
    added: (usize, Vec<String>),
}

/// The SHA-256 of a text, as sha256sum(1) prints it.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The lines that change, as a unified diff without context. Of a line, only the key and value that change are shown.
pub(crate) fn shown(old: &str, new: &str) -> String {
    let mut text = String::new();
    for Piece { removed, added, .. } in pieces(old, new) {
        // As diff(1) numbers them: where there is no line, the one before.
        let range = |(first, lines): &(usize, Vec<String>)| match lines.len() {
            0 => format!("{first},0"),
            1 => format!("{}", first + 1),
            count => format!("{},{count}", first + 1),
        };
        let _ = writeln!(text, "@@ -{} +{} @@", range(&removed), range(&added));
        for (sign, lines) in [('-', &removed.1), ('+', &added.1)] {
            for line in lines {
                let line: String =
                    line.chars().map(|one| if one.is_control() && one != '\t' { '?' } else { one }).collect();
                let _ = writeln!(text, "{sign}{line}");
            }
        }
    }
    text
}

/// A shell command that makes the new text of the old one, byte for byte; it fails, and changes nothing, if the file
/// has another text. Owner, mode and other names of the file stay.
pub(crate) fn spliced(path: &str, old: &str, new: &str) -> String {
    let file = quoted(path);
    let (mut parts, mut from) = (String::new(), 0);
    let kept = |range: Range<usize>| match range.len() {
        0 => String::new(),
        count => format!("tail -c +{} {file} | head -c {count}; ", range.start + 1),
    };
    for Piece { at, text, .. } in pieces(old, new) {
        parts += &kept(from..at.start);
        if !text.is_empty() {
            let _ = write!(parts, "{}; ", printed(&text));
        }
        from = at.end;
    }
    parts += &kept(from..old.len());
    format!(
        "sha256sum < {file} | grep -q '^{} ' && udpath_new=$(mktemp) && {{ :; {parts}}} > \"$udpath_new\" && \
         cat \"$udpath_new\" > {file} && rm \"$udpath_new\"",
        digest(old)
    )
}

/// A command of the shell that prints exactly this text, whatever is in it. Of control characters only tab and newline
/// stand as they are, so that showing the command does nothing to a terminal.
pub(crate) fn printed(text: &str) -> String {
    let plain = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    if text.chars().all(plain) {
        return format!("printf %s {}", quoted(text));
    }
    let mut format = String::new();
    for letter in text.chars() {
        match letter {
            // At the beginning, an option.
            '-' if format.is_empty() => format += "\\055",
            '%' => format += "%%",
            '\\' => format += "\\\\",
            letter if plain(letter) => format.push(letter),
            letter => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(format, "\\{byte:03o}");
                }
            }
        }
    }
    format!("printf {}", quoted(&format))
}

fn pieces(old: &str, new: &str) -> Vec<Piece> {
    // Without line ends, so that a last line without one is the same as with one; joined by them, they are the text.
    let (before, after): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut starts = vec![0];
    starts.extend(before.iter().scan(0, |at, line| {
        *at += line.len() + 1;
        Some(*at)
    }));
    let mut pieces = Vec::new();
    for change in changes(&before, &after) {
        if matches!(change, DiffOp::Equal { .. }) {
            continue;
        }
        let (from, to) = (change.old_range(), change.new_range());
        let pairs = paired(&before[from.clone()], &after[to.clone()]);
        let ends = pairs.iter().map(|(one, other)| (from.start + one, to.start + other));
        let (mut line, mut other) = (from.start, to.start);
        for (next, next_other) in ends.chain([(from.end, to.end)]) {
            pieces.extend(inserted(old, &starts, line, &after, other..next_other));
            pieces.extend(removed(old, &starts, line..next, other));
            if next < from.end && next_other < to.end {
                pieces.extend(within_each(
                    starts[next],
                    (next, before[next]),
                    (next_other, after[next_other]),
                ));
            }
            (line, other) = (next + 1, next_other + 1);
        }
    }
    pieces
}

/// Which lines differ. Without the step of `similar` that moves changes for the eye: the places that it leaves are not
/// always those of the lines.
fn changes(before: &[&str], after: &[&str]) -> Vec<DiffOp> {
    let mut found = Replace::new(Capture::new());
    let Ok(()) = myers::diff(&mut found, before, 0..before.len(), after, 0..after.len());
    found.into_inner().into_ops()
}

/// New lines, before the old line `line`.
fn inserted(old: &str, starts: &[usize], line: usize, after: &[&str], to: Range<usize>) -> Option<Piece> {
    let lines: Vec<String> = after.get(to.clone())?.iter().map(ToString::to_string).collect();
    let (at, text) = match starts[line] {
        _ if lines.is_empty() => return None,
        at if at <= old.len() => (at, lines.join("\n") + "\n"),
        _ => (old.len(), format!("\n{}", lines.join("\n"))),
    };
    // A text ends with a newline, not with an empty line.
    let is_line = |(at, line): &(usize, &String)| to.start + at + 1 < after.len() || !line.is_empty();
    let shown = lines.iter().enumerate().filter(is_line).map(|(_, line)| line.clone());
    Some(Piece { at: at..at, text, removed: (line, Vec::new()), added: (to.start, shown.collect()) })
}

/// Old lines that are gone: udpath wrote them, when something is undone; whose they are is not known here.
fn removed(old: &str, starts: &[usize], from: Range<usize>, other: usize) -> Option<Piece> {
    let at = match starts.get(from.end)? {
        _ if from.is_empty() => return None,
        end if *end <= old.len() => starts[from.start]..*end,
        // The last lines, with the newline before them.
        _ => starts[from.start].saturating_sub(1)..old.len(),
    };
    let shown = vec![ELLIPSIS.to_owned(); from.len()];
    Some(Piece { at, text: String::new(), removed: (from.start, shown), added: (other, Vec::new()) })
}

/// Most pairs of lines that are compared. Lower: in a large change, lines may be taken for others. Higher: it takes
/// longer.
const COMPARED: usize = 1 << 14;

/// Which lines stand for each other, in order: as many as the shorter side has, and those that have most in common.
/// What is left over on the longer side is new, or gone.
fn paired(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    if old.len() > new.len() {
        return paired(new, old).into_iter().map(|(one, other)| (other, one)).collect();
    }
    if old.len() * new.len() > COMPARED || old.len() == new.len() {
        return (0..old.len()).map(|at| (at, at)).collect();
    }
    // best[i][j]: what the first i old lines have in common with i of the first j new ones.
    let mut best = vec![vec![0; new.len() + 1]; old.len() + 1];
    let with =
        |best: &[Vec<usize>], i: usize, j: usize| best[i - 1][j - 1] + 1 + common(old[i - 1], new[j - 1]);
    for i in 1..=old.len() {
        for j in i..=new.len() {
            let without = if j > i { best[i][j - 1] } else { 0 };
            best[i][j] = without.max(with(&best, i, j));
        }
    }
    let (mut pairs, mut j) = (Vec::new(), new.len());
    for i in (1..=old.len()).rev() {
        while best[i][j] != with(&best, i, j) {
            j -= 1;
        }
        j -= 1;
        pairs.push((i - 1, j));
    }
    pairs.reverse();
    pairs
}

/// How many bytes two lines have in common at their beginning and end.
fn common(one: &str, other: &str) -> usize {
    let same = |pairs: &mut dyn Iterator<Item = (u8, u8)>| pairs.take_while(|(a, b)| a == b).count();
    let head = same(&mut one.bytes().zip(other.bytes()));
    let rest = one.len().min(other.len()) - head;
    head + same(&mut one.bytes().rev().zip(other.bytes().rev())).min(rest)
}

/// What differs between two lines that stand for each other, a piece for each place: what stands between two is not
/// shown.
fn within_each(start: usize, (number, old): (usize, &str), (other, new): (usize, &str)) -> Vec<Piece> {
    let one = |(at, text): (Range<usize>, &str)| {
        let alone = [&old[..at.start], text, &old[at.end..]].concat();
        within(start, (number, old), (other, &alone))
    };
    places(old, new).into_iter().map(one).collect()
}

/// Where two lines differ: bytes of the old one, and what is there in the new one. Words are the same as a whole or not
/// at all, and places with no word between them are one.
fn places<'n>(old: &str, new: &'n str) -> Vec<(Range<usize>, &'n str)> {
    let (before, after) = (words(old), words(new));
    let at = |words: &[&str], index: usize| words[..index].iter().map(|word| word.len()).sum::<usize>();
    let mut places: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for change in changes(&before, &after) {
        if matches!(change, DiffOp::Equal { .. }) {
            continue;
        }
        let (from, to) = (change.old_range(), change.new_range());
        let from = at(&before, from.start)..at(&before, from.end);
        let to = at(&after, to.start)..at(&after, to.end);
        match places.last_mut() {
            Some((last, last_to)) if !old[last.end..from.start].contains(is_word) => {
                (last.end, last_to.end) = (from.end, to.end);
            }
            _ => places.push((from, to)),
        }
    }
    places.into_iter().map(|(from, to)| (from, &new[to])).collect()
}

/// A line as its words, and each letter between them.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let end = match rest.find(|letter| !is_word(letter)) {
            Some(0) => letter.len_utf8(),
            end => end.unwrap_or(rest.len()),
        };
        words.push(&rest[..end]);
        rest = &rest[end..];
    }
    words
}

/// Whether a letter is of a key, or of a value without quotes.
fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.".contains(letter)
}

/// What differs between two lines at one place; the old one begins at `start`.
fn within(start: usize, (number, old): (usize, &str), (other, new): (usize, &str)) -> Piece {
    let same = |one: &str, two: &str| {
        let pairs = one.char_indices().zip(two.chars());
        pairs.take_while(|((_, a), b)| a == b).last().map_or(0, |((at, a), _)| at + a.len_utf8())
    };
    let head = same(old, new);
    let tail: usize = old[head..]
        .chars()
        .rev()
        .zip(new[head..].chars().rev())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.len_utf8())
        .sum();
    let (removed, added) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let (text, at) = (added.to_owned(), start + head..start + old.len() - tail);
    // More keys and values on a line: nothing of it is replaced.
    let more = |one: &str, other: &str| one.is_empty() && other.starts_with(char::is_whitespace);
    let inserted = more(removed, added) || more(added, removed);
    let (from, to) = if inserted { (head, tail) } else { statement(old, head, tail) };
    let part = |line: &str| {
        let (before, rest) = line.split_at(from);
        let (middle, after) = rest.split_at(rest.len() - to);
        let before = if before.trim().is_empty() { before } else { ELLIPSIS };
        let known = |letter: char| letter.is_whitespace() || "\"';)".contains(letter);
        let after = if after.chars().all(known) { after } else { ELLIPSIS };
        format!("{before}{middle}{after}")
    };
    let line = |line: &str, changed: &str| match inserted && changed.is_empty() {
        true => ELLIPSIS.to_owned(),
        false => part(line),
    };
    let (removed, added) = (line(old, removed), line(new, added));
    Piece { at, text, removed: (number, vec![removed]), added: (other, vec![added]) }
}

/// How many bytes at the beginning and at the end of a line are not the value that differs, nor its key.
fn statement(line: &str, head: usize, tail: usize) -> (usize, usize) {
    let between = |letter: char| letter.is_whitespace() || ":=\"'".contains(letter);
    let before = line[..head].trim_end_matches(is_word).trim_end_matches(between).trim_end_matches(is_word);
    let after = line[line.len() - tail..].trim_start_matches(is_word);
    (before.len(), after.len())
}

#[cfg(test)]
mod secrets;
#[cfg(test)]
mod tests;
