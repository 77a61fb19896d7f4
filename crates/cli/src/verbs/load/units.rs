//! Parses numbers as users type them: `100k`, `1.5M`, `10us`, `0.1%`, `4000-4063`.

use std::time::Duration;

use udpath_load::plan::PortRange;

/// Splits a number from its suffix.
fn split(text: &str) -> (&str, &str) {
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    text.split_at(end)
}

fn number(digits: &str, text: &str, example: &str) -> Result<f64, String> {
    digits.parse().map_err(|_| format!("invalid number `{text}`: expected a value such as {example}"))
}

/// A rate: `1000`, `100k`, `2M`, `1.5M/s`.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let bare = text.strip_suffix("/s").unwrap_or(text);
    let (digits, suffix) = split(bare);
    let factor = match suffix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        _ => {
            return Err(format!(
                "invalid rate `{text}`: expected a value per second such as 1000, 100k or 2M"
            ));
        }
    };
    Ok(number(digits, text, "1000, 100k or 2M")? * factor)
}

/// A count or a size: `64`, `10k`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let value = rate(text)?;
    if value.fract() != 0.0 || !(0.0..=u32::MAX.into()).contains(&value) {
        return Err(format!("invalid value `{text}`: expected a whole number from 0 to {}", u32::MAX));
    }
    Ok(value as u64)
}

/// A time: `5s`, `500ms`, `10us`, `2m`; a bare number is seconds.
pub(in crate::verbs) fn time(text: &str) -> Result<Duration, String> {
    let (digits, suffix) = split(text);
    let seconds = match suffix {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("invalid time `{text}`: expected a value such as 5s, 500ms, 10us or 2m")),
    };
    let value = number(digits, text, "5s, 500ms, 10us or 2m")? * seconds;
    Duration::try_from_secs_f64(value)
        .map_err(|_| format!("invalid time `{text}`: expected a value such as 5s, 500ms, 10us or 2m"))
}

/// A share: `0.1%` or `0.001`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    Ok(number(digits, text, "0.1% or 0.001")? * factor)
}

/// Ports: `4000-4063`, or one.
pub(super) fn ports(text: &str) -> Result<PortRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Ok(PortRange { first, last }),
        _ => Err(format!("invalid port range `{text}`: expected LOW-HIGH such as 4000-4063, at most 65535")),
    }
}

/// A ramp: `1k..100k`.
pub(super) fn ramp(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| format!("invalid ramp `{text}`: expected A..B such as 1k..100k"))?;
    Ok((rate(from)?, rate(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(rate("100k"), Ok(100_000.0));
        assert_eq!(rate("1.5M/s"), Ok(1_500_000.0));
        assert_eq!(rate("-5"), Ok(-5.0));
        assert_eq!(count("64"), Ok(64));
        assert_eq!(time("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert!((share("0.1%").unwrap() - 0.001).abs() < 1e-12);
        assert_eq!(ports("7-9"), Ok(PortRange { first: 7, last: 9 }));
        assert_eq!(ramp("1k..2k"), Ok((1000.0, 2000.0)));
    }

    #[test]
    fn errors_give_an_example() {
        for bad in ["", "x", "10q", "1e5", "NaN", "--1"] {
            assert!(rate(bad).unwrap_err().contains("100k"), "{bad}");
        }
        for bad in ["-1s", "5 s", "1e400s", "99999999999999999999999s", "NaN"] {
            assert!(time(bad).unwrap_err().contains("10us"), "{bad}");
        }
        for bad in ["1.5", "-1", "5G"] {
            assert!(count(bad).unwrap_err().contains("whole number"), "{bad}");
        }
        assert!(ports("1-70000").unwrap_err().contains("65535"));
        assert!(ramp("5k").unwrap_err().contains(".."));
        assert!(share("half").unwrap_err().contains("0.1%"));
    }
}
