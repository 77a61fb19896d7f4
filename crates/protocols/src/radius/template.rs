//! The load: requests of an access server, and replies verified as one verifies them.
//!
//! ```text
//! Access-Request       id = low 8 bits of seq | authenticator of (run, flow, seq) | Message-Authenticator | Proxy-State |
//!                      User-Name | User-Password or CHAP-Password | NAS-Identifier
//! Accounting-Request   id | digest | Proxy-State | User-Name | Acct-Status-Type | Acct-Session-Id | NAS-Identifier
//! Proxy-State          mark of the run 4 | flow 4 | seq 8      servers return it unchanged (RFC 2865, 5.33)
//! ```
//! So a reply names its transaction, the transaction gives the request, and the request's authenticator verifies the
//! reply, without a record of what was sent.

mod config;
mod in_kernel;

use std::sync::Arc;

use udpath_load::result::{self as load, LoadResult};
use udpath_load::template::{InKernel, Judgement, Protocol, Template};

use super::packet::{Code, DIGEST, HEADER, Kind, MAX_LEN, Packet, Writer};
use super::secret::{MAX_PASSWORD, chap};
use super::users::{User, Verdict, padded};
use crate::said::{self, Said};

pub(super) use config::server_for;
pub use config::{Auth, LoadConfig};

/// Payload of a request unless the user chooses another: the longest request of users with names and passwords of up to
/// 40 bytes together. Requests have the length that they need.
pub(super) const DEFAULT_SIZE: usize = 128;
/// Longest request: name and password of the greatest length, and the attributes around them.
const MAX_REQUEST: usize = 512;
/// Name of the access server.
const NAS_IDENTIFIER: &[u8] = b"udpath";
/// Bytes of a Proxy-State.
const PROXY_STATE: usize = 16;
/// Bytes of an Acct-Session-Id.
const SESSION: usize = 16;
/// The answers of a server, by name.
const ANSWERS: [(Code, &str); 4] = [
    (Code::ACCESS_ACCEPT, "Access-Accept"),
    (Code::ACCESS_REJECT, "Access-Reject"),
    (Code::ACCESS_CHALLENGE, "Access-Challenge"),
    (Code::ACCOUNTING_RESPONSE, "Accounting-Response"),
];
/// Acct-Status-Type (RFC 2866, 5.1).
const START: u32 = 1;
const STOP: u32 = 2;

/// RADIUS for a load.
#[derive(Debug, Clone)]
pub struct RadiusLoad {
    run: u64,
    /// Bytes of the longest request.
    longest: usize,
    config: Arc<LoadConfig>,
}

impl RadiusLoad {
    /// Requests of run `run`. Give each run its own number: servers take requests of another run for new ones, and
    /// replies to them count as corrupt, not valid.
    #[must_use]
    pub fn new(run: u64, config: LoadConfig) -> Self {
        let longest = config.users.all().iter().map(|user| config.request_len(user)).max();
        let longest = longest.unwrap_or(HEADER);
        Self { run, longest, config: Arc::new(config) }
    }

    /// A template, which counts for itself.
    fn own(&self) -> RadiusTemplate {
        let (run, longest, config) = (self.run, self.longest, Arc::clone(&self.config));
        RadiusTemplate { run, longest, config, said: Default::default() }
    }
}

impl Protocol for RadiusLoad {
    fn name(&self) -> &'static str {
        "radius"
    }

    fn hint(&self, _result: &LoadResult) -> Option<String> {
        self.config.left_out.clone()
    }

    fn min_size(&self) -> usize {
        self.longest
    }

    fn max_size(&self) -> usize {
        MAX_REQUEST
    }

    fn one_size(&self) -> bool {
        false
    }

    fn ids(&self) -> u64 {
        1 << u8::BITS
    }

    fn in_kernel(&self) -> Option<InKernel> {
        Some(InKernel::Prebuilt(in_kernel::prebuilt(&self.config)))
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(self.own())
    }
}

