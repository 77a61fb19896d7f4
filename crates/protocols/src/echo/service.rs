//! The server: answers with what it received.

use udpath_serve::{Config, Error, Outcome, Reply, Request, Server, Service, StreamService};

/// Answers every datagram with its own payload; over TCP, every byte with itself.
///
/// ```
/// use udpath_protocols::echo::Echo;
/// use udpath_serve::{Outcome, serve_once};
///
/// let (peer, local) = ("192.0.2.1:1000".parse()?, "192.0.2.2:7".parse()?);
/// assert_eq!(serve_once(&mut Echo, b"hello", peer, local), (Outcome::Reply, b"hello".to_vec()));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Service for Echo {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        reply.write(request.payload())
    }
}

impl StreamService for Echo {
    fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
        reply.write(input)
    }
}

/// Starts an echo server; with `tcp`, also over TCP on the same addresses.
///
/// # Errors
/// Those of [`Server::start`].
pub fn start(config: &Config, tcp: bool) -> Result<Server, Error> {
    if tcp { Server::start_with_tcp(config, |_| Echo, |_| Echo) } else { Server::start(config, |_| Echo) }
}
