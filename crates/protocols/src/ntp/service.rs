//! The server: one reply of 48 bytes per request, from the state of the kernel's clock.

use std::sync::Arc;
use std::time::Duration;

use udpath_serve::{
    Admission, ClientLimit, Config, DropReason, Error, Outcome, Reply, Request, Server, Service,
};

use super::clock::{self, ClockState, ClockStatus};
use super::packet::{ALARM, Header, PacketError, Query, ReferenceId, SERVER, Timestamp};
use super::{LOCAL, RATE_BURST, RATE_LIMIT, STRATUM};
use crate::{OptionError, Options};

/// What the server announces, and to whom.
#[derive(Debug, Clone)]
pub struct NtpConfig {
    /// Stratum of a synchronized clock, 1 to 15: the kernel does not know it.
    pub stratum: u8,
    /// Whether the clock is announced as synchronized even if the kernel says that it is not.
    pub local: bool,
    /// The rate of each client; `None`: no limit.
    pub limit: Option<RateLimit>,
}

/// A limit that all workers share.
#[derive(Debug, Clone)]
pub struct RateLimit {
    clients: Arc<ClientLimit>,
    /// Log2 of the interval in seconds, rounded up: the poll interval that a kiss-o'-death asks for.
    poll: i8,
}

/// Requests answered at once, unless the user chooses another number: what chronyd sends with `iburst`, twice.
const DEFAULT_BURST: u32 = 8;
/// Stratum unless the user chooses another. Lower: clients prefer this clock to a better one. 10 is chronyd's for local
/// clocks.
const DEFAULT_STRATUM: u8 = 10;
/// Longest interval between requests of a client, seconds: 2^17, the longest poll interval (RFC 5905, 7.2).
const MAX_INTERVAL: u32 = 1 << 17;
/// Most requests of a client at once. More is hardly a limit.
const MAX_BURST: u32 = 1000;

impl Default for NtpConfig {
    fn default() -> Self {
        Self { stratum: DEFAULT_STRATUM, local: false, limit: None }
    }
}

impl RateLimit {
    /// One request per `seconds` and client on average, `burst` at once.
    ///
    /// # Errors
    /// Values that [`ClientLimit`] does not support.
    pub fn new(seconds: u32, burst: u32) -> Result<Self, udpath_serve::LimitError> {
        let clients = ClientLimit::new(Duration::from_secs(seconds.into()), burst)?;
        Ok(Self { clients: Arc::new(clients), poll: seconds.next_power_of_two().ilog2() as i8 })
    }
}

impl NtpConfig {
    /// From the options of `udpath serve ntp`.
    pub(super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        let stratum = options.parsed(&STRATUM, "1 to 15", |stratum| (1..=15).contains(stratum))?;
        let interval =
            options.parsed(&RATE_LIMIT, format_args!("1 to {MAX_INTERVAL} seconds"), |seconds| {
                (1..=MAX_INTERVAL).contains(seconds)
            })?;
        let burst = options
            .parsed(&RATE_BURST, format_args!("1 to {MAX_BURST}"), |burst| (1..=MAX_BURST).contains(burst))?;
        let limit = match (interval, burst) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err(OptionError::Needs { option: RATE_BURST.name, other: RATE_LIMIT.name });
            }
            (Some(seconds), burst) => {
                let limit = RateLimit::new(seconds, burst.unwrap_or(DEFAULT_BURST));
                Some(limit.map_err(|error| OptionError::Invalid {
                    option: RATE_LIMIT.name,
                    value: seconds.to_string(),
                    reason: error.to_string(),
                })?)
            }
        };
        Ok(Self { stratum: stratum.unwrap_or(DEFAULT_STRATUM), local: options.has(&LOCAL), limit })
    }
}

/// Answers clients. Each worker has its own copy of the clock's status.
///
/// ```
/// use udpath_protocols::ntp::{Header, Ntp, NtpConfig, Timestamp};
/// use udpath_serve::{Outcome, serve_once};
///
/// let mut ntp = Ntp::new(NtpConfig { local: true, ..NtpConfig::default() });
/// let request = Header { version: 4, mode: 3, transmit: Timestamp(7), ..Header::default() }.encode();
/// let (peer, local) = ("192.0.2.1:1000".parse()?, "192.0.2.2:123".parse()?);
/// let (outcome, reply) = serve_once(&mut ntp, &request, peer, local);
/// let reply = Header::decode(&reply).ok_or("too short")?;
/// assert_eq!((outcome, reply.mode, reply.origin), (Outcome::Reply, 4, Timestamp(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ntp {
    config: NtpConfig,
    clock: ClockState,
    precision: i8,
}

