//! Formats numbers: every figure of every rendering is formatted here, so that the terminal and the HTML always round
//! alike.
//!
//! A value that cannot be shown (not finite, or beyond any plausible measurement) becomes an en dash, never `NaN`.

use udpath_advise::result::{Ratio, Verdict};

/// Shown instead of a missing figure.
pub(crate) const NONE: &str = "–";

/// Three significant digits, no exponent: `0.0123`, `1.23`, `12.3`, `123`, `1234`.
fn three_digits(value: f64) -> String {
    // Never `-0`.
    if value.abs() < 0.000_5 {
        return "0".to_owned();
    }
    let decimals = match value.abs() {
        v if v < 0.099_95 => 4,
        v if v < 0.999_5 => 3,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Is this a plausible measurement? Larger values would overflow their space.
fn sane(value: f64) -> bool {
    value.is_finite() && value.abs() < 1e15
}

/// A value with the largest prefix that leaves it at least 1: steps are (factor, suffix), ascending.
fn prefixed(value: f64, steps: &[(f64, &str)]) -> String {
    if !sane(value) {
        return NONE.to_owned();
    }
    // 999.7 of one unit would print as 1000, so it belongs to the next.
    let step = steps.iter().rev().find(|(factor, _)| value.abs() >= factor * 0.999_5).unwrap_or(&steps[0]);
    let digits = three_digits(value / step.0);
    if step.1.is_empty() { digits } else { format!("{digits} {}", step.1) }
}

/// Digits without trailing zeros and without a trailing point: `20.0` -> `20`.
pub(crate) fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// Transactions per second: `812`, `15.2 k`, `869 k`, `1.24 M`.
pub(crate) fn tps(value: f64) -> String {
    if value.is_finite() && value.abs() < 99.95 {
        return without_zeros(&three_digits(value)).to_owned();
    }
    prefixed(value, &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")])
}

/// A time given in nanoseconds: `850 ns`, `12.3 µs`, `1.20 ms`, `2.10 s`.
pub(crate) fn time(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 {
        return "0 ns".to_owned();
    }
    if nanoseconds.is_finite() && nanoseconds.abs() < 999.5 {
        return format!("{nanoseconds:.0} ns");
    }
    prefixed(nanoseconds, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

/// A duration given in seconds, for run lengths: `0.25 s`, `5 s`, `1 min 23 s`.
pub fn duration(seconds: f64) -> String {
    if !sane(seconds) || seconds < 0.0 {
        return NONE.to_owned();
    }
    if seconds >= 59.95 {
        let whole = seconds.round() as u64;
        return match (whole / 3600, whole / 60 % 60, whole % 60) {
            (0, m, 0) => format!("{m} min"),
            (0, m, s) => format!("{m} min {s} s"),
            (h, m, _) => format!("{h} h {m} min"),
        };
    }
    format!("{} s", without_zeros(&three_digits(seconds)))
}

/// A share of 1 as per cent: `8.2 %`, `52 %`, `100 %`.
pub(crate) fn share(value: f64) -> String {
    if !sane(value) {
        return NONE.to_owned();
    }
    let percent = value * 100.0;
    match percent.abs() {
        p if p < 0.05 => "0 %".to_owned(),
        p if p < 9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A share of 1 as per cent in a column: always one decimal, `8.2 %`, `52.4 %`.
pub(crate) fn share_in_column(value: f64) -> String {
    if sane(value) { format!("{:.1} %", (value * 100.0).max(0.0)) } else { NONE.to_owned() }
}

/// A share for which values near 0 and 1 matter, such as loss: `0`, `< 0.001 %`, `0.012 %`, `3.4 %`, `99.98 %`. Only
/// exactly 1 is `100 %`, and only exactly 0 is `0`.
pub(crate) fn loss(value: f64) -> String {
    if !sane(value) {
        return NONE.to_owned();
    }
    match value * 100.0 {
        p if p <= 0.0 => "0".to_owned(),
        p if p < 0.001 => "< 0.001 %".to_owned(),
        p if p < 0.1 => format!("{p:.3} %"),
        p if p < 1.0 => format!("{p:.2} %"),
        p if p < 99.95 => format!("{p:.1} %"),
        p if p < 100.0 => format!("{:.3} %", (p * 1000.0).floor() / 1000.0),
        p => format!("{p:.0} %"),
    }
}

/// A whole number with thousands separators: `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Megabits per second, without the unit: `7.3`, `728`, `1,154`.
pub(crate) fn mbits(value: f64) -> String {
    match value {
        v if !sane(v) || v < 0.0 => NONE.to_owned(),
        v if v < 9.95 => format!("{v:.1}"),
        v => count(v.round() as u64),
    }
}

/// Bytes of memory: `512 MiB`, `15.6 GiB`.
pub(crate) fn memory(bytes: u64) -> String {
    let (kib, mib) = (1024.0, 1024.0 * 1024.0);
    prefixed(
        bytes as f64,
        &[(1.0, "bytes"), (kib, "KiB"), (mib, "MiB"), (mib * kib, "GiB"), (mib * mib, "TiB")],
    )
}

/// A value with its unit as on an axis: `1 M`, `20 µs`, where a table would have `1.00 M`.
pub(crate) fn mark(text: &str) -> String {
    match text.split_once(' ') {
        Some((digits, unit)) => format!("{} {unit}", without_zeros(digits)),
        None => text.to_owned(),
    }
}

/// A ratio without its interval: `1.52`, `0.0031`.
pub(crate) fn ratio(value: f64) -> String {
    if value >= 999.5 { tps(value) } else { prefixed(value, &[(1.0, "")]) }
}

/// A ratio with its interval, with as many digits as the interval justifies: `1.52 (1.49–1.55)`, `1.028 (1.021–1.035)`.
pub(crate) fn interval(r: Ratio) -> String {
    if ![r.ratio, r.low, r.high].into_iter().all(sane) {
        return NONE.to_owned();
    }
    if r.high >= 100.0 || r.ratio < 0.1 {
        return format!("{} ({}–{})", ratio(r.ratio), ratio(r.low), ratio(r.high));
    }
    let decimals = if r.high - r.low < 0.045 { 3 } else { 2 };
    format!("{:.decimals$} ({:.decimals$}–{:.decimals$})", r.ratio, r.low, r.high)
}

/// The error of rates behind them, ` ± 0.4 %`; nothing if it is unknown.
pub(crate) fn rate_error(error: Option<f64>) -> String {
    match error.map(|error| 100.0 * error) {
        None => String::new(),
        // Not 0: they are not exact.
        Some(percent) if percent < 0.1 => " ± 0.1 %".to_owned(),
        Some(percent) if percent < 10.0 => format!(" ± {percent:.1} %"),
        Some(percent) => format!(" ± {percent:.0} %"),
    }
}

/// A percentile's label from the share of values above it, as a power of ten: 2 -> `99 %`, 3 -> `99.9 %`.
pub(crate) fn percentile(nines: u32) -> String {
    match nines {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        n => format!("99.{} %", "9".repeat(n as usize - 2)),
    }
}

/// A verdict as text.
pub(crate) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Base => "first rung",
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NotShown => "not shown",
        Verdict::Failed => "failed",
    }
}

/// Seconds since 1970 as `2026-11-20 13:04 UTC`, by the proleptic Gregorian calendar.
#[must_use]
pub fn date(seconds: u64) -> String {
    // Howard Hinnant's civil_from_days: years start in March, so the leap day is a year's last.
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_three_digits_and_change_prefix_in_time() {
        let cases = [
            (0.0, "0"),
            (7.0, "7"),
            (12.5, "12.5"),
            (812.0, "812"),
            (999.6, "1.00 k"),
            (15_200.0, "15.2 k"),
            (868_951.0, "869 k"),
            (999_700.0, "1.00 M"),
            (17_700_000.0, "17.7 M"),
        ];
        for (value, text) in cases {
            assert_eq!(tps(value), text);
        }
        assert_eq!((tps(f64::NAN), tps(f64::INFINITY)), (NONE.to_owned(), NONE.to_owned()));
    }

    #[test]
    fn times_and_durations() {
        let cases =
            [(0.0, "0 ns"), (850.0, "850 ns"), (999.7, "1.00 µs"), (12_345.0, "12.3 µs"), (2.1e9, "2.10 s")];
        for (value, text) in cases {
            assert_eq!(time(value), text);
        }
        let cases = [(0.25, "0.25 s"), (5.0, "5 s"), (10.0, "10 s"), (59.99, "1 min"), (83.2, "1 min 23 s")];
        for (value, text) in cases {
            assert_eq!(duration(value), text);
        }
        assert_eq!(duration(4000.0), "1 h 6 min");
        assert_eq!([-0.0, 1e-9, 0.000_6].map(duration), ["0 s", "0 s", "0.0006 s"]);
    }

    #[test]
    fn shares_and_loss() {
        assert_eq!([share(0.0), share(0.082), share(0.5239), share(1.0)], ["0 %", "8.2 %", "52 %", "100 %"]);
        assert_eq!(
            [loss(0.0), loss(1e-7), loss(0.000_12), loss(0.034)],
            ["0", "< 0.001 %", "0.012 %", "3.4 %"]
        );
        assert_eq!(
            [loss(0.5), loss(0.999_879), loss(0.999_999_9), loss(1.0)],
            ["50.0 %", "99.987 %", "99.999 %", "100 %"]
        );
        assert_eq!([share_in_column(0.0), share_in_column(0.5239)], ["0.0 %", "52.4 %"]);
    }

    #[test]
    fn counts_bytes_and_bandwidth() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([mbits(7.31), mbits(727.6), mbits(11_540.0)], ["7.3", "728", "11,540"]);
        assert_eq!(memory(16_738_435_072), "15.6 GiB");
        assert_eq!((memory(1 << 45), memory(u64::MAX)), ("32.0 TiB".to_owned(), NONE.to_owned()));
    }

    #[test]
    fn an_interval_has_the_digits_it_is_worth() {
        let r = |ratio, low, high| interval(Ratio { ratio, low, high });
        assert_eq!(r(1.523, 1.492, 1.553), "1.52 (1.49–1.55)");
        assert_eq!(r(1.028, 1.021, 1.0352), "1.028 (1.021–1.035)");
        assert_eq!(r(2e-6, 1e-6, 4e-6), "0 (0–0)");
        assert_eq!(r(0.031, 0.03, 0.032), "0.0310 (0.0300–0.0320)");
        assert_eq!(r(120.0, 100.0, 2500.0), "120 (100–2.50 k)");
        assert_eq!(r(f64::NAN, 1.0, 1.0), NONE);
    }

    #[test]
    fn marks_have_no_needless_zeros() {
        assert_eq!([mark(&time(20_000.0)), mark(&time(500.0)), mark(&tps(1e6))], ["20 µs", "500 ns", "1 M"]);
        assert_eq!(mark(&tps(0.0)), "0");
    }

    #[test]
    fn dates_over_leap_years() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_180_000), "2026-11-20 13:06 UTC");
        assert_eq!(date(4_107_542_399), "2100-02-28 23:59 UTC");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00 UTC");
        assert!(date(u64::MAX).ends_with("UTC"));
    }

    #[test]
    fn errors_of_rates() {
        let shown = [None, Some(0.0002), Some(0.0042), Some(0.254)].map(rate_error);
        assert_eq!(shown, ["", " ± 0.1 %", " ± 0.4 %", " ± 25 %"]);
    }

    #[test]
    fn percentiles_by_nines() {
        assert_eq!([0, 1, 2, 3, 5].map(percentile), ["0 %", "90 %", "99 %", "99.9 %", "99.999 %"]);
    }
}
