//! The server: over UDP one reply per query from the index, over TCP the same for messages with their length in front
//! (RFC 7766).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use udpath_serve::{
    Config, Current, DropReason, Error, Outcome, ReloadHook, Reply, Request, Server, Service, StreamService,
    View, WarningsHook,
};

use super::answer::Response;
use super::cookie::Cookie;
use super::limit::{DEFAULT_RATE, Kind, MAX_RATE, ResponseLimit, Verdict};
use super::rejected::reject;
use super::reload::{self, Data, LoadError, Sources};
use super::wire::{Query, QueryError};
use super::zone::Faults;
use super::{COOKIE_SECRET, RESPONSES_PER_SECOND, STRICT, VERSION_TEXT, ZONE};
use crate::{OptionError, Options};

/// What `version.bind` says unless the user chooses another text. Not the version's number, which is of use to
/// attackers only.
const DEFAULT_VERSION: &str = "udpath";
/// Longest text of one string in a TXT record (RFC 1035, 3.3).
const MAX_TEXT: usize = 255;
/// How long a TCP connection may be silent. Shorter: clients that ask again must connect again; longer: idle clients
/// keep others out sooner (RFC 7766, 6.2.3 asks for a few seconds).
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server serves, and how.
#[derive(Debug, Clone)]
pub struct DnsConfig {
    /// Master files, one zone each.
    pub zones: Vec<PathBuf>,
    /// Whether a fault in a zone's file keeps everything from being loaded; else what is wrong is left out.
    pub strict: bool,
    /// How often a network gets the same answer over UDP, per second, 1 to 1,000; `None`: no limit. 200 by default.
    pub responses_per_second: Option<u32>,
    /// What `version.bind` says, at most 255 bytes.
    pub version: String,
    /// File with the secrets of cookies; `None`: a random secret.
    pub cookie_secret: Option<PathBuf>,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            zones: Vec::new(),
            strict: false,
            responses_per_second: Some(DEFAULT_RATE),
            version: DEFAULT_VERSION.into(),
            cookie_secret: None,
        }
    }
}

impl DnsConfig {
    /// From the options of `udpath serve dns`.
    pub(super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        let in_range = |rate: &Rate| rate.0.is_none_or(|rate| (1..=MAX_RATE).contains(&rate));
        let rate = options.parsed(
            &RESPONSES_PER_SECOND,
            format_args!("1 to {MAX_RATE}, or {NO_LIMIT}"),
            in_range,
        )?;
        let fits = |text: &String| text.len() <= MAX_TEXT;
        let version = options.parsed(&VERSION_TEXT, format_args!("at most {MAX_TEXT} bytes"), fits)?;
        Ok(Self {
            zones: options.paths(&ZONE).collect(),
            strict: options.has(&STRICT),
            responses_per_second: rate.unwrap_or(Rate(Some(DEFAULT_RATE))).0,
            version: version.unwrap_or_else(|| DEFAULT_VERSION.into()),
            cookie_secret: options.paths(&COOKIE_SECRET).last(),
        })
    }

    fn sources(&self) -> Sources {
        Sources { zones: self.zones.clone(), secrets: self.cookie_secret.clone(), strict: self.strict }
    }
}

/// The value of `--responses-per-second` without a limit.
pub(super) const NO_LIMIT: &str = "off";

/// Replies per second, or no limit.
struct Rate(Option<u32>);

impl FromStr for Rate {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == NO_LIMIT { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

/// Answers queries over UDP. Each worker has its own view of the shared data.
///
/// ```
/// use udpath_protocols::dns::{Dns, DnsConfig};
/// use udpath_serve::{Outcome, serve_once};
///
/// let mut dns = Dns::load(&DnsConfig::default())?;
/// let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x00\x00\x01\x00\x01";
/// let (peer, local) = ("192.0.2.1:1000".parse()?, "192.0.2.2:53".parse()?);
/// let (outcome, reply) = serve_once(&mut dns, query, peer, local);
/// // Without zones: REFUSED.
/// assert_eq!((outcome, &reply[..4], reply.len()), (Outcome::Reply, &b"\x12\x34\x81\x05"[..], query.len()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dns {
    view: View<Data>,
    settings: Arc<Settings>,
}

/// What stays as long as the server runs.
#[derive(Debug)]
struct Settings {
    limit: Option<ResponseLimit>,
    /// Data of the TXT record of `version.bind`.
    version: Vec<u8>,
}

impl Dns {
    /// Loads the files; clones of it answer from the same data.
    ///
    /// # Errors
    /// A zone's file with a fault, if the configuration is strict or no zone is left; a file of secrets that cannot be
    /// read or is wrong.
    pub fn load(config: &DnsConfig) -> Result<Self, LoadError> {
        let current = Current::new(reload::load(&config.sources())?);
        let limit = config.responses_per_second.and_then(|rate| ResponseLimit::new(rate).ok());
        let text = &config.version.as_bytes()[..config.version.len().min(MAX_TEXT)];
        let version = [&[text.len() as u8], text].concat();
        Ok(Self { view: View::new(&current), settings: Arc::new(Settings { limit, version }) })
    }
}

impl Service for Dns {
    #[inline]
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let Self { view, settings } = self;
        let limited = |kind, id| match &settings.limit {
            Some(limit) => limit.admit(request.peer().ip(), kind, id, request.received()),
            None => Verdict::Reply,
        };
        let message = request.payload();
        let written = match Query::parse(message) {
            Ok(query) => {
                let data = view.get();
                let response = Response::to(&query, &data.index, &settings.version);
                let cookie =
                    cookie_of(&query, data, || (request.peer().ip(), request.arrived().as_secs() as u32));
                let proven = cookie.is_some_and(|cookie| cookie.proven);
                let verdict = if proven { Verdict::Reply } else { limited(response.kind(), response.id()) };
                if verdict == Verdict::Nothing {
                    return Outcome::Drop(DropReason::Refused);
                }
                let len = query.udp_limit().min(reply.capacity());
                let out = &mut reply.buffer_mut()[..len];
                response.write(&query, out, cookie.as_ref(), verdict == Verdict::Truncated)
            }
            Err(QueryError::Unanswerable) => return Outcome::Drop(DropReason::Malformed),
            Err(QueryError::Rejected(_)) if limited(Kind::Error, 0) != Verdict::Reply => {
                return Outcome::Drop(DropReason::Refused);
            }
            Err(QueryError::Rejected(rcode)) => reject(message, rcode, reply.buffer_mut()),
        };
        match written {
            Some(len) => reply.set_len(len),
            None => Outcome::Drop(DropReason::ReplyTooLarge),
        }
    }
}