impl Ntp {
    /// The server of one worker.
    #[must_use]
    pub fn new(config: NtpConfig) -> Self {
        Self { config, clock: ClockState::default(), precision: clock::precision() }
    }

    /// The reply to `query`, without the transmit time.
    fn reply(&self, query: Query, arrived: Timestamp, status: ClockStatus, read: Timestamp) -> Header {
        let blank = Header {
            version: query.version,
            mode: SERVER,
            poll: query.poll,
            precision: self.precision,
            origin: query.transmit,
            receive: arrived,
            ..Header::default()
        };
        if status.leap == ALARM && !self.config.local {
            let root_dispersion = status.root_dispersion();
            return Header { leap: ALARM, root_dispersion, reference_id: ReferenceId::INIT, ..blank };
        }
        let decreed = status.leap == ALARM;
        Header {
            leap: if decreed { 0 } else { status.leap },
            stratum: self.config.stratum,
            // By decree, the clock is right: its largest error is not known.
            root_dispersion: if decreed { 0 } else { status.root_dispersion() },
            reference_id: if self.config.stratum == 1 {
                ReferenceId::LOCAL_PRIMARY
            } else {
                ReferenceId::LOCAL
            },
            reference: read,
            ..blank
        }
    }

    /// Kiss-o'-death: the client is to ask no more often than the limit (RFC 5905, 7.4).
    fn kiss(&self, query: Query, arrived: Timestamp, poll: i8) -> Header {
        Header {
            leap: ALARM,
            version: query.version,
            mode: SERVER,
            poll: query.poll.max(poll),
            precision: self.precision,
            reference_id: ReferenceId::RATE,
            origin: query.transmit,
            receive: arrived,
            ..Header::default()
        }
    }
}

impl Service for Ntp {
    #[inline]
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let query = match Query::decode(request.payload()) {
            Ok(query) => query,
            Err(PacketError::Malformed) => return Outcome::Drop(DropReason::Malformed),
            Err(PacketError::NotARequest | PacketError::Authenticated) => {
                return Outcome::Drop(DropReason::Refused);
            }
        };
        let arrived = Timestamp::of(request.arrived());
        let since_boot = request.received();
        let mut header = match &self.config.limit {
            Some(RateLimit { clients, poll }) => match clients.admit(request.peer().ip(), since_boot) {
                // Fewer and fewer of the refused ones: a forged source address is not worth forging.
                Admission::Refused { nth } if nth.is_power_of_two() => self.kiss(query, arrived, *poll),
                Admission::Refused { .. } => return Outcome::Drop(DropReason::Refused),
                Admission::Admitted => {
                    let (status, read) = self.clock.at(since_boot);
                    self.reply(query, arrived, status, read)
                }
            },
            None => {
                let (status, read) = self.clock.at(since_boot);
                self.reply(query, arrived, status, read)
            }
        };
        header.transmit = Timestamp::of(clock::now());
        reply.write(&header.encode())
    }
}

