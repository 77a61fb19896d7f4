//! Lets everything through; its presence switches NAPI on at a veth's end.

use aya::EbpfLoader;

use crate::Error;
use crate::attach::{self, Attached, object};

/// An XDP program that passes every frame, attached until dropped.
///
/// An end of a veth pair takes frames sent from XDP on the other end only while it has NAPI, which an attached program
/// brings (`drivers/net/veth.c`). Ordinary traffic is copied once more on its way through: attach it where XDP frames
/// arrive and nowhere else.
#[derive(Debug)]
pub struct Pass {
    _attached: Attached,
}

impl Pass {
    /// Attaches to `interface` in the calling thread's network namespace.
    ///
    /// # Errors
    /// No such interface, no native XDP, another program attached, no permission.
    pub fn attach(interface: &str) -> Result<Self, Error> {
        let attached = attach::xdp("pass", &mut EbpfLoader::new(), object!("pass"), interface)?;
        Ok(Self { _attached: attached })
    }
}
