//! One row per protocol: all that `serve`, `load` and `boost` need to know of it.

use std::path::PathBuf;

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};
use udpath_load::template::Protocol;
use udpath_serve::{Config, Error, Server};

use crate::{OptionError, OptionSpec, Options, PROTOCOLS};

/// A row of [`PROTOCOLS`].
#[derive(Debug)]
pub struct ProtocolEntry {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// What its server does, in one line of help, without a full stop. Without a server of its own: what its load does.
    pub summary: &'static str,
    /// Transports that its server and its load support.
    pub transports: &'static [Transport],
    /// Modes of a load; the first is the default. With [`Mode::Rr`] the server answers requests.
    pub modes: &'static [Mode],
    /// Engines that can send its requests and judge its replies.
    pub engines: &'static [Engine],
    /// Payload of a request in bytes, unless the user chooses another.
    pub size: usize,
    /// Options that it adds to `serve`, and to `load`.
    pub serve_options: &'static [OptionSpec],
    /// See `serve_options`.
    pub load_options: &'static [OptionSpec],
    /// Starts a server of it; also over TCP if asked. Ask only for what `transports` has. None: there is only a load.
    pub start: Option<Start>,
    /// The options of a server made for a load with these options, so that its replies are valid.
    pub server_for: fn(load: &Options) -> Result<Vec<ServerOption>, OptionError>,
    /// Makes its side of a load. Each run has its own number: replies left over from another run are corrupt, not
    /// valid.
    pub load: fn(run: u64, options: &Options) -> Load,
}

/// Starts a protocol's server.
pub type Start = fn(config: &Config, tcp: bool, options: &Options) -> Result<Server, StartError>;

/// An option of a server that is made for a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOption {
    /// The option.
    pub spec: &'static OptionSpec,
    /// Its value.
    pub value: ServerValue,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerValue {
    /// This text.
    Text(&'static str),
    /// A file that exists.
    FileAt(PathBuf),
    /// A file that the caller writes, with this text.
    FileWith(String),
}

/// For protocols whose servers answer any load.
pub(crate) fn any_server(_load: &Options) -> Result<Vec<ServerOption>, OptionError> {
    Ok(Vec::new())
}

/// A protocol's side of a load, or its invalid option.
pub type Load = Result<Box<dyn Protocol>, OptionError>;

/// Why a protocol's server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An invalid option of the protocol.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The runtime's error.
    #[error(transparent)]
    Server(#[from] Error),
}

/// The protocol of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ProtocolEntry> {
    PROTOCOLS.iter().copied().find(|protocol| protocol.name == name)
}

/// The protocols that can be served.
pub fn with_server() -> impl Iterator<Item = &'static ProtocolEntry> {
    PROTOCOLS.iter().copied().filter(|protocol| protocol.start.is_some())
}

/// The protocols whose load supports `mode`.
pub fn with_mode(mode: Mode) -> impl Iterator<Item = &'static ProtocolEntry> {
    PROTOCOLS.iter().copied().filter(move |protocol| protocol.modes.contains(&mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The load of a row without options; none if it needs one.
    fn load(row: &ProtocolEntry) -> Option<Box<dyn Protocol>> {
        match (row.load)(7, &Options::default()) {
            Ok(load) => Some(load),
            Err(OptionError::Missing { .. }) => None,
            Err(error) => panic!("{}: {error}", row.name),
        }
    }

    #[test]
    fn rows_are_complete_and_names_unique() {
        for (index, row) in PROTOCOLS.iter().enumerate() {
            assert!(PROTOCOLS[..index].iter().all(|other| other.name != row.name), "{} twice", row.name);
            assert!(!row.summary.is_empty() && !row.summary.ends_with('.'), "{}", row.name);
            assert!(!row.modes.is_empty() && row.transports.contains(&Transport::Udp), "{}", row.name);
            assert!(row.engines.contains(&Engine::Socket), "{}", row.name);
            assert!(row.start.is_some() || row.serve_options.is_empty(), "{}", row.name);
            if let Some(load) = load(row) {
                assert!((load.min_size()..=load.max_size()).contains(&row.size), "{}", row.name);
                let kernel = row.engines.contains(&Engine::Kernel);
                assert_eq!(load.in_kernel().is_some(), kernel, "{}", row.name);
            }
            assert!(std::ptr::eq(find(row.name).unwrap(), *row));
        }
        assert!(find("").is_none());
    }

    /// Protocols share the program's options: one name has one meaning of its value.
    #[test]
    fn options_are_complete_and_names_agree() {
        for of in [|row: &ProtocolEntry| row.serve_options, |row: &ProtocolEntry| row.load_options] {
            let all: Vec<&OptionSpec> = PROTOCOLS.iter().flat_map(|row| of(row)).collect();
            for option in &all {
                assert!(!option.name.is_empty() && !option.help.is_empty(), "{option:?}");
                assert!(!option.name.starts_with('-') && !option.help.ends_with('.'), "{option:?}");
                let same = all.iter().filter(|other| other.name == option.name);
                for other in same {
                    assert_eq!((other.value, other.repeatable), (option.value, option.repeatable));
                }
            }
        }
    }

    /// The load names its protocol in results: the name that the user typed.
    #[test]
    fn both_sides_have_the_name_of_the_row() {
        for (row, load) in PROTOCOLS.iter().filter_map(|row| Some((row, load(row)?))) {
            assert_eq!((load.name(), load.template().name()), (row.name, row.name));
            assert_eq!(load.min_size(), load.template().min_size(), "{}", row.name);
        }
    }

    /// A server of every row starts over each of its transports and answers, or not, as its modes say.
    #[test]
    fn every_server_starts_over_every_transport() {
        let none = Options::default();
        assert!(with_server().count() > 0);
        for (row, start) in PROTOCOLS.iter().filter_map(|row| Some((row, row.start?))) {
            for tcp in row.transports.iter().map(|transport| *transport == Transport::Tcp) {
                let mut config = Config::new(["127.0.0.1:0".parse().unwrap()]);
                config.workers = Some(1);
                let server =
                    start(&config, tcp, &none).unwrap_or_else(|error| panic!("{}: {error}", row.name));
                let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                let mut request = vec![0; row.size];
                (row.load)(1, &none).unwrap().template().write(0, 0, &mut request);
                client.send_to(&request, server.binds()[0]).unwrap();
                let status = loop {
                    let status = server.status();
                    if status.total.received > 0 {
                        break server.stop().unwrap();
                    }
                    std::thread::sleep(std::time::Duration::from_millis(5));
                };
                assert_eq!(status.total.answered > 0, row.modes.contains(&Mode::Rr), "{}", row.name);
                assert_eq!(status.tcp.is_some(), tcp, "{}", row.name);
            }
        }
    }
}
