//! The receive buffer against throughput, and against the delay from NAPI to the copy.
//!
//! The document varies the card's descriptors and the buffer of a TCP socket, and measures the delay in a patched
//! kernel. A veth has no descriptors, and the kernel's tracepoints show the delay of UDP datagrams only: the buffer is
//! varied for both, the delay is UDP's.

use std::time::Duration;

use udpath_profile::trace::Source;

use super::cases::Case;
use super::{Figure, sampled, trial};
use crate::entry::{Context, Error};
use crate::outcome::Table;
use crate::program::ProgramError;

/// Buffers in KiB, as in the document's figure; the first is below the kernel's default.
const BUFFERS: [&str; 4] = ["100", "800", "1600", "6400"];
/// The port of the lab's servers.
const SERVER_PORT: u16 = 7007;

/// Steps of progress.
pub(super) fn steps(count: usize) -> usize {
    count.min(BUFFERS.len())
}

/// Measures the first `count` buffers.
pub(super) fn measure(
    context: &Context<'_>,
    count: usize,
    (length, of_samples): (Duration, Duration),
    next: &mut dyn FnMut(&str) -> Result<(), Error>,
    failed: &dyn Fn(&str, ProgramError) -> Error,
) -> Result<Table, Error> {
    let mut rows = Vec::new();
    for kib in BUFFERS.into_iter().take(steps(count)) {
        next("receive buffer")?;
        let buffer = format!("{kib}KiB");
        let options = ["--rcvbuf".to_owned(), buffer.clone()];
        let flow = |tcp| Case { id: "", tcp, pattern: "single", hosts: None, options: &[], profiled: false };
        let tcp = [flow(true).arguments(length), options.to_vec()].concat();
        let Figure { gbits, .. } = trial(context, &tcp).map_err(|cause| failed("receive buffer", cause))?;
        // One datagram per packet: those of a stream come as few large ones, and their delay is that of the first.
        let udp = |length| [flow(false).arguments_of("flood", length), options.to_vec()].concat();
        let taken = sampled(context, &udp, of_samples, &[Source::Delays])
            .map_err(|cause| failed("receive buffer", cause))?;
        let delays = taken.profile.ok().and_then(|profile| {
            let delays = profile.traces.delays?;
            delays.sockets.into_iter().find(|delay| delay.socket.port == SERVER_PORT)
        });
        let micros = |at: f64| {
            let delay = delays.as_ref().and_then(|delay| delay.to_reader.quantile_ns(at));
            delay.map_or_else(|| "-".to_owned(), |ns| format!("{:.0} us", ns as f64 / 1e3))
        };
        rows.push(vec![buffer, format!("{gbits:.1}"), micros(0.5), micros(0.99)]);
    }
    let columns = ["receive buffer", "TCP, Gbit/s per core", "UDP, NAPI to copy, median", "99th percentile"];
    Ok(Table {
        title: "receive buffer of one flow (a veth has no ring of descriptors)".into(),
        columns: columns.map(Into::into).to_vec(),
        rows,
    })
}
