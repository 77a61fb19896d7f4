//! A family of metrics with its series.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A series: its labels and its value.
pub(super) type Series = (Vec<(&'static str, String)>, u64);

/// Writes one metric, if it has series.
pub(super) fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    series: &[Series],
) -> fmt::Result {
    if series.is_empty() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in series {
        let one = metric.encode_family(labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(*value).encode(one)?,
            _ => ConstGauge::new(*value).encode(one)?,
        }
    }
    Ok(())
}
