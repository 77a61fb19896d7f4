//! Arguments that name one of several values: parsers whose names, help and completions come from a table.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use udpath_protocols::ProtocolEntry;

/// Accepts one of `values` by the name that `name` returns; each has a line of help.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [(T, &'static str)],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|(value, help)| PossibleValue::new(name(*value)).help(*help));
    PossibleValuesParser::new(names).try_map(move |given| {
        let found = values.iter().find(|(value, _)| name(*value) == given);
        found.map(|(value, _)| *value).ok_or("not a possible value")
    })
}

/// Accepts the name of one of these registered protocols.
pub(super) fn protocol(
    of: impl Iterator<Item = &'static ProtocolEntry>,
) -> impl TypedValueParser<Value = &'static ProtocolEntry> {
    let names = of.map(|protocol| PossibleValue::new(protocol.name).help(protocol.summary));
    PossibleValuesParser::new(names)
        .try_map(|name| udpath_protocols::find(&name).ok_or("not a registered protocol"))
}
