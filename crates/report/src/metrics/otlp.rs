//! Metrics as OTLP, the protocol of OpenTelemetry's collectors: opentelemetry-proto, metrics/v1.
//!
//! A counter is a monotonic sum since boot (cumulative), everything else a gauge. The machine is the resource.

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric,
    number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus_client::registry::Unit;
use prost::Message;

use super::PREFIX;
use super::family::{Family, Kind, Labels, Number};
use crate::words::one_line;

/// The content type of a request (OTLP/HTTP, binary protobuf).
pub const OTLP_CONTENT_TYPE: &str = "application/x-protobuf";

/// Where and when metrics were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpOrigin {
    /// The machine's name: the resource attributes `host.name` and `service.instance.id`. `None` for a captured
    /// machine.
    pub host: Option<String>,
    /// When they were read, nanoseconds since 1970.
    pub at: u64,
    /// When counting began, nanoseconds since 1970: at boot. 0: unknown.
    pub since: u64,
}

/// The request with all families.
pub(super) fn encoded(families: &[Family], origin: &OtlpOrigin) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let service =
        [("service.name", PREFIX), ("service.version", version)].map(|(key, text)| attribute(key, text));
    let named = |name: &String| ["host.name", "service.instance.id"].map(|key| attribute(key, name));
    let host = origin.host.iter().flat_map(named);
    let scope = InstrumentationScope {
        name: PREFIX.into(),
        version: version.into(),
        ..InstrumentationScope::default()
    };
    let metrics = families.iter().map(|family| metric(family, origin)).collect();
    let resource = Resource { attributes: service.into_iter().chain(host).collect(), ..Resource::default() };
    let all = ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![all] }.encode_to_vec()
}

/// What a collector's answer says of metrics that it did not take; `None` if it took all.
#[must_use]
pub fn rejected(answer: &[u8]) -> Option<String> {
    // An answer of another form does not say that anything was rejected.
    let partial = ExportMetricsServiceResponse::decode(answer).ok()?.partial_success?;
    let rejected = partial.rejected_data_points > 0;
    rejected.then(|| {
        format!("{} data points: {}", partial.rejected_data_points, one_line(&partial.error_message))
    })
}

fn metric(family: &Family, origin: &OtlpOrigin) -> Metric {
    let point = |(labels, number): &(Labels, Number)| NumberDataPoint {
        attributes: labels.iter().map(|(key, text)| attribute(key, text)).collect(),
        // A gauge has no beginning.
        start_time_unix_nano: if family.kind == Kind::Counter { origin.since } else { 0 },
        time_unix_nano: origin.at,
        value: Some(match *number {
            // Counts of the kernel have 64 bits without a sign, OTLP's have one: 2^63 packets take centuries.
            Number::Int(count) => number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
            Number::Float(value) => number_data_point::Value::AsDouble(value),
        }),
        ..NumberDataPoint::default()
    };
    let data_points = family.series.iter().map(point).collect();
    let data = match family.kind {
        Kind::Counter => metric::Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        Kind::Gauge | Kind::Info => metric::Data::Gauge(Gauge { data_points }),
    };
    let suffix = if family.kind == Kind::Info { "_info" } else { "" };
    Metric {
        name: format!("{PREFIX}_{}{suffix}", family.name),
        description: family.help.into(),
        // Of UCUM: https://ucum.org.
        unit: if matches!(family.unit, Some(Unit::Seconds)) { "s" } else { "" }.into(),
        data: Some(data),
        ..Metric::default()
    }
}

fn attribute(key: &str, text: &str) -> KeyValue {
    let value = AnyValue { value: Some(Value::StringValue(text.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}
