//! Numbers as users type them: `100k`, `1.5M`, `10us`, `0.1%`, `4000-4063`; and addresses.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use udpath_lab::Offloads;

/// Splits a number from its unit.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-'))).unwrap_or(text.len());
    text.split_at(end)
}

/// A number in the unit of the first step, by a table of units and their factors.
fn number(text: &str, what: &str, examples: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let (digits, unit) = split(text);
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let value = factor.zip(digits.parse::<f64>().ok()).map(|(factor, digits)| digits * factor);
    value.ok_or_else(|| format!("invalid {what} `{text}`: expected a value such as {examples}"))
}

const THOUSANDS: [(&str, f64); 7] =
    [("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("m", 1e6), ("G", 1e9), ("g", 1e9)];

/// A rate per second: `1000`, `100k`, `2M`, `1.5M/s`.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let bare = text.strip_suffix("/s").unwrap_or(text);
    number(bare, "rate", "1000, 100k or 2M", &THOUSANDS)
}

/// A rate per second that is a whole number in `range`.
pub(super) fn rate_within(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    move |text| {
        let rate = rate(text)?;
        let whole = (rate.fract() == 0.0 && rate >= 0.0).then_some(rate as u32);
        let (low, high) = (range.start(), range.end());
        whole
            .filter(|rate| range.contains(rate))
            .ok_or_else(|| format!("expected {low} to {high} per second"))
    }
}

/// How many: `64`, `10k`. `T` is an unsigned integer.
pub(super) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let value = number(text, "number", "64 or 10k", &THOUSANDS)?;
    // Above 2^53, a float is not exact; no count is that large.
    let whole = (value.fract() == 0.0 && (0.0..=9e15).contains(&value)).then_some(value as u64);
    let most = u64::MAX >> (64 - 8 * size_of::<T>());
    whole
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| format!("invalid number `{text}`: expected a whole number from 0 to {most}"))
}

/// Bytes: `100`, `64k` (64,000), `8MiB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let binary = [("KiB", 1024.0), ("MiB", 1024.0 * 1024.0), ("GiB", 1024.0 * 1024.0 * 1024.0)];
    let value = number(text, "size", "100, 64k or 8MiB", &[&THOUSANDS[..], &binary].concat())?;
    let whole = value.fract() == 0.0 && (0.0..=u32::MAX.into()).contains(&value);
    whole.then_some(value as usize).ok_or_else(|| {
        format!("invalid size `{text}`: expected a whole number of bytes from 0 to {}", u32::MAX)
    })
}

/// Offloads of a veth's ends: `tso,gso`, `gso,gro`, or `none`. Checksums stay on the frames' metadata, as by default.
pub(super) fn offloads(text: &str) -> Result<Offloads, String> {
    let mut offloads = Offloads { tso: false, gso: false, gro: false, ..Offloads::default() };
    for name in text.split(',') {
        match name {
            "tso" => offloads.tso = true,
            "gso" => offloads.gso = true,
            "gro" => offloads.gro = true,
            "none" if text == "none" => {}
            _ => {
                return Err(format!(
                    "invalid offloads `{text}`: expected none, or some of tso, gso and gro, such as gso,gro"
                ));
            }
        }
    }
    Ok(offloads)
}

const TIMES: [(&str, f64); 9] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("", 1.0),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
];

/// A time: `5s`, `500ms`, `10us`, `2m`; a bare number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const EXAMPLES: &str = "5s, 500ms, 10us or 2m";
    let seconds = number(text, "time", EXAMPLES, &TIMES)?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| format!("invalid time `{text}`: expected a value such as {EXAMPLES}"))
}

/// A time in `range`.
pub(super) fn duration_within(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let time = duration(text)?;
        let (low, high) = (shown(*range.start()), shown(*range.end()));
        if range.contains(&time) { Ok(time) } else { Err(format!("expected {low} to {high}")) }
    }
}

/// A time in `range`, of whole seconds.
pub(super) fn whole_seconds(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    let within = duration_within(range);
    move |text| match within(text)? {
        time if time.subsec_nanos() == 0 => Ok(time),
        _ => Err("expected whole seconds".to_owned()),
    }
}

/// A time as it would be typed: `10ms`, `1h`.
fn shown(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (0, ms) => format!("{ms}ms"),
        (seconds, 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (seconds, 0) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{}s", time.as_secs_f64()),
    }
}

