//! Answers UDP from the driver: the cheapest possible servers.

use aya::EbpfLoader;

use udpath_bpf::Error;
use udpath_bpf::attach::{self, Attached};

/// The compiled programs, aligned for the ELF reader.
const ECHO: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/answer.o"));
const DNS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/answer_dns.o"));
const NTP: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/answer_ntp.o"));

/// An XDP program that answers every plain UDP frame for one port, attached until dropped.
///
/// Measured against it, a generator's figures include almost no server time.
#[derive(Debug)]
pub struct Answer {
    _attached: Attached,
}

impl Answer {
    /// Sends frames for `port` straight back: attaches to `interface` in the calling thread's network namespace.
    ///
    /// # Errors
    /// No such interface, no native XDP, another program attached, or no permission.
    pub fn attach(interface: &str, port: u16) -> Result<Self, Error> {
        Self::with("answer", ECHO, interface, port)
    }

    /// Returns DNS queries over IPv4 as responses without an answer, like [`Answer::attach`].
    ///
    /// # Errors
    /// Those of [`Answer::attach`].
    pub fn attach_dns(interface: &str, port: u16) -> Result<Self, Error> {
        Self::with("answer_dns", DNS, interface, port)
    }

    /// Answers NTP clients over IPv4, like [`Answer::attach`].
    ///
    /// # Errors
    /// Those of [`Answer::attach`].
    pub fn attach_ntp(interface: &str, port: u16) -> Result<Self, Error> {
        Self::with("answer_ntp", NTP, interface, port)
    }

    fn with(program: &'static str, object: &[u8], interface: &str, port: u16) -> Result<Self, Error> {
        let mut loader = EbpfLoader::new();
        loader.override_global("port", &port, true);
        let attached = attach::xdp(program, &mut loader, object, interface)?;
        Ok(Self { _attached: attached })
    }
}
