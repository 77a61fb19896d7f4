//! Passes every packet; attaching it enables NAPI on one end of a veth pair.

use std::os::fd::{AsFd, BorrowedFd};

use aya::programs::{ProgramFd, Xdp};
use aya::{Ebpf, EbpfLoader};

use crate::Error;
use crate::attach::{self, Attached, object};
use crate::error::Cause;

const NAME: &str = "pass";

/// An XDP program that passes every frame, attached until dropped.
///
/// One end of a veth pair accepts frames sent from XDP on the other end only with NAPI enabled, which an attached
/// program does (`drivers/net/veth.c`). Ordinary traffic is copied one more time: attach it only where XDP frames
/// arrive.
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
        let attached = attach::xdp(NAME, &mut EbpfLoader::new(), object!("pass"), interface)?;
        Ok(Self { _attached: attached })
    }
}

/// The same program, loaded but not attached: for interfaces that keep it for their whole lifetime.
#[derive(Debug)]
pub struct PassProgram {
    fd: ProgramFd,
    _object: Ebpf,
}

impl PassProgram {
    /// Loads the program.
    ///
    /// # Errors
    /// No permission.
    pub fn load() -> Result<Self, Error> {
        let object = attach::load_xdp(NAME, &mut EbpfLoader::new(), object!("pass"))?;
        let failed = |source: Cause| Error::Load { program: NAME, source };
        let program: &Xdp = object
            .program(NAME)
            .ok_or_else(|| failed("the object has no program of that name".into()))?
            .try_into()
            .map_err(|error: aya::programs::ProgramError| failed(attach::cause(&error)))?;
        let fd = program
            .fd()
            .map_err(|error| failed(attach::cause(&error)))?
            .try_clone()
            .map_err(|error| failed(error.into()))?;
        Ok(Self { fd, _object: object })
    }
}

impl AsFd for PassProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