/// A share: `0.1%` or `0.001`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    number(text, "share", "0.1% or 0.001", &[("", 1.0), ("%", 0.01)])
}

/// Ports: `4000-4063`, or one. Not 0, the lower first.
pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first @ 1..), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "invalid port range `{text}`: expected LOW-HIGH with 1 <= LOW <= HIGH <= 65535, such as 4000-4063"
        )),
    }
}

/// A ramp of rates: `1k..100k`.
pub(super) fn ramp(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| format!("invalid ramp `{text}`: expected A..B such as 1k..100k"))?;
    Ok((rate(from)?, rate(to)?))
}

/// A date, or a date and a time, UTC, as seconds since 1970: `2026-11-20`, `2026-11-20 13:04`.
pub(super) fn date(text: &str) -> Result<u64, String> {
    let parsed = || {
        let (day, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
        let (hour, minute) = time.split_once(':')?;
        let (hour, minute) = (field(hour, 2, 23)?, field(minute, 2, 59)?);
        Some(days(day)? * 86_400 + hour * 3600 + minute * 60)
    };
    parsed().ok_or_else(|| {
        format!("invalid date `{text}`: expected YYYY-MM-DD or 'YYYY-MM-DD HH:MM' from 1970 on, such as 2026-11-20")
    })
}

/// A point in time (RFC 3339): `2026-11-23T22:30:00Z`, `2026-11-23T23:30:00.25+01:00`.
pub(super) fn timestamp(text: &str) -> Result<SystemTime, String> {
    let parsed = || {
        let (day, rest) = text.split_once(['T', 't'])?;
        let at = rest.find(['Z', 'z', '+', '-'])?;
        let (time, zone) = rest.split_at(at);
        let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let mut whole = whole.splitn(3, ':');
        let (hour, minute) = (field(whole.next()?, 2, 23)?, field(whole.next()?, 2, 59)?);
        let second = field(whole.next()?, 2, 59)?;
        let nanos = (1..=9).contains(&fraction.len()).then(|| format!("{fraction:0<9}"))?;
        let east = match zone {
            "Z" | "z" => 0,
            _ => {
                let (hours, minutes) = zone[1..].split_once(':')?;
                let seconds = field(hours, 2, 23)? as i64 * 3600 + field(minutes, 2, 59)? as i64 * 60;
                if zone.starts_with('-') { -seconds } else { seconds }
            }
        };
        let seconds = (days(day)? * 86_400 + hour * 3600 + minute * 60 + second).checked_add_signed(-east)?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, field(&nanos, 9, 999_999_999)? as u32))
    };
    parsed().ok_or_else(|| {
        format!("invalid time `{text}`: expected RFC 3339, such as 2026-11-23T22:30:00Z or 2026-11-23T23:30:00.5+01:00")
    })
}

/// A number of exactly this many digits, at most `most`.
fn field(text: &str, digits: usize, most: u64) -> Option<u64> {
    let number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| text.parse().ok())?.filter(|number| *number <= most)
}

/// Days from 1970-01-01 to a date, `2026-11-20`.
fn days(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, '-');
    let (year, month) = (field(parts.next()?, 4, 9999)?, field(parts.next()?, 2, 12)?);
    let date = field(parts.next()?, 2, 31)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let valid = year >= 1970 && (1..=length).contains(&date);
    let before = year - 1.min(year);
    let days = year.checked_sub(1970)? * 365 + (before / 4 - before / 100 + before / 400) - 477;
    valid.then(|| days + lengths.iter().take(month as usize - 1).sum::<u64>() + date - 1)
}

