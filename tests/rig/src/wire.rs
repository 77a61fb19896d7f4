//! How long a server holds each request, by the kernel's clock at its end of the link: what a generator's latencies are
//! compared with.

use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;

use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::{Ebpf, EbpfError, EbpfLoader};
use udpath_bpf::SharedArray;

/// The compiled programs, aligned for the ELF reader.
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/wire.o"));
const NAME: &str = "wire";
/// Requests whose times are kept, as in wire.bpf.c.
const MOST: usize = 1 << 20;

/// Times the requests for one port until dropped.
#[derive(Debug)]
pub struct Wire {
    held: SharedArray,
    answered: SharedArray,
    _object: Ebpf,
}

impl Wire {
    /// Attaches to `interface`, the server's, in the calling thread's network namespace: native XDP for what arrives
    /// for `port`, tc for what leaves from it.
    ///
    /// # Errors
    /// No such interface, no native XDP, another program attached, no permission, or a kernel before 6.6.
    pub fn attach(interface: &str, port: u16) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut object = EbpfLoader::new().override_global("port", &port, true).load(OBJECT)?;
        let arrives: &mut Xdp = of(&mut object, "arrives")?;
        arrives.load()?;
        arrives.attach(interface, XdpMode::Driver)?;
        let leaves: &mut SchedClassifier = of(&mut object, "leaves")?;
        leaves.load()?;
        let last = TcAttachOptions::TcxOrder(LinkOrder::last());
        leaves.attach_with_options(interface, TcAttachType::Egress, last)?;
        let held = SharedArray::map(&object, NAME, "held", MOST, 1)?;
        let answered = SharedArray::map(&object, NAME, "answered", 1, 1)?;
        Ok(Self { held, answered, _object: object })
    }

    /// Nanoseconds that each answered request was held, in the order of the answers.
    #[must_use]
    pub fn held(&self) -> Vec<u64> {
        let answered = self.answered.element(0)[0].load(Relaxed) as usize;
        (0..answered.min(MOST)).map(|index| self.held.element(index)[0].load(Relaxed)).collect()
    }
}

fn of<'o, P>(object: &'o mut Ebpf, name: &str) -> Result<&'o mut P, EbpfError>
where
    &'o mut P: TryFrom<&'o mut aya::programs::Program, Error = aya::programs::ProgramError>,
{
    let program = object.program_mut(name).expect("wire.bpf.c has it");
    Ok(program.try_into()?)
}
