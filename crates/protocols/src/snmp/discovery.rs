//! Learning an agent's engine before the run (RFC 3414, 4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::MAX_MESSAGE;
use super::engine::{AgentEngine, ENGINE_ID_LENS};
use super::message::{Level, Message, NotAuthentic, Sender};
use super::pdu::{self, Composed, REPORT};
use super::usm::{Keys, User};

/// Questions asked in each step, within its part of the timeout: one or its answer may be lost.
const TRIES: u32 = 4;
/// Steps of a discovery.
const STEPS: u32 = 3;

/// Why an agent cannot be asked in version 3.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error("cannot open a socket to {target}: {cause}")]
    Socket { target: SocketAddr, cause: std::io::Error },
    #[error(
        "{target} did not answer in SNMP version 3 within {timeout:?}: check that an agent is running there and reachable"
    )]
    Silent { target: SocketAddr, timeout: Duration },
    #[error("{target} has an engine ID of {len} bytes: expected {} to {}", ENGINE_ID_LENS.start(), ENGINE_ID_LENS.end())]
    EngineId { target: SocketAddr, len: usize },
    #[error("{target} refuses user {user}: {why}")]
    Refused { target: SocketAddr, user: String, why: &'static str },
    #[error("{target} answers user {user} with another key: check the password and the hash of --auth")]
    OtherKey { target: SocketAddr, user: String },
}

/// What an agent answered.
struct Answer {
    engine_id: Box<[u8]>,
    boots: u32,
    time: u32,
    /// Whether it has the code of the user's key.
    authentic: bool,
    /// Its complaint, if it is a Report: the number of the counter in usmStats.
    complaint: Option<u8>,
}

/// Complaints, by their counters in usmStats (RFC 3414, 5).
const UNSUPPORTED_LEVEL: u8 = 1;
const NOT_IN_TIME_WINDOW: u8 = 2;
const UNKNOWN_USER: u8 = 3;
const WRONG_DIGEST: u8 = 5;
const DECRYPTION_ERROR: u8 = 6;
/// 1.3.6.1.6.3.15.1.1: usmStats. After it come the counter's number and 0.
const USM_STATS: [u8; 8] = [0x2b, 6, 1, 6, 3, 15, 1, 1];

/// Why an agent does not answer what is encrypted, in all likelihood.
const UNDECIPHERED: &str =
    "it does not answer what --priv encrypts, so the password of --priv is probably wrong";

/// Asks the agent at `target`, from a socket of its own in the calling thread's network namespace.
pub(super) fn discover(
    target: SocketAddr,
    source: Option<IpAddr>,
    user: &User,
    question: &Composed,
    timeout: Duration,
) -> Result<AgentEngine, DiscoveryError> {
    let any = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let open = || {
        let socket = UdpSocket::bind((source.unwrap_or(any), 0))?;
        socket.connect(target)?;
        socket.set_read_timeout(Some((timeout / (STEPS * TRIES)).max(Duration::from_millis(1))))?;
        Ok::<_, std::io::Error>(socket)
    };
    let socket = open().map_err(|cause| DiscoveryError::Socket { target, cause })?;
    let silent = DiscoveryError::Silent { target, timeout };
    let name = user.name.as_bytes();
    let ask =
        |user, engine: &AgentEngine, level, id| ask(&socket, &Sender { user, engine, level }, question, id);
    let refused = |why| DiscoveryError::Refused { target, user: user.name.clone(), why };
    let other_key = |NotAuthentic| DiscoveryError::OtherKey { target, user: user.name.clone() };

    // Who is it?
    let Ok(Some(answer)) = ask(&[], &AgentEngine::unknown(), Level::Plain, 1) else { return Err(silent) };
    if !ENGINE_ID_LENS.contains(&answer.engine_id.len()) {
        return Err(DiscoveryError::EngineId { target, len: answer.engine_id.len() });
    }
    let mut engine = AgentEngine::new(&answer.engine_id, answer.boots, answer.time, user);
    // What is its time? Only an authenticated answer is to be believed; this one's clock says 0, so that it complains.
    if engine.keys().is_some() {
        let stopped = engine.with_clock(0, 0);
        let Some(answer) = ask(name, &stopped, Level::Authentic, 2).map_err(other_key)? else {
            return Err(silent);
        };
        if let Some(complaint) = answer.complaint.filter(|complaint| *complaint != NOT_IN_TIME_WINDOW) {
            return Err(refused(reason(complaint)));
        }
        if !answer.authentic {
            return Err(other_key(NotAuthentic));
        }
        engine = engine.with_clock(answer.boots, answer.time);
    }
    // Does it answer this user?
    match ask(name, &engine, Level::Full, 3).map_err(other_key)? {
        // It has just answered what was not encrypted, if there are keys; net-snmp drops what it cannot decrypt.
        None if engine.keys().is_some_and(Keys::is_private) => Err(refused(UNDECIPHERED)),
        None => Err(silent),
        Some(Answer { complaint: Some(complaint), .. }) => Err(refused(reason(complaint))),
        Some(_) => Ok(engine),
    }
}

/// Asks until an answer with `id` arrives. None: there was none. The error: none was authentic.
fn ask(
    socket: &UdpSocket,
    sender: &Sender<'_>,
    question: &Composed,
    id: u32,
) -> Result<Option<Answer>, NotAuthentic> {
    // Like those of a run: four bytes.
    let id = 1 << 30 | id;
    let (mut request, mut reply) = ([0; MAX_MESSAGE], [0; MAX_MESSAGE]);
    let mut answered = Ok(None);
    for attempt in 0..TRIES {
        let salt = [0xff, 0, 0, id as u8, 0, 0, 0, attempt as u8];
        let Some(len) = sender.write(question, id, sender.engine.time(), salt, &mut request) else { break };
        // Either call may report "port unreachable"; the next try asks again.
        let Ok(len) = socket.send(&request[..len]).and_then(|_| socket.recv(&mut reply)) else { continue };
        let Some(message) = Message::read(&reply[..len]).filter(|message| message.id == id) else { continue };
        let keys = sender.engine.keys();
        let mut plain = [0; MAX_MESSAGE];
        match message.open(keys, &mut plain) {
            Err(NotAuthentic) => answered = Err(NotAuthentic),
            Ok(None) => {}
            Ok(Some(pdu)) => {
                let complaint = (pdu.tag == REPORT).then(|| complaint(&pdu));
                return Ok(Some(Answer {
                    engine_id: message.engine_id.into(),
                    boots: message.boots,
                    time: message.time,
                    authentic: !message.is_plain(),
                    complaint,
                }));
            }
        }
    }
    answered
}

/// The number of a Report's counter in usmStats; 0 for another one.
pub(super) fn complaint(report: &pdu::Pdu<'_>) -> u8 {
    match pdu::counter(report).and_then(|oid| oid.strip_prefix(&USM_STATS)) {
        Some([number @ UNSUPPORTED_LEVEL..=DECRYPTION_ERROR, 0]) => *number,
        _ => 0,
    }
}

fn reason(complaint: u8) -> &'static str {
    match complaint {
        UNSUPPORTED_LEVEL => "it does not allow this user what --auth and --priv ask for",
        NOT_IN_TIME_WINDOW => "its clock does not run like this one",
        UNKNOWN_USER => "it does not know this name",
        WRONG_DIGEST => "the password or the hash of --auth is wrong",
        DECRYPTION_ERROR => "the password of --priv is wrong",
        _ => "it reports an error of no counter in usmStats",
    }
}
