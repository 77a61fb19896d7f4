//! The server: from a datagram to its reply.
//!
//! ```text
//! unknown client, invalid signature, unknown code ─▸ dropped: refused       not a packet, no proof ─▸ dropped: malformed
//! the same request within 5 s ─▸ the same reply
//! reply: header | Message-Authenticator | attributes | Proxy-State of the request, in order
//! ```

use std::sync::Arc;

use udpath_serve::{Config, DropReason, Error, Outcome, ReloadHook, Reply, Request, Server, Service, View};

use super::access::{Answer, Proof, decide};
use super::attributes::Attributes;
use super::clients::Client;
use super::duplicates::Key;
use super::packet::{Code, DIGEST, Kind, Packet, Writer};
use super::state::{Data, RadiusState};

/// Ports at which a Status-Server asks about accounting: RFC 2866's, and the one in use before.
const ACCOUNTING_PORTS: [u16; 2] = [1813, 1646];
/// Text of a challenge.
const PROMPT: &[u8] = b"Enter the one-time code";
/// In place of an authenticator in what an accounting request's is computed from (RFC 2866, 3).
const ZERO: [u8; DIGEST] = [0; DIGEST];

/// Answers clients. Each worker has its own, with what they share.
///
/// ```
/// use udpath_protocols::radius::{Code, Packet, Radius, RadiusFiles, RadiusState, Secret, Writer};
/// use udpath_serve::{Outcome, serve_once};
///
/// let mut radius = Radius::new(&RadiusState::open(RadiusFiles::default())?);
/// let mut buffer = [0; 4096];
/// let mut request = Writer::new(&mut buffer, Code::STATUS_SERVER, 7, &[9; 16]).ok_or("full")?;
/// let at = request.message_authenticator().ok_or("full")?;
/// let request = request.finish().ok_or("full")?;
/// Secret::new(b"testing123").sign(request, &[9; 16], at).ok_or("short")?;
///
/// let (peer, local) = ("127.0.0.1:1000".parse()?, "127.0.0.1:1812".parse()?);
/// let (outcome, reply) = serve_once(&mut radius, request, peer, local);
/// assert_eq!((outcome, Packet::decode(&reply)?.code()), (Outcome::Reply, Code::ACCESS_ACCEPT));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Radius {
    state: Arc<RadiusState>,
    data: View<Data>,
}

impl Radius {
    /// The server of one worker.
    #[must_use]
    pub fn new(state: &Arc<RadiusState>) -> Self {
        Self { state: Arc::clone(state), data: View::new(&state.current) }
    }
}

impl Service for Radius {
    #[inline]
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let data = self.data.get();
        let Some(client) = data.clients.find(request.peer().ip()) else {
            return Outcome::Drop(DropReason::Refused);
        };
        let Ok(packet) = Packet::decode(request.payload()) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let exchange = Exchange { state: &self.state, data, client, packet, request };
        match exchange.answer(reply) {
            Ok(len) => reply.set_len(len),
            Err(reason) => Outcome::Drop(reason),
        }
    }
}

/// A packet of a known client.
struct Exchange<'a> {
    state: &'a RadiusState,
    data: &'a Data,
    client: &'a Client,
    packet: Packet<'a>,
    request: Request<'a>,
}