/// Writes requests and judges replies.
#[derive(Debug, Clone)]
pub struct RadiusTemplate {
    run: u64,
    /// Bytes of the longest request.
    longest: usize,
    config: Arc<LoadConfig>,
    /// Intact replies by their code, in the order of [`ANSWERS`].
    said: [Said; ANSWERS.len()],
}

impl Template for RadiusTemplate {
    fn name(&self) -> &'static str {
        "radius"
    }

    fn min_size(&self) -> usize {
        self.longest
    }

    fn max_reply(&self, _size: usize) -> usize {
        MAX_LEN
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        // It fits: the plan's size is at least that of the longest request.
        self.request(flow, seq, request).map_or(0, |request| request.len())
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        self.judge(flow, reply).unwrap_or(Judgement::Corrupt)
    }

    fn kinds(&self) -> Vec<load::Kind> {
        said::kinds(ANSWERS.map(|(_, name)| name), &self.said)
    }
}

impl RadiusTemplate {
    /// Writes the request of a transaction; `None` if it does not fit.
    fn request<'a>(&self, flow: u32, seq: u64, buffer: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let user = self.user(flow, seq)?;
        if self.config.accounting {
            self.accounting_request(user, flow, seq, buffer)
        } else {
            self.access_request(user, flow, seq, buffer)
        }
    }

    fn access_request<'a>(
        &self,
        user: &User,
        flow: u32,
        seq: u64,
        buffer: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let (secret, authenticator) = (&self.config.secret, self.authenticator(flow, seq));
        let mut request = Writer::new(buffer, Code::ACCESS_REQUEST, seq as u8, &authenticator)?;
        // First, so that nothing that is chosen by others comes before it.
        let at = request.message_authenticator()?;
        request.attribute(Kind::PROXY_STATE, &self.proxy_state(flow, seq))?;
        request.attribute(Kind::USER_NAME, &user.name)?;
        match self.config.auth {
            Auth::Pap => {
                let mut password = [0; MAX_PASSWORD];
                let hidden = password.get_mut(..padded(user.password.len()))?;
                hidden.get_mut(..user.password.len())?.copy_from_slice(&user.password);
                secret.hide(hidden, &authenticator);
                request.attribute(Kind::USER_PASSWORD, hidden)?;
            }
            Auth::Chap => {
                let mut sent = [seq as u8; 1 + DIGEST];
                *sent.last_chunk_mut()? = chap(seq as u8, &user.password, &authenticator);
                request.attribute(Kind::CHAP_PASSWORD, &sent)?;
            }
        }
        request.attribute(Kind::NAS_IDENTIFIER, NAS_IDENTIFIER)?;
        let request = request.finish()?;
        secret.sign(request, &authenticator, at)?;
        Some(request)
    }

    fn accounting_request<'a>(
        &self,
        user: &User,
        flow: u32,
        seq: u64,
        buffer: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let zero = [0; DIGEST];
        let mut request = Writer::new(buffer, Code::ACCOUNTING_REQUEST, seq as u8, &zero)?;
        request.attribute(Kind::PROXY_STATE, &self.proxy_state(flow, seq))?;
        request.attribute(Kind::USER_NAME, &user.name)?;
        let status = if seq.is_multiple_of(2) { START } else { STOP };
        request.attribute(Kind::ACCT_STATUS_TYPE, &status.to_be_bytes())?;
        request.attribute(Kind::ACCT_SESSION_ID, &session(flow, seq / 2))?;
        request.attribute(Kind::NAS_IDENTIFIER, NAS_IDENTIFIER)?;
        let request = request.finish()?;
        self.config.secret.authenticate(request, &zero)?;
        Some(request)
    }

    /// The user of a transaction: each flow takes all in turn, from a place of its own.
    fn user(&self, flow: u32, seq: u64) -> Option<&User> {
        let users = self.config.users.all();
        let place = mix(u64::from(flow)).wrapping_add(seq).checked_rem(users.len() as u64)?;
        users.get(place as usize)
    }

    /// The authenticator of an Access-Request: never the same in two requests, and unlike that of the next.
    fn authenticator(&self, flow: u32, seq: u64) -> [u8; DIGEST] {
        let first = mix(mix(self.run) ^ mix(seq) ^ u64::from(flow));
        let second = mix(first ^ seq.rotate_left(32) ^ u64::from(flow));
        (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
    }

    fn proxy_state(&self, flow: u32, seq: u64) -> [u8; PROXY_STATE] {
        let mark = mix(self.run) as u32;
        (u128::from(mark) << 96 | u128::from(flow) << 64 | u128::from(seq)).to_be_bytes()
    }

    /// Judges a reply that arrived on `flow`; `None`: corrupt.
    fn judge(&self, flow: u32, reply: &[u8]) -> Option<Judgement> {
        let packet = Packet::decode(reply).ok().filter(|packet| packet.bytes().len() == reply.len())?;
        let (of, seq) = self.transaction(&packet)?;
        if packet.identifier() != seq as u8 || !self.is_signed(&packet, of, seq)? {
            return None;
        }
        if of != flow {
            return Some(Judgement::WrongFlow);
        }
        let expected = match self.user(flow, seq)?.verdict {
            _ if self.config.accounting => Code::ACCOUNTING_RESPONSE,
            Verdict::Accept => Code::ACCESS_ACCEPT,
            Verdict::Reject => Code::ACCESS_REJECT,
            Verdict::Challenge { .. } => Code::ACCESS_CHALLENGE,
        };
        let refuses = packet.code() != expected;
        if let Some(at) = ANSWERS.iter().position(|(code, _)| *code == packet.code()) {
            self.said[at].count(refuses);
        }
        Some(if refuses { Judgement::Refused { seq } } else { Judgement::Valid { seq } })
    }

    /// The transaction that the reply's only Proxy-State names.
    fn transaction(&self, packet: &Packet<'_>) -> Option<(u32, u64)> {
        let mut states = packet.attributes().filter(|attribute| attribute.kind == Kind::PROXY_STATE);
        let (state, None) = (states.next()?, states.next()) else { return None };
        let state = u128::from_be_bytes(state.value.try_into().ok()?);
        let (flow, seq) = ((state >> 64) as u32, state as u64);
        (state == u128::from_be_bytes(self.proxy_state(flow, seq))).then_some((flow, seq))
    }

    /// Whether a reply has the signatures of the server for this transaction. The Message-Authenticator must be right,
    /// but need not be there: many servers know nothing of Blast-RADIUS yet. `None`: it cannot be a reply to it.
    fn is_signed(&self, packet: &Packet<'_>, flow: u32, seq: u64) -> Option<bool> {
        let secret = &self.config.secret;
        let authenticator = match packet.code() {
            Code::ACCOUNTING_RESPONSE if self.config.accounting => {
                // A digest over the request.
                let mut buffer = [0; MAX_REQUEST];
                let request = self.request(flow, seq, &mut buffer)?;
                *Packet::decode(request).ok()?.authenticator()
            }
            Code::ACCESS_ACCEPT | Code::ACCESS_REJECT | Code::ACCESS_CHALLENGE if !self.config.accounting => {
                self.authenticator(flow, seq)
            }
            _ => return None,
        };
        let signatures =
            packet.attributes().filter(|attribute| attribute.kind == Kind::MESSAGE_AUTHENTICATOR);
        let mut signed = secret.has_authenticated(packet.bytes(), &authenticator);
        // At most one attribute can be right: of two, each is computed with 0 in its own place only.
        for signature in signatures {
            signed = signed && secret.has_signed(packet.bytes(), &authenticator, signature.at);
        }
        Some(signed)
    }
}

/// A name for a session: hexadecimal digits of its number within the flow, and of the flow.
fn session(flow: u32, number: u64) -> [u8; SESSION] {
    let number = u64::from(flow) << 40 | number & ((1 << 40) - 1);
    std::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize % 16])
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection: neighbouring numbers give unlike ones.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
