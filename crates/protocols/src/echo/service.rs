//! The server: answers with what it received.

use std::net::SocketAddr;
use std::sync::Arc;

use udpath_serve::{Config, DropReason, Error, Outcome, Reply, Request, Server, Service, StreamService};

/// Ports whose services answer whatever they receive: echo (RFC 862), daytime, qotd, chargen, time (RFC 867, 865, 864,
/// 868). A request that claims to come from one would start a loop of replies that never ends.
const ANSWERING: [u16; 5] = [7, 13, 17, 19, 37];

/// Answers every datagram with its own payload; over TCP, every byte with itself. What comes from a port that answers,
/// its own included, is dropped (`loop`).
///
/// ```
/// use udpath_protocols::echo::Echo;
/// use udpath_serve::{DropReason, Outcome, serve_once};
///
/// let (peer, local) = ("192.0.2.1:1000".parse()?, "192.0.2.2:7000".parse()?);
/// let mut echo = Echo::default();
/// assert_eq!(serve_once(&mut echo, b"hello", peer, local), (Outcome::Reply, b"hello".to_vec()));
/// for answering in ["192.0.2.1:7000".parse()?, "192.0.2.1:7".parse()?] {
///     assert_eq!(serve_once(&mut echo, b"hello", answering, local).0, Outcome::Drop(DropReason::Loop));
/// }
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Echo {
    /// The other ports of the same server.
    ports: Arc<[u16]>,
}

impl Echo {
    /// An echo of a server that also answers on these ports: a request from one of them would go round between the two.
    #[must_use]
    pub fn on(ports: impl IntoIterator<Item = u16>) -> Self {
        let mut ports: Vec<u16> = ports.into_iter().filter(|port| *port != 0).collect();
        ports.sort_unstable();
        ports.dedup();
        Self { ports: ports.into() }
    }

    /// Whether whoever has this port would answer a reply.
    #[inline]
    fn answers(&self, port: u16, own: u16) -> bool {
        port == own || ANSWERING.contains(&port) || self.ports.contains(&port)
    }
}

impl Service for Echo {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        if self.answers(request.peer_port(), request.local_port()) {
            return Outcome::Drop(DropReason::Loop);
        }
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
    let echo = Echo::on(config.binds.iter().map(SocketAddr::port));
    if !tcp {
        return Server::start(config, move |_| echo.clone());
    }
    let stream = echo.clone();
    Server::start_with_tcp(config, move |_| echo.clone(), move |_| stream.clone())
}