impl Exchange<'_> {
    /// Writes the reply; returns its length, or why there is none.
    #[inline]
    fn answer(&self, reply: &mut Reply<'_>) -> Result<usize, DropReason> {
        let attributes = Attributes::of(&self.packet).ok_or(DropReason::Malformed)?;
        if !self.is_signed(&attributes) {
            return Err(DropReason::Refused);
        }
        if self.packet.code() == Code::STATUS_SERVER {
            return self.status(reply.buffer_mut()).ok_or(DropReason::ReplyTooLarge);
        }
        let key = Key::new(self.request.peer(), &self.packet, attributes.message_authenticator);
        let now = self.request.received();
        let duplicates = &self.state.duplicates;
        if let Some(len) = duplicates.find(&key, now, reply.buffer_mut()) {
            return Ok(len);
        }
        let len = if self.packet.code() == Code::ACCESS_REQUEST {
            self.access(&attributes, reply.buffer_mut())?
        } else {
            self.accounting(&attributes, reply.buffer_mut())?
        };
        if let Some(reply) = reply.buffer_mut().get(..len) {
            duplicates.insert(&key, now, reply);
        }
        Ok(len)
    }

    /// Whether the client has signed the packet as its code demands; false for codes that the server does not answer.
    #[inline]
    fn is_signed(&self, attributes: &Attributes<'_>) -> bool {
        let Client { secret, needs_message_authenticator } = self.client;
        let (bytes, authenticator) = (self.packet.bytes(), self.packet.authenticator());
        let valid = |authenticator| {
            attributes.message_authenticator.map(|at| secret.has_signed(bytes, authenticator, at))
        };
        match self.packet.code() {
            // RFC 3579, 3.1: EAP is always signed. Blast-RADIUS: an attacker needs a Proxy-State that comes back.
            Code::ACCESS_REQUEST => valid(authenticator)
                .unwrap_or(!needs_message_authenticator && !attributes.eap && !attributes.proxied),
            // The authenticator covers everything; the Message-Authenticator is computed before it.
            Code::ACCOUNTING_REQUEST => {
                secret.has_authenticated(bytes, &ZERO) && valid(&ZERO).unwrap_or(true)
            }
            Code::STATUS_SERVER => valid(authenticator).unwrap_or(false),
            _ => false,
        }
    }

    /// RFC 2865.
    fn access(&self, attributes: &Attributes<'_>, buffer: &mut [u8]) -> Result<usize, DropReason> {
        let proof = Proof::of(&self.packet, attributes, &self.client.secret).ok_or(DropReason::Malformed)?;
        let (challenges, client) = (&self.state.challenges, self.request.peer().ip());
        let name = attributes.user_name.unwrap_or_default();
        let now = self.request.received();
        let answers = attributes.state.map(|state| challenges.accepts(state, name, client, now));
        let answer = decide(self.data.users.find(name), &proof, answers);
        let written = match answer {
            Answer::Accept(attributes) => {
                self.reply(Code::ACCESS_ACCEPT, buffer, |reply| reply.raw(attributes))
            }
            Answer::Reject => self.reply(Code::ACCESS_REJECT, buffer, |_| Some(())),
            Answer::Challenge => self.reply(Code::ACCESS_CHALLENGE, buffer, |reply| {
                reply.attribute(Kind::STATE, &challenges.issue(name, client, now))?;
                reply.attribute(Kind::REPLY_MESSAGE, PROMPT)
            }),
        };
        written.ok_or(DropReason::ReplyTooLarge)
    }

    /// RFC 2866. What is accounted is not kept.
    fn accounting(&self, attributes: &Attributes<'_>, buffer: &mut [u8]) -> Result<usize, DropReason> {
        if attributes.status_type.is_none_or(|value| value.len() != 4) {
            return Err(DropReason::Malformed);
        }
        self.reply(Code::ACCOUNTING_RESPONSE, buffer, |_| Some(())).ok_or(DropReason::ReplyTooLarge)
    }

    /// RFC 5997, 3: the answer of a server for access or for accounting, by its port.
    fn status(&self, buffer: &mut [u8]) -> Option<usize> {
        let accounting = ACCOUNTING_PORTS.contains(&self.request.local().port());
        let code = if accounting { Code::ACCOUNTING_RESPONSE } else { Code::ACCESS_ACCEPT };
        self.reply(code, buffer, |_| Some(()))
    }

    /// Writes and signs a reply with what `add` adds; returns its length, or `None` if it is too long.
    #[inline]
    fn reply(
        &self,
        code: Code,
        buffer: &mut [u8],
        add: impl FnOnce(&mut Writer<'_>) -> Option<()>,
    ) -> Option<usize> {
        let (secret, authenticator) = (&self.client.secret, self.packet.authenticator());
        let mut reply = Writer::new(buffer, code, self.packet.identifier(), authenticator)?;
        // First, so that what an attacker can choose comes after it (Blast-RADIUS). RFC 2866 has none in accounting.
        let signed =
            if code == Code::ACCOUNTING_RESPONSE { None } else { Some(reply.message_authenticator()?) };
        add(&mut reply)?;
        for attribute in self.packet.attributes().filter(|attribute| attribute.kind == Kind::PROXY_STATE) {
            reply.attribute(Kind::PROXY_STATE, attribute.value)?;
        }
        let reply = reply.finish()?;
        if let Some(at) = signed {
            secret.sign(reply, authenticator, at)?;
        }
        secret.authenticate(reply, authenticator)?;
        Some(reply.len())
    }
}

/// Starts a RADIUS server.
///
/// # Errors
/// Those of [`Server::start`].
pub fn start(config: &Config, state: &Arc<RadiusState>) -> Result<Server, Error> {
    // A reply allows an attack on the shared secret.
    let config = &config.with_private_replies();
    let workers = Arc::clone(state);
    let server = Server::start(config, move |_| Radius::new(&workers))?;
    let state = Arc::clone(state);
    let hook: ReloadHook = Arc::new(move || Ok(state.reload()?));
    Ok(server.with_reload(hook))
}

#[cfg(test)]
mod tests;
