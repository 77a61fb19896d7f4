//! A family of metrics with its series, and its text.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Unit;
use udpath_host::visible;

/// Labels of a series.
pub(super) type Labels = Vec<(&'static str, String)>;
/// A count with its labels.
pub(super) type Series = (Labels, u64);

/// What a family's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A count since boot.
    Counter,
    /// An amount now.
    Gauge,
    /// Text: labels of a 1.
    Info,
}

/// A number of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(u64),
    Float(f64),
}

/// A family of metrics.
#[derive(Debug)]
pub(super) struct Family {
    /// Its name, without the prefix, the unit, and the suffix of its kind.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) kind: Kind,
    pub(super) series: Vec<(Labels, Number)>,
}

impl Family {
    /// A family of counts without a unit.
    pub(super) fn new(name: &'static str, help: &'static str, kind: Kind, series: &[Series]) -> Self {
        let series = series.iter().map(|(labels, count)| (labels.clone(), Number::Int(*count))).collect();
        Self { name, help, unit: None, kind, series }
    }

    /// Writes it as text.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (labels, number) in &self.series {
            let labels = shown(labels);
            if self.kind == Kind::Info {
                // Its labels are its value.
                return Info::new(labels).encode(metric);
            }
            let one = metric.encode_family(&labels)?;
            match (self.kind, *number) {
                (Kind::Counter, Number::Int(count)) => ConstCounter::new(count).encode(one)?,
                (Kind::Counter, Number::Float(value)) => ConstCounter::new(value).encode(one)?,
                (_, Number::Int(count)) => ConstGauge::new(count).encode(one)?,
                (_, Number::Float(value)) => ConstGauge::new(value).encode(one)?,
            }
        }
        Ok(())
    }
}

/// Labels without what a terminal would obey: names of interfaces belong to others, and `udpath export --once` prints
/// them.
fn shown(labels: &Labels) -> Labels {
    labels.iter().map(|(name, text)| (*name, visible::line(text))).collect()
}
