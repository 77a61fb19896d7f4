//! One call of a service without a runtime.

use std::net::SocketAddr;

use super::call::call;
use super::exchange::Incoming;
use crate::outcome::Outcome;
use crate::request::{BurstContext, Origin, Peer};
use crate::service::Service;
use crate::sys::MAX_PAYLOAD_V4;

/// Calls a service with one made-up request, without a runtime: for unit tests of services.
///
/// Returns the outcome and, for [`Outcome::Reply`], the bytes written. An answer through a handle from
/// [`Request::defer`](crate::Request::defer) is discarded. A panic is not caught.
pub fn serve_once(
    service: &mut impl Service,
    payload: &[u8],
    peer: SocketAddr,
    local: SocketAddr,
) -> (Outcome, Vec<u8>) {
    let mut buffer = vec![0; MAX_PAYLOAD_V4];
    let incoming = Incoming { payload, peer: Peer::Decoded(peer), control: None, truncated: false };
    let (outcome, len) =
        call(service, incoming, Origin::Detached(local), &BurstContext::default(), &mut buffer);
    buffer.truncate(if outcome == Outcome::Reply { len } else { 0 });
    (outcome, buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reply, Request};

    #[test]
    fn a_service_can_be_called_without_a_runtime() {
        struct Where;
        impl Service for Where {
            fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
                let text = format!("{} asked {}", request.peer(), request.local());
                reply.write(text.as_bytes())
            }
        }
        let peer = "[2001:db8::1]:9".parse().unwrap();
        let local = "192.0.2.1:53".parse().unwrap();
        let (outcome, reply) = serve_once(&mut Where, b"", peer, local);
        assert_eq!(outcome, Outcome::Reply);
        assert_eq!(reply, b"[2001:db8::1]:9 asked 192.0.2.1:53");
    }
}
