//! A claim with its figure, its bound and its verdict.
//!
//! The bound is what was promised before the measurement. It is never fitted to a figure. The whole interval decides:
//!
//! ```text
//!                 bound
//!   ├──────┤        │                 missed: all of it on the wrong side
//!              ├────┼───┤             not decided: the figure may be on either
//!                   │     ├──────┤    held
//! ```
//! A figure whose conditions were not met while it was measured is missed.

use udpath_advise::result::Ratio;

/// One claim, measured.
pub(crate) struct Claim {
    /// Unique among all, `bench.figure`: docs select figures by it.
    pub(crate) id: String,
    /// What is claimed.
    pub(crate) what: String,
    pub(crate) value: f64,
    /// Its 95 % interval, or the range of repetitions.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) unit: Unit,
    pub(crate) bound: Bound,
    /// What else was measured with it, printed behind the figure.
    pub(crate) detail: String,
    /// The condition of the claim that was not met, if any: then it is missed whatever the figure.
    pub(crate) unmet: Option<String>,
    /// Interrupt moderation of the link, microseconds.
    pub(crate) moderation: u32,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Ratio,
    Nanoseconds,
    Milliseconds,
    Seconds,
    MebiBytes,
    /// Per cent of one CPU.
    PerCent,
    /// Events per second.
    Rate,
    /// Events.
    Count,
}

impl Unit {
    /// Its symbol, with a leading space where one belongs; a rate is written in millions.
    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::Ratio | Self::Count => "",
            Self::Nanoseconds => " ns",
            Self::Milliseconds => " ms",
            Self::Seconds => " s",
            Self::MebiBytes => " MiB",
            Self::PerCent => " %",
            Self::Rate => " M/s",
        }
    }

    fn number(self, value: f64) -> String {
        let shown = if self == Self::Rate { value / 1e6 } else { value };
        let digits = match shown.abs() {
            _ if self == Self::Ratio && shown < 2.0 => 3,
            _ if self == Self::Count => 0,
            size if size < 10.0 => 2,
            size if size < 100.0 => 1,
            _ => 0,
        };
        format!("{shown:.digits$}")
    }
}

/// What a claim requires of its figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    AtLeast(f64),
    Below(f64),
    /// From the first to the second, both included.
    Within(f64, f64),
    /// Nothing: it is shown for comparison.
    Shown,
}

impl Bound {
    /// The verdict on a figure between `low` and `high`, which are equal if it has no interval. One that is no number
    /// meets no bound.
    pub(crate) fn verdict(self, low: f64, high: f64) -> Verdict {
        // Whether all of the interval meets it, and whether some does.
        let (all, some) = match self {
            Self::AtLeast(least) => (low >= least, high >= least),
            Self::Below(most) => (high < most, low < most),
            Self::Within(least, most) => (low >= least && high <= most, high >= least && low <= most),
            Self::Shown => return Verdict::Shown,
        };
        match (all, some) {
            _ if low.is_nan() || high.is_nan() => Verdict::Missed,
            (true, _) => Verdict::Held,
            (false, true) => Verdict::NotDecided,
            (false, false) => Verdict::Missed,
        }
    }
}

/// The outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Held,
    Missed,
    /// The interval has the bound in it.
    NotDecided,
    Shown,
}

impl Verdict {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Missed => "MISSED",
            Self::NotDecided => "not decided",
            Self::Shown => "",
        }
    }
}

impl Claim {
    /// A claim of one figure.
    pub(crate) fn new(id: &str, what: impl Into<String>, value: f64, unit: Unit, bound: Bound) -> Self {
        Self {
            id: id.to_owned(),
            what: what.into(),
            value,
            interval: None,
            unit,
            bound,
            detail: String::new(),
            unmet: None,
            moderation: 0,
        }
    }

    /// A claim of a ratio with its interval.
    pub(crate) fn ratio(id: &str, what: impl Into<String>, ratio: &Ratio, bound: Bound) -> Self {
        Self::new(id, what, ratio.ratio, Unit::Ratio, bound).within(ratio.low, ratio.high)
    }

    /// Sets the interval.
    pub(crate) fn within(self, low: f64, high: f64) -> Self {
        Self { interval: Some((low, high)), ..self }
    }

    /// Adds what else was measured.
    pub(crate) fn with(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// The claim holds only under this condition.
    pub(crate) fn only_if(self, met: bool, unmet: impl FnOnce() -> String) -> Self {
        if met { self } else { Self { unmet: Some(unmet()), ..self } }
    }

    /// Its link was moderated.
    pub(crate) fn moderated(self, microseconds: u32) -> Self {
        Self { moderation: microseconds, ..self }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let (low, high) = self.interval.unwrap_or((self.value, self.value));
        match self.bound.verdict(low, high) {
            Verdict::Shown => Verdict::Shown,
            _ if self.unmet.is_some() => Verdict::Missed,
            verdict => verdict,
        }
    }

    /// `1.52 (1.49-1.55)`, `85.2 ns; both ends 170 ns`, with the unmet condition.
    pub(crate) fn measured(&self) -> String {
        let Self { unit, .. } = self;
        let mut text = format!("{}{}", unit.number(self.value), unit.symbol());
        if let Some((low, high)) = self.interval {
            // A minus sign beside a dash reads as neither.
            let to = if low < 0.0 { " to " } else { "-" };
            text.push_str(&format!(" ({}{to}{})", unit.number(low), unit.number(high)));
        }
        for more in [Some(&self.detail), self.unmet.as_ref()].into_iter().flatten().filter(|t| !t.is_empty())
        {
            text.push_str("; ");
            text.push_str(more);
        }
        text
    }

    /// `>= 1.45`, `< 100 ns`.
    pub(crate) fn required(&self) -> String {
        let plain = |bound: f64| if self.unit == Unit::Rate { bound / 1e6 } else { bound };
        match self.bound {
            Bound::AtLeast(least) => format!(">= {}{}", plain(least), self.unit.symbol()),
            Bound::Below(most) => format!("< {}{}", plain(most), self.unit.symbol()),
            Bound::Within(least, most) => {
                format!("{} to {}{}", plain(least), plain(most), self.unit.symbol())
            }
            Bound::Shown => String::new(),
        }
    }
}