/// Answers queries over TCP. Takes the newest data for each: a connection costs far more than the lock.
#[derive(Debug)]
struct DnsStream {
    current: Arc<Current<Data>>,
    settings: Arc<Settings>,
}

/// Bytes of a message's length.
const LENGTH: usize = 2;

impl StreamService for DnsStream {
    fn serve(&mut self, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
        self.serve_from((Ipv4Addr::UNSPECIFIED, 0).into(), input, reply)
    }

    fn serve_from(&mut self, peer: SocketAddr, input: &[u8], reply: &mut Reply<'_>) -> Outcome {
        let message = input.get(LENGTH..).unwrap_or_default();
        let longest = reply.capacity().min(LENGTH + usize::from(u16::MAX));
        let Some((length, out)) = reply.buffer_mut()[..longest].split_first_chunk_mut::<LENGTH>() else {
            return Outcome::Drop(DropReason::ReplyTooLarge);
        };
        let written = match Query::parse(message) {
            Ok(query) => {
                let data = self.current.latest();
                let response = Response::to(&query, &data.index, &self.settings.version);
                let cookie = cookie_of(&query, &data, || (peer.ip(), seconds_now()));
                response.write(&query, out, cookie.as_ref(), false)
            }
            Err(QueryError::Unanswerable) => return Outcome::Drop(DropReason::Malformed),
            Err(QueryError::Rejected(rcode)) => reject(message, rcode, out),
        };
        let Some(len) = written else { return Outcome::Drop(DropReason::ReplyTooLarge) };
        // At most `longest`, so it is not cut.
        *length = (len as u16).to_be_bytes();
        reply.set_len(LENGTH + len)
    }

    fn message_len(&self, input: &[u8]) -> Option<usize> {
        let length = input.first_chunk::<LENGTH>()?;
        let len = LENGTH + usize::from(u16::from_be_bytes(*length));
        (len <= input.len()).then_some(len)
    }

    fn idle_timeout(&self) -> Option<Duration> {
        Some(IDLE_TIMEOUT)
    }
}

/// The cookie for the reply, if the client has one. `client`: its address and the time, asked for only then.
#[inline]
fn cookie_of(query: &Query<'_>, data: &Data, client: impl FnOnce() -> (IpAddr, u32)) -> Option<Cookie> {
    let asked = query.edns?.cookie?;
    let (address, now) = client();
    data.secrets.reply(asked, address, now)
}

/// Seconds since the Unix epoch, of which cookies have the lower 32 bits.
fn seconds_now() -> u32 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

/// Starts a server of `dns`; with `tcp`, also over TCP. It reloads the files of `config` when asked to.
///
/// # Errors
/// Those of [`Server::start`].
pub fn start(config: &Config, tcp: bool, dns: Dns, files: &DnsConfig) -> Result<Server, Error> {
    // A cookie in a reply proves that whoever sends it back owns the address.
    let config = &config.with_private_replies();
    let current = Arc::clone(dns.view.current());
    let (settings, loaded) = (Arc::clone(&dns.settings), Arc::clone(&current));
    let server = if tcp {
        let shared = Arc::clone(&current);
        let stream = move |_| DnsStream { current: Arc::clone(&shared), settings: Arc::clone(&settings) };
        Server::start_with_tcp(config, move |_| dns.clone(), stream)?
    } else {
        Server::start(config, move |_| dns.clone())?
    };
    let sources = files.sources();
    let hook: ReloadHook = Arc::new(move || {
        let data = reload::reload(&current, &sources)?;
        let index = &data.index;
        Ok(format!("zones {}, names {}, memory {} KiB", index.zones(), index.names(), index.bytes() / 1024))
    });
    let warnings: WarningsHook = Arc::new(move || left_out(&loaded.latest().faults));
    Ok(server.with_warnings(warnings).with_reload(hook))
}

/// What is wrong and what is left out for it, in words; nothing if nothing is.
fn left_out(faults: &Faults) -> Vec<String> {
    if faults.is_empty() {
        return Vec::new();
    }
    let first = match faults.left_out() {
        Some(count) => format!("left out: {count}"),
        None => "loaded with faults".to_owned(),
    };
    let mut lines = vec![format!("{first} (with --strict, this is an error)")];
    lines.extend(faults.lines());
    lines
}

#[cfg(test)]
mod tests;
