use std::sync::OnceLock;

use serde_json::Value;
use udpath_report::{Document, Render, Style, parse};

use crate::presentable;

/// A result of `boost`, one of `load` and one of `experiment` with every field, but no list of more than two: a whole
/// one takes a tenth of a second.
const RESULTS: [&str; 3] = [
    include_str!("../../seeds/report_json/made-up-boost.json"),
    include_str!("../../seeds/report_json/made-up-load.json"),
    include_str!("../../seeds/report_json/made-up-experiment.json"),
];

/// Result files: a valid one is rendered in any width, and round-trips through its own JSON.
pub fn report_json(data: &[u8]) {
    match parse(data, "input") {
        Ok(document) => {
            // All forms take a hundred times as long as one text: while fuzzing, the input chooses one, a page one time
            // in 64.
            let sum =
                data.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
            let page = sum.is_multiple_of(64);
            let chosen = |form: Form| {
                !cfg!(fuzzing) || form == if page { Form::Page } else { CHEAP[sum % CHEAP.len()] }
            };
            renders(&document, data.len(), chosen);
        }
        Err(error) => presentable(&error, data.len()),
    }
}

/// Result files that conform to the schema, with unexpected values. The input is a list of changes to a valid result, 4
/// bytes each: which value, and its replacement.
pub fn report_values(data: &[u8]) {
    static RESULTS_READ: OnceLock<Vec<Sample>> = OnceLock::new();
    let results = RESULTS_READ.get_or_init(|| RESULTS.iter().map(|text| Sample::of(text)).collect());
    let Some((which, changes)) = data.split_first() else { return };
    let sample = &results[usize::from(which % 3)];
    let mut value = sample.value.clone();
    // Enough for interactions; more only take time.
    for change in changes.chunks_exact(4).take(32) {
        let place = usize::from(u16::from_be_bytes([change[0], change[1]]));
        // An earlier change may have removed it.
        if let Some(found) = value.pointer_mut(&sample.places[place % sample.places.len()]) {
            *found = replacement(found, change[2], change[3]);
        }
    }
    let bytes = serde_json::to_vec(&value).expect("a value is JSON");
    report_json(&bytes);
}

/// A valid result, and the place of every value in it (RFC 6901).
struct Sample {
    value: Value,
    places: Vec<String>,
}

impl Sample {
    fn of(text: &str) -> Self {
        let value = serde_json::from_str(text).expect("a good result");
        let mut places = Vec::new();
        collect(&value, String::new(), &mut places);
        Self { value, places }
    }
}

/// Adds the place of `value`, which is `at`, and those of all values in it.
fn collect(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| collect(item, format!("{at}/{index}"), places));
        }
        Value::Object(fields) => {
            let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
            fields.iter().for_each(|(name, field)| collect(field, format!("{at}/{}", escaped(name)), places));
        }
        _ => {}
    }
    places.push(at);
}

/// Most values in a list that is doubled; a larger one is only reversed. Lower: no table gets long. Higher: doubled
/// lists of doubled lists take nearly all of the time.
const DOUBLED: usize = 256;

/// Mostly of the same type, since the parser rejects everything else.
fn replacement(old: &Value, how: u8, detail: u8) -> Value {
    let texts =
        ["", "\u{1b}[31m", "<script>alert(1)</script>", "a\nb", "\u{202e}x", "&amp;\"'", "日本語", "%s%n"];
    match old {
        Value::Number(_) => match how % 10 {
            0 => 0.into(),
            1 => (-1).into(),
            2 => u64::MAX.into(),
            3 => i64::MIN.into(),
            4 => u32::MAX.into(),
            5 => f64::MAX.into(),
            6 => f64::MIN_POSITIVE.into(),
            7 => (f64::from(detail) / 1e3).into(),
            8 => (-f64::MAX).into(),
            _ => u64::from(detail).into(),
        },
        Value::String(_) if how.is_multiple_of(4) => "x".repeat(usize::from(detail) * 16).into(),
        Value::String(_) => texts[usize::from(detail) % texts.len()].into(),
        Value::Array(items) => match how % 3 {
            0 => Value::Array(Vec::new()),
            1 => items.iter().take(usize::from(detail)).cloned().collect(),
            _ if size(old) > DOUBLED => items.iter().rev().cloned().collect(),
            // Each of them again, in reverse order.
            _ => items.iter().chain(items.iter().rev()).take(64).cloned().collect(),
        },
        Value::Bool(yes) => (!yes).into(),
        Value::Null | Value::Object(_) => Value::Null,
    }
}

/// The number of values in this one, including itself.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

/// A form of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Of this width; 0: unlimited.
    Text(usize),
    Coloured,
    Json,
    Page,
}

/// The forms that take a millisecond or less.
const CHEAP: [Form; 7] = [
    Form::Text(0),
    Form::Text(20),
    Form::Text(80),
    Form::Text(100),
    Form::Text(400),
    Form::Coloured,
    Form::Json,
];

fn renders(document: &Document, input: usize, chosen: impl Fn(Form) -> bool) {
    for form in CHEAP.into_iter().chain([Form::Page]).filter(|form| chosen(*form)) {
        match form {
            Form::Text(width) => is_text(document, width, input),
            Form::Coloured => {
                let coloured = document.terminal(&Style { colour: true, width: 80 });
                let plain = coloured.replace("\u{1b}[", "");
                assert!(!plain.contains('\u{1b}'), "an escape that is not one of our colours");
            }
            Form::Json => {
                // The same result again; figures may differ in their last bit.
                let json = document.json();
                let again = parse(json.as_bytes(), "itself").expect("own JSON is read again");
                let values =
                    [document, &again].map(|it| serde_json::from_str::<Value>(&it.json()).expect("JSON"));
                assert!(alike(&values[0], &values[1]), "{} became {}", values[0], values[1]);
            }
            Form::Page => is_page(document, input),
        }
    }
}

/// Approximate size of a page without any result; charts take more than their numbers.
const PAGE: usize = 1 << 18;

fn is_text(document: &Document, width: usize, input: usize) {
    let text = document.terminal(&Style { colour: false, width });
    assert!(!text.trim().is_empty() && text.ends_with('\n'), "{text:?}");
    assert!(text.len() <= PAGE + 64 * input, "{} bytes of text from {input}", text.len());
    let drives = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(drives, None, "a control character of the file reached the terminal");
}

fn is_page(document: &Document, input: usize) {
    let page = document.html();
    assert!(page.starts_with("<!") && page.trim_end().ends_with("</html>"), "not a whole page");
    assert!(page.len() <= PAGE + 256 * input, "{} bytes of page from {input}", page.len());
    assert!(!page.contains("<script>alert"), "a tag of the file reached the page");
    for never in ["NaN", "=\"inf", "=\"-inf"] {
        assert!(!page.contains(never) || input_could_name(document, never), "{never} on the page");
    }
}

/// Equal, except for the last bits of numbers, which a decimal form may lose.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| alike(a, b)))
        }
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-14 * a.abs(),
            _ => a == b,
        },
        _ => one == other,
    }
}

/// Text from the file may contain anything, even "NaN".
fn input_could_name(document: &Document, word: &str) -> bool {
    document.json().contains(word.trim_start_matches("=\""))
}
