//! Echoes UDP from the driver: the cheapest possible server.

use aya::EbpfLoader;

use udpath_bpf::Error;
use udpath_bpf::attach::{self, Attached};

/// The compiled program, aligned for the ELF reader.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/answer.o"));

/// An XDP program that sends every plain UDP frame for one port straight back, attached until dropped.
///
/// Measured against it, a generator's figures include almost no server time.
#[derive(Debug)]
pub struct Answer {
    _attached: Attached,
}

impl Answer {
    /// Attaches to `interface` in the calling thread's network namespace, answering on `port`.
    ///
    /// # Errors
    /// No such interface, no native XDP, another program attached, or no permission.
    pub fn attach(interface: &str, port: u16) -> Result<Self, Error> {
        let mut loader = EbpfLoader::new();
        loader.override_global("port", &port, true);
        let attached = attach::xdp("answer", &mut loader, OBJECT, interface)?;
        Ok(Self { _attached: attached })
    }
}
