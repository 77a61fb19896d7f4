//! The call of a [`Service`].

use super::exchange::Incoming;
use crate::outcome::Outcome;
use crate::reply::Reply;
use crate::request::{BurstContext, Origin, Request};
use crate::service::Service;

/// Calls the service: its outcome, and the bytes written to `buffer`.
#[inline(always)]
pub(super) fn call<S: Service>(
    service: &mut S,
    incoming: Incoming<'_>,
    origin: Origin<'_>,
    context: &BurstContext,
    buffer: &mut [u8],
) -> (Outcome, usize) {
    let Incoming { payload, peer, control, truncated: _ } = incoming;
    let mut reply = Reply::new(buffer);
    let outcome = service.serve(Request { payload, peer, control, origin, context }, &mut reply);
    (outcome, reply.len())
}
