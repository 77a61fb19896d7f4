//! The text of LOC (RFC 1876, 3): degrees, minutes and seconds north or south, then east or west, metres above the
//! ellipsoid, and three diameters in metres.

use super::super::text::Token;

/// Thousandths of a second of arc in a degree.
const DEGREE: u32 = 3_600_000;
/// The equator and the prime meridian.
const ORIGIN: u32 = 1 << 31;
/// The lowest altitude, centimetres below the ellipsoid.
const DEPTH: i64 = 10_000_000;
/// Diameters that are not given, centimetres: of the object, and the precisions.
const DIAMETERS: [u64; 3] = [100, 1_000_000, 1_000];

/// The data, or `None` if it is no location.
pub(super) fn wire(tokens: &[Token<'_>]) -> Option<Vec<u8>> {
    let words: Vec<String> = tokens.iter().map(Token::shown).collect();
    let mut words = words.iter().map(String::as_str).peekable();
    let latitude = angle(&mut words, 90, ["N", "S"])?;
    let longitude = angle(&mut words, 180, ["E", "W"])?;
    let altitude = u32::try_from(centimetres(words.next()?)?.checked_add(DEPTH)?).ok()?;
    let mut wire = vec![0];
    for default in DIAMETERS {
        let diameter = match words.next() {
            Some(text) => u64::try_from(centimetres(text)?).ok()?,
            None => default,
        };
        wire.push(power(diameter)?);
    }
    for number in [latitude, longitude, altitude] {
        wire.extend(number.to_be_bytes());
    }
    words.next().is_none().then_some(wire)
}

/// `D [M [S[.FFF]]] N|S`, thousandths of a second from the origin.
fn angle<'a>(
    words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    most: u32,
    signs: [&str; 2],
) -> Option<u32> {
    let is_sign = |word: &str| signs.iter().position(|sign| word.eq_ignore_ascii_case(sign));
    let degrees: u32 = digits(words.next()?)?;
    let mut parts = [0, 0];
    for (at, part) in parts.iter_mut().enumerate() {
        if words.peek().is_some_and(|word| is_sign(word).is_some()) {
            break;
        }
        let word = words.next()?;
        *part = if at == 0 { digits(word)?.checked_mul(60_000)? } else { thousandths(word)? };
        let below = if at == 0 { DEGREE } else { 60_000 };
        (*part < below).then_some(())?;
    }
    let sign = is_sign(words.next()?)?;
    let sum = degrees.checked_mul(DEGREE)?.checked_add(parts[0])?.checked_add(parts[1])?;
    (sum <= most * DEGREE).then(|| if sign == 0 { ORIGIN + sum } else { ORIGIN - sum })
}

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Seconds with up to three decimals.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let fraction = decimals(part, 3)?;
    digits(whole)?.checked_mul(1000)?.checked_add(u32::try_from(fraction).ok()?)
}

/// So many decimals as a whole number: of `5`, 500 if three.
fn decimals(text: &str, most: usize) -> Option<u64> {
    let right = text.len() <= most && text.bytes().all(|byte| byte.is_ascii_digit());
    right.then(|| format!("{text:0<most$}").parse().ok()).flatten()
}

/// Metres with up to two decimals, and perhaps an `m`, in centimetres.
fn centimetres(text: &str) -> Option<i64> {
    let text = text.strip_suffix(['m', 'M']).unwrap_or(text);
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let sum = i64::from(digits(whole)?) * 100 + i64::try_from(decimals(part, 2)?).ok()?;
    Some(if negative { -sum } else { sum })
}

/// Centimetres as a digit and a power of ten.
fn power(mut centimetres: u64) -> Option<u8> {
    let mut exponent = 0_u8;
    while centimetres >= 10 {
        centimetres /= 10;
        exponent += 1;
    }
    (exponent <= 9).then_some((centimetres as u8) << 4 | exponent)
}