/// Starts an NTP server with the kernel's receive time stamps.
///
/// # Errors
/// Those of [`Server::start`].
pub fn start(config: &Config, ntp: NtpConfig) -> Result<Server, Error> {
    let config = Config { timestamps: true, ..config.clone() };
    Server::start(&config, move |_| Ntp::new(ntp.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use udpath_serve::serve_once;

    fn ask(ntp: &mut Ntp, request: &[u8], peer: &str) -> (Outcome, Vec<u8>) {
        serve_once(ntp, request, peer.parse().unwrap(), "192.0.2.2:123".parse().unwrap())
    }

    fn request(version: u8) -> [u8; 48] {
        Header { version, mode: 3, poll: 4, transmit: Timestamp(0x1234), ..Header::default() }.encode()
    }

    fn local() -> NtpConfig {
        NtpConfig { local: true, ..NtpConfig::default() }
    }

    #[test]
    fn a_reply_has_the_clients_version_poll_and_origin() {
        for version in 1..=4 {
            let (outcome, reply) = ask(&mut Ntp::new(local()), &request(version), "192.0.2.1:1000");
            assert_eq!((outcome, reply.len()), (Outcome::Reply, 48));
            let reply = Header::decode(&reply).unwrap();
            assert_eq!((reply.version, reply.mode, reply.poll), (version, 4, 4));
            assert_eq!((reply.origin, reply.stratum), (Timestamp(0x1234), 10));
            assert!(reply.leap < 3 && reply.reference_id == ReferenceId::LOCAL);
            let waited = reply.transmit.seconds_since(reply.receive);
            assert!((0.0..60.0).contains(&waited), "{waited}");
            assert!(reply.receive.seconds_since(reply.reference).abs() < 60.0);
        }
    }

    #[test]
    fn the_state_of_the_clock_is_announced() {
        let query = Query { version: 4, poll: 6, transmit: Timestamp(9) };
        let ntp = |config| Ntp::new(config);
        let status = |leap| ClockStatus { leap, max_error: Duration::from_millis(250) };
        let of = |config, leap| ntp(config).reply(query, Timestamp(1), status(leap), Timestamp(2));
        for leap in 0..=2 {
            for config in [local(), NtpConfig::default()] {
                let reply = of(config, leap);
                assert_eq!((reply.leap, reply.stratum, reply.root_delay), (leap, 10, 0));
                assert_eq!((reply.root_dispersion, reply.reference), (16_384, Timestamp(2)));
            }
        }
        let unset = of(NtpConfig::default(), 3);
        assert_eq!((unset.leap, unset.stratum, unset.reference_id), (3, 0, ReferenceId::INIT));
        assert_eq!(unset.root_dispersion, 16_384);
        let decreed = of(local(), 3);
        assert_eq!((decreed.leap, decreed.stratum, decreed.root_dispersion), (0, 10, 0));
        let primary = of(NtpConfig { stratum: 1, ..local() }, 3);
        assert_eq!((primary.stratum, primary.reference_id), (1, ReferenceId::LOCAL_PRIMARY));
    }

    #[test]
    fn other_modes_and_broken_packets_are_dropped_by_reason() {
        let mut ntp = Ntp::new(local());
        for mode in [0, 1, 2, 4, 5, 6, 7] {
            let mut other = request(4);
            other[0] = 4 << 3 | mode;
            let (outcome, reply) = ask(&mut ntp, &other, "192.0.2.1:123");
            assert_eq!((outcome, reply.len()), (Outcome::Drop(DropReason::Refused), 0), "mode {mode}");
        }
        let broken = &request(4)[..40];
        assert_eq!(ask(&mut ntp, broken, "192.0.2.1:123").0, Outcome::Drop(DropReason::Malformed));
    }

    #[test]
    fn a_client_over_its_rate_gets_few_kisses() {
        let mut ntp = Ntp::new(NtpConfig { limit: Some(RateLimit::new(1000, 2).unwrap()), ..local() });
        let replies: Vec<_> = (0..1002)
            .filter_map(|_| match ask(&mut ntp, &request(4), "192.0.2.1:1000") {
                (Outcome::Reply, reply) => Header::decode(&reply),
                (outcome, _) => {
                    assert_eq!(outcome, Outcome::Drop(DropReason::Refused));
                    None
                }
            })
            .collect();
        let (kisses, answers): (Vec<Header>, Vec<Header>) =
            replies.into_iter().partition(|reply| reply.stratum == 0);
        assert_eq!(answers.len(), 2);
        // The 1st, 2nd, 4th, ... 128th refused, and then every 128th of 1,000.
        assert_eq!(kisses.len(), 8 + 6);
        for kiss in kisses {
            assert_eq!((kiss.leap, kiss.reference_id, kiss.poll), (3, ReferenceId::RATE, 10));
            assert_eq!(kiss.origin, Timestamp(0x1234));
        }
        assert_eq!(ask(&mut ntp, &request(4), "192.0.2.7:1000").0, Outcome::Reply, "another client");
    }

    #[test]
    fn options_have_ranges() {
        let options = |given: &[(crate::OptionSpec, &str)]| {
            let mut options = Options::default();
            given.iter().for_each(|(spec, value)| options.push(spec, *value));
            NtpConfig::from_options(&options)
        };
        let given = options(&[(STRATUM, "3"), (LOCAL, ""), (RATE_LIMIT, "9"), (RATE_BURST, "4")]).unwrap();
        assert_eq!((given.stratum, given.local, given.limit.unwrap().poll), (3, true, 4));
        assert!(options(&[]).unwrap().limit.is_none());
        options(&[(RATE_LIMIT, "131072")]).unwrap();
        for (spec, wrong) in [
            (STRATUM, "0"),
            (STRATUM, "16"),
            (STRATUM, "one"),
            (RATE_LIMIT, "0"),
            (RATE_LIMIT, "131073"),
            (RATE_LIMIT, "1.5"),
        ] {
            let error = options(&[(spec, wrong)]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("invalid --{} {wrong}: expected 1 to ", spec.name)),
                "{error}"
            );
        }
        let error = options(&[(RATE_BURST, "4")]).unwrap_err();
        assert_eq!(error.to_string(), "--rate-burst needs --rate-limit");
    }
}