/// An address with its port: `192.0.2.1:53`, `[2001:db8::1]:53`, and with the scope of a link-local address
/// `[fe80::1%eth0]:53` (RFC 4007, 11.2), the interface by name or number.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    udpath_load::ends::target(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(rate("100k"), Ok(100_000.0));
        assert_eq!(rate("1.5M/s"), Ok(1_500_000.0));
        assert_eq!(rate("-5"), Ok(-5.0));
        assert_eq!((count("64"), count("10k")), (Ok(64_u64), Ok(10_000_u32)));
        assert_eq!((size("1472"), size("64k"), size("8MiB")), (Ok(1472), Ok(64_000), Ok(8 << 20)));
        assert_eq!(duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!((share("0.1%").unwrap() - 0.001).abs() < 1e-12);
        assert_eq!((ports("7-9"), ports("53")), (Ok(7..=9), Ok(53..=53)));
        assert_eq!(ramp("1k..2k"), Ok((1000.0, 2000.0)));
        assert_eq!(address("[::1]:53"), Ok(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 53))));
    }

    #[test]
    fn bounds_are_named_as_they_would_be_typed() {
        let time = duration_within(Duration::from_millis(10)..=Duration::from_secs(300));
        assert_eq!((time("0.01"), time("5m")), (Ok(Duration::from_millis(10)), Ok(Duration::from_secs(300))));
        assert_eq!((time("0"), time("301")), (Err("expected 10ms to 5m".into()), time("9ms")));
        assert_eq!(shown(Duration::from_secs(86_400)), "24h");
        assert_eq!(shown(Duration::from_millis(1500)), "1.5s");
        let rate = rate_within(1..=20_000);
        assert_eq!((rate("20k"), rate("199")), (Ok(20_000), Ok(199)));
        for bad in ["0", "20001", "0.5", "-1", "99999G"] {
            assert_eq!(rate(bad), Err("expected 1 to 20000 per second".into()), "{bad}");
        }
    }

    #[test]
    fn dates_are_seconds_since_1970() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1970-01-01 00:01", 60),
            ("1972-03-01", 68_256_000),
            ("2000-02-29", 951_782_400),
            ("2026-11-20 13:06", 1_795_179_960),
            ("2026-11-20T13:06", 1_795_179_960),
            ("2100-03-01", 4_107_542_400),
        ] {
            assert_eq!(date(text), Ok(seconds), "{text}");
        }
        for bad in [
            "",
            "2026",
            "2026-13-01",
            "2026-00-01",
            "2026-02-29",
            "2026-1-1",
            "1969-12-31",
            "2026-11-20 24:00",
            "2026-11-20 1:00",
            "2026-11-20-1",
            "0000-01-01",
            "+026-01-01",
            "yesterday",
        ] {
            assert!(date(bad).unwrap_err().contains("YYYY-MM-DD"), "{bad}");
        }
    }

    #[test]
    fn timestamps_are_those_of_rfc_3339() {
        let since = |text| timestamp(text).map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
        for (text, seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2026-11-20T13:06:07Z", 1_795_179_967, 0),
            ("2026-11-20t14:06:07.25+01:00", 1_795_179_967, 250_000_000),
            ("2026-11-20T07:36:07.000000001-05:30", 1_795_179_967, 1),
        ] {
            assert_eq!(since(text), Ok(Duration::new(seconds, nanos)), "{text}");
        }
        for bad in [
            "",
            "now",
            "2026-11-20",
            "2026-11-20T13:06Z",
            "2026-11-20T13:06:07",
            "2026-11-20T13:06:60Z",
            "2026-11-20T24:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-20T13:06:07.Z",
            "2026-11-20T13:06:07.1234567890Z",
            "2026-11-20T13:06:07+0100",
            "2026-11-20T13:06:07+",
            "1970-01-01T00:00:00+00:01",
            "2026-11-20T13:06:07Zulu",
        ] {
            assert!(timestamp(bad).unwrap_err().contains("RFC 3339"), "{bad}");
        }
    }

    #[test]
    fn errors_give_an_example() {
        for bad in ["", "x", "10q", "1e5", "NaN", "--1", "+5"] {
            assert!(rate(bad).unwrap_err().contains("100k"), "{bad}");
        }
        for bad in ["-1s", "5 s", "1e400s", "99999999999999999999999s", "NaN"] {
            assert!(duration(bad).unwrap_err().contains("10us"), "{bad}");
        }
        for bad in ["1.5", "-1", "5G"] {
            assert!(count::<u32>(bad).unwrap_err().contains("whole number"), "{bad}");
            assert!(size(bad).unwrap_err().contains("whole number"), "{bad}");
        }
        for bad in ["1-70000", "9-7", "0-5", "x"] {
            assert!(ports(bad).unwrap_err().contains("65535"), "{bad}");
        }
        assert!(ramp("5k").unwrap_err().contains(".."));
        assert!(share("half").unwrap_err().contains("0.1%"));
        assert!(address("host:53").unwrap_err().contains("192.0.2.1:53"));
    }
}
